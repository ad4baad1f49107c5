"""Our client against a real nsqd: `POLYMQ_NSQD` names the program, else it is looked up in PATH."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from polymq.clients.nsq import NsqConsumer, NsqOptions, NsqProducer
from polymq.errors import ConnectFailed, ConnectionLost, DeadlineExceeded, LocalProtocolError, Refusal, RefusalCode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOST = "127.0.0.1"
PORTS = (22150, 22151)
ADDRESS = f"{HOST}:{PORTS[0]}"
OPTIONS = NsqOptions(deadline_seconds=10, reconnect_seconds_first=0.02, reconnect_seconds_max=0.2)


@contextmanager
def nsqd(folder: Path, *flags: str) -> Iterator[subprocess.Popen[bytes]]:
    program = os.environ.get("POLYMQ_NSQD") or shutil.which("nsqd")
    assert program, "no nsqd: set POLYMQ_NSQD, or run peers/build.sh and put its folder into PATH"
    command = [program, f"-tcp-address={ADDRESS}", f"-http-address={HOST}:{PORTS[1]}", f"-data-path={folder}", "-log-level=error", *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection((HOST, PORTS[0])).close()
                break
            except OSError:
                assert process.poll() is None, "nsqd did not start"
                assert time.monotonic() < deadline
                time.sleep(0.02)
        yield process
    finally:
        process.terminate()
        process.wait()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    with nsqd(tmp_path) as process:
        yield process


pytestmark = pytest.mark.timeout(60)


async def take(consumer: NsqConsumer, count: int) -> list[bytes]:
    found = []
    async for message in consumer:
        found.append(message.body)
        message.settle()
        if len(found) == count:
            break
    return found


def test_publish_and_consume(server: object) -> None:
    async def go() -> None:
        bodies = [b"%d" % number for number in range(3000)]
        async with NsqProducer(ADDRESS, OPTIONS) as producer, NsqConsumer(ADDRESS, "t1", "c", OPTIONS, max_in_flight=500) as consumer:
            await producer.publish("t1", b"first")
            await asyncio.gather(*(producer.publish("t1", body) for body in bodies[:1500]))
            await producer.publish_many("t1", bodies[1500:])
            found = await take(consumer, 3001)
            assert sorted(found) == sorted([b"first", *bodies])
            await consumer.flush()
            assert consumer.failures == 0

    asyncio.run(go())


def test_batches_settle_as_a_whole(server: object) -> None:
    async def go() -> None:
        async with NsqProducer(ADDRESS, OPTIONS) as producer:
            await producer.publish_many("t2", [b"%d" % number for number in range(5000)])
        async with NsqConsumer(ADDRESS, "t2", "c", OPTIONS, max_in_flight=2500) as consumer:
            count = 0
            async for batch in consumer.batches():
                count += len(batch.bodies())
                batch.settle()
                if count >= 5000:
                    break
            await consumer.flush()
            assert (count, consumer.failures) == (5000, 0)

    asyncio.run(go())
    stats = urllib.request.urlopen(f"http://{HOST}:{PORTS[1]}/stats?format=json&topic=t2").read()
    assert b'"depth":0' in stats
    assert b'"in_flight_count":0' in stats


def test_requeue_touch_and_attempts(server: object) -> None:
    async def go() -> None:
        async with NsqProducer(ADDRESS, OPTIONS) as producer, NsqConsumer(ADDRESS, "t3", "c", OPTIONS, max_in_flight=1) as consumer:
            await producer.publish("t3", b"x")
            seen = []
            async for message in consumer:
                seen.append((message.body, message.attempts))
                if message.attempts < 3:
                    message.touch()
                    message.requeue()
                    continue
                message.settle()
                with pytest.raises(LocalProtocolError):
                    message.settle()
                break
            await consumer.flush()
            assert seen == [(b"x", 1), (b"x", 2), (b"x", 3)]
            assert consumer.failures == 0

    asyncio.run(go())


def test_a_deferred_message_waits(server: object) -> None:
    async def go() -> None:
        async with NsqProducer(ADDRESS, OPTIONS) as producer, NsqConsumer(ADDRESS, "t4", "c", OPTIONS) as consumer:
            started = time.monotonic()
            await producer.publish("t4", b"later", delay_ms=300)
            await producer.publish("t4", b"now")
            assert await take(consumer, 2) == [b"now", b"later"]
            assert time.monotonic() - started >= 0.3

    asyncio.run(go())


def test_refusals_are_exceptions(server: object) -> None:
    async def go() -> None:
        async with NsqProducer(ADDRESS, OPTIONS) as producer:
            with pytest.raises(LocalProtocolError):
                await producer.publish("a b", b"x")
            with pytest.raises(Refusal) as raised:
                await producer.publish("t", b"x" * (1024 * 1024 + 1))
            assert raised.value.code is RefusalCode.BATCH_TOO_LARGE
            with pytest.raises(LocalProtocolError):
                await producer.publish("t", b"x", delay_ms=10**9)
            # Each of those cost the connection; the next publish finds the server again.
            await producer.publish("t", b"x")

    asyncio.run(go())


def test_closing_gives_back_what_was_not_looked_at(server: object) -> None:
    async def go() -> None:
        async with NsqProducer(ADDRESS, OPTIONS) as producer:
            await producer.publish_many("t5", [b"%d" % number for number in range(50)])
        first = NsqConsumer(ADDRESS, "t5", "c", OPTIONS, max_in_flight=50)
        async with first:
            taken = await take(first, 1)
        async with NsqConsumer(ADDRESS, "t5", "c", OPTIONS, max_in_flight=50) as second:
            taken += await take(second, 1)
        assert len(set(taken)) == 2

    asyncio.run(go())


def test_both_survive_a_restart_of_the_server(tmp_path: Path) -> None:
    async def go() -> None:
        with nsqd(tmp_path) as process:
            producer, consumer = NsqProducer(ADDRESS, OPTIONS), NsqConsumer(ADDRESS, "t6", "c", OPTIONS)
            await producer.__aenter__()
            await consumer.__aenter__()
            await producer.publish("t6", b"before")
            assert await take(consumer, 1) == [b"before"]
            await consumer.flush()
            process.terminate()
            await asyncio.to_thread(process.wait)
        with nsqd(tmp_path):
            await producer.publish("t6", b"after")
            assert await take(consumer, 1) == [b"after"]
            await consumer.close()
            await producer.close()
            with pytest.raises(ConnectionLost):
                await producer.publish("t6", b"too late")

    asyncio.run(go())


def test_no_server() -> None:
    async def go() -> None:
        options = NsqOptions(deadline_seconds=0.3, reconnect_seconds_first=0.05)
        with pytest.raises(DeadlineExceeded, match=str(PORTS[0])):
            await NsqProducer(ADDRESS, options).__aenter__()
        with pytest.raises(DeadlineExceeded, match=str(PORTS[0])):
            await NsqConsumer(ADDRESS, "t", "c", options).__aenter__()

    asyncio.run(go())
    assert issubclass(ConnectFailed, Exception)


def test_heartbeats_are_answered(server: object) -> None:
    async def go() -> None:
        options = NsqOptions(heartbeat_interval_ms=1000, deadline_seconds=5)
        async with NsqConsumer(ADDRESS, "t7", "c", options) as consumer, NsqProducer(ADDRESS, options) as producer:
            # Unanswered, the server would close after two intervals; unheard, we would after two and a half.
            await asyncio.sleep(3.2)
            await producer.publish("t7", b"alive")
            assert await take(consumer, 1) == [b"alive"]
            await consumer.flush()

    asyncio.run(go())
