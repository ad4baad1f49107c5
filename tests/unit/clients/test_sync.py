"""The synchronous face, over a server of this process: sockets on loopback, because a thread cannot live in virtual time."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import http.server
import json
import socket
import threading
from typing import TYPE_CHECKING

import pytest

from polymq.clients.loop_thread import LoopThread
from polymq.clients.nsq_opening import NsqOptions
from polymq.clients.sync import Consumer, HandlerOptions, Message, Producer, Subscriber
from polymq.errors import ConnectionLost, DeadlineExceeded, LocalProtocolError, Refusal
from polymq.protocols.nsq import events
from tests.unit.clients.worlds import Server

if TYPE_CHECKING:
    from collections.abc import Iterator

OPTIONS = NsqOptions(deadline_seconds=10)


class Listening(Server):
    """The server of the other tests, with sockets: what its wires say is written to the client's connection."""

    def __init__(self, *ids: int) -> None:
        super().__init__()
        self.ids = ids or (1, 2, 3)
        self._served: list[object] = []
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
        if isinstance(event, events.Ready) and event.count and wire not in self._served:
            self._served.append(wire)
            self.deliver(*self.ids)

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


@pytest.fixture
def second() -> Iterator[Listening]:
    listening = Listening(4, 5)
    listening.start()
    yield listening
    listening.stop()


@contextlib.contextmanager
def nsqlookupd(*addresses: str) -> Iterator[str]:
    """Name these servers to everybody who asks."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = [each.rpartition(":") for each in addresses]
            producers = [{"broadcast_address": host, "tcp_port": int(port)} for host, _, port in parts]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"producers": producers}).encode())

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as directory:
        thread = threading.Thread(target=directory.serve_forever)
        thread.start()
        yield f"127.0.0.1:{directory.server_port}"
        directory.shutdown()
        thread.join()


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


def test_several_servers_named_and_found(server: Listening, second: Listening) -> None:
    with (
        nsqlookupd(second.address) as directory,
        Subscriber("t", "c", OPTIONS, addresses=server.address, lookups=[directory]) as subscriber,
    ):
        assert subscriber.addresses == sorted([server.address, second.address])
        seen = []
        for message in subscriber:
            seen.append(message.body)
            message.settle()
            if len(seen) == 5:
                break
        subscriber.flush()
        assert sorted(seen) == [b"1", b"2", b"3", b"4", b"5"]
    assert sorted(step[1] for step in server.took("FIN")) == [1, 2, 3]
    assert sorted(step[1] for step in second.took("FIN")) == [4, 5]


def test_a_server_that_refuses_does_not_stop_a_script(server: Listening, second: Listening) -> None:
    server.refusals[events.Subscribe] = b"E_SUB_FAILED exceeds limit"
    options = NsqOptions(deadline_seconds=10, reconnect_seconds_first=0.01)
    with Subscriber("t", "c", options, addresses=[server.address, second.address]) as subscriber:
        messages = iter(subscriber)
        assert [next(messages).body, next(messages).body] == [b"4", b"5"]
        server.refusals.clear()
        assert sorted(next(messages).body for _ in range(3)) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_handler(server: Listening, concurrency: int) -> None:
    failures = [ValueError("the database is gone")]

    def handle(message: Message) -> None:
        assert threading.current_thread().name.startswith("polymq handler") is (concurrency > 1)
        if message.body == b"1":
            message.requeue(7)
        elif message.body == b"2" and failures:
            raise failures.pop()

    handling = HandlerOptions(requeue_seconds=3)
    with Subscriber("t", "c", OPTIONS, addresses=[server.address], handling=handling) as subscriber:
        subscriber.run(handle, concurrency=concurrency, timeout_seconds=0.5)
        subscriber.flush()
        with pytest.raises(LocalProtocolError, match="concurrency"):
            subscriber.run(handle, concurrency=0)
    assert sorted(server.took("Requeue")) == [("Requeue", 1, 7), ("Requeue", 2, 3000)]
    assert server.took("FIN") == [("FIN", 3)]


def test_closing_with_grace_lets_the_other_threads_settle(server: Listening) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def handle(_message: Message) -> None:
        begun.set()
        assert go_on.wait(10)

    subscriber = Subscriber("t", "c", OPTIONS, addresses=[server.address])
    with concurrent.futures.ThreadPoolExecutor() as pool:
        handling = pool.submit(subscriber.run, handle)
        assert begun.wait(10)
        closing = pool.submit(subscriber.close, 10)
        while not server.took("Cls"):
            assert not closing.done()
        go_on.set()
        closing.result(10)
        handling.result(10)
    assert server.ended.wait(10)
    assert [step[1] for step in server.took("FIN")] == [1]
    assert sorted(server.took("Requeue")) == [("Requeue", 2, 0), ("Requeue", 3, 0)]


def test_whoever_ends_the_handlers_ends_all_of_them(server: Listening) -> None:
    def handle(message: Message) -> None:
        if message.body == b"2":
            raise SystemExit

    subscriber = Subscriber("t", "c", OPTIONS, addresses=[server.address])
    with pytest.raises(SystemExit):
        subscriber.run(handle, concurrency=2)
    with pytest.raises(ConnectionLost, match="closed"):
        subscriber.flush()


def test_closing_ends_who_waits_in_another_thread(server: Listening) -> None:
    subscriber = Subscriber("t", "c", OPTIONS, addresses=[server.address])
    messages = iter(subscriber)
    last = [next(messages) for _ in range(3)][-1]
    rest: list[list[Message]] = []
    waiting = threading.Thread(target=lambda: rest.append(list(messages)))
    waiting.start()
    subscriber.close()
    waiting.join(10)
    assert rest == [[]]
    last.settle()  # has no effect, as on a connection that is lost
    with pytest.raises(LocalProtocolError, match="before"):
        last.settle()


def test_closing_ends_whoever_waits_for_an_answer(server: Listening) -> None:
    server.refusals[events.Publish] = None
    producer = Producer(server.address, OPTIONS)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        publishing = pool.submit(producer.publish, "t", b"x")
        while not server.took("PUB"):
            assert not publishing.done()
        producer.close()
        with pytest.raises(ConnectionLost, match="closed"):
            publishing.result(10)


def test_a_loop_that_ends_leaves_nobody_waiting() -> None:
    thread = LoopThread("x")
    begun = threading.Event()

    async def work() -> None:
        begun.set()
        await asyncio.Event().wait()

    with concurrent.futures.ThreadPoolExecutor() as pool:
        working = pool.submit(lambda: thread.call(work()))
        assert begun.wait(10)
        thread.close()
        with pytest.raises(ConnectionLost, match="closed"):
            working.result(10)
    thread.close()
    thread.soon(begun.clear)
    assert begun.is_set()
