"""Reading the journal when a data folder is opened: from the last complete snapshot to the last good frame.

A snapshot begins a segment, so every segment file either begins one or continues the one before it. The newest segment
from which a complete snapshot can be read is where replay begins; what lies before it is left over. Of a snapshot that
is not complete the pieces are read like everything else. A bad frame ends the journal unless a later one says that it
was synced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from polymq.errors import CorruptRecord
from polymq.store.entries import KIND_SNAPSHOT_BEGIN, KIND_SNAPSHOT_END, KIND_WHOLE_SNAPSHOT_BEGIN, KIND_WHOLE_SNAPSHOT_END
from polymq.store.frames import SegmentScan, entries_of, only_zeros, scan_segment, synced_later
from polymq.store.recovery import PARTITIONS_FOLDER
from polymq.store.snapshot import in_order

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polymq.store.files import Files

__all__ = [
    "JOURNAL_FOLDER",
    "JOURNAL_SUFFIX",
    "JournalState",
    "RecoveredJournal",
    "journal_path",
    "journal_segments",
    "look_at_journal",
    "recover_journal",
]

JOURNAL_FOLDER: Final = "journal"
JOURNAL_SUFFIX: Final = ".jnl"
SEQUENCE_FIRST: Final = 1
_WHAT_TO_DO: Final = ". Restore the data folder from a copy, or move it away to start empty"


class RecoveredJournal(NamedTuple):
    """The segments that count, oldest first. The last good frame is the last one of the last of them.

    `superseded` are files that a snapshot has replaced. They may go once that is synced, and not before: perhaps only
    the page cache has it.
    """

    scans: list[SegmentScan]
    superseded: tuple[str, ...] = ()

    @property
    def next_sequence(self) -> int:
        """The sequence of the next frame."""
        return self.scans[-1].next_sequence if self.scans else SEQUENCE_FIRST

    def entries(self) -> Iterator[memoryview]:
        """Go through all entries in the order in which they are to be applied."""
        return in_order(entries_of(scan.data, at, frame) for scan in self.scans for at, frame in scan.frames)


class JournalState(NamedTuple):
    """What lies in the journal's folder: replay begins at `scans[chosen]`, `kept` are the segments that count.

    `damage` says which frame is missing although it was synced.
    """

    scans: list[SegmentScan]
    chosen: int
    kept: list[SegmentScan]
    damage: CorruptRecord | None


def journal_segments(files: Files) -> list[int]:
    """List the first sequences of the journal's segments, in order."""
    names = files.list(JOURNAL_FOLDER)
    return sorted(int(name[: -len(JOURNAL_SUFFIX)]) for name in names if name.endswith(JOURNAL_SUFFIX) and name[0].isdigit())


def journal_path(sequence: int) -> str:
    """The name of a journal segment."""
    return f"{JOURNAL_FOLDER}/{sequence:020d}{JOURNAL_SUFFIX}"


def recover_journal(files: Files) -> RecoveredJournal:
    """Read the journal, and make the disk agree with what counts: cut the torn tail, remove what is left over.

    Raises: CorruptRecord when a frame that was synced cannot be read.
    """
    state = look_at_journal(files)
    if state.damage is not None:
        raise state.damage
    first = state.kept[0].base_sequence if state.kept else SEQUENCE_FIRST
    bases = [scan.base_sequence for scan in state.scans]
    _clean_up(files, [base for base in bases if base >= first], state.kept)
    return RecoveredJournal(state.kept, tuple(journal_path(base) for base in bases if base < first))


def look_at_journal(files: Files) -> JournalState:
    """Read the journal and decide what counts, without changing anything. Cost: reads all of it."""
    scans = [scan_segment(_read(files, journal_path(base)), base) for base in journal_segments(files)]
    chosen = _choose(scans)
    kept = _without_unfinished_snapshot(_continuous(scans[chosen:]))
    damage = (_damage(scans, chosen, kept) if scans else None) or _missing(files, scans, kept)
    return JournalState(scans, chosen, kept, damage)


def _read(files: Files, path: str) -> bytes:
    """Read a whole file."""
    file = files.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


def _continuous(scans: list[SegmentScan]) -> list[SegmentScan]:
    """Give the segments up to the first one that does not end where the next one begins."""
    kept: list[SegmentScan] = []
    for scan in scans:
        if not scan.segment_id or (kept and (kept[-1].problem or kept[-1].next_sequence != scan.base_sequence)):
            break
        kept.append(scan)
    return kept


def _begins_with(scan: SegmentScan) -> int:
    """Give the kind of the segment's first entry; -1 if there is none."""
    return next((next(entries_of(scan.data, at, frame))[0] for at, frame in scan.frames[:1]), -1)


