"""The synchronous face, over a server of this process: sockets on loopback, because a thread cannot live in virtual time."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from polymq.clients.nsq_opening import NsqOptions
from polymq.clients.sync import Consumer, Producer
from polymq.errors import ConnectionLost, DeadlineExceeded, LocalProtocolError, Refusal
from polymq.protocols.nsq import events
from tests.unit.clients.worlds import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

OPTIONS = NsqOptions(deadline_seconds=10)


class Listening(Server):
    """The server of the other tests, with sockets: what its wires say is written to the client's connection."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.address = ""
        self._started = threading.Event()
        self.thread = threading.Thread(target=self.loop.run_until_complete, args=(self._serve(),))
        self.ended = threading.Event()  # a client has gone, and all that it said has been heard

    def start(self) -> None:
        self.thread.start()
        assert self._started.wait(10)

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, family=socket.AF_INET)
        self.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._started.set()
        async with server:
            await self._over.wait()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        class Client(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                writer.write(data)

            def connection_lost(self, exc: Exception | None) -> None:
                writer.close()

        await self.open("", Client)
        wire = self.wires[-1]
        while data := await reader.read(65536):
            wire.arrive(data)
        wire.ended = True
        writer.close()
        self.ended.set()

    def react(self, wire: object, event: events.Event) -> None:
        super().react(wire, event)  # type: ignore[arg-type]  # it is a Wire
        if isinstance(event, events.Ready):
            self.deliver(1, 2, 3)

    def stop(self) -> None:
        self.loop.call_soon_threadsafe(self._over.set)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def server() -> Iterator[Listening]:
    listening = Listening()
    listening.start()
    yield listening
    listening.stop()


def test_publishing(server: Listening) -> None:
    with Producer(server.address, OPTIONS) as producer:
        producer.publish("t", b"one")
        producer.publish("t", b"later", delay_ms=5)
        producer.publish_many("t", [b"two", b"three"])
        with pytest.raises(LocalProtocolError):
            producer.publish("not a name", b"x")
    assert server.took("PUB", "DPUB", "MPUB") == [
        ("PUB", b"t", b"one"),
        ("DPUB", b"t", 5, (b"later",)),
        ("MPUB", b"t", 0, (b"two", b"three")),
    ]
    with pytest.raises(ConnectionLost, match="closed"):
        producer.publish("t", b"x")
    producer.close()


def test_consuming(server: Listening) -> None:
    with Consumer(server.address, "t", "c", OPTIONS) as consumer:
        messages = iter(consumer)
        first, second = next(messages), next(messages)
        assert (first.body, first.attempts, first.time_ns, len(first.id)) == (b"1", 1, 5, 16)
        first.settle()
        for again in (first.settle, first.requeue, first.touch):
            with pytest.raises(LocalProtocolError, match="before"):
                again()
        with pytest.raises(LocalProtocolError, match="negative"):
            second.requeue(-1)
        second.touch()
        second.requeue(50)
        assert [each.body for each in consumer.messages(timeout_seconds=0.05)] == [b"3"]
    assert list(messages) == []
    assert server.ended.wait(10)
    assert [step[1] for step in server.took("FIN")] == [1]
    assert server.took("Requeue") == [("Requeue", 2, 50)]
    assert server.took("Touch") == [("Touch", 2)]
    consumer.close()


def test_what_has_not_been_looked_at_is_given_back(server: Listening) -> None:
    with Consumer(server.address, "t", "c", OPTIONS) as consumer:
        for message in consumer:
            message.settle()
            break
    assert server.ended.wait(10)
    assert sorted(step[1:] for step in server.took("Requeue")) == [(2, 0), (3, 0)]


def test_messages_that_the_server_has_taken_back_are_not_given_out(server: Listening) -> None:
    with Consumer(server.address, "t", "c", NsqOptions(deadline_seconds=10, message_timeout_ms=10_000)) as consumer:
        messages = iter(consumer)
        first = next(messages)
        assert first.is_ours
        loop = consumer._thread.loop
        now = loop.time
        loop.time = lambda: now() + 20  # type: ignore[method-assign]  # a script that worked on it for so long
        assert not first.is_ours
        server.loop.call_soon_threadsafe(server.deliver, 4)
        assert next(messages).body == b"4"
        first.settle()
    assert server.ended.wait(10)
    assert [step[1] for step in server.took("FIN")] == [1]
    assert server.took("Requeue") == []


def test_refusals_and_nobody_there(server: Listening) -> None:
    server.refusals[events.Subscribe] = b"E_BAD_CHANNEL no"
    with pytest.raises(Refusal, match="E_BAD_CHANNEL"):
        Consumer(server.address, "t", "c", OPTIONS)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = f"127.0.0.1:{closed.getsockname()[1]}"
    with pytest.raises(DeadlineExceeded):
        Producer(address, NsqOptions(deadline_seconds=0.05))
