"""Finding the end of a partition after an unclean stop: check batches from the last checkpoint on, cut what is torn.

What lies before the checkpoint was synced; if it is not there any more, that is damage: the partition is fenced. What
lies behind it may be incomplete in any way, since a power loss keeps any subset of unsynced sectors: the first batch
that is not good ends the log, everything behind it becomes zeros and later segments go, durably, before anything new
is written. Otherwise a stale batch behind the cut could come back at the next crash, when a new one of the same size
has been written before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.errors import CorruptRecord
from polymq.store.frames import only_zeros
from polymq.store.retention import index_path
from polymq.store.runs import Walk, scan
from polymq.store.segment import (
    MAGIC_LOG,
    SEGMENT_HEADER_SIZE_BYTES,
    check_segment_header,
    parse_segment_header,
)
from polymq.store.volume import is_passing
from polymq.wire.batch import PRODUCER_BROKER, read_note

if TYPE_CHECKING:
    from polymq.store.entries import Checkpoint
    from polymq.store.files import File, Files
    from polymq.store.segment import Segment
    from polymq.wire.records import BatchHeader

__all__ = [
    "PARTITIONS_FOLDER",
    "SEGMENT_SUFFIX",
    "RecoveredLog",
    "log_segments",
    "look_at_active",
    "look_at_last",
    "partition_folder",
    "recover_log",
    "segment_path",
    "tidy",
]

PARTITIONS_FOLDER: Final = "partitions"
SEGMENT_SUFFIX: Final = ".seg"
_ZERO_CHUNK_SIZE_BYTES: Final = 1024 * 1024


def partition_folder(number: int) -> str:
    """The folder of a partition."""
    return f"{PARTITIONS_FOLDER}/{number:07d}"


def segment_path(number: int, base_offset: int) -> str:
    """The file of a segment."""
    return f"{PARTITIONS_FOLDER}/{number:07d}/{base_offset:020d}{SEGMENT_SUFFIX}"


def log_segments(files: Files, number: int) -> list[int]:
    """List the base offsets of a partition's segments, in order."""
    names = files.list(partition_folder(number))
    return sorted(int(name[: -len(SEGMENT_SUFFIX)]) for name in names if name.endswith(SEGMENT_SUFFIX) and name[0].isdigit())


@dataclass(slots=True)
class RecoveredLog:
    """What a partition consists of. `bases` are its segments'; the last of them is written on at `position`."""

    start: int = 0
    end: int = 0
    bases: list[int] = field(default_factory=list)
    segment_id: int = 0
    position: int = 0
    last_time_ns: int = 0
    sealed_size_bytes: int = 0
    epochs: list[tuple[int, int]] = field(default_factory=list)
    # How far it was already known to be synced, and whether there is anything behind that, if only an empty segment.
    synced: int = 0
    unsynced: bool = False
    # What the broker noted in batches behind the checkpoint: (first offset, epoch, note).
    notes: list[tuple[int, int, bytes]] = field(default_factory=list)
    failed: str = ""


def recover_log(files: Files, number: int, point: Checkpoint | None, *, same_boot: bool) -> RecoveredLog:
    """Find the end of a partition and make the disk agree with it.

    `same_boot`: the machine has run on since, so the page cache has kept everything that was written in order, and
    zeros in a header's place mean that nothing follows. Raises OSError.
    """
    found = RecoveredLog()
    bases = log_segments(files, number)
    if point is not None:
        found.start, found.end, found.synced = point.start, point.end, point.end
        found.segment_id, found.position = point.segment_id, point.position
        found.last_time_ns, found.sealed_size_bytes = point.last_time_ns, point.sealed_size_bytes
        found.epochs = list(point.epochs)
    leftover = [base for base in bases if base < found.start]
    bases = bases[len(leftover) :]
    doomed = leftover
    if point is not None and point.segment_base >= 0:
        found.bases = [base for base in bases if base <= point.segment_base]
        if point.segment_base not in bases or found.bases[0] != found.start:
            found.failed = f"segment {found.start if found.bases and found.bases[0] != found.start else point.segment_base} is missing"
            return found
        bases = bases[len(found.bases) - 1 :]
    doomed = doomed + _Recovery(files, number, found, same_boot=same_boot).run(bases)
    paths = [segment_path(number, base) for base in doomed]
    if found.bases:
        # The last segment is written on: an index from when it was full, before its end was cut, would be wrong.
        index = index_path(segment_path(number, found.bases[-1]))
        paths += [index] if files.exists(index) else []
    if not found.failed and paths:
        for path in paths:
            files.remove(path)
        files.sync_folder(partition_folder(number))
    return found


