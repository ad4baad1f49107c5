"""Raw deflate, against what nsqd sends, and against bombs and garbage."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.limits import LAYER_PIECE_SIZE_BYTES_MAX
from polymq.wire.deflate import DeflateLayer
from polymq.wire.layers import LayerFailed
from tests.unit.wire.streams import BODY, DEFLATE_READS, OK, cut, take


def test_what_nsqd_sends_is_read() -> None:
    layer = DeflateLayer(6)
    assert take(layer, DEFLATE_READS[0]) == OK
    assert take(layer, DEFLATE_READS[1]) == OK
    assert take(layer, DEFLATE_READS[2]).endswith(BODY)


@given(st.lists(st.binary(max_size=300), max_size=5), st.lists(st.integers(0), max_size=6), st.integers(0, 9))
def test_both_ends_agree_however_the_stream_is_cut(writes: list[bytes], cuts: list[int], level: int) -> None:
    sender, receiver = DeflateLayer(level), DeflateLayer(1)
    stream = b"".join(sender.send(each) for each in writes)
    assert b"".join(take(receiver, piece) for piece in cut(stream, cuts)) == b"".join(writes)


def test_every_write_can_be_read_at_once() -> None:
    sender, receiver = DeflateLayer(6), DeflateLayer(6)
    for write in (b"one", b"two", b"one two " * 1000):
        assert take(receiver, sender.send(write)) == write
    assert (sender.send(b""), sender.close(), sender.wants_write(), sender.established) == (b"", b"", False, True)


def test_the_level_is_that_of_the_output() -> None:
    plain = b"".join(b"%d," % (number * number) for number in range(20_000))
    sizes = [len(DeflateLayer(level).send(plain)) for level in (0, 1, 6)]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] > len(plain)


def test_a_bomb_is_read_piece_by_piece() -> None:
    size = 100 * LAYER_PIECE_SIZE_BYTES_MAX
    bomb = DeflateLayer(6).send(bytes(size))
    layer = DeflateLayer(6)
    pieces = [layer.receive(bomb)]
    while layer.holding:
        pieces.append(layer.receive(b""))
    assert max(map(len, pieces)) == LAYER_PIECE_SIZE_BYTES_MAX
    assert sum(map(len, pieces)) == size


@pytest.mark.parametrize("surplus", [-1, 0, 1])
def test_pieces_at_the_limit(surplus: int) -> None:
    sender, receiver = DeflateLayer(6), DeflateLayer(6)
    plain = bytes(LAYER_PIECE_SIZE_BYTES_MAX + surplus)
    assert take(receiver, sender.send(plain)) == plain
    assert take(receiver, sender.send(b"more")) == b"more"


def test_the_end_of_the_stream_ends_the_layer() -> None:
    layer = DeflateLayer(6)
    compressor = zlib.compressobj(6, zlib.DEFLATED, -15)
    size = LAYER_PIECE_SIZE_BYTES_MAX + 1
    stream = compressor.compress(bytes(size)) + compressor.flush() + b"what is behind it"
    assert len(layer.receive(stream)) == LAYER_PIECE_SIZE_BYTES_MAX
    assert not layer.closing
    assert take(layer, b"") == b"\0"
    assert layer.closing
    assert take(layer, b"anything") == b""


@pytest.mark.parametrize("garbage", [b"\x02garbage!" * 20, b"\xff\xff\xff\xff", zlib.compress(b"with a header")])
def test_garbage(garbage: bytes) -> None:
    with pytest.raises(LayerFailed, match="deflate"):
        take(DeflateLayer(6), garbage)
