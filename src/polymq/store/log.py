"""One partition: a contiguous sequence of records that grows at one end and is dropped, by segments, at the other.

What is appended in a turn is encoded into a staging buffer, as batches that grow until they are large enough, and
written with one `pwrite` when the turn is committed. Reading is in `reader.py`, finding the end after a crash in
`recovery.py`, syncing in `committer.py`, dropping in `dropping.py`.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from polymq.errors import CorruptRecord, Refusal, RefusalCode, StoreFailed, StoreFull
from polymq.limits import BATCH_SIZE_BYTES_MAX
from polymq.store.chain import Chain
from polymq.store.dropping import Dropping
from polymq.store.entries import Checkpoint
from polymq.store.index import SparseIndex
from polymq.store.lookup import batches_from, first_offset_at
from polymq.store.reader import Reader
from polymq.store.recovery import PARTITIONS_FOLDER, SEGMENT_SUFFIX, log_segments, look_at_active, partition_folder, segment_path, tidy
from polymq.store.retention import chained, seal
from polymq.store.segment import MAGIC_LOG, Segment, write_again
from polymq.store.ticket import Ticket, TicketState
from polymq.store.volume import store_error
from polymq.wire.batch import NO_PRODUCER, seal_fields
from polymq.wire.records import HEADER_SIZE_BYTES, RECORD_OVERHEAD_BYTES, encode_bodies, encode_message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.store.cold import WindowRequest
    from polymq.store.committer import Committer
    from polymq.store.dropping import Finished
    from polymq.store.journal import Journal
    from polymq.store.lookup import TimeSearch
    from polymq.store.recovery import RecoveredLog
    from polymq.store.volume import Volume
    from polymq.wire.batch import Producer
    from polymq.wire.records import Message
    from polymq.wire.slices import MessageBatch

__all__ = ["Log"]

_base_offset = attrgetter("base_offset")

logger = logging.getLogger(__name__)
# No batch is open: no protocol has this number.
_NONE: Final = -1
# Looking a member up in its enumeration costs more than using it.
_DONE: Final = TicketState.DONE


class Log:
    """See the module. Attributes without an underscore are there to be read; only the store changes them.

    `end` counts what is staged in this turn, `readable` what readers may see; `size_bytes` is what the segments hold.
    """

    __slots__ = (
        "_batch_at",
        "_batch_base",
        "_batch_count",
        "_batch_origin",
        "_buffer",
        "_committer",
        "_dirty",
        "_dropping",
        "_full",
        "_index",
        "_journal",
        "_listed",
        "_requests",
        "_room",
        "_searches",
        "_staged",
        "_sync_tickets",
        "_target",
        "_ticket",
        "_touched",
        "_untidy",
        "_volume",
        "_written_end",
        "_written_time_ns",
        "announced",
        "chain",
        "deleted",
        "end",
        "epoch",
        "epochs",
        "failed",
        "last_time_ns",
        "notes",
        "number",
        "readable",
        "sealed_size_bytes",
        "size_bytes",
        "start",
        "sync",
        "synced_point",
    )

    def __init__(
        self,
        number: int,
        *,
        sync: bool,
        epoch: int,
        volume: Volume,
        committer: Committer,
        journal: Journal,
        touched: list[Log],
        finished: Finished,
    ) -> None:
        self.number = number
        self.sync = sync
        self.epoch = epoch
        self.epochs: list[tuple[int, int]] = []
        self.start = 0
        self.end = 0
        self.readable = 0
        self.failed = ""
        self.size_bytes = 0
        self.sealed_size_bytes = 0
        self.deleted = False
        self.last_time_ns = 0
        # What the broker noted in batches behind the last checkpoint of an earlier life: (first offset, epoch, note).
        self.notes: list[tuple[int, int, bytes]] = []
        self.synced_point: Checkpoint | None = None
        # Whether the journal says that something may lie behind `synced_point`.
        self.announced = False
        self.chain = Chain(volume, partition_folder(number), magic=MAGIC_LOG, partition=number, suffix=SEGMENT_SUFFIX)
        self._volume = volume
        self._committer = committer
        self._journal = journal
        self._touched = touched
        self._listed = True
        self._untidy = False
        self._dirty = False
        self._dropping = Dropping(self, volume, committer, journal, finished)
        self._written_end = 0
        # The time of the last batch that is written; `last_time_ns` counts what is staged, too.
        self._written_time_ns = 0
        self._index: SparseIndex | None = None
        self._buffer: bytearray | None = None
        self._staged = 0
        # Segments that became full in this turn, with what is staged for them: (segment, buffer, bytes, end offset, time).
        self._full: list[tuple[Segment, bytearray | None, int, int, int]] = []
        self._room = 0
        self._target = volume.settings.batch_size_bytes_target
        self._batch_origin = _NONE
        self._batch_at = 0
        self._batch_base = 0
        self._batch_count = 0
        self._ticket: Ticket | None = None
        self._sync_tickets: list[Ticket] = []
        self._requests: dict[int, WindowRequest] = {}
        self._searches: dict[int, TimeSearch] = {}

    @property
    def durable(self) -> int:
        """The offset before which records survive a power loss."""
        return self.synced_point.end if self.synced_point is not None else 0

    # --- Coming back from an earlier life -----------------------------------------------------------------------------

    def attach(self, found: RecoveredLog, *, listed: bool, untidy: bool = False) -> None:
        """Take over what recovery found, or what the last checkpoint says (then not `listed`: only the last segment is known).

        `untidy`: nobody has looked whether a process that was killed had begun segments behind the last record.
        """
        self._untidy = untidy
        self.announced = found.unsynced or bool(found.failed)
        self.start, self.end = found.start, found.end
        self._written_end = found.end
        self.failed = found.failed
        self.readable = found.synced if self.sync else found.end
        self.last_time_ns = self._written_time_ns = found.last_time_ns
        self.notes = found.notes
        self.sealed_size_bytes = found.sealed_size_bytes
        self.size_bytes = found.sealed_size_bytes + found.position
        self.epochs = found.epochs
        self._listed = listed
        self.chain.segments = chained([Segment(segment_path(self.number, base), base) for base in found.bases], found.end)
        if self.failed:
            self.readable = min(self.readable, found.bases[-1] if found.bases else found.start)
        elif self.chain.segments:
            active = self.chain.active = self.chain.segments[-1]
            active.segment_id, active.used, active.own_from = found.segment_id, found.position, found.position
            if found.unsynced:
                self._redo_sync(found.synced)

    def _redo_sync(self, synced: int) -> None:
        """Write everything behind the checkpoint again, and have it synced at once.

        The page cache may hold it and the disk not; and after a sync that failed in the last life, another sync would
        succeed without the pages that the kernel gave up. Written again, they count as dirty.
        """
        self.chain.dirty = [segment for segment in self.chain.segments if segment.end_offset > synced or segment.base_offset >= synced]
        try:
            for segment in self.chain.dirty:
                write_again(self._volume.file(segment), segment.used)
        except OSError as error:
            self.fence(f"partition {self.number} cannot be written: {error.strerror or error}")
            return
        self.chain.folder_dirty = self.chain.folder_made = True
        self._committer.urgent = True
        self._mark_dirty()

    def begin_epoch(self) -> None:
        """Say from which offset on the current epoch counts, if the last record is of an earlier one."""
        while self.epochs and self.epochs[-1][1] >= self.end and self.epochs[-1][0] != self.epoch:
            self.epochs.pop()
        if not self.epochs or self.epochs[-1][0] != self.epoch:
            self.epochs.append((self.epoch, self.end))

    def list_segments(self) -> None:
        """Look through the folder, the first time that something older than the last segment is needed."""
        if self._listed:
            return
        self._listed = True
        known = self.chain.segments
        first = known[0].base_offset if known else self.end
        bases = log_segments(self._volume.files, self.number)
        earlier = [base for base in bases if self.start <= base < first]
        self._committer.remove_after_sync([segment_path(self.number, base) for base in bases if base < self.start])
        segments = [Segment(segment_path(self.number, base), base) for base in earlier]
        self.chain.segments = chained(segments, first) + known
        if self.chain.segments and self.chain.segments[0].base_offset != self.start:
            self.fence(f"segment {self.start} of partition {self.number} is missing")

    # --- Appending ----------------------------------------------------------------------------------------------------

    def append(self, batch: MessageBatch, *, now_ns: int, origin: int) -> Ticket:
        """Stage a batch of bodies; it is never split over two stored batches.

        Raises: StoreFull, StoreFailed; Refusal (BATCH_TOO_LARGE). Then nothing of it is staged.
        Cost:   one copy into the staging buffer; no system call unless a segment is full.
        """
        size = batch.size_bytes + batch.count * RECORD_OVERHEAD_BYTES
        at = self._staged
        if origin != self._batch_origin or at + size - self._batch_at > self._target or at + size > self._room:
            at = self._begin_batch(size, origin, now_ns)
        buffer = self._buffer
        assert buffer is not None
        if at + size > len(buffer):
            buffer.extend(bytes(at + size - len(buffer) + len(buffer) // 2))
        self._staged = encode_bodies(buffer, at, batch)
        self._batch_count += batch.count
        self.end += batch.count
        ticket = self._ticket
        assert ticket is not None
        return ticket

    def append_run(self, records: memoryview, count: int, *, now_ns: int, origin: int) -> Ticket:
        """Stage encoded records that have no time of their own as `append` does with bodies: never split, together with what came before."""
        size = len(records)
        at = self._staged
        if origin != self._batch_origin or at + size - self._batch_at > self._target or at + size > self._room:
            at = self._begin_batch(size, origin, now_ns)
        buffer = self._buffer
        assert buffer is not None
        self._staged = end = at + size
        if end > len(buffer):
            buffer.extend(bytes(end - len(buffer) + len(buffer) // 2))
        buffer[at:end] = records
        self._batch_count += count
        self.end += count
        ticket = self._ticket
        assert ticket is not None
        return ticket

    def append_messages(
        self, messages: Sequence[Message], *, now_ns: int, origin: int, producer_id: int = -1, producer_epoch: int = -1, sequence: int = -1
    ) -> Ticket:
        """Stage messages with more than bodies as one stored batch, one with a producer by itself. Raises like `append`."""
        time_ns = max(now_ns, self.last_time_ns)
        records = b"".join([encode_message(message, time_ns) for message in messages])
        producer = (producer_id, producer_epoch, sequence)
        return self.append_records(records, len(messages), now_ns=time_ns, origin=origin, producer=producer)

    def append_records(
        self, records: bytes | memoryview, count: int, *, now_ns: int, origin: int, producer: Producer = NO_PRODUCER, attributes: int = 0
    ) -> Ticket:
        """Stage encoded records as one stored batch, by itself if it has attributes, of the time `now_ns`, not before `last_time_ns`. Raises like `append`."""
        assert now_ns >= self.last_time_ns
        at = self._begin_batch(len(records), origin, now_ns)
        buffer, ticket = self._buffer, self._ticket
        assert buffer is not None
        assert ticket is not None
        self._staged = end = at + len(records)
        if end > len(buffer):
            buffer.extend(bytes(end - len(buffer)))
        buffer[at:end] = records
        self._batch_count = count
        self.end += count
        if producer[0] != -1 or attributes:
            self._seal(*producer, attributes)
        return ticket

    def _begin_batch(self, size: int, origin: int, now_ns: int) -> int:
        """Open a batch for records of `size` bytes, in a new segment if it has to be; return where the records go."""
        need = HEADER_SIZE_BYTES + size
        if need > BATCH_SIZE_BYTES_MAX:
            raise Refusal(RefusalCode.BATCH_TOO_LARGE)
        if self.failed or self._journal.failed:
            raise StoreFailed(self.failed or self._journal.failed)
        if self._volume.full:
            raise StoreFull("free space on the disk is below the mark")
        if self._journal.blocked:
            raise StoreFull(self._journal.blocked)
        if self._batch_origin != _NONE:
            self._seal()
        if self._buffer is None:
            self._wake(need, now_ns)
        elif self._staged + need > self._room:
            self._roll(need, now_ns)
        if self._ticket is None:
            self._ticket = Ticket()
            self._touched.append(self)
        self.last_time_ns = max(now_ns, self.last_time_ns)
        self._batch_at = self._staged
        self._batch_base = self.end
        self._batch_count = 0
        self._batch_origin = origin
        self._staged += HEADER_SIZE_BYTES
        buffer = self._buffer
        assert buffer is not None
        if self._staged > len(buffer):
            buffer.extend(bytes(self._staged))
        return self._staged

    def _wake(self, need: int, now_ns: int) -> None:
        """Get ready for the first batch of a turn: a segment with room and a buffer."""
        active = self.chain.active
        if self._untidy:
            self._tidy()
        if active is not None and not active.known:
            self._look_at_active(active)
        if active is None or active.used + need > active.size_bytes:
            self._roll(need, now_ns)
        else:
            self._room = active.size_bytes - active.used
        self._buffer = self._volume.take_buffer()
        self._staged = 0

    def _tidy(self) -> None:
        """Remove, before the first append of this life, segments that were begun behind the last record and hold nothing."""
        active = self.chain.active
        try:
            tidy(self._volume.files, self.number, -1 if active is None else active.base_offset)
        except OSError as error:
            raise store_error(error, self.chain.folder) from error
        self._untidy = False

    def _look_at_active(self, active: Segment) -> None:
        """Make sure, before the first append of this life, that the last segment is the one that was left."""
        try:
            active.created_ns, active.size_bytes = look_at_active(self._volume.file(active), self.number, active)
        except (OSError, CorruptRecord) as error:
            self.fence(str(error))
            raise StoreFailed(self.failed) from error
        active.known = True
        active.index = self._index = SparseIndex(self._volume.settings.index_interval_bytes, active.used)
        self.chain.attach(active)

    def _roll(self, need: int, now_ns: int) -> None:
        """Begin a new segment. What is staged for the one before waits for the commit. Raises StoreFull, StoreFailed."""
        previous = self.chain.active
        try:
            segment = self.chain.roll(self.end, room_bytes=need, now_ns=max(now_ns, self.last_time_ns), epoch=self.epoch)
        except StoreFailed as error:
            self.fence(str(error))
            raise
        if segment is not previous:
            self.size_bytes += segment.used
            if previous is not None:
                self._full.append((previous, self._buffer, self._staged, self.end, self.last_time_ns))
                self._staged = 0
                if self._buffer is not None:
                    self._buffer = self._volume.take_buffer()
        segment.index = self._index = SparseIndex(self._volume.settings.index_interval_bytes)
        self._room = segment.size_bytes - segment.used
        self._mark_dirty()

    def _finish(self, segment: Segment, end: int) -> None:
        """Have a segment that is full cut to what it holds and its index written, in the worker."""
        segment.end_offset = end
        segment.size_bytes = segment.used
        self.sealed_size_bytes += segment.used
        seal(self._volume, segment)

    def _seal(self, producer_id: int = -1, producer_epoch: int = -1, sequence: int = -1, attributes: int = 0) -> None:
        """Write the header of the open batch."""
        self._batch_origin, origin = _NONE, self._batch_origin
        at = self._batch_at
        if not self._batch_count:
            self._staged = at
            return
        active = self.chain.active
        buffer = self._buffer
        assert active is not None
        assert buffer is not None
        assert self._index is not None
        count, base, time_ns = self._batch_count, self._batch_base, self.last_time_ns
        fields = (origin, attributes, active.segment_id, self.epoch, count, base, time_ns, producer_id, producer_epoch, sequence)
        seal_fields(buffer, at, self._staged, fields)
        self._index.add(self._batch_base, active.used + at, self.last_time_ns)

    def _write(self, segment: Segment, buffer: bytearray, size: int, end: int, time_ns: int) -> bool:
        """Write `size` staged bytes, up to record `end`, the last batch of `time_ns`; tell whether that went well, else the partition is fenced."""
        try:
            (segment.file or self._volume.file(segment)).pwrite(memoryview(buffer)[:size], segment.used)
        except OSError as error:
            # The view lives on in the traceback, so this buffer cannot grow again.
            self._buffer = None
            self.fence(f"partition {self.number} cannot be written: {error.strerror or error}")
            return False
        segment.touched = True
        self.chain.wrote(segment, size)
        self.size_bytes += size
        self._written_end = segment.end_offset = end
        self._written_time_ns = time_ns
        self._committer.unsynced_bytes += size
        return True

    def _write_full(self) -> None:
        """Write what is staged for segments that became full in this turn, oldest first."""
        while self._full and not self.failed:
            segment, buffer, size, end, time_ns = self._full[0]
            if buffer is not None and size:
                if not self._write(segment, buffer, size, end, time_ns):
                    return
                # The room behind it was given back when the next segment was begun.
                self._volume.reserved_bytes += size
                self._volume.give_buffer(buffer)
            del self._full[0]
            self._finish(segment, end)

    def flush(self) -> None:
        """Write this turn's batches and settle its ticket. Never raises: what fails, fails the ticket."""
        ticket, self._ticket = self._ticket, None
        assert ticket is not None
        if self._batch_origin != _NONE:
            self._seal()
        if self._full:
            self._write_full()
        active = self.chain.active
        if self._staged and active is not None and self._buffer is not None:
            self._write(active, self._buffer, self._staged, self.end, self.last_time_ns)
            self._staged = 0
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            self._volume.give_buffer(buffer)
        if self.failed:
            ticket.fail(self.failed)
            return
        if not self._dirty:
            self._mark_dirty()
        assert active is not None
        if active.used * 2 >= active.size_bytes:
            self.chain.prepare_next()
        if self.sync:
            self._sync_tickets.append(ticket)
            self._committer.urgent = True
        else:
            self.readable = self._written_end
            ticket.state = _DONE

    def fence(self, reason: str) -> None:
        """Take no more writes, for good. What is readable stays so."""
        if not self.failed:
            self.failed = reason
            if not self.deleted:
                logger.error("partition %d takes no more messages until a restart: %s", self.number, reason)
        self._batch_origin = _NONE
        self._staged = 0
        self._full.clear()
        self.end = self._written_end
        tickets, self._sync_tickets = self._sync_tickets, []
        for ticket in tickets:
            ticket.fail(self.failed)
        self._committer.changed = True

    # --- Syncing (called by the committer) ----------------------------------------------------------------------------

    def _mark_dirty(self) -> None:
        """Have the next sync include this partition."""
        if not self._dirty:
            self._dirty = True
            self._committer.dirty.append(self)

    def point(self) -> Checkpoint:
        """Describe the partition as it is written now."""
        last = self._full[0][0] if self._full else self.chain.active
        return Checkpoint(
            self.number,
            self.start,
            self._written_end,
            -1 if last is None else last.base_offset,
            0 if last is None else last.segment_id,
            0 if last is None else last.used,
            self._written_time_ns,
            self.sealed_size_bytes,
            tuple(self.epochs),
        )

    def capture(self) -> tuple[list[str], list[str], Checkpoint, list[Ticket]]:
        """Hand over what a sync has to cover: files, folders, what it makes true, who waits for it."""
        chain = self.chain
        paths = [segment.path for segment in chain.dirty]
        folders = [chain.folder] if chain.folder_dirty else []
        if chain.folder_made:
            folders.append(PARTITIONS_FOLDER)
        chain.dirty = []
        chain.folder_dirty = chain.folder_made = False
        self._dirty = False
        self._dropping.captured()
        tickets, self._sync_tickets = self._sync_tickets, []
        return paths, folders, self.point(), tickets

    def take_back(self, paths: list[str], folders: list[str], tickets: list[Ticket]) -> None:
        """Take back what `capture` has handed over: the sync could not begin, and the next one covers it."""
        self.chain.take_back(paths, folders)
        self.chain.folder_made = self.chain.folder_made or PARTITIONS_FOLDER in folders
        self._sync_tickets = tickets + self._sync_tickets
        self._mark_dirty()

    def synced(self, point: Checkpoint) -> bool:
        """Take note that a sync has covered everything up to `point`; False if that is of no interest any more."""
        if self.failed or self.deleted:
            return False
        self.synced_point = point = self._dropping.agreeing(point)
        # What was written since the sync began was announced before this checkpoint will be.
        self.announced = self._dirty
        if self.sync:
            self.readable = max(self.readable, point.end)
        return True

    # --- Reading ------------------------------------------------------------------------------------------------------

    def reader(self, offset: int) -> Reader:
        """Make a reader that begins at `offset`."""
        return Reader(self, self._volume, offset)

    def arrived(self) -> None:
        """Take note that a cold read has ended: somebody may go on."""
        self._committer.changed = True

    def segment_of(self, offset: int) -> Segment | None:
        """Give the segment that holds a record, or that will; None if there is none."""
        segments = self.chain.segments
        if not segments:
            return None
        if offset < segments[0].base_offset and not self._listed:
            self.list_segments()
            segments = self.chain.segments
        index = bisect_right(segments, offset, key=_base_offset) - 1
        return segments[index] if index >= 0 else None

    def batches(self, offset: int, size_bytes_max: int) -> memoryview | None:
        """Give whole batches of one segment as they lie in it, from the one that holds `offset` on, at least one.

        None: they come from the disk, try again after `poll()`. Empty: there is nothing readable from `offset` on.
        The bytes stay as they are as long as the view is held.
        """
        return batches_from(self, self._volume, self._requests, offset, size_bytes_max)

    def offset_at(self, time_ns: int) -> int | None:
        """Tell the first offset appended at or after a time. None: the disk is being read, ask again after `poll()`.

        Raises StoreFailed where the log is damaged.
        """
        self.list_segments()
        return first_offset_at(self, self._volume, self._searches, time_ns)

    # --- Retention ----------------------------------------------------------------------------------------------------

    def retain(self, first_needed: int, *, now_ns: int, age_ns: int, size_bytes: int) -> None:
        """Drop whole segments below `first_needed` that are older than `age_ns`, or as long as more than `size_bytes` are held.

        Those that `Store.look_after_room` has found to be in the way go, too. Only what is synced is dropped, never the last segment. The files go after the journal entry that says so is
        synced.
        """
        self._dropping.retain(first_needed, now_ns=now_ns, age_ns=age_ns, size_bytes=size_bytes)

    def close(self) -> None:
        """Let go of files and of room that was reserved."""
        for segment in self.chain.segments:
            segment.release()
        self.chain.close()
        self._dropping.close()
        self._requests.clear()
