"""The NATS client before anything is sent, and against a server without a socket; with servers it is run by tests/interop/test_connect.py."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.nats import NEIGHBOURS_MAX, NatsOptions, NatsPublisher, NatsSubscriber
from polymq.errors import ConnectionLost, DeadlineExceeded, LocalProtocolError, Refusal, RefusalCode, RemoteProtocolError
from tests.unit.clients.worlds import in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FRAME = re.compile(rb"PUB (\S+) (\d+)\r\n|SUB [^\r]*\r\n|PING\r\n|CONNECT [^\r]*\r\n")


class World:
    """A nats-server; `connections` are those that it has had. It refuses the subject `no`, and is `silent` when it is told to be."""

    def __init__(self) -> None:
        self.connections: list[Wire] = []
        self.taken: list[bytes] = []
        self.silent = False
        self.ends_at: bytes | None = None
        self.greeting = b'INFO {"max_payload": 1048576, "headers": true}\r\n'
        self.refusal = b'Permissions Violation for Publish to "no"'
        self.at_subscriptions: list[Callable[[Wire], None]] = []  # what happens at the first one, the second …

    async def open(self, host: str, port: int) -> tuple[asyncio.StreamReader, Wire]:
        reader = asyncio.StreamReader()
        reader.feed_data(self.greeting)
        self.connections.append(Wire(self, reader))
        return reader, self.connections[-1]


class Wire:
    """The client's end of a connection: what stands in place of its StreamWriter and its transport."""

    def __init__(self, world: World, reader: asyncio.StreamReader) -> None:
        self.transport = self
        self.pings = 0
        self.is_closed = False
        self.is_silent = False
        self._world = world
        self._reader = reader

    def write(self, data: bytes) -> None:
        at = 0
        while not self._world.silent and not self.is_silent and at < len(data):
            found = _FRAME.match(data, at)
            assert found is not None, data[at : at + 50]
            at = found.end()
            if found[0].startswith(b"PUB"):
                body = data[at : at + int(found[2])]
                at += int(found[2]) + 2
                if body == self._world.ends_at:
                    self.abort()
                    return
                if found[1] == b"no":
                    self._reader.feed_data(b"-ERR '" + self._world.refusal + b"'\r\n")
                else:
                    self._world.taken.append(body)
            elif found[0].startswith(b"SUB") and self._world.at_subscriptions:
                self._world.at_subscriptions.pop(0)(self)
            elif found[0] == b"PING\r\n":
                self.pings += 1
                self._reader.feed_data(b"PONG\r\n")

    def get_extra_info(self, name: str) -> None: ...

    async def drain(self) -> None:
        await asyncio.sleep(0)

    def say(self, data: bytes) -> None:
        self._reader.feed_data(data)

    def fall_silent(self) -> None:
        self.is_silent = True

    async def wait_closed(self) -> None: ...

    def abort(self) -> None:
        self.is_closed = True
        if not self._reader.at_eof():
            self._reader.feed_eof()

    def close(self) -> None:
        self.abort()


