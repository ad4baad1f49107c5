"""Snappy's framing format, against what nsqd sends and against every wrong chunk."""

from __future__ import annotations

import random
import struct

import cramjam
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from polymq.limits import LAYER_CHUNKS_PER_PIECE_MAX, LAYER_PIECE_SIZE_BYTES_MAX
from polymq.wire.layers import LayerFailed
from polymq.wire.snappy import SnappyLayer
from tests.unit.wire.streams import BODY, OK, SNAPPY_READS, cut, take

IDENTIFIER = b"\xff\x06\x00\x00sNaPpY"
BLOCK = 64 * 1024


def chunk(kind: int, data: bytes) -> bytes:
    return struct.pack("<I", kind | len(data) << 8) + data


def checked(plain: bytes, data: bytes, *, kind: int = 0) -> bytes:
    """A chunk with a checksum, written without the library's framing."""
    crc = crc32c(plain)
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return chunk(kind, struct.pack("<I", masked) + data)


def compressed(plain: bytes) -> bytes:
    return checked(plain, bytes(cramjam.snappy.compress_raw(plain)))


def test_what_nsqd_sends_is_read() -> None:
    layer = SnappyLayer()
    assert take(layer, SNAPPY_READS[0]) == OK
    assert take(layer, SNAPPY_READS[1]) == OK
    assert take(layer, SNAPPY_READS[2]).endswith(BODY)


def test_what_is_written_is_what_nsqd_writes() -> None:
    layer = SnappyLayer()
    assert [layer.send(OK), layer.send(b""), layer.send(OK)] == [SNAPPY_READS[0], b"", SNAPPY_READS[1]]
    assert (layer.close(), layer.wants_write(), layer.established, layer.closing) == (b"", False, True, False)


@given(st.lists(st.binary(max_size=300), max_size=5), st.lists(st.integers(0), max_size=6))
def test_both_ends_agree_however_the_stream_is_cut(writes: list[bytes], cuts: list[int]) -> None:
    sender, receiver = SnappyLayer(), SnappyLayer()
    stream = b"".join(sender.send(each) for each in writes)
    assert b"".join(take(receiver, piece) for piece in cut(stream, cuts)) == b"".join(writes)


def test_a_large_write_is_read_piece_by_piece() -> None:
    plain = bytes(range(256)) * 4096 + b"!"
    sender, receiver = SnappyLayer(), SnappyLayer()
    first = receiver.receive(sender.send(plain))
    assert len(first) == LAYER_PIECE_SIZE_BYTES_MAX
    assert receiver.holding
    assert first + take(receiver, b"") == plain
    assert not receiver.holding


@pytest.mark.parametrize("kind", [0x80, 0xFE, 0xFF])
def test_chunks_that_mean_nothing_are_counted(kind: int) -> None:
    empty = IDENTIFIER if kind == 0xFF else chunk(kind, b"")
    layer = SnappyLayer()
    assert layer.receive(IDENTIFIER + empty * (3 * LAYER_CHUNKS_PER_PIECE_MAX) + compressed(b"end")) == b""
    for _ in range(3):
        assert layer.holding
        last = layer.receive(b"")
    assert last == b"end"
    assert not layer.holding


def test_tiny_chunks_are_counted() -> None:
    layer = SnappyLayer()
    stream = IDENTIFIER + compressed(b"x") * (2 * LAYER_CHUNKS_PER_PIECE_MAX)
    assert len(layer.receive(stream)) == LAYER_CHUNKS_PER_PIECE_MAX - 1
    assert layer.holding
    assert len(take(layer, b"")) == LAYER_CHUNKS_PER_PIECE_MAX + 1


def test_a_write_is_cut_into_chunks_that_clients_can_wait_for() -> None:
    noise = random.Random(1).randbytes(40_000)
    stream = SnappyLayer().send(noise)[len(IDENTIFIER) :]
    sizes = []
    while stream:
        size = int.from_bytes(stream[1:4], "little")
        sizes.append(size - 4)
        stream = stream[4 + size :]
    assert sizes == [16_384, 16_384, 7232]


def test_an_identifier_before_every_chunk_is_fine() -> None:
    stream = b"".join(bytes(cramjam.snappy.compress(each)) for each in (b"one ", b"two " * 50, b"three"))
    assert take(SnappyLayer(), stream) == b"one " + b"two " * 50 + b"three"


def test_padding_and_chunks_to_be_skipped_are() -> None:
    stream = IDENTIFIER + chunk(0xFE, bytes(70)) + compressed(b"a") + chunk(0x80, b"unknown") + checked(b"b", b"b", kind=1)
    assert take(SnappyLayer(), stream) == b"ab"


def test_the_largest_blocks() -> None:
    plain = bytes(range(256)) * (BLOCK // 256)
    assert take(SnappyLayer(), IDENTIFIER + compressed(plain) + checked(plain, plain, kind=1)) == plain * 2


@pytest.mark.parametrize(
    ("stream", "reason"),
    [
        (b"SUB topic channel\n", "does not begin with its identifier"),
        (compressed(b"x"), "does not begin with its identifier"),
        (b"\xff\x06\x00\x00sNaPpX" + compressed(b"x"), "snappy"),
        (b"\xff\x05\x00\x00sNaPp" + compressed(b"x"), "snappy"),
        (IDENTIFIER + chunk(0x02, b"abcd"), "unknown type of chunk, 0x02"),
        (IDENTIFIER + chunk(0x7F, b"abcd"), "unknown type of chunk, 0x7f"),
        (IDENTIFIER + struct.pack("<I", 0xFFFFFF00), "chunk of 16777215 bytes"),
        (IDENTIFIER + struct.pack("<I", 0xFFFFFFFE), "chunk of 16777215 bytes"),
        (IDENTIFIER + checked(bytes(BLOCK + 1), bytes(BLOCK + 1), kind=1), "block of 65537 bytes"),
        (IDENTIFIER + compressed(bytes(BLOCK + 1)), "block of 65537 bytes"),
        (IDENTIFIER + chunk(0, b"1234\xff\xff\xff\xff\x0f"), "block of -1 bytes"),
        (IDENTIFIER + chunk(0, b"1234\x80"), "block of -1 bytes"),
        (IDENTIFIER + chunk(0, b"123"), "block of -1 bytes"),
        (IDENTIFIER + chunk(1, b"123"), "block of -1 bytes"),
        (IDENTIFIER + compressed(b"x" * 100)[:-1] + b"\x01", "snappy"),
        (IDENTIFIER + checked(b"x", b"y", kind=1), "snappy"),
        (IDENTIFIER + compressed(b"abc") + b"\0", ""),
    ],
)
def test_wrong_streams(stream: bytes, reason: str) -> None:
    if not reason:  # the control: not whole is not wrong
        assert take(SnappyLayer(), stream) == b"abc"
        return
    with pytest.raises(LayerFailed, match=reason):
        take(SnappyLayer(), stream)


def test_chunks_of_nothing_hold_nothing_up() -> None:
    layer = SnappyLayer()
    assert take(layer, IDENTIFIER + compressed(b"") * 1000) == b""
    assert take(layer, compressed(b"x")) == b"x"
