"""Readers of the matrix: each consumes one topic to its end, over a kill of the broker, and notes what it is shown.

| protocol | by | |
|---|---|---|
| NSQ | pynsq | a channel; finishes everything, and gives a few back the first time |
| NATS | nats-py | a live subscription, which hears what comes while it is connected; and the whole log at the end, by requests |
| RocketMQ | our client | a group; sends a few back |
| PHPMQ | our client | the queue, in a window |
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import time
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import nsq
from nats.aio.client import Client

from polymq.clients.phpmq import PhpmqConsumer, PhpmqOptions
from polymq.clients.rocketmq import ConsumeOptions, RocketMQConsumer, RocketMQOptions
from polymq.clients.rocketmq_messages import RESERVED
from polymq.protocols.rocketmq.names import to_topic
from tests.interop.matrix_table import MARK, Shown
from tests.interop.nats_clients import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.clients.rocketmq import RocketMQMessage
    from polymq.testing.server import PolymqServer

__all__ = ["AGAIN", "LIVE", "READERS", "Reader", "Sighting", "read_log"]

WINDOW = 200
TIMEOUT_S = 20
# Where readers go past a commit, if their protocol has one that they can wait for.
COMMIT_EVERY = 500
# Messages that are given back once by who can: some of the last third, which no kill meddles with.
AGAIN = frozenset(range(7_000, 10_000, 200))
NS_PER_MS = 1_000_000
# Properties that are shown as a field, or that the broker adds to what it has kept for later.
BROKERS = {"KEYS", "TIMER_OUT_MS"}


@dataclass(frozen=True, slots=True)
class Sighting:
    """One delivery: `time_ns` and `attempts` where the protocol tells them."""

    number: int
    shown: Shown
    at_ns: int
    time_ns: int | None = None
    attempts: int | None = None


@dataclass(repr=False, eq=False)
class Reader:
    """One reader of a topic. `numbers` tells a message by its body."""

    server: PolymqServer
    topic: str
    numbers: Mapping[bytes, int]
    sightings: list[Sighting] = field(default_factory=list)
    times: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    invented: list[bytes] = field(default_factory=list)
    # How many deliveries there had been at the kill, from which on they may come again, and when the broker was back.
    safe_until: int = 0
    back_at: int = 0

    async def open(self) -> None:
        """Begin, so that everything comes that is published from now on."""

    async def close(self) -> None:
        """End."""

    def revive(self) -> None:
        """Find the broker again at once, where the client would wait."""

    def settled_before_the_kill(self) -> int:
        """How many of the deliveries so far cannot come again, whatever happens."""
        return max(0, len(self.sightings) - WINDOW)

    @property
    def seen_count(self) -> int:
        return len(self.times)

    def note(self, body: bytes, shown: Shown, *, time_ns: int | None = None, attempts: int | None = None) -> int:
        """Note a delivery; gives its number, -1 for what nobody has published."""
        number = self.numbers.get(body, -1)
        if number < 0:
            self.invented.append(body[:100])
            return -1
        self.times[number] += 1
        self.sightings.append(Sighting(number, shown, time.time_ns(), time_ns, attempts))
        return number

    def is_to_come_again(self, number: int) -> bool:
        """Whether this delivery is to be given back."""
        return number in AGAIN and self.times[number] == 1


class NsqReader(Reader):
    """pynsq, on the loop of the test."""

    async def open(self) -> None:
        self._reader = nsq.Reader(
            topic=self.topic,
            channel="readers-of-nsq",
            message_handler=self._handle,
            nsqd_tcp_addresses=[self.server.nsq],
            max_in_flight=WINDOW,
            max_tries=0,
        )
        assert await eventually(lambda: bool(self._reader.conns), timeout_s=TIMEOUT_S)

    def _handle(self, message: Any) -> bool | None:
        message.enable_async()
        number = self.note(message.body, Shown(), time_ns=message.timestamp, attempts=message.attempts)
        if self.is_to_come_again(number):
            message.requeue(backoff=False, time_ms=0)
        else:
            message.finish()
        return None

    def revive(self) -> None:
        # It would wait for 15 s.
        host, _, port = self.server.nsq.rpartition(":")
        self._reader.connection_attempts.clear()
        self._reader.connect_to_nsqd(host, int(port))

    async def close(self) -> None:
        self._reader.close()
        await asyncio.sleep(0.1)


class NatsReader(Reader):
    """A subscription of nats-py, which is made anew on each connection."""

    async def open(self) -> None:
        self.is_back = asyncio.Event()
        self._client = Client()
        options: dict[str, Any] = {"allow_reconnect": True, "max_reconnect_attempts": -1, "reconnect_time_wait": 0.05}
        await self._client.connect(f"nats://{self.server.nats}", reconnected_cb=self._back, error_cb=quiet, **options)
        await self._client.subscribe(self.topic, cb=self._handle)
        await self._client.flush()

    async def _back(self) -> None:
        # Everything that is published from the answer on is heard.
        await self._client.flush()
        self.is_back.set()

    async def _handle(self, message: Any) -> None:
        assert message.subject == self.topic
        self.note(message.data, Shown(headers=tuple((message.headers or {}).items()), reply=message.reply))

    def settled_before_the_kill(self) -> int:
        return len(self.sightings)

    async def close(self) -> None:
        await self._client.close()


class RocketmqReader(Reader):
    """A member of a group that begins with the oldest message."""

    async def open(self) -> None:
        name = to_topic(self.topic)
        assert name is not None
        options = RocketMQOptions(route_seconds=1, reconnect_seconds_max=0.2)
        self._committed = 0
        self._consumer = RocketMQConsumer(
            self.server.rocketmq, "readers-of-rocketmq", name, options, consuming=ConsumeOptions(begin_from="first")
        )
        await self._consumer.__aenter__()
        self._task = asyncio.create_task(self._consume())

    async def _consume(self) -> None:
        async for message in self._consumer:
            number = self._note(message)
            if self.is_to_come_again(number):
                message.requeue(1)
            else:
                message.settle()
            if len(self.sightings) % COMMIT_EVERY == 0:
                before = len(self.sightings)
                with contextlib.suppress(Exception):
                    await self._consumer.flush()
                    self._committed = before

    def _note(self, message: RocketMQMessage) -> int:
        own = BROKERS | {name for name, value in message.properties.items() if name in RESERVED - {"TAGS"} and value != MARK}
        headers = tuple(sorted(each for each in message.properties.items() if each[0] not in own))
        shown = Shown(key=message.properties.get("KEYS", ""), headers=headers)
        return self.note(message.body, shown, time_ns=message.stored_ms * NS_PER_MS, attempts=message.attempts)

    def settled_before_the_kill(self) -> int:
        return self._committed

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._consumer.close()


class PhpmqReader(Reader):
    """A consumer of the queue."""

    async def open(self) -> None:
        options = PhpmqOptions(reconnect_seconds_first=0.05, reconnect_seconds_max=0.1)
        self._consumer = PhpmqConsumer(self.server.phpmq, self.topic, options, window=WINDOW)
        await self._consumer.__aenter__()
        self._task = asyncio.create_task(self._consume())

    async def _consume(self) -> None:
        async for batch in self._consumer.batches():
            for message in batch:
                self.note(message.content, Shown(ttl_s=message.ttl_seconds))
                message.settle()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._consumer.close()


async def quiet(_: Exception) -> None:
    """What nats-py would log."""


async def read_log(server: PolymqServer, topic: str, numbers: Mapping[bytes, int]) -> tuple[Reader, list[list[int]]]:
    """Read all of a topic by NATS requests: what was shown, and the numbers in the order of each partition."""
    reader = Reader(server, topic, numbers)
    client = Client()
    await client.connect(f"nats://{server.nats}", allow_reconnect=False)
    orders = []
    try:
        answers = await client.subscribe(client.new_inbox())
        await client.publish(f"$POLYMQ.LOG.INFO.{topic}", b"", reply=answers.subject)
        partitions = json.loads((await answers.next_msg(TIMEOUT_S)).data)["partitions"]
        for each in partitions:
            request = json.dumps({"partition": each["partition"], "offset": 0, "count": 1 << 40}).encode()
            await client.publish(f"$POLYMQ.LOG.READ.{topic}", request, reply=answers.subject)
            order: list[int] = []
            while "Polymq-Offset" in (headers := (message := await answers.next_msg(TIMEOUT_S)).headers or {}):
                shown = Shown(headers=own_headers(headers), reply=headers.get("Polymq-Reply", ""))
                order.append(reader.note(message.data, shown, time_ns=int(headers["Polymq-Time-Ns"])))
            assert headers["Status"] == "204", (headers, message.data)
            orders.append(order)
    finally:
        await client.close()
    return reader, orders


def own_headers(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The publisher's headers of a message of the log: with it, or as a whole where some of them could be taken for something else."""
    block = headers.get("Polymq-Block")
    if block is None:
        return tuple(each for each in headers.items() if not each[0].startswith("Polymq-"))
    lines = base64.b64decode(block).decode().split("\r\n")[1:]
    return tuple((name, value.strip()) for name, _, value in (line.partition(":") for line in lines if line))


LIVE = "nats"
READERS: dict[str, Callable[[PolymqServer, str, Mapping[bytes, int]], Reader]] = {
    "nsq": NsqReader,
    "nats": NatsReader,
    "rocketmq": RocketmqReader,
    "phpmq": PhpmqReader,
}
