"""Our consumer of several servers, and the client for scripts, against polymq and nsqd."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from polymq.clients.nsq import NsqOptions, NsqProducer
from polymq.clients.nsq_lookup import LookupOptions, find_servers
from polymq.clients.nsq_subscriber import HandlerOptions, NsqSubscriber
from polymq.clients.sync import Consumer, Message, Producer, Subscriber
from polymq.errors import PolyMQError
from tests.interop.lookup import DIRECTORIES, directory, found, node, started, until
from tests.interop.servers import ROOT, Running, free_ports, running
from tests.interop.test_clients import numbered

if TYPE_CHECKING:
    from pathlib import Path

    from polymq.clients.nsq import NsqMessage

OPTIONS = NsqOptions(deadline_seconds=10)
NSQLOOKUPD = ROOT / ".peers" / "bin" / "nsqlookupd"


async def publish(server: Running, topic: str, bodies: list[bytes]) -> None:
    async with NsqProducer(server.tcp, OPTIONS) as producer:
        await producer.publish_many(topic, bodies)


def test_two_servers_and_a_handler(server: Running, secure: Running, topic: str) -> None:
    async def go() -> None:
        await publish(server, topic, numbered(500))
        await publish(secure, topic, numbered(500))
        seen: Counter[bytes] = Counter()

        async def handle(message: NsqMessage) -> None:
            if message.body == b"7" and message.attempts == 1:
                raise ValueError("not today")
            seen[message.body] += 1
            if seen.total() == 1000:
                enough.set()

        enough = asyncio.Event()
        handling = HandlerOptions(requeue_seconds=0.1, backoff_seconds_first=0.1, backoff_seconds_max=0.2)
        addresses = [server.tcp, secure.tcp]
        async with NsqSubscriber(topic, "c", OPTIONS, addresses=addresses, max_in_flight=50, handling=handling) as subscriber:
            task = asyncio.create_task(subscriber.run(handle, concurrency=5))
            await enough.wait()
            await subscriber.close(1)
            await task
        assert set(seen.values()) == {2}

    asyncio.run(go())
    for each in (server, secure):
        found = each.settled(topic, "c")
        assert (found["message_count"], found["requeue_count"]) == (500, 1)


def test_servers_that_nsqlookupd_knows(tmp_path: Path, topic: str) -> None:
    tcp, http = (f"127.0.0.1:{port}" for port in free_ports(2))
    lookupd = subprocess.Popen(
        [str(NSQLOOKUPD), f"-tcp-address={tcp}", f"-http-address={http}", "-broadcast-address=127.0.0.1"], stderr=subprocess.DEVNULL
    )
    try:
        with running("nsqd", tmp_path, options={"lookupd_tcp_address": tcp}) as server:

            async def known() -> None:
                while await find_servers(http, topic) != {server.tcp}:  # noqa: ASYNC110 - another process
                    await asyncio.sleep(0.05)

            async def go() -> None:
                await publish(server, topic, numbered(10))
                async with asyncio.timeout(20):
                    await known()
                options = LookupOptions(interval_seconds=0.2)
                async with NsqSubscriber(topic, "c", OPTIONS, lookups=[http], lookup=options) as subscriber:
                    found = []
                    async for message in subscriber:
                        found.append(message.body)
                        message.settle()
                        if len(found) == 10:
                            break
                assert found == numbered(10)

            asyncio.run(go())
    finally:
        lookupd.terminate()
        lookupd.wait(10)
    with pytest.raises(PolyMQError):
        asyncio.run(find_servers(http, topic))


def test_scripts(server: Running, topic: str) -> None:
    options = NsqOptions(snappy=True, deadline_seconds=10)
    with Producer(server.tcp, options) as producer, Consumer(server.tcp, topic, "c", options) as consumer:
        producer.publish(topic, b"first")
        producer.publish_many(topic, numbered(1000))
        seen = []
        for message in consumer:
            seen.append(message.body)
            message.settle()
            if len(seen) == 1001:
                break
        assert Counter(seen) == Counter([b"first", *numbered(1000)])
        began = time.monotonic()
        assert list(consumer.messages(timeout_seconds=0.2)) == []
        assert 0.2 <= time.monotonic() - began < 5
    server.settled(topic, "c")


@pytest.mark.parametrize("kind", DIRECTORIES)
def test_scripts_find_their_servers(kind: str, tmp_path: Path, topic: str) -> None:
    """A node of each kind, found through a directory of each kind; one of them comes back after kill -9."""
    known = directory(kind, tmp_path)
    with started(known):
        nodes = [node(each, tmp_path, known.running.tcp) for each in ("nsqd", "polymq")]
        with started(*nodes):
            addresses = sorted(each.running.tcp for each in nodes)
            for each in nodes:
                with Producer(each.running.tcp, OPTIONS) as producer:
                    producer.publish_many(topic, numbered(100))
            until(lambda: sorted(found(known.running, topic)) == addresses)
            seen: list[bytes] = []
            dead = "127.0.0.1:1"
            with Subscriber(topic, "c", OPTIONS, lookups=[dead, known.running.http]) as subscriber:
                assert subscriber.addresses == addresses

                def handle(message: Message) -> None:
                    seen.append(message.body)

                subscriber.run(handle, concurrency=3, timeout_seconds=1)
                assert sorted(seen) == sorted(numbered(100) * 2)
                subscriber.flush()
                nodes[1].kill()
                nodes[1].start()
                with Producer(nodes[1].running.tcp, OPTIONS) as producer:
                    producer.publish(topic, b"again")
                message = next(subscriber.messages(timeout_seconds=20))
                assert message.body == b"again"
                message.settle()
            for each in nodes:
                each.running.settled(topic, "c")
