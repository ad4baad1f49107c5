"""The synchronous face, over a world of this process: sockets on loopback, because a thread cannot live in virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.rocketmq_sync import (
    ConsumeOptions,
    Consumer,
    Message,
    OutgoingMessage,
    PollOptions,
    Producer,
    PullConsumer,
    RocketMQOptions,
)
from polymq.errors import ConnectionLost, DeadlineExceeded, LocalProtocolError
from tests.unit.clients.rocketmq_worlds import Wire, World

if TYPE_CHECKING:
    from collections.abc import Iterator

FIRST = ConsumeOptions(begin_from="first")


class Listening(World):
    """The world of the other tests, with one socket for the name server and the broker."""

    def __init__(self) -> None:
        super().__init__(queues=2)
        self.loop = asyncio.new_event_loop()
        self.address = ""
        self.started = threading.Event()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self.serve(),))

    async def serve(self) -> None:
        self.over = asyncio.Event()
        server = await asyncio.start_server(self.accept, "127.0.0.1", 0, family=socket.AF_INET)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self.brokers = {self.address: self.broker}
        self.started.set()
        async with server:
            await self.over.wait()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        class Client(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                writer.write(data)

            def connection_lost(self, exc: Exception | None) -> None:
                writer.close()

        wire = Wire(self.broker, Client())
        self.broker.wires.append(wire)
        with contextlib.suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(65536):
                wire.arrive(data)
        wire.ended = True
        writer.close()

    def fill(self, count: int) -> None:
        """Store messages from another thread."""

        async def put() -> None:
            for index in range(count):
                self.put("t", b"%d" % index, index % 2)

        asyncio.run_coroutine_threadsafe(put(), self.loop).result(10)


@pytest.fixture
def world() -> Iterator[Listening]:
    found = Listening()
    found.thread.start()
    assert found.started.wait(10)
    yield found
    found.loop.call_soon_threadsafe(found.over.set)
    found.thread.join(10)
    found.loop.close()


def test_send_and_consume(world: Listening) -> None:
    with Producer(world.address, group="p") as producer:
        assert [each.queue_id for each in producer.queues("t")] == [0, 1, 2, 3]
        assert producer.send(OutgoingMessage("t", b"0", tags="x"), select=lambda queues: queues[0]).queue.queue_id == 0
        producer.send_batch([OutgoingMessage("t", b"1", sharding_key=0), OutgoingMessage("t", b"2", sharding_key=0)])
        producer.send_one_way(OutgoingMessage("t", b"3", sharding_key=1))
        producer.close()
        with pytest.raises(ConnectionLost):
            producer.send(OutgoingMessage("t", b""))
    with Consumer(world.address, "g", "t", consuming=FIRST) as consumer:
        found = sorted(message.body for message in consumer.messages(0.5))
        assert found == [b"0", b"1", b"2", b"3"]
        assert ("t", "broker-a", 0) in consumer.queues
    assert world.total("g", "t") == 0  # nothing was settled


def test_handlers_settle_and_fail(world: Listening) -> None:
    world.fill(10)
    seen: list[bytes] = []

    def handle(message: Message) -> None:
        seen.append(message.body)
        if message.body == b"3":
            raise ValueError("no")
        if message.body == b"4":
            message.requeue(5)

    with Consumer(world.address, "g", "t", consuming=FIRST) as consumer:
        consumer.run(handle, concurrency=3, timeout_seconds=0.5)
        consumer.flush()
    assert sorted(seen) == [b"%d" % index for index in range(10)]
    assert sorted(request.ext["delayLevel"] for request in world.broker.asked(36)) == ["0", "5"]
    assert world.total("g", "t") == 10


@pytest.mark.parametrize("concurrency", [1, 2])
def test_an_interrupted_script_sends_nothing_back(world: Listening, concurrency: int) -> None:
    world.fill(10)

    def handle(message: Message) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Consumer(world.address, "g", "t", consuming=FIRST) as consumer:
        consumer.run(handle, concurrency=concurrency)
    assert world.broker.asked(36) == []
    assert world.total("g", "t") == 0


def test_messages_are_ended_once(world: Listening) -> None:
    world.fill(2)
    with Consumer(world.address, "g", "t", consuming=FIRST) as consumer:
        messages = consumer.messages(5)
        first = next(messages)
        assert first.is_current
        first.drop()
        assert not first.is_current
        with pytest.raises(LocalProtocolError, match="settled or given back before"):
            first.settle()
        for _ in range(2):
            next(messages).settle()
        with pytest.raises(LocalProtocolError, match="concurrency"):
            consumer.run(lambda _: None, concurrency=0)
    assert world.total("g", "t") == 2


def test_closing_from_another_thread_ends_the_iteration(world: Listening) -> None:
    consumer = Consumer(world.address, "g", "t", consuming=FIRST)
    timer = threading.Timer(0.2, consumer.close)
    timer.start()
    assert list(consumer) == []
    timer.join()
    consumer.close()


def test_polls(world: Listening) -> None:
    world.fill(6)
    polling = PollOptions(begin_from="first", poll_max=100)
    with PullConsumer(world.address, "g", "t", polling=polling) as consumer:
        found: list[Any] = []
        while messages := consumer.poll(0.5):
            found += messages
        assert len(found) == 6
        consumer.commit()
        queues = sorted(consumer.queues, key=lambda queue: queue.queue_id)
        assert [consumer.committed(queue) for queue in queues] == [3, 3]
        assert [consumer.position(queue) for queue in queues] == [3, 3]
        assert (consumer.begin_offset(queues[0]), consumer.end_offset(queues[0]), consumer.offset_for_time(queues[0], 1)) == (0, 3, 2)
        consumer.seek(queues[0], 2)
        assert [message.queue_offset for message in consumer.poll(1)] == [2]
        consumer.seek_to_end(queues[0])
        assert consumer.poll(0.1) == []
        consumer.seek_to_begin(queues[0])
        assert len(consumer.poll(1)) == 3
        consumer.assign(consumer.queues_of("t")[:1])
        assert len(consumer.queues) == 1
        consumer.subscribe("t")
        assert len(consumer.queues) == 2
        consumer.close()


def test_without_a_server_there_is_no_beginning() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    options = RocketMQOptions(deadline_seconds=0.2)
    begun = time.monotonic()
    with pytest.raises(DeadlineExceeded):
        Producer(address, options)
    with pytest.raises(DeadlineExceeded):
        Consumer(address, "g", "t", options)
    with pytest.raises(DeadlineExceeded):
        PullConsumer(address, "g", "t", options)
    assert time.monotonic() - begun < 10
