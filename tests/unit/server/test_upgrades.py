"""Byte layers under a pump."""

from __future__ import annotations

import ssl
import zlib
from typing import TYPE_CHECKING, Final

import pytest

from polymq import limits
from polymq.gateways.effects import Close, Pause, Resume, Send, SendAfter, Upgrade
from polymq.wire.deflate import DeflateLayer
from polymq.wire.tls import TlsLayer
from tests.unit.server.fakes import Gateway, Stream, Ticket, World
from tests.unit.wire.rot import Rot
from tests.unit.wire.tls_world import TlsClient, server_context

if TYPE_CHECKING:
    from polymq.gateways.effects import Effect
    from polymq.server.connection import Connection


SECOND_NS: Final = 1_000_000_000


class Upgrader(Gateway):
    """`rot N` starts a layer and says so outside of it, then greets inside; other lines are echoed."""

    def __init__(self) -> None:
        super().__init__()
        self.stop_after = {b"rot 1", b"rot 2", b"tls"}
        self.on_line = self._line
        self.tickets: list[Ticket] = []

    def _line(self, line: bytes, effects: list[Effect]) -> None:
        if line.startswith(b"rot "):
            effects += [Send(b"starting\n"), Upgrade(Rot(int(line[4:]))), Send(b"started\n")]
        elif line == b"tls":
            effects += [Send(b"starting\n"), Upgrade(TlsLayer(server_context())), Send(b"started\n")]
        elif line == b"publish":
            self.tickets.append(Ticket())
            effects.append(SendAfter(self.tickets[-1], b"OK\n", lambda reason: reason.encode()))
        elif line == b"bye":
            effects += [Send(b"bye\n"), Close()]
        else:
            effects.append(Send(line + b"\n"))

    def upgraded(self, effects: list[Effect]) -> None:
        self._record("upgraded", effects)

    def upgrade_failed(self, reason: str, effects: list[Effect]) -> None:
        effects.append(Send(f"E_{reason}\n".encode()))


def upgrading() -> tuple[World, Stream, Upgrader, Connection]:
    world, gateway = World(), Upgrader()
    stream, _, connection = world.connect(gateway)
    return world, stream, gateway, connection


@pytest.mark.parametrize("together", [True, False])
def test_an_upgrade_starts_behind_the_command_that_asked_for_it(*, together: bool) -> None:
    world, stream, gateway, connection = upgrading()
    pieces = [b"plain\nrot 1\n", Rot(1).send(b"inside\n")]
    world.send(connection, *([b"".join(pieces)] if together else pieces))
    assert gateway.calls[1:] == [b"plain", b"rot 1", "upgraded", b"inside"]
    assert stream.outgoing == b"plain\nstarting\n" + Rot(1).send(b"started\ninside\n")


def test_upgrades_nest_in_one_read() -> None:
    world, stream, _, connection = upgrading()
    one, both = Rot(1), Rot(3)
    world.send(connection, b"rot 1\n" + one.send(b"rot 2\n") + both.send(b"deep\n"))
    assert stream.outgoing == b"starting\n" + one.send(b"started\nstarting\n") + both.send(b"started\ndeep\n")


def test_an_upgrade_waits_for_the_commits_before_it() -> None:
    world, stream, gateway, connection = upgrading()
    world.send(connection, b"publish\nrot 1\n" + Rot(1).send(b"publish\ninside\n"))
    assert stream.outgoing == b""
    gateway.tickets[1].resolve()
    world.turn()
    assert stream.outgoing == b""
    gateway.tickets[0].resolve()
    world.turn()
    assert stream.outgoing == b"OK\nstarting\n" + Rot(1).send(b"started\nOK\ninside\n")


def test_input_inside_a_layer_comes_in_any_pieces() -> None:
    world, _, gateway, connection = upgrading()
    world.send(connection, b"rot 1\n")
    data = Rot(1).send(b"one\ntwo\n")
    world.send(connection, *[data[at : at + 1] for at in range(len(data))])
    assert gateway.calls[2:] == ["upgraded", b"one", b"two"]


def test_unconsumed_input_has_a_limit_inside_a_layer_too() -> None:
    world, stream, _, connection = upgrading()
    world.send(connection, b"rot 1\n")
    stream.incoming.append(b"x" * (limits.PENDING_INPUT_SIZE_BYTES_MAX + 1))
    while stream.incoming and not stream.closed():
        world.pump.readable(connection)
    assert stream.closed()


