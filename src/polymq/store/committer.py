"""Group commit: what has been written, when it is synced, and what happens once it is.

At most one sync job runs at a time; it covers everything that was written before it started: partitions first, then
the journal, whose checkpoints speak about the partitions. A failed sync is never tried again, since the kernel may
have dropped the pages: the partition takes no more writes. One that could not begin, since the process has no
descriptor left for the file, has not failed: the next job covers it, too.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from polymq.store.entries import encode_checkpoint, encode_written
from polymq.store.volume import is_passing, lacks_descriptor
from polymq.store.workers import Lane

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from polymq.store.entries import Checkpoint
    from polymq.store.files import Files
    from polymq.store.journal import Journal
    from polymq.store.log import Log
    from polymq.store.ticket import Ticket
    from polymq.store.volume import Volume

__all__ = ["UNSURE_NAME", "Committer", "checkpoint_entries", "remove_paths", "sync_paths"]


# A file of this name says that a sync of the journal has failed: what it announced since the sync before may be lost.
UNSURE_NAME: Final = "UNSURE"
# What became of a part of a sync job: an error text, empty where it went well; None if it could not begin.
_Outcome: TypeAlias = "str | None"
# What belongs together in a sync job: files, and the folders that name them.
_Part: TypeAlias = "tuple[Sequence[str], Sequence[str]]"
# From so many partitions on it is quicker to have the disk begin with all of them before waiting for each.
_HASTEN_PARTS_MIN: Final = 32


class _Capture(NamedTuple):
    """One partition's part in a sync job: what it covers, and what becomes true when it succeeds."""

    log: Log
    paths: list[str]
    folders: list[str]
    point: Checkpoint
    tickets: list[Ticket]


def checkpoint_entries(log: Log) -> Iterator[bytes]:
    """Give the journal's entries that say up to where a partition is synced, and whether anything may lie behind."""
    if log.synced_point is not None:
        yield encode_checkpoint(log.synced_point)
    if log.announced:
        yield encode_written((log.number,))


def _outcome(codes: Sequence[int]) -> _Outcome:
    """Say what became of files: whether one failed, else whether one could not be opened at the moment."""
    problem: _Outcome = ""
    for code in codes:
        if code < 0 and is_passing(OSError(-code, "")):
            problem = None
        elif code:
            return os.strerror(abs(code))
    return problem


def sync_paths(files: Files, paths: Sequence[str], folders: Sequence[str]) -> _Outcome:
    """Sync files, then the folders that name them. Runs in the worker."""
    outcome = _outcome(files.sync_files(paths))
    return _sync_folders(files, folders) if outcome == "" else outcome


def _sync_folders(files: Files, folders: Sequence[str]) -> _Outcome:
    try:
        for folder in folders:
            files.sync_folder(folder)
    except OSError as error:
        return None if lacks_descriptor(error) else str(error.strerror or error)
    return ""


def _sync_all(files: Files, parts: Sequence[_Part]) -> list[_Outcome]:
    """Sync the files of each part; return what became of each. Runs in the worker.

    The last part is the journal's. If that fails, the page cache may give up frames which say what was written where;
    so a mark is left, the only way that is left, and the next start looks at every partition.
    """
    try:
        results = _sync_parts(files, parts)
    except Exception as error:
        # No memory, or a bug of ours: nobody knows what was synced, so nothing was. Its text may be empty, its name is not.
        results = [repr(error)] * len(parts)
    if results[-1]:
        with suppress(OSError):
            files.open(UNSURE_NAME, create=True).close()
            files.sync_folder("")
    return results


def _sync_parts(files: Files, parts: Sequence[_Part]) -> list[_Outcome]:
    results: list[_Outcome] = []
    partitions = parts[:-1]
    paths = [path for part_paths, _folders in partitions for path in part_paths]
    if len(parts) > _HASTEN_PARTS_MIN:
        files.hasten(paths + list(parts[-1][0]))
    codes = iter(files.sync_files(paths))
    for part_paths, folders in partitions:
        outcome = _outcome([next(codes) for _path in part_paths])
        results.append(_sync_folders(files, folders) if folders and outcome == "" else outcome)
    results.append(sync_paths(files, *parts[-1]))
    return results


def remove_paths(files: Files, paths: Sequence[str]) -> None:
    """Remove files that nothing refers to any more; a name that ends in `/` is a folder. Runs in the worker."""
    for path in paths:
        names = [path]
        if path.endswith("/"):
            folder = path[:-1]
            names = [f"{folder}/{name}" for name in files.list(folder)] + [folder]
        for name in names:
            # What is not there is as good as removed: an index may never have been written.
            with suppress(FileNotFoundError):
                files.remove(name)


