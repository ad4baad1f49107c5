"""The pump over a world of fakes: what does not fit, what is held back, and who is closed for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq import limits
from polymq.gateways.effects import Flush, Send, WantWritable
from polymq.server.settings import PumpSettings
from tests.unit.server.fakes import World, echo

if TYPE_CHECKING:
    from polymq.gateways.effects import Effect

SECOND_NS = 1_000_000_000


def test_what_does_not_fit_is_written_when_there_is_room() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    stream.room = 3
    world.deliver(gateway, b"message")
    world.turn()
    assert stream.outgoing == b"mes"
    assert connection.watched == (True, True)
    stream.room = 1 << 40
    world.pump.writable(connection)
    assert stream.outgoing == b"message"
    assert connection.watched == (True, False)


def test_an_answer_behind_what_did_not_fit_waits_for_the_commit() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.on_line = lambda _line, effects: effects.append(Send(b"answer"))
    stream.room = 3
    world.deliver(gateway, b"message")
    world.turn()
    stream.room = 1 << 40
    stream.incoming.append(b"question\n")
    world.pump.readable(connection)
    world.pump.writable(connection)
    assert stream.outgoing == b"mes"
    world.pump.end_turn()
    assert stream.outgoing == b"messageanswer"


def test_a_full_socket_is_no_error() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    stream.room = 0
    world.deliver(gateway, b"message")
    world.turn()
    assert connection.watched == (True, True)
    world.pump.writable(connection)
    assert connection.watched == (True, True)


def test_a_peer_that_takes_nothing_is_closed_at_the_write_deadline() -> None:
    world = World(settings=PumpSettings(write_timeout_ns=100))
    stream, gateway, connection = world.connect()
    stream.room = 3
    world.deliver(gateway, b"message")
    world.turn()
    world.pass_time(99)
    stream.room = 1  # progress moves the deadline
    world.pump.writable(connection)
    world.pass_time(99)
    world.pump.writable(connection)  # no progress does not
    assert not stream.closed()
    world.pass_time(1)
    assert stream.closed()
    assert gateway.calls[-1] == "ended"
    assert gateway.overdue, "it can say why"
    assert not world.pump.connections


def test_a_peer_that_reads_again_is_not_closed() -> None:
    world = World(settings=PumpSettings(write_timeout_ns=100))
    stream, gateway, connection = world.connect()
    stream.room = 3
    world.deliver(gateway, b"message")
    world.turn()
    stream.room = 100
    world.pump.writable(connection)
    world.pass_time(1000)
    assert not stream.closed()
    world.pump.abandon()
    assert not gateway.overdue


def test_the_gateway_learns_of_too_much_output_and_of_its_end() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    stream.room = 0
    for _ in range(3):
        world.deliver(gateway, bytes(limits.OUTBOX_SIZE_BYTES_HIGH // 2))
        world.turn()
    assert gateway.calls.count("full") == 1
    assert connection.watched == (True, True), "settles are still read"
    stream.room = limits.OUTBOX_SIZE_BYTES_HIGH
    world.pump.writable(connection)
    assert "writable" not in gateway.calls
    stream.room = 1 << 40
    world.pump.writable(connection)
    assert gateway.calls.count("writable") == 1
    assert len(stream.outgoing) == limits.OUTBOX_SIZE_BYTES_HIGH // 2 * 3


def test_who_asks_and_does_not_listen_is_not_read() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.on_line = lambda _line, effects: effects.append(Send(bytes(limits.OUTBOX_SIZE_BYTES_MAX)))
    stream.room = 0
    world.send(connection, b"a\n")
    assert connection.watched == (True, True)
    world.send(connection, b"b\n")
    assert connection.watched == (False, True)
    stream.room = 1 << 40
    world.pump.writable(connection)
    assert connection.watched == (True, False)


def test_some_are_read_although_they_do_not_listen() -> None:
    """Two servers that stopped reading each other would wait for each other."""
    world = World()
    stream, gateway, connection = world.connect()
    gateway.unread_above = 2 * limits.OUTBOX_SIZE_BYTES_MAX
    gateway.on_line = lambda _line, effects: effects.append(Send(bytes(limits.OUTBOX_SIZE_BYTES_MAX)))
    stream.room = 0
    world.send(connection, b"a\n", b"b\n")
    assert connection.watched == (True, True)
    world.send(connection, b"c\n")
    assert connection.watched == (False, True)


def test_output_is_held_back_on_request() -> None:
    world = World()
    stream, gateway, _ = world.connect()
    gateway.hold_below = 10
    world.deliver(gateway, b"12345")
    world.turn()
    assert stream.outgoing == b""
    world.deliver(gateway, b"67890")
    world.turn()
    assert stream.outgoing == b"1234567890"
    world.deliver(gateway, b"abc")
    world.turn()
    assert stream.outgoing == b"1234567890"
    gateway.on["woken"] = lambda effects: effects.append(Flush())
    gateway.ring()
    world.turn()
    assert stream.outgoing == b"1234567890abc"


def test_an_answer_takes_along_what_is_held_back() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.hold_below = 10
    gateway.on_line = echo
    world.deliver(gateway, b"12345")
    world.turn()
    world.send(connection, b"x\n")
    assert stream.outgoing == b"12345x\n"


def test_a_long_answer_is_asked_for_piece_by_piece() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    pieces = [b"one ", b"two ", b"three"]

    def go_on(effects: list[Effect]) -> None:
        if pieces:
            effects += [Send(pieces.pop(0)), WantWritable()]

    gateway.on_line = lambda _line, effects: go_on(effects)
    gateway.on["writable"] = go_on
    world.send(connection, b"go\n")
    assert stream.outgoing == b"one two three"
    assert gateway.calls.count("writable") == 3


# Back-pressure
