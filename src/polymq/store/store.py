"""The data folder, opened: its partitions, its journal, and the turn's commit.

Everything is called from one thread. Read next: `log.py` for one partition, `journal.py`, `committer.py` for what
happens after the write, `recovery.py` and `journal_recovery.py` for what happens after a crash.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Final

from polymq.errors import StoreError, StoreFailed
from polymq.limits import PARTITION_NUMBER_MAX
from polymq.store.committer import UNSURE_NAME, Committer, checkpoint_entries, remove_paths
from polymq.store.dropping import Finished
from polymq.store.entries import (
    CLEAN_STOP,
    CORE_KIND_MIN,
    KIND_CHECKPOINT,
    KIND_CLEAN_STOP,
    KIND_DELETED,
    KIND_START,
    KIND_START_SILENT,
    KIND_WRITTEN,
    Checkpoint,
    Start,
    decode_checkpoint,
    decode_deleted,
    decode_start,
    decode_written,
    encode_checkpoint,
    encode_deleted,
    encode_start,
    encode_written,
)
from polymq.store.figures import StoreFigures
from polymq.store.journal import Journal
from polymq.store.journal_recovery import JOURNAL_FOLDER, recover_journal
from polymq.store.log import Log
from polymq.store.recovery import PARTITIONS_FOLDER, RecoveredLog, look_at_last, partition_folder, recover_log
from polymq.store.settings import StoreSettings
from polymq.store.volume import Volume
from polymq.store.workers import Lane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from polymq.store.files import Files
    from polymq.store.journal_recovery import RecoveredJournal
    from polymq.store.volume import Clock
    from polymq.store.workers import Worker

__all__ = ["FORMAT", "FORMAT_NAME", "Store"]

FORMAT_NAME: Final = "FORMAT"
FORMAT: Final = b"polymq data folder, format 2\n"
# Read as they are; what is written from then on is of the present format, so the mark is changed first.
_FORMATS_EARLIER: Final = (b"polymq data folder, format 1\n",)
_EPOCH_FIRST: Final = 1
# Partitions that one job looks at: a few milliseconds, which a reader that waits for the disk may have to wait, too.
_LOOKS_PER_JOB: Final = 64
# What nobody needs begins to go when so many times the mark is left free, so that no publisher is refused for it.
_AMPLE: Final = 1.25


class Store:
    """See the module. Made by `Store.open`; `replay` once, then the rest."""

    def __init__(self, volume: Volume, worker: Worker) -> None:
        self.congested = False
        self.due_ns: int | None = None
        self.unwritten = ""
        self.epoch = _EPOCH_FIRST
        self._volume = volume
        self._worker = worker
        self._logs: dict[int, Log] = {}
        # The newest checkpoint of every partition, opened or not.
        self._points: dict[int, Checkpoint] = {}
        # Partitions that may have been written behind their checkpoint and were not opened; `_silent`: any may.
        self._written: set[int] = set()
        self._silent = False
        # Partitions that were opened as their checkpoints say after an unclean stop: nobody has looked at them yet.
        self._unseen: list[Log] = []
        self._looking = False
        self._touched: list[Log] = []
        self._finished = Finished()
        self._boot_id = ""
        self._clean = True
        self._same_boot = True
        self._replay: list[bytes] | None = None
        self.journal = Journal(volume, own_units=self._own_units)
        self._committer = Committer(volume, self.journal)

    @classmethod
    def open(
        cls,
        files: Files,
        worker: Worker,
        *,
        clock: Clock,
        boot_id: str,
        random_u64: Callable[[], int],
        settings: StoreSettings | None = None,
    ) -> Store:
        """Open a data folder, or make one of an empty folder.

        `boot_id` tells one boot of the machine from another: within one, the page cache is intact. Raises
        StoreError, whose text says what to do. Cost: reads the journal; partitions are looked at when they are opened.
        """
        try:
            files.lock()
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                raise StoreFailed("the data folder is in use by another process: stop that one, or use another folder") from error
            raise StoreFailed(f"the data folder cannot be locked: {error.strerror or error}") from error
        try:
            _check_format(files)
            volume = Volume(files, worker, clock=clock, random_u64=random_u64, settings=settings or StoreSettings())
            store = cls(volume, worker)
            store._start(recover_journal(files), boot_id)
        except OSError as error:
            files.close()
            raise StoreFailed(f"the data folder cannot be opened: {error}") from error
        except StoreError:
            files.close()
            raise
        return store

    def _start(self, recovered: RecoveredJournal, boot_id: str) -> None:
        """Learn from the journal how the last life ended, and begin this one, durably."""
        self._boot_id = boot_id
        core: list[bytes] = []
        start: Start | None = None
        clean = True
        for entry in recovered.entries():
            kind = entry[0]
            if kind >= CORE_KIND_MIN:
                core.append(bytes(entry))
            elif kind == KIND_CHECKPOINT:
                point = decode_checkpoint(entry)
                self._points[point.number] = point
                self._written.discard(point.number)
            elif kind == KIND_WRITTEN:
                self._written.update(decode_written(entry))
            elif kind in (KIND_START, KIND_START_SILENT):
                start = decode_start(entry)
                clean = False
                self._silent = self._silent or kind == KIND_START_SILENT
            elif kind == KIND_CLEAN_STOP:
                clean = True
                self._silent = False
                self._written.clear()
            elif kind == KIND_DELETED:
                self._points.pop(decode_deleted(entry), None)
                self._written.discard(decode_deleted(entry))
        unsure = self._volume.files.exists(UNSURE_NAME)
        if unsure:
            # The frame that says this may be as lost as what it is about.
            clean, self._silent = False, True
        self._replay = core
        self._clean = clean
        self._same_boot = start is not None and start.boot_id == boot_id
        # Another boot is noticed but once: should this process be killed early, the next start has to look, too.
        self._silent = self._silent or not (clean or self._same_boot)
        if start is not None:
            self.epoch = start.epoch + (0 if clean or self._same_boot else 1)
        self.journal.epoch = self.epoch
        self.journal.attach(recovered, write_again=not clean)
        # Synced before anything is written: without it, the last clean stop would still count after a crash.
        self.journal.append(encode_start(Start(boot_id, self.epoch), silent=self._silent))
        self.journal.flush()
        if self.journal.blocked:
            raise StoreFailed(f"the journal cannot be written: {self.journal.blocked}. Make room on the disk")
        if self.journal.failed or not self._committer.sync_now():
            if not self.journal.failed:
                raise StoreFailed("the journal cannot be synced: too many files are open. Raise the limit (ulimit -n)")
            raise StoreFailed(f"{self.journal.failed}. Look after the disk")
        if unsure:
            # From here on the journal says it.
            self._volume.files.remove(UNSURE_NAME)
        self._committer.changed = False
        remove_paths(self._volume.files, recovered.superseded)

    def _own_units(self) -> Iterator[Iterable[bytes]]:
        """Give the store's part of a snapshot, for partitions that are there when their turn comes."""
        yield (encode_start(Start(self._boot_id, self.epoch)),)
        for number in sorted(self._logs.keys() | self._points.keys() | self._written):
            log = self._logs.get(number)
            if log is not None:
                yield checkpoint_entries(log)
                continue
            # Of an earlier life, and not opened in this one; or deleted by now.
            point = self._points.get(number)
            if point is not None:
                yield (encode_checkpoint(point),)
            if number in self._written or (self._silent and point is not None):
                yield (encode_written((number,)),)

    def replay(self) -> Iterator[bytes]:
        """Give the core's entries, oldest first, from the last complete snapshot on. Once, before anything else."""
        entries, self._replay = self._replay, None
        assert entries is not None, "replay is called once"
        yield from entries

    def secure(self) -> None:
        """Write and sync what the core has journaled in its start, before anything may be appended. Raises StoreFailed.

        For what says that offsets are free again: were it lost while a record that was given one of them is not, what
        was once noted about the offset would be taken to be about that record.
        """
        self.journal.flush()
        if self.journal.blocked or self.journal.failed or not self._committer.sync_journal():
            raise StoreFailed(self.journal.blocked or self.journal.failed or "the journal cannot be synced: too many files are open")

    # --- Partitions ---------------------------------------------------------------------------------------------------

    def create_log(self, number: int, *, sync: bool) -> Log:
        """Make a new partition. Nothing is on the disk until something is appended.

        A number that was never heard of may have left files behind, if its catalogue entry was lost with the power.
        Raises StoreFailed.
        """
        assert 0 <= number <= PARTITION_NUMBER_MAX
        assert number not in self._logs
        assert number not in self._points
        folder = partition_folder(number)
        try:
            if self._volume.files.exists(folder):
                remove_paths(self._volume.files, [f"{folder}/"])
                self._volume.files.sync_folder(PARTITIONS_FOLDER)
        except OSError as error:
            raise StoreFailed(f"{folder}: {error.strerror or error}") from error
        log = self._log(number, sync=sync)
        log.attach(RecoveredLog(), listed=True)
        log.begin_epoch()
        return log

    def open_log(self, number: int, *, sync: bool) -> Log:
        """Open a partition of an earlier life. If it was written behind its checkpoint, its end is looked for; see `Log.failed` then.

        After a clean stop the checkpoint says all. Within one boot it does so too after an unclean one, unless the
        journal has announced writes behind it: those are in the journal's file before they are in the partition's.
        Cost: none to speak of; else a listing, an open file and a read.
        """
        assert number not in self._logs
        point = self._points.get(number)
        log = self._log(number, sync=sync)
        as_left = self._clean or (self._same_boot and not self._silent and number not in self._written)
        if as_left and (point is not None or not self._clean):
            point = point or Checkpoint(number, 0, 0, -1, 0, 0, 0, 0, ())
            bases = [point.segment_base] if point.segment_base >= 0 else []
            log.attach(
                RecoveredLog(
                    start=point.start,
                    end=point.end,
                    bases=bases,
                    segment_id=point.segment_id,
                    position=point.position,
                    last_time_ns=point.last_time_ns,
                    sealed_size_bytes=point.sealed_size_bytes,
                    epochs=list(point.epochs),
                    synced=point.end,
                ),
                listed=not bases,
                untidy=True,
            )
            if bases and not self._clean:
                self._unseen.append(log)
        else:
            try:
                found = recover_log(self._volume.files, number, point, same_boot=self._same_boot and not self._silent)
            except OSError as error:
                found = RecoveredLog(failed=f"partition {number} cannot be read: {error.strerror or error}")
            log.attach(found, listed=True)
            if log.announced and number not in self._written:
                self.journal.append(encode_written((number,)))
        self._written.discard(number)
        log.synced_point = self._points.pop(number, None)
        if not log.failed:
            # Of a log that cannot be read nothing is said, or readers would take what it holds for lost.
            log.begin_epoch()
        return log

    def _log(self, number: int, *, sync: bool) -> Log:
        """Make the object."""
        log = self._logs[number] = Log(
            number,
            sync=sync,
            epoch=self.epoch,
            volume=self._volume,
            committer=self._committer,
            journal=self.journal,
            touched=self._touched,
            finished=self._finished,
        )
        return log

    def delete_log(self, number: int) -> None:
        """Forget a partition, opened or not. Its files go once the journal entry that says so is synced."""
        log = self._logs.pop(number, None)
        if log is not None:
            log.deleted = True
            log.fence(f"partition {number} is deleted")
            log.close()
            if log in self._committer.dirty:
                self._committer.dirty.remove(log)
        self._points.pop(number, None)
        self._written.discard(number)
        self.journal.append(encode_deleted(number))
        self._committer.remove_after_sync([f"{partition_folder(number)}/"])

    def forget_others(self, below: int) -> None:
        """Remove the folders of partitions that nobody has opened: they were deleted, and a kill came before their files went.

        To be called once everything that there is has been opened. `below`: numbers from there on are still to be
        given out, and `create_log` looks after those. What is known of partitions is durable since the start. Cost: a listing.
        """
        known = self._logs.keys() | self._points.keys() | self._written
        files = self._volume.files
        numbers = [int(name) for name in files.list(PARTITIONS_FOLDER) if name.isdigit()]
        doomed = [f"{partition_folder(number)}/" for number in sorted(numbers) if number < below and number not in known]
        if doomed:
            self._worker.submit(lambda: remove_paths(files, doomed), lambda _: None, lane=Lane.PREPARE)

    # --- The turn -----------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """Write what was staged in this turn: the journal, then each touched partition; start a sync if it is time.

        The journal goes first: an entry may announce what is about to be appended, and must then be there when the
        record is (docs/adr/0007). Whoever replays it looks whether the record made it into the log. `unwritten` says
        afterwards why the journal did not take this turn's entries ("" if it did, or there were none): then the
        partitions are not written either, else a message that was released would be appended once more after a crash.
        """
        self.unwritten = ""
        silent = [log for log in self._touched if not log.announced]
        if silent:
            # Before they are written, so that the next start knows which ones to look at.
            for log in silent:
                log.announced = True
            self.journal.append(encode_written([log.number for log in silent]))
        if self.journal.staged or self.journal.dropped:
            self.journal.flush()
            self.journal.dropped = False
            self.unwritten = self.journal.failed or self.journal.blocked
        touched = self._touched
        if touched and not self.journal.blocked:
            for log in touched:
                if self.unwritten:
                    log.fence(self.unwritten)
                log.flush()
            touched.clear()
        self._after()

    def poll(self) -> bool:
        """Run what background jobs have left to do; tell whether something became readable or was resolved."""
        self._worker.run_completions()
        committer = self._committer
        changed, committer.changed = committer.changed, False
        self.congested = committer.congested or bool(self.journal.blocked)
        self.due_ns = committer.due_ns
        return changed

    def _after(self) -> None:
        """Start a sync if it is time, and publish what the pump looks at."""
        committer = self._committer
        committer.start_if_due(self._volume.clock.monotonic_ns())
        if self._unseen and not self._looking:
            self._look_at_unseen()
        self.congested = committer.congested or bool(self.journal.blocked)
        self.due_ns = committer.due_ns

    def _look_at_unseen(self) -> None:
        """Have the worker see whether the last segments of some partitions are there, so that damage is known before they are used."""
        logs, self._unseen = self._unseen[:_LOOKS_PER_JOB], self._unseen[_LOOKS_PER_JOB:]
        self._looking = True
        files = self._volume.files
        rows = [(log, log.number, log.chain.active.outline()) for log in logs if log.chain.active is not None]

        def done(result: object) -> None:
            self._looking = False
            for (log, _number, _segment), problem in zip(rows, result if isinstance(result, list) else (), strict=False):
                if problem and not log.deleted:
                    log.fence(problem)
            if self._unseen:
                self._look_at_unseen()

        def job() -> list[str]:
            return [look_at_last(files, number, segment) for _log, number, segment in rows]

        self._volume.worker.submit(job, done, lane=Lane.READ)

    def look_after_room(self, finished_size_bytes_max: int) -> None:
        """Look how much room there is, about once a second, and what is in the way of it.

        `finished_size_bytes_max`: what nobody needs any more may take so much, in all partitions together, and less if
        the disk gets full. What has to go goes in `Log.retain`. (A sync looks how much room there is, too; but where
        publishers are refused, and nobody does anything else, there is none.) Cost: one system call, and see `Finished`.
        """
        volume = self._volume
        volume.check_room()
        # While files are being removed it cannot be said how much is lacking.
        lacking_bytes = 0 if self._committer.removing else int(volume.free_bytes_min * _AMPLE) - volume.free_bytes
        self._finished.weigh(size_bytes_max=finished_size_bytes_max, lacking_bytes=lacking_bytes)

    def health(self) -> list[str]:
        """Say what is wrong, for people."""
        problems: list[str] = []
        if self.journal.failed:
            problems.append(f"{self.journal.failed}; nothing can be published, settled or created until a restart")
        if self.journal.blocked:
            problems.append(f"the journal waits for room on the disk: {self.journal.blocked}")
        if self._volume.full:
            problems.append("free space on the disk is below the mark: nothing can be published")
        problems += [f"partition {log.number}: {log.failed}" for log in self._logs.values() if log.failed]
        return problems

    def figures(self) -> StoreFigures:
        """Say in numbers how the store is. Cost: one system call, and a look at every partition."""
        committer, volume = self._committer, self._volume
        return StoreFigures(
            partitions=len(self._logs),
            partitions_failed=sum(1 for log in self._logs.values() if log.failed),
            written_bytes=volume.heat,
            unsynced_bytes=committer.unsynced_bytes,
            congested=self.congested,
            syncs=committer.syncs,
            syncs_failed=committer.syncs_failed,
            sync_ns=committer.sync_ns,
            journal_size_bytes=sum(segment.size_bytes for segment in self.journal.chain.segments),
            disk_size_bytes=volume.files.total_bytes(),
            disk_free_bytes=volume.files.free_bytes(),
            disk_is_full=volume.full,
        )

    def close(self, *, clean: bool) -> bool:
        """Give the folder back. `clean`: sync everything and say so in the journal, so that the next start is quick.

        Returns whether it does say so: everything is on the disk. No job may be left when the lock goes: it would write into a folder that may be somebody else's by then.
        """
        self._unseen.clear()
        self._worker.drain()
        well = False
        if clean:
            self.commit()
            self._worker.drain()
            well = self._stop_clean()
            for log in self._logs.values():
                log.close()
            self.journal.chain.close()
            self._worker.drain()
        self._volume.close()
        self._volume.files.close()
        return well

    def _stop_clean(self) -> bool:
        """Sync everything and leave the mark, unless something is not well; tell whether it is there."""
        well = self._committer.sync_now()
        if not well or self.journal.failed or any(log.failed for log in self._logs.values()):
            # The next start looks at everything as after a crash.
            self.journal.flush()
            self._committer.sync_now()
            return False
        for log in self._logs.values():
            point = log.point()
            if point != log.synced_point and point != self._points.get(log.number):
                self.journal.append(encode_checkpoint(point))
        self.journal.append(CLEAN_STOP)
        self.journal.flush()
        return self._committer.sync_now() and not (self.journal.failed or self.journal.blocked)


def _refuse_foreign(found: bytes, *, has_data: bool) -> None:
    """Refuse a folder whose mark is neither one that we read nor the beginning of one. Raises StoreFailed."""
    if has_data and not found.strip(b"\0"):
        raise StoreFailed(f"the folder has data but no {FORMAT_NAME} file: restore it from a copy, or use another folder")
    if has_data or not FORMAT.startswith(found.rstrip(b"\0")):
        raise StoreFailed(f"the folder says it is {found.strip()!r}, this program reads {FORMAT.strip()!r}: use the version that wrote it")


def _check_format(files: Files) -> None:
    """Make sure that this is a data folder of ours, or make it one if it is empty. Raises StoreFailed, OSError.

    The mark is durable before there is anything else, so that data without a mark is never our own doing.
    """
    has_data = bool(files.list(JOURNAL_FOLDER)) or bool(files.list(PARTITIONS_FOLDER))
    found = b""
    if files.exists(FORMAT_NAME):
        file = files.open(FORMAT_NAME)
        try:
            found = file.pread(2 * len(FORMAT), 0)
        finally:
            file.close()
    # A mark without data may be one that the process before wrote and was killed before it could sync.
    if found != FORMAT or not has_data:
        if found not in _FORMATS_EARLIER:
            _refuse_foreign(found, has_data=has_data)
        file = files.open(FORMAT_NAME, create=True)
        try:
            file.pwrite(FORMAT, 0)
            file.sync()
        finally:
            file.close()
        files.sync_folder("")
    if not files.exists(JOURNAL_FOLDER) or not files.exists(PARTITIONS_FOLDER):
        files.make_folder(JOURNAL_FOLDER)
        files.make_folder(PARTITIONS_FOLDER)
        files.sync_folder("")
