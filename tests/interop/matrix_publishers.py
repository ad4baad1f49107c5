"""Publishers of the matrix: each sends some messages and says which of them the broker has acknowledged, in its protocol's way.

| protocol | by | acknowledged by |
|---|---|---|
| NSQ | our client | `OK` |
| NATS | nats-py | the PONG to a PING behind the messages |
| RocketMQ | our client | code 0 |
| PHPMQ | frames | that something is dispatched behind the messages: a message of another queue, which was sent behind them |

None of them sends anything twice by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Protocol

from nats.aio.client import Client
from nats.errors import Error as NatsError

from polymq.clients.nsq import NsqProducer
from polymq.clients.rocketmq import OutgoingMessage, RocketMQOptions, RocketMQProducer
from polymq.errors import PolyMQError
from polymq.protocols.phpmq import frames
from polymq.protocols.rocketmq.names import to_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence

    from polymq.testing.server import PolymqServer
    from tests.interop.matrix_traffic import Parcel

__all__ = ["PUBLISHERS", "Publisher"]

PAUSE_S = 0.05
PATIENCE_S = 20


class Publisher(Protocol):
    """Over one topic, by its core name."""

    def __init__(self, server: PolymqServer, topic: str) -> None: ...
    async def open(self) -> None:
        """Connect, and make the topic if that is what the protocol's publishers do."""

    async def publish(self, parcels: Sequence[Parcel]) -> set[int]:
        """Send some messages once; give the numbers of those that are acknowledged."""

    async def close(self) -> None: ...


async def answered(calls: dict[int, Coroutine[Any, Any, object]]) -> set[int]:
    """The numbers of the calls that did not fail; what fails otherwise than by the connection is a failure of the test."""
    found = await asyncio.gather(*calls.values(), return_exceptions=True)
    for each in found:
        if isinstance(each, BaseException) and not isinstance(each, PolyMQError):
            raise each
    return {number for number, each in zip(calls, found, strict=True) if not isinstance(each, PolyMQError)}


class NsqPublisher:
    """PUB and DPUB."""

    def __init__(self, server: PolymqServer, topic: str) -> None:
        self._topic = topic
        self._producer = NsqProducer(server.nsq)

    async def open(self) -> None:
        await self._producer.__aenter__()

    async def publish(self, parcels: Sequence[Parcel]) -> set[int]:
        publish = self._producer.publish
        return await answered({each.number: publish(self._topic, each.body, delay_ms=each.delay_ms) for each in parcels})

    async def close(self) -> None:
        await self._producer.close()


class RocketmqPublisher:
    """Sends with keys, tags and properties; the answer's subject is a property."""

    def __init__(self, server: PolymqServer, topic: str) -> None:
        name = to_topic(topic)
        assert name is not None
        self._topic = name
        self._producer = RocketMQProducer(server.rocketmq, RocketMQOptions(send_retries=0, send_seconds=PATIENCE_S, route_seconds=1))

    async def open(self) -> None:
        await self._producer.__aenter__()
        assert len(await self._producer.queues(self._topic)) == 4

    async def publish(self, parcels: Sequence[Parcel]) -> set[int]:
        return await answered({each.number: self._producer.send(self._message(each)) for each in parcels})

    def _message(self, parcel: Parcel) -> OutgoingMessage:
        properties = dict(parcel.headers)
        if parcel.reply:
            properties["reply-to"] = parcel.reply
        keys = parcel.key.split()
        return OutgoingMessage(self._topic, parcel.body, parcel.tags, keys, properties, delay_ms=parcel.delay_ms)

    async def close(self) -> None:
        await self._producer.close()


class NatsPublisher:
    """PUB and HPUB by nats-py, and a PING. A connection that is lost is not looked after: nats-py would send again by itself."""

    def __init__(self, server: PolymqServer, topic: str) -> None:
        self._url = f"nats://{server.nats}"
        self._topic = topic
        self._client: Client | None = None
        self._lost = asyncio.Event()

    async def open(self) -> None:
        await self._connected()

    async def _connected(self) -> Client:
        if self._client is None or not self._client.is_connected:
            await self.close()
            self._lost = lost = asyncio.Event()

            async def closed() -> None:
                lost.set()

            client = Client()
            await client.connect(self._url, allow_reconnect=False, closed_cb=closed, error_cb=quiet)
            self._client = client
        return self._client

    async def publish(self, parcels: Sequence[Parcel]) -> set[int]:
        try:
            client = await self._connected()
            for each in parcels:
                await client.publish(self._topic, each.body, reply=each.reply, headers=dict(each.headers) or None)
            flushed = asyncio.ensure_future(client.flush(timeout=PATIENCE_S))
            ended = asyncio.ensure_future(self._lost.wait())
            await asyncio.wait({flushed, ended}, return_when=asyncio.FIRST_COMPLETED)
            ended.cancel()
            # A flush of a connection that has just ended returns as well.
            if flushed.done() and flushed.exception() is None and client.is_connected:
                return {each.number for each in parcels}
            flushed.cancel()
        except (NatsError, OSError):
            await asyncio.sleep(PAUSE_S)
        return set()

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


async def quiet(_: Exception) -> None:
    """What nats-py would log."""


class PhpmqPublisher:
    """001, and one more for a queue that this connection consumes: when that comes back, what was sent before it is safe."""

    def __init__(self, server: PolymqServer, topic: str) -> None:
        host, _, port = server.phpmq.rpartition(":")
        self._place = host, int(port)
        self._topic = topic
        self._mark = f"{topic}.mark"
        self._connection: tuple[asyncio.StreamReader, asyncio.StreamWriter, frames.FrameReader] | None = None
        self._marks = 0

    async def open(self) -> None:
        reader, writer = await asyncio.open_connection(*self._place, limit=1 << 20)
        writer.write(frames.consume(self._mark, 1))
        self._connection = reader, writer, frames.FrameReader()

    async def publish(self, parcels: Sequence[Parcel]) -> set[int]:
        try:
            if self._connection is None:
                await self.open()
            assert self._connection is not None
            _, writer, _ = self._connection
            for each in parcels:
                writer.write(frames.send(self._topic, each.body, ttl_s=each.ttl_s))
            self._marks += 1
            mark = b"%d" % self._marks
            writer.write(frames.send(self._mark, mark))
            await writer.drain()
            while await self._next_mark() != mark:
                pass
        except OSError:
            await self.close()
            await asyncio.sleep(PAUSE_S)
            return set()
        return {each.number for each in parcels}

    async def _next_mark(self) -> bytes:
        assert self._connection is not None
        reader, writer, found = self._connection
        while data := await reader.read(1 << 16):
            for message in found.feed(data):
                assert isinstance(message, frames.WireMessage)
                writer.write(frames.acknowledge(self._mark, [message.id]))
                return message.content
        raise ConnectionResetError

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection[1].close()
            with contextlib.suppress(OSError):
                await connection[1].wait_closed()


PUBLISHERS: dict[str, Callable[[PolymqServer, str], Publisher]] = {
    "nsq": NsqPublisher,
    "nats": NatsPublisher,
    "rocketmq": RocketmqPublisher,
    "phpmq": PhpmqPublisher,
}
