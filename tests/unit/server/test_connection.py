"""How connections end: through the pump, which advances their states."""

from __future__ import annotations

import errno

import pytest

from polymq.gateways.effects import Close, Send
from polymq.server.settings import PumpSettings
from tests.unit.server.fakes import Publisher, World


def test_closing_writes_what_waits_then_lingers_until_the_peer_closes() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.on_line = lambda _line, effects: effects.extend([Send(b"error\n"), Close("bad"), Send(b"never\n")])
    stream.room = 3
    world.send(connection, b"x\n")
    assert gateway.calls[-1] == "ended"
    assert connection.watched == (False, True)
    stream.room = 100
    world.pump.writable(connection)
    assert stream.outgoing == b"error\n"
    assert stream.output_ended
    assert not stream.closed()
    assert connection.watched == (True, False)
    stream.incoming.append(b"late\n")
    world.pump.readable(connection)
    assert gateway.calls == ["opened", b"x", "ended"]
    stream.input_ended = True
    world.pump.readable(connection)
    assert stream.closed()
    assert connection.watched == (False, False)
    assert not world.pump.connections


def test_lingering_ends() -> None:
    world = World(settings=PumpSettings(linger_timeout_ns=100))
    stream, gateway, connection = world.connect()
    gateway.on_line = lambda _line, effects: effects.append(Close())
    world.send(connection, b"x\n")
    world.pass_time(99)
    assert not stream.closed()
    world.pass_time(1)
    assert stream.closed()


def test_closing_ends_although_the_peer_does_not_read() -> None:
    world = World(settings=PumpSettings(close_timeout_ns=100))
    stream, gateway, connection = world.connect()
    gateway.on_line = lambda _line, effects: effects.extend([Send(b"error\n"), Close("bad")])
    stream.room = 0
    world.send(connection, b"x\n")
    world.pass_time(99)
    assert not stream.closed()
    world.pass_time(1)
    assert stream.closed()


def test_a_half_closed_peer_gets_last_words_and_pending_answers() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.on_line = publisher = Publisher()
    gateway.on["eof"] = lambda effects: effects.append(Send(b"short body\n"))
    world.send(connection, b"a\nunfinished")
    stream.input_ended = True
    world.pump.readable(connection)
    world.turn()
    assert gateway.calls == ["opened", b"a", "eof", "ended"]
    assert stream.outgoing == b""
    publisher.tickets[0].resolve()
    world.turn()
    assert stream.outgoing == b"OK a\nshort body\n"
    assert stream.output_ended


def test_no_delivery_reaches_a_connection_that_is_closing() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.on_line = lambda _line, effects: effects.append(Close())
    stream.incoming.append(b"x\n")
    world.pump.readable(connection)
    gateway.ring()
    world.turn()
    assert gateway.calls == ["opened", b"x", "ended"]


@pytest.mark.parametrize("error", [ConnectionResetError(errno.ECONNRESET, "reset"), TimeoutError(errno.ETIMEDOUT, "timeout")])
def test_a_broken_connection_is_dropped(error: OSError) -> None:
    world = World()
    stream, gateway, connection = world.connect()
    stream.incoming.append(error)
    world.pump.readable(connection)
    assert stream.closed()
    assert gateway.calls == ["opened", "ended"]
    assert connection.watched == (False, False)
    world.turn()


def test_a_write_to_a_broken_connection_drops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    stream, gateway, _ = world.connect()
    world.deliver(gateway, b"message")

    def broken(_view: memoryview) -> int:
        raise BrokenPipeError(errno.EPIPE, "broken pipe")

    monkeypatch.setattr(stream, "send", broken)
    world.turn()
    assert stream.closed()
    assert gateway.calls[-1] == "ended"


def test_a_deleted_topic_closes_the_connection_in_the_same_turn() -> None:
    world = World()
    stream, gateway, _ = world.connect()
    world.broker.on_tick = lambda: gateway.closed("topic deleted") if "woken" not in gateway.calls else None
    world.pump.end_turn()
    assert gateway.calls == ["opened", "woken", "ended"]
    assert stream.output_ended
