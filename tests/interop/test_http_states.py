"""Topics and channels managed at random over HTTP, on a real nsqd and on polymq side by side: answers and statistics stay the same.

Deferred publishes are left out: nsqd hands one to the channels that are there at once, polymq to those that are there when it is due.
"""

from __future__ import annotations

import contextlib
import random
import re
import time
from typing import TYPE_CHECKING

import pytest

from tests.interop.raw import Raw, parse_message
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


class Consumer:
    """A client of one server, which does what the other's does."""

    def __init__(self, server: Running, topic: str) -> None:
        self.server = server
        self.topic = topic
        self.raw = Raw(server.tcp, client_id="one", hostname="host", user_agent="made up/1")
        self.raw.subscribe(topic, "ch")
        self.raw.socket.settimeout(0.03)
        self.held: list[bytes] = []

    def receive(self) -> None:
        """Take the messages that have come; error frames are left out."""
        with contextlib.suppress(TimeoutError):
            while True:
                kind, data = self.raw.frame()
                if kind == 2:
                    self.held.append(parse_message(data).id)

    def act(self, what: str, count: int) -> None:
        if what == "publish":
            assert self.server.request("POST", f"/mpub?topic={self.topic}", b"\n".join([b"abc"] * (count + 1)))[0] == 200
        elif what == "ready":
            self.raw.send(b"RDY %d\n" % count)
        elif what == "finish a stranger":
            self.raw.send(b"FIN 0123456789abcdef\n")
        elif self.held:
            message_id = self.held[min(count, len(self.held) - 1)]
            if what != "touch":
                self.held.remove(message_id)
            ends = {"finish": b"", "touch": b"", "give back": b" 0", "give back for later": b" 600000"}
            command = {"finish": b"FIN ", "touch": b"TOUCH "}.get(what, b"REQ ")
            self.raw.send(command + message_id + ends[what] + b"\n")


ACTIONS = ("publish", "publish", "ready", "finish", "finish", "finish", "give back", "give back for later", "touch", "finish a stranger")


def of_clients(server: Running, form: str) -> str:
    text = re.sub(r'"connect_ts":\d+|connected: \S+', "", statistics(server, form))
    return re.sub(r"(127\.0\.0\.1|host):\d+", r"\1:<PORT>", text)


@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_commands(both: tuple[Running, Running], seed: int) -> None:
    chance = random.Random(seed)
    done: list[tuple[str, int]] = []
    consumers = [Consumer(server, f"commands-{seed}") for server in both]
    for _ in range(STEPS):
        done.append((chance.choice(ACTIONS), chance.randrange(4)))
        for consumer in consumers:
            consumer.act(*done[-1])
        deadline = time.monotonic() + PATIENCE_S
        wanted: object = None
        found: object = done
        while found != wanted and time.monotonic() < deadline:
            for consumer in consumers:
                consumer.receive()
            wanted, found = (
                (len(consumer.held), *(of_clients(consumer.server, form) for form in ("json", "text"))) for consumer in consumers
            )
        assert found == wanted, done
    for consumer in consumers:
        consumer.raw.socket.close()
        assert consumer.server.request("POST", f"/topic/delete?topic={consumer.topic}")[0] == 200
