"""Topics and channels managed at random over HTTP, on a real nsqd and on polymq side by side: answers and statistics stay the same.

Deferred publishes are left out: nsqd hands one to the channels that are there at once, polymq to those that are there when it is due.
"""

from __future__ import annotations

import random
import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.servers import Running, running

if TYPE_CHECKING:
    from collections.abc import Iterator

STEPS = 40
PATIENCE_S = 10.0
TOPICS = ("a", "b%23ephemeral", "c")
CHANNELS = ("x", "y", "z%23ephemeral")
OF_TOPICS = ("create", "delete", "empty", "pause", "unpause")
OF_CHANNELS = ("create", "create", "delete", "empty", "pause", "unpause")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, Running]]:
    with running("nsqd", tmp_path_factory.mktemp("nsqd")) as nsqd, running("polymq", tmp_path_factory.mktemp("polymq")) as polymq:
        yield nsqd, polymq


def statistics(server: Running, form: str) -> str:
    text = server.request("GET", f"/stats?format={form}&include_mem=false")[1].decode()
    return re.sub(r'"start_time":\d+|start_time \S+|uptime \S+|built w/\S+', "", text)


def request(chance: random.Random, seed: int) -> tuple[str, bytes]:
    topic = f"s{seed}{chance.choice(TOPICS)}"
    kind = chance.choice(("topic", "channel", "channel", "pub", "mpub"))
    if kind == "topic":
        return f"/topic/{chance.choice(OF_TOPICS)}?topic={topic}", b""
    if kind == "channel":
        return f"/channel/{chance.choice(OF_CHANNELS)}?topic={topic}&channel={chance.choice(CHANNELS)}", b""
    return f"/{kind}?topic={topic}", b"one\ntwo"


@pytest.mark.parametrize("seed", range(8))
def test_any_order_of_requests(both: tuple[Running, Running], seed: int) -> None:
    chance = random.Random(seed)
    done: list[str] = []
    for _ in range(STEPS):
        path, body = request(chance, seed)
        done.append(path)
        wanted, found = (server.request("POST", path, body) for server in both)
        assert found == wanted, done
        # nsqd moves messages from topics to channels when it finds the time.
        deadline = time.monotonic() + PATIENCE_S
        while statistics(both[0], "json") != statistics(both[1], "json") and time.monotonic() < deadline:
            time.sleep(0.02)
        for form in ("json", "text"):
            assert statistics(both[1], form) == statistics(both[0], form), done
