"""The NATS client before anything is sent, and against a server without a socket; with servers it is run by tests/interop/test_connect.py."""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.nats import NEIGHBOURS_MAX, NatsOptions, NatsPublisher, NatsSubscriber
from polymq.errors import ConnectionLost, DeadlineExceeded, LocalProtocolError, Refusal
from tests.unit.clients.worlds import in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FRAME = re.compile(rb"PUB (\S+) (\d+)\r\n|PING\r\n|CONNECT [^\r]*\r\n")


class World:
    """A nats-server; `connections` are those that it has had. It refuses the subject `no`, and is `silent` when it is told to be."""

    def __init__(self) -> None:
        self.connections: list[Wire] = []
        self.taken: list[bytes] = []
        self.silent = False
        self.ends_at: bytes | None = None

    async def open(self, host: str, port: int) -> tuple[asyncio.StreamReader, Wire]:
        reader = asyncio.StreamReader()
        reader.feed_data(b'INFO {"max_payload": 1048576, "headers": true}\r\n')
        self.connections.append(Wire(self, reader))
        return reader, self.connections[-1]


class Wire:
    """The client's end of a connection: what stands in place of its StreamWriter and its transport."""

    def __init__(self, world: World, reader: asyncio.StreamReader) -> None:
        self.transport = self
        self.pings = 0
        self.is_closed = False
        self._world = world
        self._reader = reader

    def write(self, data: bytes) -> None:
        at = 0
        while not self._world.silent and at < len(data):
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
                    self._reader.feed_data(b"-ERR 'Permissions Violation for Publish to \"no\"'\r\n")
                else:
                    self._world.taken.append(body)
            elif found[0] == b"PING\r\n":
                self.pings += 1
                self._reader.feed_data(b"PONG\r\n")

    async def drain(self) -> None:
        await asyncio.sleep(0)

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
