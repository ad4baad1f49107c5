"""Looking into a data folder without changing it: what `polymq inspect` prints.

Works on a stopped folder and on a running one. Of a running one, the end may be seen in the middle of a write: what
looks torn behind the last good batch may be complete a moment later. Nothing here takes the lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.store.entries import (
    CORE_KIND_MIN,
    KIND_CHECKPOINT,
    KIND_CLEAN_STOP,
    KIND_DELETED,
    KIND_SNAPSHOT_BEGIN,
    KIND_SNAPSHOT_END,
    KIND_START,
    decode_checkpoint,
    decode_deleted,
    decode_start,
)
from polymq.store.frames import entries_of, scan_segment
from polymq.store.journal_recovery import journal_path, journal_segments
from polymq.store.recovery import PARTITIONS_FOLDER, log_segments, segment_path
from polymq.store.runs import Walk
from polymq.store.segment import (
    MAGIC_LOG,
    SEGMENT_HEADER_SIZE_BYTES,
    check_segment_header,
    parse_segment_header,
)
from polymq.wire.records import BatchHeader, Message, read_messages

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polymq.store.files import File, Files

__all__ = [
    "BatchRow",
    "EntryRow",
    "FrameRow",
    "RecordRow",
    "SegmentRow",
    "batches",
    "entries",
    "frames",
    "partitions",
    "records",
    "segments",
]

_CHUNK_SIZE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """One segment file. `verdict` is empty if everything in it is good, else what is wrong behind the last good batch."""

    partition: int
    path: str
    segment_id: int
    base_offset: int
    end_offset: int
    batches: int
    size_bytes: int
    used_bytes: int
    created_ns: int
    last_time_ns: int
    verdict: str

    @property
    def records(self) -> int:
        """How many records it holds."""
        return self.end_offset - self.base_offset


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One batch at byte `position`; the row of a bad one has no header, and no row follows it."""

    partition: int
    path: str
    position: int
    header: BatchHeader | None
    verdict: str


@dataclass(frozen=True, slots=True)
class RecordRow:
    """One record."""

    partition: int
    offset: int
    message: Message


@dataclass(frozen=True, slots=True)
class FrameRow:
    """One frame of the journal; the row of a bad one has sequence 0."""

    path: str
    position: int
    sequence: int
    synced_sequence: int
    entry_count: int
    size_bytes: int
    verdict: str


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One entry of the journal; `text` says what it is, for people. The core's are bytes to the store."""

    sequence: int
    kind: int
    size_bytes: int
    text: str


def partitions(files: Files) -> list[int]:
    """List the numbers of the partitions that have files."""
    return sorted(int(name) for name in files.list(PARTITIONS_FOLDER) if name.isdigit())


class _Segment:
    """One segment that is walked through, chunk by chunk."""

    def __init__(self, file: File, number: int, base_offset: int) -> None:
        self.file = file
        self.size_bytes = file.size()
        head = file.pread(SEGMENT_HEADER_SIZE_BYTES, 0)
        self.verdict = check_segment_header(head, MAGIC_LOG, number, base_offset) or ""
        self.segment_id = self.created_ns = 0
        if not self.verdict:
            header = parse_segment_header(head)
            self.segment_id, self.created_ns = header.segment_id, header.created_ns
        self.position = SEGMENT_HEADER_SIZE_BYTES if not self.verdict else 0
        self.walk = Walk(self.segment_id, base_offset)

    def chunks(self) -> Iterator[tuple[bytes, int, list[tuple[int, BatchHeader]]]]:
        """Give runs of good batches: the bytes, where in the file they begin, and (position in the file, header) of each."""
        walk = self.walk
        size = _CHUNK_SIZE_BYTES
        found: list[tuple[int, BatchHeader]] = []
        walk.on_batch = lambda position, header: found.append((position, header))
        while not self.verdict and self.position < self.size_bytes:
            data = self.file.pread(size, self.position)
            passed = walk.run(data, 0, self.position)
            if found:
                yield data, self.position, found
                found.clear()
            self.position += passed
            if walk.problem or walk.ended or (not passed and len(data) < size):
                break
            size = size if passed else 2 * size
        else:
            return
        self.verdict = walk.problem or self._rest()

    def _rest(self) -> str:
        """Say what follows the last good batch, if it is not zeros."""
        position = self.position
        while data := self.file.pread(_CHUNK_SIZE_BYTES, position):
            if any(data):
                return "there are bytes behind the last batch"
            position += len(data)
        return ""


