"""One file of a chain: its 64-byte header, and what the store knows about it while it runs.

A segment is preallocated, so its length says nothing about how much of it is used: bytes behind the last batch are
zeros, and everything that is written names the segment's random id. Log segments hold record batches, journal
segments hold frames; both have this header.

     0     4       8         10         12          16           24            32            40           48       52    64
    +-----+-------+---------+----------+-----------+------------+-------------+-------------+------------+--------+-----+
    | crc | magic | version | reserved | partition | segment id | base offset | created     | size bytes | epoch  | 0   |
    | u32 | u32   | u16     | u16      | u32       | u64        | i64         | i64 ns      | u64        | u32    |     |
    +-----+-------+---------+----------+-----------+------------+-------------+-------------+------------+--------+-----+

All little-endian; the CRC-32C covers bytes 4 to 64. `base offset` is a journal segment's first frame sequence.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from polymq.wire.crc import crc32c

if TYPE_CHECKING:
    from polymq.store.files import File
    from polymq.store.index import SparseIndex

__all__ = [
    "JOURNAL_PARTITION",
    "MAGIC_JOURNAL",
    "MAGIC_LOG",
    "SEGMENT_HEADER_SIZE_BYTES",
    "Segment",
    "SegmentHeader",
    "check_segment_header",
    "encode_segment_header",
    "parse_segment_header",
    "write_again",
]

SEGMENT_HEADER_SIZE_BYTES: Final = 64
_WRITE_AGAIN_SIZE_BYTES: Final = 1024 * 1024
MAGIC_LOG: Final = 0x534D5950  # "PYMS"
MAGIC_JOURNAL: Final = 0x4A4D5950  # "PYMJ"
VERSION: Final = 1
# No partition has this number (limits.PARTITION_NUMBER_MAX is far below).
JOURNAL_PARTITION: Final = 0xFFFF_FFFF

_HEADER: Final = struct.Struct("<IIHHIQqqQI12x")
assert _HEADER.size == SEGMENT_HEADER_SIZE_BYTES


class SegmentHeader(NamedTuple):
    """The first 64 bytes of a segment file, in the order of the disk."""

    crc: int
    magic: int
    version: int
    reserved: int
    partition: int
    segment_id: int
    base_offset: int
    created_ns: int
    size_bytes: int
    epoch: int


def encode_segment_header(
    magic: int, partition: int, *, segment_id: int, base_offset: int, created_ns: int, size_bytes: int, epoch: int
) -> bytes:
    """Write a header, checksum included."""
    header = bytearray(SEGMENT_HEADER_SIZE_BYTES)
    _HEADER.pack_into(header, 0, 0, magic, VERSION, 0, partition, segment_id, base_offset, created_ns, size_bytes, epoch)
    struct.pack_into("<I", header, 0, crc32c(bytes(header[4:])))
    return bytes(header)


def parse_segment_header(data: bytes | memoryview) -> SegmentHeader:
    """Read a header; whether it is one is for `check_segment_header` to say. 64 bytes must be there."""
    return SegmentHeader._make(_HEADER.unpack_from(data))


def check_segment_header(data: bytes | memoryview, magic: int, partition: int, base_offset: int) -> str | None:
    """Say what is wrong with the header of a file that should be this segment; None if nothing is."""
    if len(data) < SEGMENT_HEADER_SIZE_BYTES:
        return f"the file has {len(data)} bytes, fewer than a segment header"
    header = parse_segment_header(data)
    if header.magic != magic:
        return f"the magic number is 0x{header.magic:08x}, not 0x{magic:08x}"
    checksum = crc32c(data[4:SEGMENT_HEADER_SIZE_BYTES])
    if checksum != header.crc:
        return f"the segment header's checksum is 0x{checksum:08x}, it says 0x{header.crc:08x}"
    if header.version != VERSION:
        return f"the format version is {header.version}, this program reads {VERSION}"
    if header.partition != partition or header.base_offset != base_offset:
        return f"it is segment {header.base_offset} of partition {header.partition}, not {base_offset} of {partition}"
    return None


class Segment:
    """What is known about one segment file; owned by the loop's thread.

    `used` counts the bytes that were written, `readable_used` those that readers may see (both 0 while a segment of
    an earlier life has not been looked at), `own_from` is where this process began to write: what lies before came
    from the disk and is checked whenever it is read. `heat` is the volume's `heat` when it was last written.
    """

    __slots__ = (
        "base_offset",
        "created_ns",
        "end_offset",
        "file",
        "heat",
        "index",
        "known",
        "own_from",
        "path",
        "readable_used",
        "segment_id",
        "size_bytes",
        "touched",
        "used",
        "view",
    )

    def __init__(self, path: str, base_offset: int) -> None:
        self.path = path
        self.base_offset = base_offset
        self.end_offset = base_offset
        self.segment_id = 0
        self.created_ns = 0
        self.size_bytes = 0
        self.used = 0
        self.readable_used = 0
        self.own_from = 0
        self.heat = 0
        self.known = False
        self.touched = False
        self.file: File | None = None
        self.view: memoryview | None = None
        self.index: SparseIndex | None = None

    def outline(self) -> Segment:
        """Copy what says which file it is and how much of it counts, for a job in the worker."""
        twin = Segment(self.path, self.base_offset)
        twin.segment_id, twin.used = self.segment_id, self.used
        return twin

    def release(self) -> None:
        """Let go of descriptor and map; whoever still holds a view of the map may go on reading it."""
        file, self.file, self.view = self.file, None, None
        if file is not None:
            file.close()


def write_again(file: File, size: int) -> None:
    """Write the first `size` bytes of a file as they are (0: all), so that the next sync covers them whatever the last one did.

    Raises OSError. Cost: a read out of the page cache and a write into it.
    """
    size = size or file.size()
    for position in range(0, size, _WRITE_AGAIN_SIZE_BYTES):
        data = file.pread(min(_WRITE_AGAIN_SIZE_BYTES, size - position), position)
        file.pwrite(data, position)
