"""`polymq bridge` between servers, ours and real ones: everything arrives with its fields, also when either side is killed on the way."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import itertools
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

import pytest

import polymq
from polymq.clients.broker import Outgoing
from polymq.clients.log import LogClient
from polymq.errors import Refusal
from polymq.testing.server import PolymqServer
from polymq.wire.batch import Message, read_messages
from tests.interop.servers import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from polymq.clients.log import PartitionInfo

TIMEOUT_S = 60.0
NUMBERS = itertools.count()
BODIES = [b"%d:" % number + bytes(range(256)) * (number % 3) for number in range(3000)] + [b"large" + bytes(700_000), b"\r\nPING\r\n"]
COMMAND = (sys.executable, "-m", "polymq.cli", "bridge")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolymqServer]:
    with PolymqServer(tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.fixture(scope="module")
def away(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolymqServer]:
    with PolymqServer(tmp_path_factory.mktemp("away"), {"nats.capture": "copied.>"}) as server:
        yield server


def bridged(*arguments: str, status: int = 0) -> str:
    """Run a bridge to its end; returns what it said."""
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == status, done.stderr
    return done.stderr


def publish(url: str, messages: Sequence[Outgoing]) -> None:
    async def go() -> None:
        async with polymq.connect(url) as broker:
            assert [each for each in await broker.publish_each(messages) if each is not None] == []

    asyncio.run(go())


def stored(server: PolymqServer, topic: str) -> list[list[Message]]:
    """What a topic has, by partition."""
    with contextlib.closing(LogClient(server.http)) as client:
        return [partition_of(client, topic, info) for info in client.topic(topic).partitions]


def partition_of(client: LogClient, topic: str, info: PartitionInfo) -> list[Message]:
    messages: list[Message] = []
    offset = info.start
    while offset < info.readable:
        chunk = client.records(topic, info.partition, offset, end=info.readable, size_bytes_max=1 << 20)
        for at, until, header in chunk.batches():
            messages += read_messages(chunk.data, at, 0, 0, header.count, until)[max(0, offset - header.base_offset) :]
            offset = header.base_offset + header.count
    return messages


def bodies(server: PolymqServer, topic: str) -> Counter[bytes]:
    return Counter(message.body for partition in stored(server, topic) for message in partition)


@pytest.mark.parametrize("protocol", ["nsq", "nats", "rocketmq", "phpmq"])
def test_what_a_channel_of_nsq_has_reaches_every_protocol(home: PolymqServer, away: PolymqServer, protocol: str) -> None:
    source, target = f"bodies-{protocol}", f"copied.{protocol}" if protocol == "nats" else f"copied-{protocol}"
    publish(f"nsq://{home.nsq}", [Outgoing(source, body) for body in BODIES])
    to = f"{protocol}://{getattr(away, protocol)}/{target}"
    said = bridged(f"nsq://{home.nsq}/{source}/move", to, "--idle", "1s")
    assert f"moved {len(BODIES):,} messages" in said
    assert bodies(away, target) == Counter(BODIES)
    assert "moved 0 messages" in bridged(f"nsq://{home.nsq}/{source}/move", to, "--idle", "300ms")  # all of it is settled


@pytest.mark.parametrize("protocol", ["phpmq", "rocketmq"])
def test_groups_of_other_protocols_are_sources(home: PolymqServer, away: PolymqServer, protocol: str) -> None:
    source, target = f"from-{protocol}", f"came-from-{protocol}"
    publish(f"{protocol}://{getattr(home, protocol)}", [Outgoing(source, body) for body in BODIES])
    bridged(f"{protocol}://{getattr(home, protocol)}/{source}", f"nsq://{away.nsq}/{target}", "--count", str(len(BODIES)))
    assert bodies(away, target) == Counter(BODIES)


def test_a_real_nsqd_moves_to_polymq_and_back(home: PolymqServer, tmp_path: Path) -> None:
    with running("nsqd", tmp_path) as nsqd:
        publish(f"nsq://{nsqd.tcp}", [Outgoing("old", body) for body in BODIES])
        bridged(f"nsq://{nsqd.tcp}/old/move", f"rocketmq://{home.rocketmq}/new", "--idle", "1s")
        assert nsqd.settled("old", "move")["message_count"] == len(BODIES)
        assert bodies(home, "new") == Counter(BODIES)
        bridged(f"polymq://{home.http}/new", f"nsq://{nsqd.tcp}/back")
        assert nsqd.topic("back")["depth"] == len(BODIES)


def test_a_message_that_a_real_nsqd_refuses_stops_it_or_is_left_out(home: PolymqServer, tmp_path: Path) -> None:
    large = [Outgoing("sizes", b"%d" % number if number != 700 else Random(1).randbytes(1_500_000), order=0) for number in range(1000)]
    publish(f"rocketmq://{home.rocketmq}", large)
    source = f"polymq://{home.http}/sizes"
    with running("nsqd", tmp_path) as nsqd:
        to, cursor = f"nsq://{nsqd.tcp}/sizes", ("--cursor", str(tmp_path / "cursor"))
        said = bridged(source, to, *cursor, status=1)
        assert "refuses a message of 1500000 bytes: E_BAD_MESSAGE" in said
        assert "--skip-refused" in said
        assert "1 refused and left out" in bridged(source, to, *cursor, "--skip-refused", status=3)
        # What the first run had sent behind the refused one may be there twice, and nothing is missing.
        assert nsqd.topic("sizes")["message_count"] >= 999
        assert "moved 0 messages" in bridged(source, to, *cursor)


def test_fields_and_order_go_over(home: PolymqServer, away: PolymqServer) -> None:
    sent = [
        Outgoing(
            "fields", b"%d" % number, key=f"k{number}", headers={"gate": f"A{number}", "reply-to": "desk"}, tags="red", order=number % 4
        )
        for number in range(400)
    ]
    publish(f"rocketmq://{home.rocketmq}", sent)
    for target in (f"nats://{away.nats}/copied.fields", f"rocketmq://{away.rocketmq}/fields"):
        bridged(f"rocketmq://{home.rocketmq}/fields/{target[:4]}", target, "--count", "400")
    found = {message.body: dict(message.headers) for message in stored(away, "copied.fields")[0]}
    assert len(found) == 400
    assert all(headers[b"TAGS"] == b"red" and headers[b"gate"] == b"A" + body for body, headers in found.items())
    assert all(headers[b"KEYS"] == b"k" + body and headers[b"reply-to"] == b"desk" for body, headers in found.items())
    partitions = [[int(message.body) for message in partition] for partition in stored(away, "fields")]
    assert partitions == [list(range(lane, 400, 4)) for lane in range(4)]

    async def take() -> None:
        async with polymq.connect(f"rocketmq://{away.rocketmq}/board") as broker, broker.subscribe("fields") as subscription:
            (message, *_) = await subscription.take()
            number = int(message.body)
            assert (message.key, message.tags, message.order) == (f"k{number}", "red", number % 4)
            assert message.headers == {"gate": f"A{number}", "reply-to": "desk"}

    asyncio.run(take())


class Copying:
    """A bridge with `--follow` that may be killed and started again."""

    def __init__(self, *arguments: str) -> None:
        self.arguments = arguments
        self.process = self.started()

    def started(self) -> subprocess.Popen[str]:
        self.process = subprocess.Popen([*COMMAND, *self.arguments, "--follow"], stderr=subprocess.PIPE, text=True)
        return self.process

    def ended(self, number: signal.Signals) -> str:
        self.process.send_signal(number)
        said = self.process.communicate(timeout=TIMEOUT_S)[1]
        assert self.process.returncode == (-number if number is signal.SIGKILL else 0), said
        return said


def until(what: str, seen: Callable[[], bool]) -> None:
    """Wait until a function gives something true."""
    deadline = time.monotonic() + TIMEOUT_S
    while not seen():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_what_nats_publishes_is_moved_while_it_is_listened_to(home: PolymqServer, away: PolymqServer) -> None:
    number = next(NUMBERS)
    topic = f"live{number}"
    copying = Copying(f"nats://{home.nats}/live.{number}.*", f"nsq://{away.nsq}/{topic}")

    def has_arrived() -> bool:
        publish(f"nats://{home.nats}", [Outgoing(f"live.{number}.probe", b"probe")])
        with contextlib.suppress(Refusal):
            return bool(bodies(away, topic)[b"probe"])
        return False

    until("the bridge to listen", has_arrived)
    publish(f"nats://{home.nats}", [Outgoing(f"live.{number}.{n % 7}", b"%d" % n) for n in range(1000)])
    until("everything", lambda: len(bodies(away, topic)) >= 1001)
    copying.ended(signal.SIGTERM)
    found = bodies(away, topic)
    del found[b"probe"]
    assert found == Counter(b"%d" % n for n in range(1000))


def moved(cursor: Path) -> int:
    return int(json.loads(cursor.read_text())["moved"]) if cursor.exists() else 0


def test_a_warm_copy_loses_nothing_when_the_bridge_and_the_target_are_killed(home: PolymqServer, tmp_path: Path) -> None:
    topic, count, chunk = f"warm{next(NUMBERS)}", 12_000, 500

    def add(first: int, last: int) -> None:
        for begin in range(first, last, chunk):
            publish(f"rocketmq://{home.rocketmq}", [Outgoing(topic, b"%d" % n, order=n % 4) for n in range(begin, begin + chunk)])

    add(0, 4000)
    cursor = tmp_path / "cursor"
    with PolymqServer(tmp_path / "copy") as copy, concurrent.futures.ThreadPoolExecutor(1) as pool:
        copying = Copying(f"polymq://{home.http}/{topic}", f"rocketmq://{copy.rocketmq}/", "--cursor", str(cursor))
        until("the first messages", lambda: moved(cursor) > 0)
        adding = pool.submit(add, 4000, 8000)
        copying.ended(signal.SIGKILL)
        before = moved(cursor)
        copying.started()
        until("more of them", lambda: moved(cursor) > before)
        adding.result()
        adding = pool.submit(add, 8000, count)
        before = moved(cursor)
        until("still more of them", lambda: moved(cursor) > before)
        copy.kill()
        adding.result()
        copy.start()
        with contextlib.closing(LogClient(home.http)) as client:
            ends = {str(info.partition): info.readable for info in client.topic(topic).partitions}
        until("the ends", lambda: {p: each["offset"] for p, each in json.loads(cursor.read_text())["partitions"].items()} == ends)
        copying.ended(signal.SIGINT)
        found = stored(copy, topic)
    seen = Counter(int(message.body) for partition in found for message in partition)
    assert set(seen) == set(range(count))
    copies = sum(seen.values()) - count
    assert copies < count  # of what was on its way at the two deaths, not of everything
    for lane, partition in enumerate(found):
        firsts = list(dict.fromkeys(int(message.body) for message in partition))
        assert firsts == list(range(lane, count, 4))  # each partition in its order, whatever came twice
