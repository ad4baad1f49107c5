"""The store's own entries in the journal. An entry's first byte is its kind: 0 to 31 are the store's, the rest the core's.

| kind | | fields, little-endian |
|---|---|---|
| 1 | start of a life (format 1) | epoch u32, boot id (UTF-8, the rest) |
| 2 | clean stop | – |
| 3 | checkpoint of a partition | see `Checkpoint` |
| 4 | partition deleted | number u32 |
| 5 | snapshot in one go begins (format 1) | – |
| 6 | snapshot in one go ends (format 1) | – |
| 7 | snapshot begins | – |
| 8 | piece of a snapshot: the rest of the frame | u8: 1 if the piece goes on in a later frame |
| 9 | snapshot is complete | – |
| 10 | partitions are about to be written, or were, behind their last checkpoint | numbers u32 … |
| 11 | start of a life that announces what it writes by 10 | epoch u32, boot id (UTF-8, the rest) |
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CLEAN_STOP",
    "CORE_KIND_MIN",
    "KIND_CHECKPOINT",
    "KIND_CLEAN_STOP",
    "KIND_DELETED",
    "KIND_PIECE",
    "KIND_SNAPSHOT_BEGIN",
    "KIND_SNAPSHOT_END",
    "KIND_START",
    "KIND_START_SILENT",
    "KIND_WHOLE_SNAPSHOT_BEGIN",
    "KIND_WHOLE_SNAPSHOT_END",
    "KIND_WRITTEN",
    "PIECE",
    "PIECE_GOES_ON",
    "SNAPSHOT_BEGIN",
    "SNAPSHOT_END",
    "Checkpoint",
    "Start",
    "decode_checkpoint",
    "decode_deleted",
    "decode_start",
    "decode_written",
    "encode_checkpoint",
    "encode_deleted",
    "encode_start",
    "encode_written",
]

# In that life any partition may have been written without a word: format 1 announced nothing. Or what was announced
# before it may be lost (`committer.UNSURE_NAME`).
KIND_START_SILENT: Final = 1
KIND_CLEAN_STOP: Final = 2
KIND_CHECKPOINT: Final = 3
KIND_DELETED: Final = 4
# Written by format 1: nothing but the snapshot's entries stands between the two.
KIND_WHOLE_SNAPSHOT_BEGIN: Final = 5
KIND_WHOLE_SNAPSHOT_END: Final = 6
KIND_SNAPSHOT_BEGIN: Final = 7
KIND_PIECE: Final = 8
KIND_SNAPSHOT_END: Final = 9
KIND_WRITTEN: Final = 10
KIND_START: Final = 11
CORE_KIND_MIN: Final = 32
CLEAN_STOP: Final = bytes([KIND_CLEAN_STOP])
SNAPSHOT_BEGIN: Final = bytes([KIND_SNAPSHOT_BEGIN])
SNAPSHOT_END: Final = bytes([KIND_SNAPSHOT_END])
# Both are the first entry of a frame that holds nothing else but entries of the snapshot.
PIECE: Final = bytes([KIND_PIECE, 0])
PIECE_GOES_ON: Final = bytes([KIND_PIECE, 1])

_START: Final = struct.Struct("<BI")
_DELETED: Final = struct.Struct("<BI")
_CHECKPOINT: Final = struct.Struct("<B3xIqqqQQqQI")
_EPOCH: Final = struct.Struct("<Iq")


@dataclass(frozen=True, slots=True)
class Start:
    """A process has opened the folder, in this boot of the machine, under this epoch."""

    boot_id: str
    epoch: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Up to here a partition is synced: what is not found before this point is damage, not a torn tail.

    `position` is in the segment `segment_base` (-1: the partition has no segment), up to record `end`.
    `sealed_size_bytes` is what the segments before it hold. `epochs` are (epoch, first offset), oldest first.
    """

    number: int
    start: int
    end: int
    segment_base: int
    segment_id: int
    position: int
    last_time_ns: int
    sealed_size_bytes: int
    epochs: tuple[tuple[int, int], ...]


def encode_start(start: Start, *, silent: bool = False) -> bytes:
    """Write the entry; `silent`: any partition may have been written behind its checkpoint, announced or not."""
    return _START.pack(KIND_START_SILENT if silent else KIND_START, start.epoch) + start.boot_id.encode()


def decode_start(entry: bytes | memoryview) -> Start:
    """Read the entry."""
    return Start(bytes(entry[_START.size :]).decode(), _START.unpack_from(entry)[1])


def encode_written(numbers: Sequence[int]) -> bytes:
    """Write the entry."""
    return struct.pack(f"<B{len(numbers)}I", KIND_WRITTEN, *numbers)


def decode_written(entry: bytes | memoryview) -> tuple[int, ...]:
    """Read the entry: the partitions' numbers."""
    return struct.unpack(f"<{(len(entry) - 1) // 4}I", entry[1:])


def encode_deleted(number: int) -> bytes:
    """Write the entry."""
    return _DELETED.pack(KIND_DELETED, number)


def decode_deleted(entry: bytes | memoryview) -> int:
    """Read the entry: the partition's number."""
    number: int = _DELETED.unpack(entry)[1]
    return number


def encode_checkpoint(point: Checkpoint) -> bytes:
    """Write the entry."""
    return _CHECKPOINT.pack(
        KIND_CHECKPOINT,
        point.number,
        point.start,
        point.end,
        point.segment_base,
        point.segment_id,
        point.position,
        point.last_time_ns,
        point.sealed_size_bytes,
        len(point.epochs),
    ) + b"".join([_EPOCH.pack(*pair) for pair in point.epochs])


def decode_checkpoint(entry: bytes | memoryview) -> Checkpoint:
    """Read the entry."""
    _, number, start, end, base, segment_id, position, last_time_ns, sealed, _ = _CHECKPOINT.unpack_from(entry)
    epochs = tuple((epoch, first) for epoch, first in _EPOCH.iter_unpack(entry[_CHECKPOINT.size :]))
    return Checkpoint(number, start, end, base, segment_id, position, last_time_ns, sealed, epochs)