class _Recovery:
    """One recovery of one partition."""

    def __init__(self, files: Files, number: int, found: RecoveredLog, *, same_boot: bool) -> None:
        self.files = files
        self.number = number
        self.found = found
        self.same_boot = same_boot
        # The segment in which the checkpoint lies has to be there up to the checkpoint.
        self.synced_base = found.bases[-1] if found.bases else -1

    def run(self, bases: list[int]) -> list[int]:
        """Walk through the segments from the checkpoint's on; return those that do not belong to the log."""
        for index, base in enumerate(bases):
            if base != self.synced_base and base != self.found.end:
                return bases[index:]
            file = self.files.open(segment_path(self.number, base))
            try:
                whole = self.segment(file, base)
            finally:
                file.close()
            if self.found.failed:
                return []
            if not whole:
                follows = base == self.found.bases[-1] if self.found.bases else False
                return bases[index + 1 :] if follows else bases[index:]
        return []

    def segment(self, file: File, base: int) -> bool:
        """Walk through one segment; tell whether the next one may follow."""
        found = self.found
        size = file.size()
        data = file.pread(SEGMENT_HEADER_SIZE_BYTES, 0)
        wrong = check_segment_header(data, MAGIC_LOG, self.number, base)
        position = SEGMENT_HEADER_SIZE_BYTES
        if base == self.synced_base:
            position = found.position
            if wrong is None and parse_segment_header(data).segment_id != found.segment_id:
                wrong = "it is another segment of the same name"
            if wrong is None and size < position:
                wrong = f"the file has {size} bytes, {position} were synced"
            if wrong is not None:
                found.failed = f"{segment_path(self.number, base)}: {wrong}"
                return False
        elif wrong is not None:
            return False
        else:
            found.sealed_size_bytes += found.position
            found.bases.append(base)
            found.unsynced = True
            found.segment_id = parse_segment_header(data).segment_id
        noted: list[tuple[int, BatchHeader]] = []

        def on_batch(at: int, header: BatchHeader) -> None:
            if header.producer_id == PRODUCER_BROKER:
                noted.append((at, header))

        epoch = found.epochs[-1][0] if found.epochs else 0
        walk = Walk(found.segment_id, found.end, epoch=epoch, time_ns=found.last_time_ns, on_batch=on_batch)
        found.position = scan(file.pread, walk, position, size)
        found.unsynced = found.unsynced or walk.offset > found.end
        found.end, found.last_time_ns = walk.offset, walk.time_ns
        found.epochs += walk.epochs
        for at, header in noted:
            found.notes.append((header.base_offset, header.epoch, read_note(file.pread(header.size, at), 0)))
        cut = bool(walk.problem) or (walk.ended and not self.same_boot and not _zeros(file, found.position, size))
        if cut:
            file.truncate(found.position)
            file.allocate(size)
            file.sync()
        return not cut


def tidy(files: Files, number: int, last_base: int) -> None:
    """Remove segments behind the last one, begun in a turn that a kill has ended before its commit; `last_base` is -1 if there is none.

    A turn that stages several batches begins as many as it needs, each where the batches before it would have ended.
    Left there, they would stand between those that are written later: the log would end at one of them after the next
    crash. Raises OSError. Cost: a listing.
    """
    begun = [base for base in log_segments(files, number) if base > last_base]
    for base in begun:
        files.remove(segment_path(number, base))
    if begun:
        files.sync_folder(partition_folder(number))


def look_at_active(file: File, number: int, segment: Segment) -> tuple[int, int]:
    """Make sure that an open file is the segment that a checkpoint speaks of: (created, size). Raises OSError, CorruptRecord."""
    data = file.pread(SEGMENT_HEADER_SIZE_BYTES, 0)
    size = file.size()
    wrong = check_segment_header(data, MAGIC_LOG, number, segment.base_offset)
    if wrong is None and parse_segment_header(data).segment_id != segment.segment_id:
        wrong = "another segment of the same name"
    if wrong is None and size < segment.used:
        wrong = f"{size} bytes"
    if wrong is not None:
        raise CorruptRecord(segment.path, position=0, expected=f"the last segment with {segment.used} bytes", found=wrong)
    return parse_segment_header(data).created_ns, size


def look_at_last(files: Files, number: int, segment: Segment) -> str:
    """Say what is wrong with a partition's last segment, as `look_at_active` does; empty if nothing is, or it cannot be told now.

    Runs in the worker, so the segment is a copy.
    """
    try:
        file = files.open(segment.path)
        try:
            look_at_active(file, number, segment)
        finally:
            file.close()
    except (OSError, CorruptRecord) as error:
        return "" if is_passing(error) else str(error)
    return ""


def _zeros(file: File, position: int, size: int) -> bool:
    """Whether nothing but zeros follows."""
    while position < size:
        data = file.pread(min(_ZERO_CHUNK_SIZE_BYTES, size - position), position)
        if not only_zeros(data, 0):
            return False
        position += len(data)
    return True
