"""Looking into a data folder without changing it: what `polymq inspect` prints.

What is there is compared with what the journal says was synced: a `verdict` is about damage, something that was synced
and is not there as it was written. A `note` is about a torn tail, which the next start cuts off: it was never synced.
Works on a stopped folder and on a running one. Of a running one, the end may be seen in the middle of a write: what
looks torn may be complete a moment later. Nothing here takes the lock.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.store.entries import (
    CORE_KIND_MIN,
    KIND_CHECKPOINT,
    KIND_CLEAN_STOP,
    KIND_DELETED,
    KIND_PIECE,
    KIND_SNAPSHOT_BEGIN,
    KIND_SNAPSHOT_END,
    KIND_START,
    KIND_START_SILENT,
    KIND_WHOLE_SNAPSHOT_BEGIN,
    KIND_WHOLE_SNAPSHOT_END,
    KIND_WRITTEN,
    Checkpoint,
    decode_checkpoint,
    decode_deleted,
    decode_start,
    decode_written,
)
from polymq.store.frames import entries_of, only_zeros
from polymq.store.journal_recovery import JOURNAL_FOLDER, RecoveredJournal, journal_path, look_at_journal
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
    from collections.abc import Iterator, Mapping

    from polymq.store.files import File, Files
    from polymq.store.journal_recovery import JournalState

__all__ = [
    "BatchRow",
    "EntryRow",
    "FrameRow",
    "RecordRow",
    "SegmentRow",
    "batches",
    "entries",
    "frames",
    "journal_damage",
    "missing",
    "partitions",
    "records",
    "segments",
    "synced_points",
]

_CHUNK_SIZE_BYTES: Final = 4 * 1024 * 1024
# A running broker removes journal segments when a snapshot is synced, which takes far longer than reading them.
_JOURNAL_ATTEMPTS_MAX: Final = 3


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """One segment file. `verdict` says what of it is damaged, `note` what else is not as after a clean stop."""

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
    note: str = ""

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
    """One record; the row of what ends the listing too early has no message."""

    partition: int
    offset: int
    message: Message | None
    verdict: str = ""
    note: str = ""


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
    note: str = ""


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One entry of the journal; `text` says what it is, for people. The core's are bytes to the store.

    The row of what ends a segment too early has kind 0.
    """

    sequence: int
    kind: int
    size_bytes: int
    text: str
    verdict: str = ""
    note: str = ""


def synced_points(files: Files) -> dict[int, Checkpoint]:
    """Tell the newest checkpoint of every partition, as the next start would see it. Cost: reads the journal."""
    points: dict[int, Checkpoint] = {}
    for entry in RecoveredJournal(_journal(files).kept).entries():
        if entry[0] == KIND_CHECKPOINT:
            point = decode_checkpoint(entry)
            points[point.number] = point
        elif entry[0] == KIND_DELETED:
            points.pop(decode_deleted(entry), None)
    return points


def partitions(files: Files, points: Mapping[int, Checkpoint] | None = None) -> list[int]:
    """List the numbers of the partitions that have files, or should have some."""
    points = synced_points(files) if points is None else points
    there = {int(name) for name in files.list(PARTITIONS_FOLDER) if name.isdigit()}
    return sorted(there.union(number for number, point in points.items() if point.segment_base >= 0))


def missing(files: Files, number: int, points: Mapping[int, Checkpoint] | None = None) -> str:
    """Say which segment, at either end of a partition, is not there although it was synced; empty if none."""
    return _Partition(files, number, points).missing