def _begins_snapshot(scan: SegmentScan) -> bool:
    """Whether the segment's first entry begins a snapshot."""
    return _begins_with(scan) in (KIND_SNAPSHOT_BEGIN, KIND_WHOLE_SNAPSHOT_BEGIN)


def _choose(scans: list[SegmentScan]) -> int:
    """Tell at which segment replay begins: the newest complete snapshot, else the very first one."""
    for index in range(len(scans) - 1, -1, -1):
        if _begins_snapshot(scans[index]) and _ends_snapshot(_continuous(scans[index:])):
            return index
    return 0


def _ends_snapshot(scans: list[SegmentScan]) -> bool:
    """Whether the snapshot that begins in the first segment is complete before another one begins."""
    whole = _begins_with(scans[0]) == KIND_WHOLE_SNAPSHOT_BEGIN
    for number, scan in enumerate(scans):
        if number and _begins_snapshot(scan):
            return False
        if _has_whole_end(scan) if whole else _has_end(scan):
            return True
    return False


def _has_end(scan: SegmentScan) -> bool:
    """Whether a snapshot ends in a segment: that is a frame of its own."""
    return any(next(entries_of(scan.data, at, frame))[0] == KIND_SNAPSHOT_END for at, frame in scan.frames)


def _has_whole_end(scan: SegmentScan) -> bool:
    """Whether a snapshot of format 1 ends in a segment."""
    return any(entry[0] == KIND_WHOLE_SNAPSHOT_END for at, frame in scan.frames for entry in entries_of(scan.data, at, frame))


def _without_unfinished_snapshot(kept: list[SegmentScan]) -> list[SegmentScan]:
    """Leave out a snapshot of format 1 that was being written when the process ended: there is nothing else behind its beginning."""
    for index in range(len(kept) - 1, 0, -1):
        if _begins_snapshot(kept[index]):
            unfinished = _begins_with(kept[index]) == KIND_WHOLE_SNAPSHOT_BEGIN and not _ends_snapshot(kept[index:])
            return kept[:index] if unfinished else kept
    return kept


def _damage(scans: list[SegmentScan], chosen: int, kept: list[SegmentScan]) -> CorruptRecord | None:
    """Say whether the journal ends before a frame that is known to have been synced."""
    first = scans[chosen]
    if not kept:
        # The very first segment's header was never finished, or was damaged later.
        torn, sequence = first, first.base_sequence
    else:
        torn, sequence = kept[-1], kept[-1].next_sequence
    begins_whole = first.base_sequence == SEQUENCE_FIRST or (bool(kept) and _begins_snapshot(first) and _ends_snapshot(kept))
    known = any(synced_later(scan, sequence) for scan in scans[chosen:])
    if begins_whole and not known:
        return None
    return CorruptRecord(
        journal_path(torn.base_sequence),
        position=torn.end,
        expected=f"journal frame {sequence}, which was synced",
        found=(torn.problem or "zeros") + _WHAT_TO_DO,
    )


def _missing(files: Files, scans: list[SegmentScan], kept: list[SegmentScan]) -> CorruptRecord | None:
    """Say so if there are partitions and no journal: its first frame is synced before any partition is made.

    To begin an empty one would be to empty the partitions: their numbers would be handed out again.
    """
    if any(scan.frames for scan in kept):
        return None
    if not any(name.isdigit() for name in files.list(PARTITIONS_FOLDER)):
        return None
    problems = [scan.problem for scan in scans]
    return CorruptRecord(
        journal_path(scans[0].base_sequence if scans else SEQUENCE_FIRST),
        position=0,
        expected="the journal's first frame, which is synced before there are partitions",
        found=((problems[0] or "zeros") if problems else "no file") + _WHAT_TO_DO,
    )


def _clean_up(files: Files, bases: list[int], kept: list[SegmentScan]) -> None:
    """Make the files agree with what was kept, durably, before anything new is written.

    Bytes behind the last good frame become zeros: a frame left there could be taken for a good one after the next
    crash, once a new frame of the same size lies before it.
    """
    if kept:
        _cut(files, kept[-1])
    names = {scan.base_sequence for scan in kept}
    removed = [journal_path(base) for base in bases if base not in names]
    leftover = f"{JOURNAL_FOLDER}/next{JOURNAL_SUFFIX}"
    for path in removed:
        files.remove(path)
    if files.exists(leftover):
        files.remove(leftover)
    if removed:
        files.sync_folder(JOURNAL_FOLDER)


def _cut(files: Files, last: SegmentScan) -> None:
    """Replace what lies behind the last good frame by zeros, if it is something else."""
    if only_zeros(last.data, last.end):
        return
    file = files.open(journal_path(last.base_sequence))
    try:
        file.truncate(last.end)
        file.allocate(len(last.data))
        file.sync()
    finally:
        file.close()
