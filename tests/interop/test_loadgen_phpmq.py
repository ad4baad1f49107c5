"""The PHPMQ half of the load generator against polymq: what it counts is what was sent and acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bench.harness.generator import Generator, LoadError

from polymq.protocols.phpmq import frames
from tests.interop.phpmq_servers import Hand, PhpmqServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PhpmqServer]:
    started = PhpmqServer(tmp_path_factory.mktemp("phpmq"))
    started.start()
    yield started
    started.stop()


@pytest.mark.parametrize("window", [1, 10, 1000])
def test_everything_is_sent_and_acknowledged(server: PhpmqServer, generator: Generator, window: int) -> None:
    queue, count = f"load-{window}", 2345
    sent = generator.run("phpmq-send", server.address, topic=queue, messages=count, size=200)
    assert (sent["messages"], sent["complete"]) == (count, True)
    assert f"{count} messages" in server.ask(f"show {queue}")
    got = generator.run("phpmq-consume", server.address, topic=queue, messages=count, window=window)
    assert got["messages"] == count
    assert got["rate"] > 0
    with Hand(server.address) as hand:
        hand.send(frames.consume(queue, 10))
        assert hand.take(1, seconds=0.2) == []
    assert "0 messages" in server.ask(f"show {queue}")


def test_a_wait_ends_at_the_deadline(server: PhpmqServer, generator: Generator, tmp_path: Path) -> None:
    with pytest.raises(LoadError):
        generator.run("phpmq-consume", server.address, topic="empty", messages=1, deadline_s=0.1)
    with pytest.raises(LoadError):
        generator.run("phpmq-nothing", server.address)