class _Partition:
    """The segments of one partition, beside what the journal says was synced of it.

    A running broker may have dropped segments since the journal was read: before anything is called missing, the
    journal is read again. It forgets segments, durably, before they go.
    """

    def __init__(self, files: Files, number: int, points: Mapping[int, Checkpoint] | None) -> None:
        self.files = files
        self.number = number
        self.point = (synced_points(files) if points is None else points).get(number)
        self.bases = log_segments(files, number)
        self.missing = self._missing()
        if self.missing:
            self._look_again()
        # The record that the next segment has to begin with, once one was walked through.
        self._expected: int | None = None

    def _look_again(self) -> None:
        self.point = synced_points(self.files).get(self.number)
        self.bases = log_segments(self.files, self.number)
        self.missing = self._missing()

    def _missing(self) -> str:
        point = self.point
        if point is None or point.segment_base < 0:
            return ""
        bases = [base for base in self.bases if base >= point.start]
        if not bases:
            return f"its files are missing; records {point.start} to {point.end} were synced"
        absent = point.start if bases[0] != point.start else point.segment_base
        return "" if absent in bases else f"segment {absent} is missing; records {point.start} to {point.end} were synced"

    def walks(self, offset: int = 0) -> Iterator[_Segment]:
        """Open one segment after the other, from the one that holds a record on."""
        bases = self.bases
        for index, base in enumerate(bases):
            if index + 1 < len(bases) and bases[index + 1] <= offset:
                continue
            try:
                file = self.files.open(segment_path(self.number, base))
            except FileNotFoundError:
                # If it was not dropped a moment ago, it is missing, or the next one is behind a gap.
                self._look_again()
                continue
            with closing(file):
                yield _Segment(file, self.number, base)

    def gap(self, segment: _Segment) -> str:
        """Say what keeps a segment from being the next one."""
        base, expected = segment.base_offset, self._expected
        return "" if expected in (None, base) else f"it begins with record {base}, {expected} should follow"

    def judge(self, segment: _Segment) -> tuple[str, str]:
        """Say of a segment that was walked through what is damaged, and what else there is to know."""
        point, base, end = self.point, segment.base_offset, segment.walk.offset
        if point is not None and base < point.start:
            return "", "dropped, the next start removes it"
        problem, gap, first_lost = segment.verdict, self.gap(segment), end
        if gap and self._expected is not None:
            problem, first_lost = problem or gap, min(self._expected, base)
        self._expected = end
        if point is None:
            return "", f"torn tail, nothing of this partition is known to be synced: {problem}" if problem else ""
        is_last_synced = base == point.segment_base
        if is_last_synced and segment.segment_id != point.segment_id:
            return segment.verdict or "it is another segment of the same name", ""
        if is_last_synced and end < point.end:
            problem = problem or "the rest is zeros"
        if problem and first_lost < point.end:
            return f"{problem}; records {first_lost} to {point.end} were synced", ""
        return "", f"torn tail behind record {point.end}, up to which it is synced: {problem}" if problem else ""


class _Segment:
    """One segment that is walked through, chunk by chunk."""

    def __init__(self, file: File, number: int, base_offset: int) -> None:
        self.file = file
        self.base_offset = base_offset
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
            if not only_zeros(data, 0):
                return "there are bytes behind the last batch"
            position += len(data)
        return ""


def segments(files: Files, number: int, points: Mapping[int, Checkpoint] | None = None) -> Iterator[SegmentRow]:
    """Check every segment of a partition, oldest first. Cost: reads all of it, and the journal unless `points` are given."""
    partition = _Partition(files, number, points)
    for segment in partition.walks():
        count = sum(len(found) for _, _, found in segment.chunks())
        verdict, note = partition.judge(segment)
        yield SegmentRow(
            number,
            segment_path(number, segment.base_offset),
            segment.segment_id,
            segment.base_offset,
            segment.walk.offset,
            count,
            segment.size_bytes,
            segment.position,
            segment.created_ns,
            segment.walk.time_ns,
            verdict,
            note,
        )


def batches(files: Files, number: int, base_offset: int) -> Iterator[BatchRow]:
    """List the batches of one segment; a last row says what ends them. Whether that is damage, `segments` knows."""
    path = segment_path(number, base_offset)
    with closing(files.open(path)) as file:
        segment = _Segment(file, number, base_offset)
        for _, _, found in segment.chunks():
            for position, header in found:
                yield BatchRow(number, path, position, header, "")
        if segment.verdict:
            yield BatchRow(number, path, segment.position, None, segment.verdict)


def records(files: Files, number: int, *, offset: int = 0, points: Mapping[int, Checkpoint] | None = None) -> Iterator[RecordRow]:
    """List the records of a partition from an offset on; a last row says what is wrong, if anything is.

    What lies behind a damaged place is not listed.
    """
    partition = _Partition(files, number, points)
    if partition.point is not None:
        offset = max(offset, partition.point.start)
    for segment in partition.walks(offset):
        if not partition.gap(segment):
            for data, start, found in segment.chunks():
                for position, header in found:
                    if header.base_offset + header.count > offset:
                        yield from _records_of(number, data, position - start, header, offset)
        verdict, note = partition.judge(segment)
        if verdict or note:
            yield RecordRow(number, segment.walk.offset, None, verdict, note)
            return
    if partition.missing:
        yield RecordRow(number, partition.point.end if partition.point else 0, None, partition.missing)


