"""What PHPMQ's clients put back (005) goes out once by every other way, and counts on within its group, also over a SIGKILL."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from polymq.clients.log import LogClient
from polymq.clients.nats import NatsSubscriber
from polymq.clients.nsq import NsqConsumer
from polymq.clients.rocketmq import ConsumeOptions, RocketMQConsumer
from polymq.protocols.phpmq import frames
from polymq.testing.server import PolymqServer
from polymq.wire.records import columns
from tests.interop.phpmq_servers import Hand

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOPIC = "around"
BODIES = [b"1", b"2", b"3"]
LAST = b"last"
ROUNDS = 5
PATIENCE_S = 30


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PolymqServer]:
    with PolymqServer(tmp_path, {"phpmq.group": "workers", "server.on_disconnect": "requeue"}) as started:
        yield started


def put_back(server: PolymqServer) -> None:
    """Publish, put everything back some times, and publish what is behind it all."""
    with Hand(server.phpmq) as hand:
        hand.send(b"".join(frames.send(TOPIC, body) for body in BODIES) + frames.consume(TOPIC, len(BODIES)))
        for _ in range(ROUNDS):
            found = hand.take(len(BODIES), seconds=PATIENCE_S)
            assert sorted(each.content for each in found) == BODIES
            hand.send(b"".join(frames.requeue(TOPIC, each.id, ttl_s=1000) for each in found))
        # That they are out once more says that all copies are written.
        assert sorted(each.content for each in hand.take(len(BODIES), seconds=PATIENCE_S)) == BODIES
        hand.send(frames.consume(TOPIC, 0) + frames.send(TOPIC, LAST))


def shown(server: PolymqServer, topic: str) -> tuple[list[bytes], int]:
    """What the source for Spark makes rows of, and how many offsets there are."""
    with closing(LogClient(server.http)) as client:
        (info,) = client.topic(topic).partitions
        chunk = client.records(topic, 0, 0, end=info.readable, size_bytes_max=1 << 20)
    found = columns(chunk.data, 0, len(chunk.data), 0, info.readable)
    ends = found.body_ends
    return [bytes(found.bodies[ends[row] : ends[row + 1]]) for row in range(found.count)], info.readable


def polymq(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "polymq.cli", *arguments], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def heard(server: PolymqServer) -> list[bytes]:
    """What somebody hears who listens to the topic by NATS."""
    bodies: list[bytes] = []
    async with NatsSubscriber(server.nats, TOPIC) as subscriber:
        work = threading.Thread(target=put_back, args=(server,))
        work.start()
        async for message in subscriber:
            bodies.append(message.body)
            if message.body == LAST:
                break
        await asyncio.to_thread(work.join)
    return bodies


async def pulled(server: PolymqServer) -> list[bytes]:
    bodies: list[bytes] = []
    async with RocketMQConsumer(server.rocketmq, "watch", TOPIC, consuming=ConsumeOptions(begin_from="first")) as consumer:
        async for message in consumer:
            bodies.append(message.body)
            message.settle()
            if message.body == LAST:
                return bodies
    raise AssertionError("it ended before the last message")


async def attempts(server: PolymqServer) -> dict[bytes, int]:
    """How often the group has had each, as a member by NSQ is told."""
    found: dict[bytes, int] = {}
    async with NsqConsumer(server.nsq, TOPIC, "workers", max_in_flight=100) as consumer:
        async for message in consumer:
            # A kill may leave what was put back beside its copy.
            found[message.body] = max(message.attempts, found.get(message.body, 0))
            message.settle()
            if len(found) == len(BODIES) + 1:
                break
    return found


def test_what_a_queue_puts_back_goes_out_once_and_counts_on(server: PolymqServer) -> None:
    once = [*BODIES, LAST]
    assert asyncio.run(asyncio.wait_for(heard(server), PATIENCE_S)) == once
    server.kill()
    server.start()
    assert asyncio.run(asyncio.wait_for(pulled(server), PATIENCE_S)) == once
    assert shown(server, TOPIC) == (once, len(BODIES) * (ROUNDS + 1) + 1)
    assert polymq("tail", TOPIC, "--from", "start", "--format", "body", "--http", server.http).encode().split() == once
    polymq("bridge", f"polymq://{server.http}/{TOPIC}", f"nsq://{server.nsq}/moved")
    assert shown(server, "moved") == (once, len(once))
    found = asyncio.run(asyncio.wait_for(attempts(server), PATIENCE_S))
    assert found.pop(LAST) == 1
    assert found == dict.fromkeys(BODIES, ROUNDS + 1)