class Committer:
    """See the module. `congested` asks that publishers are not read until the disk has caught up."""

    __slots__ = (
        "_doomed",
        "_held",
        "_journal",
        "_not_before_ns",
        "_removals",
        "_volume",
        "changed",
        "congested",
        "dirty",
        "dirty_since_ns",
        "running",
        "sync_ns",
        "syncs",
        "syncs_failed",
        "unsynced_bytes",
        "urgent",
    )

    def __init__(self, volume: Volume, journal: Journal) -> None:
        self._volume = volume
        self._journal = journal
        # Partitions that were written since the last sync job started.
        self.dirty: list[Log] = []
        self.dirty_since_ns: int | None = None
        self.unsynced_bytes = 0
        # Jobs that have ended, how many of them failed, and how long all took.
        self.syncs = 0
        self.syncs_failed = 0
        self.sync_ns = 0
        self.congested = False
        self.running = False
        # Somebody waits for a sync.
        self.urgent = False
        # Something became readable or resolved since `poll` last looked.
        self.changed = False
        # Who waits for a sync of the journal that could not begin.
        self._held: list[Ticket] = []
        # No job starts before this time, when the one before could not open a file.
        self._not_before_ns = 0
        # Files to remove once the journal entries that forget them are synced.
        self._doomed: list[str] = []
        # Jobs that wait for that, or are at it.
        self._removals = 0

    def remove_after_sync(self, paths: Sequence[str]) -> None:
        """Remove files, but not before what was staged in the journal up to now is durable."""
        self._doomed += paths

    @property
    def removing(self) -> bool:
        """Whether files are still there that are to go."""
        return bool(self._doomed or self._removals)

    @property
    def due_ns(self) -> int | None:
        """When a sync has to start, on the monotonic clock, past if at once; None if one is running or nothing is unsynced."""
        if self.running or not self.unsynced:
            return None
        if self.urgent or self._journal.wants_sync or self.dirty_since_ns is None:
            # It became so while another one ran, which has just ended; at once, if that one could open its files.
            return self._not_before_ns
        return self.dirty_since_ns + self._volume.settings.sync_interval_ns

    @property
    def unsynced(self) -> bool:
        """Whether a sync would find something to do: data, or somebody who waits for one though nothing is left to write."""
        return bool(self.dirty or self._journal.chain.dirty or self._journal.wants_sync)

    def start_if_due(self, now_ns: int) -> None:
        """Start a sync job if it is time: called after every commit."""
        self._weigh()
        if not self.unsynced:
            return
        if self.dirty_since_ns is None:
            self.dirty_since_ns = now_ns
        if self.running:
            return
        settings = self._volume.settings
        if (
            self.urgent
            or self._journal.wants_sync
            or self.unsynced_bytes >= settings.sync_size_bytes
            or now_ns - self.dirty_since_ns >= settings.sync_interval_ns
        ):
            self._start()

    def _weigh(self) -> None:
        """Hold publishers back above the high mark, let them go on below the low one."""
        settings = self._volume.settings
        if self.unsynced_bytes > settings.unsynced_size_bytes_high:
            self.congested = True
        elif self.unsynced_bytes < settings.unsynced_size_bytes_low:
            self.congested = False

    def capture(self) -> tuple[list[_Capture], tuple[list[str], list[str]], int, int, list[str]]:
        """Take over everything unsynced: partitions, the journal's files, its last frame, bytes, files to remove."""
        captures = [_Capture(log, *log.capture()) for log in self.dirty]
        self.dirty = []
        self.dirty_since_ns = None
        self.urgent = False
        journal_part = self._take_journal_part()
        unsynced, self.unsynced_bytes = self.unsynced_bytes, 0
        doomed: list[str] = []
        if not self._journal.blocked:
            # Else the entries that forget these files are not even written.
            doomed, self._doomed = self._doomed, []
        return captures, journal_part, self._journal.sequence - 1, unsynced, doomed

    def _take_journal_part(self) -> tuple[list[str], list[str]]:
        """Take over what is unsynced of the journal: its files, and the folder that names them."""
        chain = self._journal.chain
        part = [segment.path for segment in chain.dirty], [chain.folder] if chain.folder_dirty else []
        chain.dirty = []
        chain.folder_dirty = False
        return part

    def _start(self) -> None:
        """Hand everything unsynced to the worker."""
        started_ns = self._volume.clock.monotonic_ns()
        if started_ns < self._not_before_ns:
            return
        captures, journal_part, sequence, unsynced, doomed = self.capture()
        # Until the job has ended, its bytes count as unsynced.
        self.unsynced_bytes = unsynced
        tickets = self._take_tickets()
        files = self._volume.files
        parts = [(capture.paths, capture.folders) for capture in captures]
        parts.append(journal_part)
        self.running = True
        self._removals += bool(doomed)

        def done(result: object) -> None:
            self.running = False
            self.syncs += 1
            self.sync_ns += self._volume.clock.monotonic_ns() - started_ns
            results: list[_Outcome] = result if isinstance(result, list) else [repr(result)] * len(parts)
            self.syncs_failed += any(results)
            if None not in results:
                # Else they stay counted until a job has covered everything: publishers wait if that takes long.
                self.unsynced_bytes -= unsynced
            if results[-1] is None:
                self._journal.chain.take_back(*journal_part)
            self.finish(captures, results, sequence, tickets)
            if doomed and results[-1] is None:
                self._removals -= 1
                self._doomed += doomed
            elif doomed and not self._journal.failed:
                self._volume.worker.submit(lambda: remove_paths(files, doomed), self._removed, lane=Lane.SYNC)
            self._volume.check_room()
            self._weigh()

        self._volume.worker.submit(lambda: _sync_all(files, parts), done, lane=Lane.SYNC)

    def _removed(self, _result: object) -> None:
        """Take note that a job which removes files has ended."""
        self._removals -= 1

    def _take_tickets(self) -> list[Ticket]:
        """Give the tickets that the next sync of the journal will settle."""
        held, self._held = self._held, []
        return held + self._journal.take_sync_tickets()

    def finish(self, captures: list[_Capture], results: list[_Outcome], sequence: int, tickets: list[Ticket]) -> None:
        """Draw the conclusions from a sync job: the last result is the journal's."""
        journal = self._journal
        journal_result = results[-1]
        if journal_result:
            journal.fail(f"the journal cannot be synced: {journal_result}")
        for capture, problem in zip(captures, results, strict=False):
            self._finish_part(capture, problem, journal_synced=journal_result is not None)
        if journal_result is None and not journal.failed:
            self._held += tickets
        else:
            for ticket in tickets:
                if journal.failed:
                    ticket.fail(journal.failed)
                else:
                    ticket.resolve()
            if not journal.failed:
                journal.synced(sequence)
        if None in results:
            # What could not begin now is not likely to a moment later.
            self.dirty_since_ns = self._volume.clock.monotonic_ns()
            self._not_before_ns = self.dirty_since_ns + self._volume.settings.sync_interval_ns
        self.changed = True

    def _finish_part(self, capture: _Capture, problem: _Outcome, *, journal_synced: bool) -> None:
        """Draw the conclusions for one partition."""
        log, journal = capture.log, self._journal
        if problem:
            log.fence(f"partition {log.number} cannot be synced: {problem}")
        elif not journal.failed and not (log.failed or log.deleted) and (problem is None or not journal_synced):
            # Whoever waits for a partition waits for what the journal says about it, too: both are synced once more.
            log.take_back(capture.paths, capture.folders, capture.tickets)
            return
        elif not journal.failed and log.synced(capture.point):
            for entry in checkpoint_entries(log):
                journal.append(entry)
        reason = log.failed or journal.failed
        for ticket in capture.tickets:
            if reason:
                ticket.fail(reason)
            else:
                ticket.resolve()

    def sync_journal(self) -> bool:
        """Sync the journal on this thread, and nothing else; tell whether it went well."""
        part = self._take_journal_part()
        sequence, tickets = self._journal.sequence - 1, self._take_tickets()
        results = _sync_all(self._volume.files, [part])
        if results[-1] is None:
            self._journal.chain.take_back(*part)
        self.finish([], results, sequence, tickets)
        return results == [""]

    def sync_now(self) -> bool:
        """Sync everything on this thread, when the folder is opened or closed; tell whether all went well."""
        captures, journal_part, sequence, _, doomed = self.capture()
        tickets = self._take_tickets()
        parts = [(capture.paths, capture.folders) for capture in captures]
        parts.append(journal_part)
        results = _sync_all(self._volume.files, parts)
        if results[-1] is None:
            self._journal.chain.take_back(*journal_part)
        self.finish(captures, results, sequence, tickets)
        if doomed and results[-1] is None:
            self._doomed += doomed
        elif doomed and not self._journal.failed:
            remove_paths(self._volume.files, doomed)
        return not any(results) and None not in results
