"""What is read where, and what is kept: through the pump, whose view of it counts."""

from __future__ import annotations

import pytest

from polymq import limits
from polymq.gateways.effects import Send
from polymq.server.connection import Connection, ConnectionState
from tests.unit.server.fakes import Gateway, Stream, World


def test_a_large_command_is_collected_in_a_buffer_of_its_own() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.on_line = lambda line, effects: effects.append(Send(b"%d\n" % len(line)))
    size = 3 * 1024 * 1024
    stream.incoming.append(b"x" * size + b"\nshort\n")
    while stream.incoming:
        world.pump.readable(connection)
    world.turn()
    assert stream.outgoing == b"%d\n5\n" % size
    assert connection.private is None


def test_need_avoids_useless_feeds() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    size = 2 * 1024 * 1024
    gateway.need = size + 1
    stream.incoming.append(b"x" * size + b"\n")
    while stream.incoming:
        world.pump.readable(connection)
    assert gateway.views == [size + 1]
    assert max(stream.reads) > limits.READ_BUFFER_SIZE_BYTES, "the private buffer is read into directly"


def test_unconsumed_input_has_a_limit() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    stream.incoming.append(b"x" * (limits.PENDING_INPUT_SIZE_BYTES_MAX + 1))
    for _ in range(200):
        if connection.state is ConnectionState.CLOSED:
            break
        world.pump.readable(connection)
    assert stream.closed()
    assert gateway.calls == ["opened", "ended"]


def test_a_need_beyond_the_limit_ends_the_connection() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.need = limits.PENDING_INPUT_SIZE_BYTES_MAX + 1
    stream.incoming.append(b"x")
    world.pump.readable(connection)
    assert stream.closed()


@pytest.mark.parametrize("piece", [1000, 100_000, limits.READ_BUFFER_SIZE_BYTES])
def test_lines_of_all_sizes_in_pieces_of_any_size(piece: int) -> None:
    lines = [bytes([65 + index % 26]) * size for index, size in enumerate([0, 1, 131_071, 131_072, 131_073, 262_144, 5, 600_000, 7])]
    world = World()
    stream, gateway, connection = world.connect()
    data = b"".join(line + b"\n" for line in lines)
    stream.incoming += [data[at : at + piece] for at in range(0, len(data), piece)]
    while stream.incoming:
        world.pump.readable(connection)
    assert gateway.calls[1:] == lines


def read_full(world: World, stream: Stream, connection: Connection) -> int:
    """Have a connection read while more is there than fits; gives the room that it had."""
    stream.incoming[:] = [b"x\n" * limits.READ_BULK_SIZE_BYTES]
    world.pump.readable(connection)
    return stream.reads[-1]


@pytest.mark.parametrize(("bulky", "size"), [(False, limits.READ_BUFFER_SIZE_BYTES), (True, limits.READ_BULK_SIZE_BYTES)])
def test_who_passes_on_much_is_read_in_larger_pieces(bulky: bool, size: int) -> None:
    world = World()
    stream, gateway, connection = world.connect()
    gateway.bulky = bulky
    world.send(connection, *[b"x\n"] * (limits.READS_MINDING_OTHERS + 1))
    assert read_full(world, stream, connection) == size


class OfAnotherProtocol(Gateway):
    """Speaks something else."""


def test_beside_another_protocol_nobody_is_read_in_larger_pieces() -> None:
    world = World()
    stream, gateway, connection = world.connect()
    _, _, other = world.connect(OfAnotherProtocol())
    gateway.bulky = True
    for _ in range(2):
        world.send(other, b"x\n")
        assert read_full(world, stream, connection) == limits.READ_BUFFER_SIZE_BYTES
        for _ in range(limits.READS_MINDING_OTHERS - 1):
            assert read_full(world, stream, connection) == limits.READ_BUFFER_SIZE_BYTES
        assert read_full(world, stream, connection) == limits.READ_BULK_SIZE_BYTES