def test_a_layer_that_fails_at_once_is_said_without_it() -> None:
    world, stream, gateway, connection = upgrading()
    world.send(connection, b"rot 1\n\0")
    assert stream.outgoing == b"starting\nE_zero byte\n"
    assert stream.output_ended
    assert gateway.calls[-1] == "ended"


def test_a_layer_that_fails_later_breaks_the_connection() -> None:
    world, stream, gateway, connection = upgrading()
    world.send(connection, b"rot 1\n", Rot(1).send(b"fine\n"))
    before = bytes(stream.outgoing)
    world.send(connection, b"\0")
    assert stream.closed()
    assert stream.outgoing == before
    assert gateway.calls[-1] == "ended"


def test_closing_ends_the_layer() -> None:
    world, stream, _, connection = upgrading()
    world.send(connection, b"rot 1\n", Rot(1).send(b"bye\n"))
    assert stream.outgoing.endswith(Rot(1).send(b"bye\n") + b"<end>")
    assert stream.output_ended


def test_the_peer_can_end_the_layer() -> None:
    world, stream, gateway, connection = upgrading()
    world.send(connection, b"rot 1\n", Rot(1).send(b"last\n") + b"\xff")
    assert gateway.calls[3] == b"last"
    assert gateway.calls[-2:] == ["eof", "ended"]
    assert stream.output_ended


def test_the_end_of_a_layer_comes_behind_input_that_waits() -> None:
    world, stream, gateway, connection = upgrading()
    gateway.stop_after.add(b"bye for now")
    world.send(connection, b"rot 1\n")
    gateway.on_line = lambda line, effects: effects.append(Pause() if line == b"bye for now" else Send(line + b"\n"))
    world.send(connection, Rot(1).send(b"bye for now\nlast\n") + b"\xff")
    assert gateway.calls[-1] == b"bye for now"
    gateway.on["woken"] = lambda effects: effects.append(Resume())
    gateway.ring()
    world.turn()
    assert gateway.calls[-3:] == [b"last", "eof", "ended"]
    assert stream.outgoing.endswith(Rot(1).send(b"last\n") + b"<end>")


