from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from polymq.clients.phpmq import PhpmqConsumer, PhpmqMessage, PhpmqOptions, PhpmqProducer
from polymq.errors import ConnectionLost, DeadlineExceeded, LocalProtocolError, RemoteProtocolError
from polymq.protocols.phpmq import frames
from tests.unit.clients.phpmq_server import Server, dispatch

if TYPE_CHECKING:
    from pathlib import Path

SOON = PhpmqOptions(deadline_seconds=5, reconnect_seconds_first=0.001, reconnect_seconds_max=0.002)
LEGACY = PhpmqOptions(legacy=True, deadline_seconds=5, reconnect_seconds_first=0.001)


async def take(consumer: PhpmqConsumer, count: int) -> list[PhpmqMessage]:
    found: list[PhpmqMessage] = []
    async with asyncio.timeout(5):
        async for message in consumer:
            found.append(message)
            if len(found) == count:
                break
    return found


def test_a_producer_sends_in_its_dialect(tmp_path: Path) -> None:
    async def run() -> None:
        async with Server(tmp_path) as server:
            async with PhpmqProducer(server.address, SOON) as producer:
                await producer.publish("q", b"a", ttl_seconds=9)
                await producer.publish_many(b"q", [b"b", b"c"])
            assert bytes(server.received) == frames.send("q", b"a", ttl_s=9) + frames.send("q", b"b") + frames.send("q", b"c")
            server.received.clear()
            async with PhpmqProducer(server.address, LEGACY) as producer:
                await producer.publish("q", b"a")
                with pytest.raises(LocalProtocolError):
                    await producer.publish("q", b"a", ttl_seconds=1)
            assert bytes(server.received) == frames.send("q", b"a", ttl_s=None)

    asyncio.run(run())


def test_a_producer_says_that_something_may_be_lost_and_goes_on(tmp_path: Path) -> None:
    async def run() -> None:
        async with Server(tmp_path) as server:
            async with PhpmqProducer(server.address, SOON) as producer:
                await producer.publish("q", b"a")
                await server.has(b"a")
                server.hang_up()
                connection = producer._connection
                assert connection is not None
                await connection.lost
                with pytest.raises(ConnectionLost):
                    await producer.publish("q", b"b")
                await producer.publish("q", b"c")
            assert server.connections == 2
            with pytest.raises(ConnectionLost):
                await producer.publish("q", b"d")

    asyncio.run(run())


def test_a_producer_without_a_server_gives_up_in_time(tmp_path: Path) -> None:
    async def run() -> None:
        options = PhpmqOptions(deadline_seconds=0.05, reconnect_seconds_first=0.001)
        with pytest.raises(DeadlineExceeded):
            async with PhpmqProducer(f"unix:{tmp_path}/nobody", options):
                pass
        with pytest.raises(DeadlineExceeded):
            async with PhpmqConsumer(f"unix:{tmp_path}/nobody", "q", options):
                pass

    asyncio.run(run())


def test_closing_waits_until_the_server_has_read_it(tmp_path: Path) -> None:
    async def run() -> None:
        async with Server(tmp_path) as server:
            server.closing_at_end = False
            producer = await PhpmqProducer(server.address, PhpmqOptions(deadline_seconds=0.05)).__aenter__()
            await producer.publish("q", b"a")
            with pytest.raises(DeadlineExceeded):
                await producer.close()

    asyncio.run(run())


def test_a_consumer_gives_messages_and_says_what_becomes_of_them(tmp_path: Path) -> None:
    async def run() -> None:
        greeting = dispatch(b"a", 1) + dispatch(b"b", 2, ttl=7) + dispatch(b"c", 3, ttl=None)
        async with Server(tmp_path, greeting) as server, PhpmqConsumer(server.address, "q", SOON, window=5) as consumer:
            first, second, third = await take(consumer, 3)
            assert [(each.content, each.ttl_seconds) for each in (first, second, third)] == [(b"a", 0), (b"b", 7), (b"c", 0)]
            first.settle()
            second.requeue(ttl_seconds=5)
            third.dead_letter()
            with pytest.raises(LocalProtocolError):
                first.requeue()
            settled = frames.acknowledge("q", [first.id]) + frames.requeue("q", second.id, ttl_s=5) + frames.dead_letter("q", third.id)
            await server.has(frames.consume("q", 5) + settled)

    asyncio.run(run())


def test_batches(tmp_path: Path) -> None:
    async def run() -> None:
        greeting = b"".join(dispatch(b"%d" % index, index) for index in range(3))
        async with Server(tmp_path, greeting) as server, PhpmqConsumer(server.address, b"q", SOON) as consumer:
            async for batch in consumer.batches():
                assert (len(batch), batch.contents(), batch.queue) == (3, [b"0", b"1", b"2"], b"q")
                next(iter(batch)).settle()
                batch.settle()
                break
            await server.has(frames.acknowledge("q", [b"%032d" % index for index in range(3)]))

    asyncio.run(run())


def test_a_consumer_finds_its_server_again(tmp_path: Path) -> None:
    async def run() -> None:
        async with Server(tmp_path, dispatch(b"a", 1)) as server, PhpmqConsumer(server.address, "q", SOON) as consumer:
            (first,) = await take(consumer, 1)
            server.hang_up()
            (again,) = await take(consumer, 1)
            assert again.is_current
            assert not first.is_current
            first.settle()
            await server.has(frames.acknowledge("q", [first.id]))
            assert server.connections == 2

    asyncio.run(run())


def test_what_is_no_message_ends_a_consumer(tmp_path: Path) -> None:
    async def run() -> None:
        async with Server(tmp_path, b"HTTP/1.1 400 Bad Request\r\n") as server, PhpmqConsumer(server.address, "q", SOON) as consumer:
            with pytest.raises(RemoteProtocolError):
                await take(consumer, 1)
            await consumer.close()
            assert [each async for each in consumer] == []

    asyncio.run(run())


def test_what_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError):
        PhpmqConsumer("h:1", "q", window=0)
    with pytest.raises(LocalProtocolError):
        PhpmqConsumer("h:1", "")
    with pytest.raises(LocalProtocolError):
        PhpmqProducer("nowhere")
