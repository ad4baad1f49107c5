"""Journal frames: all the entries of one turn, written and found again together.

     0     4       8      12            16           24         32                40
    +-----+-------+------+-------------+------------+----------+-----------------+---------------------
    | crc | magic | size | entry count | segment id | sequence | synced sequence | (u32 size, entry) …
    | u32 | u32   | u32  | u32         | u64        | u64      | u64             |
    +-----+-------+------+-------------+------------+----------+-----------------+---------------------

Little-endian; `size` is the whole frame's and the CRC-32C covers bytes 4 to `size`. `synced sequence` is the newest
frame that was known to be synced when this one was written: a bad frame that a later good one calls synced is damage.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from polymq.store.segment import (
    JOURNAL_PARTITION,
    MAGIC_JOURNAL,
    SEGMENT_HEADER_SIZE_BYTES,
    check_segment_header,
    parse_segment_header,
)
from polymq.wire.crc import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "ENTRY_OVERHEAD_BYTES",
    "FRAME_HEADER_SIZE_BYTES",
    "Frame",
    "SegmentScan",
    "entries_of",
    "only_zeros",
    "scan_segment",
    "seal_frame",
    "synced_later",
]

FRAME_HEADER_SIZE_BYTES: Final = 40
ENTRY_OVERHEAD_BYTES: Final = 4
MAGIC: Final = 0x464D5950  # "PYMF"
_MAGIC_BYTES: Final = MAGIC.to_bytes(4, "little")
_HEADER: Final = struct.Struct("<IIIIQQQ")
_U32: Final = struct.Struct("<I")
_ZEROS: Final = bytes(FRAME_HEADER_SIZE_BYTES)
_ZERO_PIECE: Final = bytes(64 * 1024)
assert _HEADER.size == FRAME_HEADER_SIZE_BYTES


class Frame(NamedTuple):
    """A frame header, in the order of the disk."""

    crc: int
    magic: int
    size: int
    entry_count: int
    segment_id: int
    sequence: int
    synced_sequence: int


class SegmentScan(NamedTuple):
    """What a journal segment holds: `frames` are (position, header) of the good ones up to the first bad one.

    `problem` says what is wrong behind the last good frame, at byte `end`; empty if zeros or the file's end follow.
    """

    data: bytes
    segment_id: int
    base_sequence: int
    frames: list[tuple[int, Frame]]
    end: int
    problem: str

    @property
    def next_sequence(self) -> int:
        """The sequence of the frame that would follow."""
        return self.base_sequence + len(self.frames)


def seal_frame(buffer: bytearray, end: int, *, count: int, segment_id: int, sequence: int, synced_sequence: int) -> None:
    """Write the header of the frame whose entries lie in `buffer[FRAME_HEADER_SIZE_BYTES:end]`."""
    _HEADER.pack_into(buffer, 0, 0, MAGIC, end, count, segment_id, sequence, synced_sequence)
    with memoryview(buffer) as view, view[4:end] as covered:
        checksum = crc32c(covered)
    _U32.pack_into(buffer, 0, checksum)


def check_frame(data: bytes, at: int, segment_id: int) -> Frame | str:
    """Read the frame at `at`, or say what is wrong with it."""
    if len(data) - at < FRAME_HEADER_SIZE_BYTES:
        return f"{len(data) - at} bytes are fewer than a frame header has"
    frame = Frame._make(_HEADER.unpack_from(data, at))
    if frame.magic != MAGIC:
        return f"the magic number is 0x{frame.magic:08x}, not 0x{MAGIC:08x}"
    if not FRAME_HEADER_SIZE_BYTES <= frame.size <= len(data) - at:
        return f"the frame claims {frame.size} bytes, {len(data) - at} are there"
    if frame.segment_id != segment_id:
        return "it belongs to another segment"
    checksum = crc32c(memoryview(data)[at + 4 : at + frame.size])
    if checksum != frame.crc:
        return f"the checksum is 0x{checksum:08x}, the frame says 0x{frame.crc:08x}"
    return frame


def scan_segment(data: bytes, base_sequence: int) -> SegmentScan:
    """Find the good frames of a journal segment file. Cost: about 1 µs per frame and the checksums."""
    wrong = check_segment_header(data, MAGIC_JOURNAL, JOURNAL_PARTITION, base_sequence)
    if wrong is not None:
        return SegmentScan(data, 0, base_sequence, [], 0, wrong)
    segment_id = parse_segment_header(data).segment_id
    frames: list[tuple[int, Frame]] = []
    at = SEGMENT_HEADER_SIZE_BYTES
    problem = ""
    while at < len(data):
        frame = check_frame(data, at, segment_id)
        if isinstance(frame, str):
            # Zeros as far as a header would reach: nothing was written here. (With another frame behind, they are a
            # frame whose sectors were lost: `synced_later` and the cut look at the rest.)
            problem = "" if data.startswith(_ZEROS[: len(data) - at], at) else frame
            break
        if frame.sequence != base_sequence + len(frames):
            problem = f"the frame's sequence is {frame.sequence}, {base_sequence + len(frames)} should follow"
            break
        frames.append((at, frame))
        at += frame.size
    return SegmentScan(data, segment_id, base_sequence, frames, at, problem)


def synced_later(scan: SegmentScan, sequence: int) -> bool:
    """Whether a good frame behind the bad place in a segment says that frame `sequence` was synced."""
    at = scan.end
    while scan.segment_id and (at := scan.data.find(_MAGIC_BYTES, at)) >= 0:
        frame = check_frame(scan.data, at - 4, scan.segment_id)
        if not isinstance(frame, str) and frame.sequence > sequence and frame.synced_sequence >= sequence:
            return True
        at += 1
    return any(frame.synced_sequence >= sequence for _, frame in scan.frames if frame.sequence > sequence)


def only_zeros(data: bytes, at: int) -> bool:
    """Whether nothing but zeros follows. Compared in pieces: looking at each byte of 64 MiB would take half a second."""
    return all(data.startswith(_ZERO_PIECE[: len(data) - begin], begin) for begin in range(at, len(data), len(_ZERO_PIECE)))


def entries_of(data: bytes, at: int, frame: Frame) -> Iterator[memoryview]:
    """Go through the entries of a good frame, without a copy."""
    view = memoryview(data)
    end = at + frame.size
    at += FRAME_HEADER_SIZE_BYTES
    while at < end:
        size = _U32.unpack_from(data, at)[0]
        at += ENTRY_OVERHEAD_BYTES
        yield view[at : at + size]
        at += size