def test_much_output_goes_through_a_layer_bit_by_bit() -> None:
    world, stream, gateway, connection = upgrading()
    world.send(connection, b"rot 1\n")
    stream.room = 0
    size = 2 * limits.OUTBOX_SIZE_BYTES_HIGH
    for _ in range(4):
        world.deliver(gateway, b"a" * (size // 4))
        world.turn()
    assert gateway.calls.count("full") == 1
    del stream.outgoing[:]
    while connection.watched[1]:
        stream.room = 100_000
        world.pump.writable(connection)
        world.turn()
    assert stream.outgoing == b"b" * size
    assert gateway.calls.count("writable") == 1


class Slow(Rot):
    """Takes a turn's time for every piece."""

    def __init__(self, world: World) -> None:
        super().__init__(1)
        self.established = True
        self.world = world
        self.sizes: list[int] = []

    def send(self, data: bytes) -> bytes:
        if data:
            self.sizes.append(len(data))
            self.world.clock.now_ns += limits.LAYER_NS_PER_TURN_MAX
        return super().send(data)


def test_output_goes_through_a_layer_for_so_long_in_each_turn() -> None:
    world, stream, gateway, connection = upgrading()
    slow = Slow(world)
    gateway.on_line = lambda _line, effects: effects.append(Upgrade(slow))
    world.send(connection, b"rot 1\n")
    gateway.on_line = lambda line, effects: effects.append(Send(line * 100_000))
    world.send(connection, Rot(1).send(b"a\n"))
    assert slow.sizes == [limits.LAYER_PIECE_SIZE_BYTES_MAX, 100_000 - limits.LAYER_PIECE_SIZE_BYTES_MAX]
    stream.incoming.append(Rot(1).send(b"b\nc\nd\n"))
    world.pump.readable(connection)
    for turns in range(1, 6):
        sent = len(stream.outgoing)
        world.pump.end_turn()
        assert len(stream.outgoing) - sent <= limits.LAYER_PIECE_SIZE_BYTES_MAX
        if turns < 5:
            assert world.pump.due_ns() == 0
    assert stream.outgoing == Rot(1).send(b"".join(each * 100_000 for each in (b"a", b"b", b"c", b"d")))
    assert world.pump.due_ns() is None


def test_output_behind_a_commit_keeps_its_place_however_long_a_layer_takes() -> None:
    world, stream, gateway, connection = upgrading()
    slow, ticket = Slow(world), Ticket()
    gateway.on_line = lambda _line, effects: effects.append(Upgrade(slow))
    world.send(connection, b"rot 1\n")
    gateway.on_line = lambda _line, effects: effects.extend(
        [Send(b"x" * 200_000), SendAfter(ticket, b"OK", lambda reason: reason.encode()), Send(b"y" * 200_000)]
    )
    world.send(connection, Rot(1).send(b"go\n"))
    assert stream.outgoing == Rot(1).send(b"x" * 200_000)
    ticket.resolve()
    world.turn()
    assert stream.outgoing == Rot(1).send(b"x" * 200_000 + b"OK" + b"y" * 200_000)


class Skipping(Rot):
    """Gives nothing of the first pieces that it holds."""

    def __init__(self) -> None:
        super().__init__(1)
        self.left = 3
        self.held = b""

    def receive(self, data: bytes) -> bytes:
        self.held += data
        self.left -= 1
        self.established, self.holding = True, self.left > 0
        if self.holding:
            return b""
        data, self.held = self.held, b""
        return super().receive(data)


def test_a_layer_that_gives_nothing_for_a_while_is_asked_again() -> None:
    world, _, gateway, connection = upgrading()
    layer = Skipping()
    layer.established = True
    layer.left = 4
    gateway.on_line = lambda _line, effects: effects.append(Upgrade(layer))
    world.send(connection, b"rot 1\n")
    gateway.on_line = lambda line, effects: effects.append(Send(line))
    world.send(connection, Rot(1).send(b"last\n"))
    assert gateway.calls[-1] == b"last"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_under_a_pump(version: ssl.TLSVersion) -> None:
    world, stream, _, connection = upgrading()
    client = TlsClient(version=version)
    world.send(connection, b"tls\n" + client.take(b""))
    assert stream.outgoing.startswith(b"starting\n")
    del stream.outgoing[: len(b"starting\n")]
    for _ in range(5):
        data, stream.outgoing = bytes(stream.outgoing), bytearray()
        answer = client.take(data)
        if answer:
            world.send(connection, answer)
    assert client.received == b"started\n"
    world.send(connection, client.say(b"hello\n"))
    client.take(bytes(stream.outgoing))
    assert client.received == b"started\nhello\n"


def test_a_failed_handshake_is_said_in_plain_text() -> None:
    world, stream, _, connection = upgrading()
    world.send(connection, b"tls\n" + b"NOP\n" * 20)
    assert stream.outgoing.startswith(b"starting\n")
    assert b"E_TLS" in stream.outgoing
    assert stream.output_ended


def say_tls() -> tuple[World, Stream, Upgrader, Connection]:
    world, stream, gateway, connection = upgrading()
    world.send(connection, b"tls\n")
    assert stream.outgoing == b"starting\n"
    return world, stream, gateway, connection


def test_a_handshake_that_never_comes_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    world, stream, gateway, _ = say_tls()
    world.pass_time(5 * SECOND_NS - 1)
    assert stream.outgoing == b"starting\n"
    world.pass_time(1)
    assert stream.outgoing == b"starting\nE_i/o timeout\n"
    assert stream.output_ended
    assert gateway.calls[-1] == "ended"
    assert "i/o timeout" in caplog.text


def test_a_handshake_may_have_its_own_time() -> None:
    world, stream, gateway, connection = upgrading()
    gateway.on_line = lambda _line, effects: effects.append(Upgrade(TlsLayer(server_context()), SECOND_NS))
    world.send(connection, b"tls\n")
    world.pass_time(SECOND_NS - 1)
    assert stream.outgoing == b""
    world.pass_time(1)
    assert stream.outgoing == b"E_i/o timeout\n"


def test_a_handshake_that_is_over_is_not_given_up() -> None:
    world, stream, _, connection = upgrading()
    world.send(connection, b"rot 1\n", Rot(1).send(b"hello\n"))
    world.pass_time(6 * SECOND_NS)
    assert not stream.output_ended


def test_the_end_of_input_in_a_handshake_is_its_failure() -> None:
    world, stream, _, connection = say_tls()
    stream.input_ended = True
    world.pump.readable(connection)
    world.turn()
    assert stream.outgoing == b"starting\nE_EOF\n"


def test_a_gateway_is_told_before_the_first_input_through_a_layer() -> None:
    world, _, gateway, connection = upgrading()
    gateway.on["upgraded"] = lambda effects: effects.append(Send(b"told\n"))
    world.send(connection, b"rot 1\n")
    assert gateway.calls[-1] == b"rot 1"
    world.send(connection, Rot(1).send(b"inside\n"))
    assert gateway.calls[-2:] == ["upgraded", b"inside"]


def deflating(*lines: bytes) -> tuple[World, Stream, Upgrader, Connection]:
    """A connection inside deflate that has sent lines."""
    world, stream, gateway, connection = upgrading()
    gateway.stop_after.add(b"deflate")
    plain = gateway.on_line
    gateway.on_line = lambda line, effects: effects.append(Upgrade(DeflateLayer(1))) if line == b"deflate" else plain(line, effects)
    world.send(connection, b"deflate\n")
    assert gateway.calls[-1] == "upgraded"
    if lines:
        stream.incoming.append(DeflateLayer(9).send(b"".join(lines)))
    return world, stream, gateway, connection


def test_a_bomb_is_handled_piece_by_piece_one_in_each_turn() -> None:
    line = b"x" * 1023 + b"\n"
    pieces = 20
    count = pieces * limits.LAYER_PIECE_SIZE_BYTES_MAX // len(line)
    world, stream, gateway, connection = deflating(line * count)

    def take_time(_line: bytes, _effects: list[Effect]) -> None:
        world.clock.now_ns += limits.LAYER_NS_PER_TURN_MAX

    gateway.on_line = take_time
    del gateway.calls[:], gateway.views[:]
    world.pump.readable(connection)
    turns = 1
    while len(gateway.calls) < count:
        world.pump.readable(connection)  # nothing new is read meanwhile, although something may have come
        world.pump.end_turn()
        turns += 1
        assert world.pump.due_ns() == 0 or len(gateway.calls) == count
    assert turns == pieces
    assert max(gateway.views) == limits.LAYER_PIECE_SIZE_BYTES_MAX
    assert len(stream.reads) <= 4


def test_a_large_command_inside_a_bomb_comes_whole() -> None:
    line = b"y" * (5 * limits.LAYER_PIECE_SIZE_BYTES_MAX)
    world, stream, gateway, connection = deflating(line, b"\nlast\n")
    gateway.on_line = lambda _line, _effects: None
    gateway.need = limits.LAYER_PIECE_SIZE_BYTES_MAX * 3
    world.pump.readable(connection)
    gateway.need = 1
    world.turn()
    assert gateway.calls[-2:] == [line, b"last"]
    assert not stream.closed()


def test_what_is_still_compressed_waits_while_the_connection_is_not_read() -> None:
    line = b"z" * 1023 + b"\n"
    count = 3 * limits.LAYER_PIECE_SIZE_BYTES_MAX // len(line)
    world, _, gateway, connection = deflating(b"wait\n", line * count)
    gateway.stop_after.add(b"wait")
    gateway.on_line = lambda each, effects: effects.append(Pause()) if each == b"wait" else None
    world.pump.readable(connection)
    world.turn()
    assert gateway.calls[-1] == b"wait"
    world.pump._call(connection, lambda effects: effects.append(Resume()))
    world.turn()
    assert gateway.calls.count(line[:-1]) == count


def test_what_is_still_compressed_goes_on_when_the_store_has_room_again() -> None:
    line = b"w" * 1023 + b"\n"
    count = 4 * limits.LAYER_PIECE_SIZE_BYTES_MAX // len(line)
    world, _, gateway, connection = deflating(line * count)

    def take_time(_line: bytes, _effects: list[Effect]) -> None:
        world.clock.now_ns += limits.LAYER_NS_PER_TURN_MAX

    gateway.on_line = take_time
    connection.publishes = True
    world.pump.readable(connection)
    world.store.congested = True
    world.turn()
    handled = gateway.calls.count(line[:-1])
    assert 0 < handled < count
    world.store.congested = False
    world.pump.end_turn()
    world.turn()
    assert gateway.calls.count(line[:-1]) == count


def test_the_end_of_a_compressed_stream_comes_after_all_that_was_in_it() -> None:
    line = b"e" * 1023 + b"\n"
    count = 2 * limits.LAYER_PIECE_SIZE_BYTES_MAX // len(line) + 1
    world, stream, gateway, connection = deflating()
    gateway.on_line = lambda _line, _effects: None
    compressor = zlib.compressobj(9, zlib.DEFLATED, -15)
    stream.incoming.append(compressor.compress(line * count) + compressor.flush())
    world.pump.readable(connection)
    world.turn()
    assert gateway.calls.count(line[:-1]) == count
    assert gateway.calls[-2:] == ["eof", "ended"]


def test_garbage_in_compression_ends_the_connection_and_says_so_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    world, stream, gateway, connection = deflating()
    stream.incoming.append(b"\xff" * 100)
    world.pump.readable(connection)
    assert stream.closed()
    assert gateway.calls[-1] == "ended"
    assert "deflate" in caplog.text
    assert "192.0.2.1" in caplog.text
