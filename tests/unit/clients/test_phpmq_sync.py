from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import pytest

from polymq.clients.phpmq_sync import Consumer, PhpmqOptions, Producer
from polymq.errors import DeadlineExceeded, LocalProtocolError
from polymq.protocols.phpmq import frames
from tests.unit.clients.phpmq_server import Server, dispatch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Running:
    """The server in a thread of its own."""

    def __init__(self, folder: Path, greeting: bytes) -> None:
        self._ready = threading.Event()
        self._folder, self._greeting = folder, greeting
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._thread.start()
        assert self._ready.wait(5)

    async def _run(self) -> None:
        self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
        async with Server(self._folder, self._greeting) as self.server:
            self._ready.set()
            await self._end.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    found = Running(tmp_path, b"".join(dispatch(b"%d" % index, index) for index in range(4)))
    yield found
    found.close()


def test_a_script_sends_and_consumes(running: Running) -> None:
    address = running.server.address
    with Producer(address) as producer:
        producer.publish("q", b"a", ttl_seconds=3)
        producer.publish_many("q", [b"b"])
    assert frames.send("q", b"a", ttl_s=3) + frames.send("q", b"b") in running.server.received
    with Consumer(address, "q", window=4) as consumer:
        messages = consumer.messages(timeout_seconds=5)
        found = [next(messages) for _ in range(4)]
        found[0].settle()
        found[1].requeue(ttl_seconds=7)
        found[2].dead_letter()
        with pytest.raises(LocalProtocolError):
            found[0].settle()
        with pytest.raises(LocalProtocolError):
            found[3].requeue(ttl_seconds=-1)
        assert found[3].is_current
        assert list(consumer.messages(timeout_seconds=0.01)) == []
    ids = [b"%032d" % index for index in range(3)]
    expected = frames.acknowledge("q", ids[:1]) + frames.requeue("q", ids[1], ttl_s=7) + frames.dead_letter("q", ids[2])
    assert expected in running.server.received
    producer.close()
    consumer.close()
    assert list(consumer) == []


def test_nobody_there(tmp_path: Path) -> None:
    options = PhpmqOptions(deadline_seconds=0.05, reconnect_seconds_first=0.01)
    with pytest.raises(DeadlineExceeded):
        Producer(f"unix:{tmp_path}/nobody", options)
    with pytest.raises(DeadlineExceeded):
        Consumer(f"unix:{tmp_path}/nobody", "q", options)