def _records_of(number: int, data: bytes, at: int, header: BatchHeader, offset: int) -> Iterator[RecordRow]:
    """List the records of one batch from an offset on."""
    messages = read_messages(data, at, 0, 0, header.count, at + header.size)
    for index, message in enumerate(messages):
        if header.base_offset + index >= offset:
            yield RecordRow(number, header.base_offset + index, message)


def frames(files: Files) -> Iterator[FrameRow]:
    """List the frames of the journal; the last row of a segment says what is wrong, if anything is."""
    state = _journal(files)
    for index, scan in enumerate(state.scans):
        path = journal_path(scan.base_sequence)
        for position, frame in scan.frames:
            yield FrameRow(path, position, frame.sequence, frame.synced_sequence, frame.entry_count, frame.size, "")
        verdict, note = _judge_journal(state, index)
        if verdict or note:
            yield FrameRow(path, scan.end, 0, 0, 0, 0, verdict, note)
    if lost := _lost_journal(state):
        yield FrameRow(JOURNAL_FOLDER, 0, 0, 0, 0, 0, lost)


def entries(files: Files) -> Iterator[EntryRow]:
    """List the entries of the journal's good frames; a row behind a segment's says what is wrong, if anything is."""
    state = _journal(files)
    for index, scan in enumerate(state.scans):
        for position, frame in scan.frames:
            for entry in entries_of(scan.data, position, frame):
                yield EntryRow(frame.sequence, entry[0], len(entry), _describe(entry))
        verdict, note = _judge_journal(state, index)
        if verdict or note:
            yield EntryRow(scan.next_sequence, 0, 0, f"{journal_path(scan.base_sequence)} at byte {scan.end}", verdict, note)
    if lost := _lost_journal(state):
        yield EntryRow(0, 0, 0, JOURNAL_FOLDER, lost)


def journal_damage(files: Files) -> str:
    """Say what is wrong with the journal, without which nobody knows what was synced; empty if nothing is."""
    return str(_journal(files).damage or "")


def _journal(files: Files) -> JournalState:
    """Read the journal, again if a running broker removed some of it meanwhile."""
    for _ in range(_JOURNAL_ATTEMPTS_MAX - 1):
        try:
            return look_at_journal(files)
        except FileNotFoundError:
            continue
    return look_at_journal(files)


def _lost_journal(state: JournalState) -> str:
    """Say that there is no journal at all, unless there is nothing that it could speak of."""
    if state.scans or state.damage is None:
        return ""
    return f"expected {state.damage.expected}, found {state.damage.found}"


def _judge_journal(state: JournalState, index: int) -> tuple[str, str]:
    """Say of the end of a journal segment what is damaged, and what else there is to know."""
    scan = state.scans[index]
    damage = state.damage
    if damage is not None and damage.path == journal_path(scan.base_sequence):
        return f"expected {damage.expected}, found {damage.found}", ""
    if index < state.chosen:
        return "", f"left over from before the last snapshot: {scan.problem}" if scan.problem else ""
    last = state.chosen + len(state.kept) - 1
    if index > last:
        return "", "it lies behind the end of the journal"
    problem = scan.problem or ("there are bytes behind the last frame" if not only_zeros(scan.data, scan.end) else "")
    return "", f"torn tail: {problem}" if problem and index == last else ""


def _describe(entry: memoryview) -> str:
    """Say what an entry is."""
    kind = entry[0]
    if kind >= CORE_KIND_MIN:
        return f"the core's, kind {kind}"
    if kind in (KIND_START, KIND_START_SILENT):
        start = decode_start(entry)
        return f"start in epoch {start.epoch}, boot {start.boot_id}"
    if kind == KIND_CHECKPOINT:
        point = decode_checkpoint(entry)
        return f"partition {point.number} is synced from record {point.start} up to {point.end}"
    if kind == KIND_DELETED:
        return f"partition {decode_deleted(entry)} is deleted"
    if kind == KIND_WRITTEN:
        numbers = decode_written(entry)
        return f"written behind the checkpoint: partition{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"
    if kind == KIND_PIECE:
        return "a piece of the snapshot, which goes on later" if entry[1] else "a piece of the snapshot"
    texts = {KIND_CLEAN_STOP: "clean stop"}
    texts |= dict.fromkeys((KIND_SNAPSHOT_BEGIN, KIND_WHOLE_SNAPSHOT_BEGIN), "a snapshot begins")
    texts |= dict.fromkeys((KIND_SNAPSHOT_END, KIND_WHOLE_SNAPSHOT_END), "the snapshot is complete")
    return texts.get(kind, f"unknown, kind {kind}")
