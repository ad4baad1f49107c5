"""Snappy's framing format as a byte layer: chunks of at most 64 KiB, each with a checksum.

The library compresses and checks; this file finds whole chunks and keeps the sizes within bounds before it is called,
once per read, for all of them.

     0      1               4              8
    +------+---------------+--------------+---------------------+
    | type | size          | masked       | data                |
    | u8   | u24 little    | CRC-32C, u32 | size - 4 bytes      |
    +------+---------------+--------------+---------------------+

Types: 0x00 compressed, 0x01 as it is, 0xFF the stream's identifier (no checksum), which comes first and may come again
(a client makes a new compressor per write), 0x80 … 0xFE to be skipped, others unknown.
Source: framing_format.txt of snappy; the limits on skipped chunks are those of Go's snappy 0.0.4.
"""

from __future__ import annotations

import struct
from typing import Final

import cramjam

from polymq.limits import LAYER_CHUNKS_PER_PIECE_MAX, LAYER_PIECE_SIZE_BYTES_MAX
from polymq.wire.layers import LayerFailed

__all__ = ["SnappyLayer"]

_IDENTIFIER: Final = b"\xff\x06\x00\x00sNaPpY"
_HEADER: Final = struct.Struct("<I")  # type and size
_HEADER_SIZE_BYTES: Final = 4
_CHECKSUM_SIZE_BYTES: Final = 4
_COMPRESSED: Final = 0x00
_UNCOMPRESSED: Final = 0x01
_SKIPPED_FIRST: Final = 0x80
_STREAM_IDENTIFIER: Final = 0xFF
_BLOCK_SIZE_BYTES_MAX: Final = 64 * 1024
# What is sent in one chunk. The format allows more, but pynsq gives a connection up when a read has no whole chunk in it;
# nsqd's chunks are of this size as well, because that is how much it gathers for a client by default.
_SENT_BLOCK_SIZE_BYTES: Final = 16 * 1024
# What snappy makes of the largest block at worst, and the checksum. Go refuses larger chunks of any type.
_CHUNK_SIZE_BYTES_MAX: Final = _CHECKSUM_SIZE_BYTES + 32 + _BLOCK_SIZE_BYTES_MAX + _BLOCK_SIZE_BYTES_MAX // 6
# The decompressed size is a number of 7 bits a byte, and within the limit has at most three.
_SIZE_DIGITS_MAX: Final = 3

assert _BLOCK_SIZE_BYTES_MAX <= LAYER_PIECE_SIZE_BYTES_MAX


class SnappyLayer:
    """One connection's snappy, either side.

    Limits:  `receive` takes at most LAYER_CHUNKS_PER_PIECE_MAX chunks and returns at most LAYER_PIECE_SIZE_BYTES_MAX
             bytes, perhaps none while it is holding more; what is behind them stays compressed.
    Cost:    one call of the library per read and one per 16 KiB written; some 0.5 µs for each chunk that is read.
    """

    established = True

    def __init__(self) -> None:
        self.closing = False
        self.holding = False
        # Chunks that have come, behind an identifier of our own, because the library wants each of its calls to have one.
        self._chunks = bytearray(_IDENTIFIER)
        self._begun = False
        self._greeted = False

    def receive(self, data: bytes) -> bytes:
        """Decompress whole chunks up to the limit; raises LayerFailed."""
        assert not (data and self.holding)
        chunks = self._chunks
        chunks += data
        end, size = self._measure()
        if end == len(_IDENTIFIER):
            return b""
        plain = bytearray(size)
        try:
            with memoryview(chunks) as view:
                count = cramjam.snappy.decompress_into(view[:end], plain)
        except cramjam.DecompressionError as error:
            raise LayerFailed(str(error)) from error
        if count != size:
            raise LayerFailed("snappy: a chunk is shorter than it says")
        del chunks[len(_IDENTIFIER) : end]
        return bytes(plain)

    def send(self, data: bytes) -> bytes:
        """Compress into whole chunks; the stream's identifier goes in front of the first."""
        if not data:
            return b""
        parts = [b"" if self._greeted else _IDENTIFIER]
        self._greeted = True
        for at in range(0, len(data), _SENT_BLOCK_SIZE_BYTES):
            with memoryview(cramjam.snappy.compress(data[at : at + _SENT_BLOCK_SIZE_BYTES])) as framed:
                parts.append(bytes(framed[len(_IDENTIFIER) :]))
        return b"".join(parts)

    def wants_write(self) -> bool:
        """Everything has been written."""
        return False

    def close(self) -> bytes:
        """End without a word: the format has none."""
        return b""

    def _measure(self) -> tuple[int, int]:
        """Find how far the whole chunks go that fit one piece, and how large they are decompressed."""
        chunks = self._chunks
        at, end, total, count = len(_IDENTIFIER), len(chunks), 0, 0
        unpack = _HEADER.unpack_from
        self.holding = False
        while end - at >= _HEADER_SIZE_BYTES:
            header: int = unpack(chunks, at)[0]
            kind, after = header & 0xFF, at + _HEADER_SIZE_BYTES + (header >> 8)
            if not self._begun:
                if kind != _STREAM_IDENTIFIER:
                    raise LayerFailed("snappy: the stream does not begin with its identifier")
                self._begun = True
            if header >> 8 > _CHUNK_SIZE_BYTES_MAX:
                raise LayerFailed(f"snappy: a chunk of {header >> 8} bytes")
            if after > end:
                break
            if kind == _COMPRESSED:
                size = _block_size(chunks, at + _HEADER_SIZE_BYTES + _CHECKSUM_SIZE_BYTES, after)
            elif kind == _UNCOMPRESSED:
                size = after - at - _HEADER_SIZE_BYTES - _CHECKSUM_SIZE_BYTES
            elif kind >= _SKIPPED_FIRST:
                size = 0
            else:
                raise LayerFailed(f"snappy: an unknown type of chunk, 0x{kind:02x}")
            if not 0 <= size <= _BLOCK_SIZE_BYTES_MAX:
                raise LayerFailed(f"snappy: a block of {size} bytes")
            if total + size > LAYER_PIECE_SIZE_BYTES_MAX or count == LAYER_CHUNKS_PER_PIECE_MAX:
                self.holding = True
                break
            total += size
            count += 1
            at = after
        return at, total


def _block_size(chunks: bytearray, at: int, end: int) -> int:
    """Read how large a compressed block says that it is; -1 if that cannot be right."""
    size = 0
    for index, digit in enumerate(chunks[at : min(end, at + _SIZE_DIGITS_MAX)]):
        size |= (digit & 0x7F) << (7 * index)
        if digit < 0x80:
            return size
    return -1