def segments(files: Files, number: int) -> Iterator[SegmentRow]:
    """Check every segment of a partition, oldest first. Cost: reads all of it."""
    expected: int | None = None
    for base in log_segments(files, number):
        path = segment_path(number, base)
        file = files.open(path)
        try:
            segment = _Segment(file, number, base)
            count = sum(len(found) for _, _, found in segment.chunks())
        finally:
            file.close()
        verdict = segment.verdict
        if expected is not None and base != expected and not verdict:
            verdict = f"it begins with record {base}, {expected} should follow"
        expected = segment.walk.offset
        yield SegmentRow(
            number,
            path,
            segment.segment_id,
            base,
            segment.walk.offset,
            count,
            segment.size_bytes,
            segment.position,
            segment.created_ns,
            segment.walk.time_ns,
            verdict,
        )


def batches(files: Files, number: int, base_offset: int) -> Iterator[BatchRow]:
    """List the batches of one segment; a last row says what is wrong, if anything is."""
    path = segment_path(number, base_offset)
    file = files.open(path)
    try:
        segment = _Segment(file, number, base_offset)
        for _, _, found in segment.chunks():
            for position, header in found:
                yield BatchRow(number, path, position, header, "")
        if segment.verdict:
            yield BatchRow(number, path, segment.position, None, segment.verdict)
    finally:
        file.close()


def records(files: Files, number: int, *, offset: int = 0) -> Iterator[RecordRow]:
    """List the records of a partition from an offset on, up to the first bad batch of any segment."""
    bases = log_segments(files, number)
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        if following is not None and following <= offset:
            continue
        file = files.open(segment_path(number, base))
        try:
            segment = _Segment(file, number, base)
            for data, start, found in segment.chunks():
                for position, header in found:
                    if header.base_offset + header.count > offset:
                        yield from _records_of(number, data, position - start, header, offset)
        finally:
            file.close()
        if segment.verdict:
            return


def _records_of(number: int, data: bytes, at: int, header: BatchHeader, offset: int) -> Iterator[RecordRow]:
    """List the records of one batch from an offset on."""
    messages = read_messages(data, at, 0, 0, header.count, at + header.size)
    for index, message in enumerate(messages):
        if header.base_offset + index >= offset:
            yield RecordRow(number, header.base_offset + index, message)


def frames(files: Files) -> Iterator[FrameRow]:
    """List the frames of the journal; the last row of a segment says what is wrong, if anything is."""
    for base in journal_segments(files):
        path = journal_path(base)
        scan = scan_segment(_read(files, path), base)
        for position, frame in scan.frames:
            yield FrameRow(path, position, frame.sequence, frame.synced_sequence, frame.entry_count, frame.size, "")
        if scan.problem:
            yield FrameRow(path, scan.end, 0, 0, 0, 0, scan.problem)


def entries(files: Files) -> Iterator[EntryRow]:
    """List the entries of the journal's good frames."""
    for base in journal_segments(files):
        scan = scan_segment(_read(files, journal_path(base)), base)
        for position, frame in scan.frames:
            for entry in entries_of(scan.data, position, frame):
                yield EntryRow(frame.sequence, entry[0], len(entry), _describe(entry))


def _describe(entry: memoryview) -> str:
    """Say what an entry is."""
    kind = entry[0]
    if kind >= CORE_KIND_MIN:
        return f"the core's, kind {kind}"
    if kind == KIND_START:
        start = decode_start(entry)
        return f"start in epoch {start.epoch}, boot {start.boot_id}"
    if kind == KIND_CHECKPOINT:
        point = decode_checkpoint(entry)
        return f"partition {point.number} is synced from record {point.start} up to {point.end}"
    if kind == KIND_DELETED:
        return f"partition {decode_deleted(entry)} is deleted"
    texts = {KIND_CLEAN_STOP: "clean stop", KIND_SNAPSHOT_BEGIN: "a snapshot begins", KIND_SNAPSHOT_END: "the snapshot is complete"}
    return texts.get(kind, f"unknown, kind {kind}")


def _read(files: Files, path: str) -> bytes:
    """Read a whole file."""
    file = files.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()
