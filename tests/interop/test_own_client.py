"""Our own asyncio client, against polymq and against nsqd."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from polymq.clients.nsq import NsqConsumer, NsqOptions, NsqProducer
from polymq.errors import ConnectionLost, DeadlineExceeded, LocalProtocolError, Refusal, RefusalCode
from tests.interop.conftest import chosen_kinds
from tests.interop.servers import answers, command, free_ports

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.interop.servers import Running

OPTIONS = NsqOptions(deadline_seconds=10, reconnect_seconds_first=0.02, reconnect_seconds_max=0.2)


async def take(consumer: NsqConsumer, count: int) -> list[bytes]:
    found = []
    async for message in consumer:
        found.append(message.body)
        message.settle()
        if len(found) == count:
            break
    return found


def test_publish_and_consume(server: Running, topic: str) -> None:
    async def go() -> None:
        bodies = [b"%d" % number for number in range(3000)]
        async with (
            NsqProducer(server.tcp, OPTIONS) as producer,
            NsqConsumer(server.tcp, topic, "c", OPTIONS, max_in_flight=500) as consumer,
        ):
            await producer.publish(topic, b"first")
            await asyncio.gather(*(producer.publish(topic, body) for body in bodies[:1500]))
            await producer.publish_many(topic, bodies[1500:])
            assert sorted(await take(consumer, 3001)) == sorted([b"first", *bodies])
            await consumer.flush()
            assert consumer.failures == 0

    asyncio.run(go())
    server.settled(topic, "c")


def test_batches_settle_as_a_whole(server: Running, topic: str) -> None:
    async def go() -> None:
        async with NsqProducer(server.tcp, OPTIONS) as producer:
            await producer.publish_many(topic, [b"%d" % number for number in range(5000)])
        async with NsqConsumer(server.tcp, topic, "c", OPTIONS, max_in_flight=2500) as consumer:
            count = 0
            async for batch in consumer.batches():
                count += len(batch.bodies())
                batch.settle()
                if count >= 5000:
                    break
            await consumer.flush()
            assert (count, consumer.failures) == (5000, 0)

    asyncio.run(go())
    # flush() has waited for it: nothing is left for `settled` to wait for.
    found = server.channel(topic, "c")
    assert (found["depth"], found["in_flight_count"]) == (0, 0)


def test_requeue_touch_and_attempts(server: Running, topic: str) -> None:
    async def go() -> None:
        async with NsqProducer(server.tcp, OPTIONS) as producer, NsqConsumer(server.tcp, topic, "c", OPTIONS, max_in_flight=1) as consumer:
            await producer.publish(topic, b"x")
            seen = []
            async for message in consumer:
                seen.append((message.body, message.attempts))
                message.touch()
                if message.attempts == 3:
                    message.settle()
                    break
                message.requeue()
            await consumer.flush()
            assert seen == [(b"x", 1), (b"x", 2), (b"x", 3)]
            assert consumer.failures == 0

    asyncio.run(go())


def test_a_deferred_message_waits(server: Running, topic: str) -> None:
    async def go() -> None:
        async with NsqProducer(server.tcp, OPTIONS) as producer, NsqConsumer(server.tcp, topic, "c", OPTIONS) as consumer:
            started = time.monotonic()
            await producer.publish(topic, b"later", delay_ms=300)
            await producer.publish(topic, b"now")
            # nsqd may be five seconds late on a new channel.
            assert await take(consumer, 2) == [b"now", b"later"]
            assert time.monotonic() - started >= 0.3

    asyncio.run(go())


def test_refusals_are_exceptions(server: Running, topic: str) -> None:
    async def go() -> None:
        async with NsqProducer(server.tcp, OPTIONS) as producer:
            with pytest.raises(LocalProtocolError):
                await producer.publish("a b", b"x")
            with pytest.raises(Refusal) as raised:
                await producer.publish(topic, b"x" * (1024 * 1024 + 1))
            assert raised.value.code is RefusalCode.BATCH_TOO_LARGE
            with pytest.raises(LocalProtocolError):
                await producer.publish(topic, b"x", delay_ms=10**9)
            # The last two cost the connection; the next publish finds the server again.
            await producer.publish(topic, b"x")

    asyncio.run(go())


def test_closing_gives_back_what_was_not_looked_at(server: Running, topic: str) -> None:
    async def go() -> None:
        async with NsqProducer(server.tcp, OPTIONS) as producer:
            await producer.publish_many(topic, [b"%d" % number for number in range(50)])
        async with NsqConsumer(server.tcp, topic, "c", OPTIONS, max_in_flight=50) as first:
            taken = await take(first, 1)
        async with NsqConsumer(server.tcp, topic, "c", OPTIONS, max_in_flight=50) as second:
            taken += await take(second, 49)
        assert len(set(taken)) == 50

    asyncio.run(go())


def test_heartbeats_are_answered(server: Running, topic: str) -> None:
    async def go() -> None:
        options = NsqOptions(heartbeat_interval_ms=1000, deadline_seconds=5)
        async with NsqConsumer(server.tcp, topic, "c", options) as consumer, NsqProducer(server.tcp, options) as producer:
            # Unanswered, the server would close after two intervals; unheard, the client would after two and a half.
            await asyncio.sleep(3.2)
            await producer.publish(topic, b"alive")
            assert await take(consumer, 1) == [b"alive"]
            await consumer.flush()

    asyncio.run(go())


def test_no_server() -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"

    async def go() -> None:
        options = NsqOptions(deadline_seconds=0.3, reconnect_seconds_first=0.05)
        with pytest.raises(DeadlineExceeded, match=str(port)):
            await NsqProducer(address, options).__aenter__()
        with pytest.raises(DeadlineExceeded, match=str(port)):
            await NsqConsumer(address, "t", "c", options).__aenter__()

    asyncio.run(go())


@contextmanager
def started(kind: str, folder: Path, ports: list[int]) -> Iterator[subprocess.Popen[bytes]]:
    """A server on given ports, so that it can be started again where it was."""
    process = subprocess.Popen(command(kind, folder, ports, 60_000), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 20
        while not answers(f"127.0.0.1:{ports[1]}"):
            assert process.poll() is None, f"{kind} did not start"
            assert time.monotonic() < deadline, f"{kind} does not answer"
            time.sleep(0.02)
        socket.create_connection(("127.0.0.1", ports[0])).close()
        yield process
    finally:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("kind", chosen_kinds())
def test_both_survive_a_restart_of_the_server(kind: str, tmp_path: Path) -> None:
    ports = free_ports(3)
    address = f"127.0.0.1:{ports[0]}"
    folder = tmp_path / "data"
    folder.mkdir()

    async def go() -> None:
        producer, consumer = NsqProducer(address, OPTIONS), NsqConsumer(address, "restart", "c", OPTIONS)
        with started(kind, folder, ports) as process:
            await producer.__aenter__()
            await consumer.__aenter__()
            await producer.publish("restart", b"before")
            assert await take(consumer, 1) == [b"before"]
            await consumer.flush()
            process.terminate()
            await asyncio.to_thread(process.wait)
        with started(kind, folder, ports):
            await producer.publish("restart", b"after")
            assert await take(consumer, 1) == [b"after"]
            await consumer.close()
            await producer.close()
            with pytest.raises(ConnectionLost):
                await producer.publish("restart", b"too late")

    asyncio.run(go())