@contextlib.contextmanager
def patched(world: World, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setattr("polymq.clients.nats.asyncio.open_connection", world.open)
        yield


def publishing(world: World, monkeypatch: pytest.MonkeyPatch, work: Callable[[NatsPublisher], Any]) -> None:
    async def go() -> None:
        async with NatsPublisher("h:1", NatsOptions(deadline_seconds=10.0), random=lambda: 0.5) as publisher:
            await work(publisher)

    with patched(world, monkeypatch):
        in_virtual_time(go())


def test_names_that_no_server_takes_are_refused_before_there_is_one() -> None:
    async def go() -> None:
        with pytest.raises(LocalProtocolError):
            NatsSubscriber("h:1", "a b")
        with pytest.raises(LocalProtocolError):
            NatsSubscriber("h:1", "a", waiting_max=0)
        with pytest.raises(LocalProtocolError):
            await NatsPublisher("h:1").publish("a.*", b"x")

    asyncio.run(go())


def test_secrets_are_not_shown() -> None:
    assert "geheim" not in repr(NatsOptions(user="ann", secret="geheim", token="geheim"))


def test_a_server_that_does_not_answer_gets_a_new_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    async def work(publisher: NatsPublisher) -> None:
        await publisher.publish("a", b"1")
        world.silent = True
        both = await asyncio.gather(publisher.publish("a", b"2"), publisher.publish("a", b"3"), return_exceptions=True)
        assert {type(each) for each in both} <= {DeadlineExceeded, ConnectionLost}
        assert world.connections[0].is_closed
        world.silent = False
        await publisher.publish("a", b"4")
        assert await publisher.publish_each([("a", b"5", {})]) == [None]

    publishing(world, monkeypatch, work)
    assert world.taken == [b"1", b"4", b"5"]
    assert len(world.connections) == 2


@pytest.mark.parametrize("bad", [0, 100, 2_499])
def test_of_a_flight_only_the_neighbours_of_what_is_refused_are_sent_twice(bad: int, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    messages: list[tuple[str, bytes, dict[str, str]]] = [("no" if number == bad else "a", b"%d" % number, {}) for number in range(2_500)]
    repeated: set[int] = set()

    async def work(publisher: NatsPublisher) -> None:
        outcomes = await publisher.publish_each(messages, repeated)
        assert [place for place, each in enumerate(outcomes) if each is not None] == [bad]
        assert isinstance(outcomes[bad], Refusal)
        with pytest.raises(Refusal):
            await publisher.publish("no", b"x")

    publishing(world, monkeypatch, work)
    # First arrivals are in order.
    assert list(dict.fromkeys(world.taken)) == [b"%d" % number for number in range(2_500) if number != bad]
    assert bad in repeated
    assert repeated - {bad} == {int(body) for body in world.taken if world.taken.count(body) > 1}
    assert len(repeated) <= NEIGHBOURS_MAX
    assert len(world.connections) == 1


def test_a_flight_whose_every_message_is_refused_takes_no_turn_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    async def work(publisher: NatsPublisher) -> None:
        assert {type(each) for each in await publisher.publish_each([("no", b"x", {})] * 100)} == {Refusal}

    publishing(world, monkeypatch, work)
    assert world.connections[0].pings <= 1 + 100 + -(-100 // NEIGHBOURS_MAX)


def test_behind_what_is_lost_nothing_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.ends_at = b"1500"

    async def work(publisher: NatsPublisher) -> None:
        outcomes = await publisher.publish_each([("a", b"%d" % number, {}) for number in range(3_000)])
        assert outcomes[:1_000] == [None] * 1_000
        assert {type(each) for each in outcomes[1_000:]} == {ConnectionLost}

    publishing(world, monkeypatch, work)
    assert world.taken[-1] == b"1499"


def test_a_flight_of_large_messages_has_the_deadline_for_each_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    async def slow(_: Wire) -> None:
        await asyncio.sleep(8)  # for each piece, of the ten seconds that there are

    monkeypatch.setattr(Wire, "drain", slow)

    async def work(publisher: NatsPublisher) -> None:
        assert await publisher.publish_each([("a", bytes(400_000), {})] * 10) == [None] * 10

    publishing(world, monkeypatch, work)
    assert len(world.taken) == 10


def subscribing(world: World, monkeypatch: pytest.MonkeyPatch, work: Callable[[NatsSubscriber], Any], waiting_max: int = 10) -> None:
    async def go() -> None:
        async with NatsSubscriber("h:1", "a", waiting_max=waiting_max, random=lambda: 0.5) as subscriber:
            await work(subscriber)

    with patched(world, monkeypatch):
        in_virtual_time(go())


def giving(*bodies: bytes) -> Callable[[Wire], None]:
    return lambda wire: wire.say(b"".join(b"MSG a 1 %d\r\n%b\r\n" % (len(body), body) for body in bodies))


async def taken(subscriber: NatsSubscriber, count: int) -> list[bytes]:
    found: list[bytes] = []
    async with asyncio.timeout(60):
        async for message in subscriber:
            found.append(message.body)
            if len(found) == count:
                break
    return found


def test_a_server_that_falls_silent_behind_the_handshake_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.at_subscriptions = [giving(), Wire.fall_silent, giving(b"1")]

    async def work(subscriber: NatsSubscriber) -> None:
        world.connections[0].abort()
        assert await taken(subscriber, 1) == [b"1"]

    subscribing(world, monkeypatch, work)
    assert [each.is_silent for each in world.connections] == [False, True, False]
    assert world.connections[1].is_closed


def test_what_is_not_nats_ends_a_connection_and_not_the_client(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.at_subscriptions = [giving(b"1"), lambda wire: wire.say(b"garbled\r\n"), giving(b"2")]

    async def work(subscriber: NatsSubscriber) -> None:
        assert await taken(subscriber, 1) == [b"1"]
        world.connections[0].say(b"garbled\r\n")
        assert await taken(subscriber, 1) == [b"2"]

    subscribing(world, monkeypatch, work)
    assert len(world.connections) == 3


def test_a_server_that_never_speaks_nats_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.greeting = b"HTTP/1.1 400 Bad Request\r\n"
    with pytest.raises(RemoteProtocolError):
        subscribing(world, monkeypatch, lambda _: asyncio.sleep(0))
    assert len(world.connections) == 1


def test_what_was_delivered_before_the_end_is_given_also_where_no_more_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.at_subscriptions = [lambda _: None, lambda wire: wire.say(b"-ERR 'Authorization Violation'\r\n")]

    async def work(subscriber: NatsSubscriber) -> None:
        giving(b"1", b"2")(world.connections[0])
        await asyncio.sleep(1)
        world.connections[0].abort()
        await asyncio.sleep(1)
        assert await taken(subscriber, 2) == [b"1", b"2"]
        for _ in range(2):  # whoever asks is told
            with pytest.raises(Refusal):
                await taken(subscriber, 1)

    subscribing(world, monkeypatch, work, waiting_max=2)


def test_no_more_is_read_than_may_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()

    async def work(subscriber: NatsSubscriber) -> None:
        giving(b"1", b"2", b"3", b"4")(world.connections[0])
        await asyncio.sleep(1)
        assert [each.body for each in subscriber.waiting()] == [b"1", b"2"]
        assert await taken(subscriber, 2) == [b"3", b"4"]
        assert subscriber.waiting() == []

    subscribing(world, monkeypatch, work, waiting_max=2)


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b'Permissions Violation for Publish to "no"', RefusalCode.FORBIDDEN),
        (b'Permissions Violation for Publish to "no": not stored: no room left in the data folder', RefusalCode.STORE_FULL),
        (b"Permissions Violation for Publish: not stored: the partition cannot be written", RefusalCode.STORE_FAILED),
        (b'Permissions Violation for Publish to "no": not stored: disk full', RefusalCode.STORE_FULL),
    ],
)
def test_what_is_not_stored_may_be_later(said: bytes, code: RefusalCode, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.refusal = said

    async def work(publisher: NatsPublisher) -> None:
        with pytest.raises(Refusal) as refusal:
            await publisher.publish("no", b"x")
        assert refusal.value.code is code

    publishing(world, monkeypatch, work)
