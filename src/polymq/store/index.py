"""The sparse index of one log segment: for about every 64 KiB, which offset lies where and when it was appended.

In memory it is three integer arrays. On disk (`.idx`, written when the segment is sealed) it is a 64-byte header and
24 bytes per entry; it can always be made again from the segment, so a missing or damaged one is not an error.

     0     4       8         10    16           24            32           40     48           56          64
    +-----+-------+---------+-----+------------+-------------+------------+------+------------+-----------+
    | crc | magic | version | 0   | segment id | base offset | end offset | used | first time | last time | entries …
    | u32 | u32   | u16     |     | u64        | i64         | i64        | u64  | i64 ns     | i64 ns    | 3 × i64
    +-----+-------+---------+-----+------------+-------------+------------+------+------------+-----------+

An entry is (offset, position, time). The CRC-32C covers everything behind it. Little-endian.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from polymq.store.segment import SEGMENT_HEADER_SIZE_BYTES
from polymq.wire.crc import crc32c

__all__ = ["INDEX_SUFFIX", "IndexEntry", "SparseIndex"]

INDEX_SUFFIX: Final = ".idx"
MAGIC: Final = 0x49_4D_59_50  # "PYMI"
VERSION: Final = 1
_HEADER: Final = struct.Struct("<IIH6xQqqQqq")
_ENTRY_SIZE_BYTES: Final = 24
assert _HEADER.size == 64


class IndexEntry(NamedTuple):
    """A batch begins at byte `position` with record `offset`, appended at `time_ns`."""

    offset: int
    position: int
    time_ns: int


class SparseIndex:
    """Where to start looking in one segment.

    `due` is the position from which on the next batch gets an entry. `complete_from` is the position from which on every batch has been considered: an index that was begun in the
    middle of a segment (the store was restarted) knows nothing of what lies before.
    """

    __slots__ = ("_interval", "complete_from", "due", "last_time_ns", "offsets", "positions", "times")

    def __init__(self, interval_bytes: int, complete_from: int = SEGMENT_HEADER_SIZE_BYTES) -> None:
        self.offsets: array[int] = array("q")
        self.positions: array[int] = array("q")
        self.times: array[int] = array("q")
        self.complete_from = complete_from
        self.last_time_ns = 0
        self._interval = interval_bytes
        self.due = 0

    def add(self, offset: int, position: int, time_ns: int) -> None:
        """Consider the batch that follows the last one considered. Cost: one comparison, mostly."""
        self.last_time_ns = time_ns
        if position >= self.due:
            self.offsets.append(offset)
            self.positions.append(position)
            self.times.append(time_ns)
            self.due = position + self._interval

    def pass_over(self, time_ns: int) -> None:
        """Consider batches before `due`, the last of them of this time."""
        self.last_time_ns = time_ns

    def at_offset(self, offset: int) -> IndexEntry | None:
        """Give the last entry at or before an offset; None if the index begins behind it."""
        index = bisect_right(self.offsets, offset) - 1
        return None if index < 0 else IndexEntry(self.offsets[index], self.positions[index], self.times[index])

    def before_position(self, position: int) -> IndexEntry | None:
        """Give the last entry at or before a position."""
        index = bisect_right(self.positions, position) - 1
        return None if index < 0 else IndexEntry(self.offsets[index], self.positions[index], self.times[index])

    def before_time(self, time_ns: int) -> IndexEntry | None:
        """Give the last entry that is earlier than a time: what is not earlier begins behind it."""
        index = bisect_left(self.times, time_ns) - 1
        return None if index < 0 else IndexEntry(self.offsets[index], self.positions[index], self.times[index])

    def put_before(self, earlier: SparseIndex) -> None:
        """Complete an index that was begun in the middle with one of what lies before."""
        count = bisect_left(earlier.positions, self.complete_from)
        self.offsets = earlier.offsets[:count] + self.offsets
        self.positions = earlier.positions[:count] + self.positions
        self.times = earlier.times[:count] + self.times
        self.complete_from = earlier.complete_from
        self.last_time_ns = max(self.last_time_ns, earlier.last_time_ns)

    def copy(self) -> SparseIndex:
        """Copy it, for a job in the worker."""
        twin = SparseIndex(self._interval, self.complete_from)
        twin.offsets, twin.positions, twin.times = self.offsets[:], self.positions[:], self.times[:]
        twin.last_time_ns, twin.due = self.last_time_ns, self.due
        return twin

    def encode(self, *, segment_id: int, base_offset: int, end_offset: int, used: int) -> bytes:
        """Write the `.idx` file of a sealed segment."""
        entries: array[int] = array("q")
        for row in zip(self.offsets, self.positions, self.times, strict=True):
            entries.extend(row)
        if sys.byteorder == "big":
            entries.byteswap()
        first_time_ns = self.times[0] if self.times else 0
        header = bytearray(_HEADER.size)
        _HEADER.pack_into(header, 0, 0, MAGIC, VERSION, segment_id, base_offset, end_offset, used, first_time_ns, self.last_time_ns)
        data = bytes(header) + entries.tobytes()
        return struct.pack("<I", crc32c(data[4:])) + data[4:]

    @classmethod
    def decode(cls, data: bytes, *, segment_id: int, base_offset: int, interval_bytes: int) -> tuple[SparseIndex, int, int] | None:
        """Read an `.idx` file: (index, end offset, used bytes); None if it is not that segment's or is damaged."""
        if len(data) < _HEADER.size or (len(data) - _HEADER.size) % _ENTRY_SIZE_BYTES:
            return None
        crc, magic, version, owner, base, end_offset, used, _, last_time_ns = _HEADER.unpack_from(data)
        if (magic, version, owner, base) != (MAGIC, VERSION, segment_id, base_offset) or crc != crc32c(data[4:]):
            return None
        entries: array[int] = array("q")
        entries.frombytes(data[_HEADER.size :])
        if sys.byteorder == "big":
            entries.byteswap()
        index = cls(interval_bytes)
        index.offsets, index.positions, index.times = entries[0::3], entries[1::3], entries[2::3]
        index.last_time_ns = last_time_ns
        return index, end_offset, used
