"""PHPMQ behind the one API: what is confirmed is there, and what a server does not want is found."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients import broker_phpmq
from polymq.clients.broker_address import parse_address
from polymq.clients.broker_messages import Outgoing
from polymq.clients.broker_phpmq import _Settling, link
from polymq.clients.phpmq import _CONFIRM_WINDOW, CONFIRM_QUEUE, PhpmqOptions, PhpmqProducer
from polymq.errors import ConnectionLost, DeadlineExceeded, LocalProtocolError, TransportError
from polymq.protocols.phpmq import frames
from tests.unit.clients.phpmq_server import Server, dispatch

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = re.compile(rb"polymq [0-9]+ [0-9a-f]{16}")
OPTIONS = PhpmqOptions(deadline_seconds=5)


class Confirming(Server):
    """Keeps what it takes, gives back what is for CONFIRM_QUEUE, and ends a connection at what it does not want."""

    def __init__(self, folder: Path, *, unwanted: bytes = b"", takes_nothing: bool = False, strangers: tuple[bytes, ...] = ()) -> None:
        super().__init__(folder)
        self.unwanted = unwanted
        self.takes_nothing = takes_nothing
        self.strangers = strangers
        self.taken: list[bytes] = []

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        heard = b""
        asked = frames.consume(CONFIRM_QUEUE, _CONFIRM_WINDOW)
        while data := await reader.read(1 << 16):
            heard += data
            self.received += data
            unwanted = self.takes_nothing or (self.unwanted and self.unwanted in heard)
            if unwanted:
                break
            if asked in heard and asked not in heard[: -len(data)]:
                (token,) = TOKEN.findall(heard)
                given = (*self.strangers, token)[:_CONFIRM_WINDOW]
                writer.write(b"".join(dispatch(each, number, queue=CONFIRM_QUEUE) for number, each in enumerate(given)))
        before = heard.split(self.unwanted)[0] if self.unwanted else heard
        self.taken += re.findall(rb"m[0-9]+m", b"" if self.takes_nothing else before)
        writer.close()


def outgoing(count: int) -> list[Outgoing]:
    return [Outgoing("q", b"m%dm" % number) for number in range(count)]


def publish(server: Confirming, messages: list[Outgoing], repeated: set[int] | None = None) -> list[Any]:
    async def run() -> list[Any]:
        async with server:
            return await broker_phpmq.PhpmqLink(server.address, OPTIONS).publish_each(messages, set() if repeated is None else repeated)

    return asyncio.run(run())


def test_what_is_confirmed_is_there(tmp_path: Path) -> None:
    server = Confirming(tmp_path)
    assert publish(server, outgoing(10)) == [None] * 10
    assert server.taken == [b"m%dm" % number for number in range(10)]
    assert server.connections == 1


@pytest.mark.parametrize("bad", [0, 3, 9])
def test_a_message_that_a_server_does_not_want_is_found_and_the_others_are_there(tmp_path: Path, bad: int) -> None:
    messages = outgoing(10)
    messages[bad] = Outgoing("q", b"BAD")
    server = Confirming(tmp_path, unwanted=b"BAD")
    repeated: set[int] = set()
    outcomes = publish(server, messages, repeated)
    assert [type(outcome) for outcome in outcomes] == [LocalProtocolError if number == bad else type(None) for number in range(10)]
    # All are there, some of them more than once.
    assert list(dict.fromkeys(sorted(server.taken))) == [b"m%dm" % number for number in range(10) if number != bad]
    assert {number for number in range(10) if server.taken.count(b"m%dm" % number) > 1} <= repeated
    assert bad in repeated


@pytest.mark.parametrize("bad", [0, 100, 255])
def test_one_message_that_is_refused_does_not_multiply_the_others(tmp_path: Path, bad: int) -> None:
    messages = outgoing(256)
    messages[bad] = Outgoing("q", b"BAD")
    server = Confirming(tmp_path, unwanted=b"BAD")
    outcomes = publish(server, messages)
    assert [number for number, outcome in enumerate(outcomes) if outcome is not None] == [bad]
    copies = Counter(server.taken)
    assert len(copies) == 255
    assert max(copies.values()) <= 3
    assert copies.total() <= 2.2 * 255
    # First arrivals are in order.
    assert list(copies) == [b"m%dm" % number for number in range(256) if number != bad]


def test_a_server_that_is_lost_has_been_sent_nothing_twice(tmp_path: Path) -> None:
    repeated: set[int] = set()
    server = Confirming(tmp_path, takes_nothing=True)
    assert {type(outcome) for outcome in publish(server, outgoing(8), repeated)} == {ConnectionLost}
    assert repeated < set(range(8))


def test_a_server_that_ends_once_does_not_refuse_a_message(tmp_path: Path) -> None:
    server = Confirming(tmp_path, unwanted=b"m0m")
    whole = server._serve

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if server.connections == 2:
            server.unwanted = b""
        await whole(reader, writer)

    server._serve = serve  # type: ignore[method-assign]
    assert publish(server, outgoing(1)) == [None]
    assert server.connections == 3


def test_a_server_that_wants_nothing_does_not_refuse_a_message(tmp_path: Path) -> None:
    outcomes = publish(Confirming(tmp_path, takes_nothing=True), outgoing(4))
    assert [type(outcome) for outcome in outcomes] == [ConnectionLost] * 4


def test_a_server_that_confirms_nothing_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    async def run() -> None:
        async with Server(tmp_path) as server, PhpmqProducer(server.address, PhpmqOptions(deadline_seconds=0.05)) as producer:
            with pytest.raises(DeadlineExceeded):
                await producer.confirm()

    asyncio.run(run())


def test_a_server_that_hangs_up_confirms_nothing(tmp_path: Path) -> None:
    async def run() -> None:
        async with Server(tmp_path) as server:
            producer = PhpmqProducer(server.address, OPTIONS)
            await producer.publish("q", b"x")
            await server.has(b"x")
            server.hang_up()
            with pytest.raises(TransportError):
                await producer.confirm()
            with pytest.raises(TransportError):
                await producer.confirm()

    asyncio.run(run())


def test_a_producer_goes_on_behind_a_confirmation_and_keeps_nothing_of_others(tmp_path: Path) -> None:
    async def run() -> None:
        async with Confirming(tmp_path) as server, PhpmqProducer(server.address, OPTIONS) as producer:
            for number in range(2):
                await producer.publish("q", b"m%dm" % number)
                await producer.confirm()
            await producer.publish("q", b"m2m")
            await producer.close()
            assert (server.taken, server.connections) == ([b"m0m", b"m1m", b"m2m"], 3)

    asyncio.run(run())


def test_of_others_confirmations_only_those_of_long_ago_are_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 10_000.0)
    server = Confirming(tmp_path, strangers=(b"polymq 6000 aa", b"polymq 9999 bb", b"something else"))
    assert publish(server, outgoing(1)) == [None]
    acknowledged = [number for number in range(4) if b"%032d" % number in server.received]
    assert acknowledged == [0, 2, 3]


def test_what_cannot_be_a_time_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 10_000.0)
    server = Confirming(tmp_path, strangers=(b"polymq " + b"9" * 400 + b" x", b"polymq 999999999999 x", b"polymq 9999 x"))
    assert publish(server, outgoing(1)) == [None]
    assert [number for number in range(4) if b"%032d" % number in server.received] == [0, 1, 3]


def test_what_others_have_abandoned_leaves_room_for_a_confirmation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time", lambda: 10_000.0)
    server = Confirming(tmp_path, strangers=(b"polymq 9999 x",) * 1_000)
    assert publish(server, outgoing(1)) == [None]


@pytest.mark.parametrize(("ttl", "passed", "said"), [(0, 50, ("requeue", 0)), (10, 3.5, ("requeue", 6)), (2, 1.5, "settle")])
def test_a_retry_leaves_what_is_left_of_a_lifetime(monkeypatch: pytest.MonkeyPatch, ttl: int, passed: float, said: object) -> None:
    class Message:
        ttl_seconds = ttl
        told: object = None

        def requeue(self, *, ttl_seconds: int) -> None:
            self.told = ("requeue", ttl_seconds)

        def settle(self) -> None:
            self.told = "settle"

    now = [100.0]
    monkeypatch.setattr("polymq.clients.broker_phpmq.time.monotonic", lambda: now[0])
    message: Any = Message()
    settling = _Settling(message)
    now[0] += passed
    settling.retry(0)
    assert message.told == said


def test_options_of_another_protocol_are_refused() -> None:
    with pytest.raises(LocalProtocolError):
        link(parse_address("phpmq://h:1"), object())
