"""A commit of prepared batches on its way: from the synced intent over the appends to the entry that says it is done.

    SECURING ──► MOVING ──► SYNCING ──► done
        └──► SCANNING ──┘        (after a restart: which frames are there already?)

Every batch that is appended names in its header where it was staged (producer `PRODUCER_PREPARED`, the staging log's
number, the offset there), and the intent says where each log ended before: so a later process reads the headers from
there on and knows which frames are missing. Nothing is appended before the intent is synced, and the end is not
journaled before everything is. Frames for later are inert in their schedule's log until the entry that ends the
commit, with which their due times are journaled in one frame of the journal: both count, or neither.
"""

from __future__ import annotations

import enum
import struct
from array import array
from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.core.ports import TicketState
from polymq.errors import StoreFailed, StoreFull
from polymq.wire.batch import HEADER_SIZE_BYTES, ORIGIN_NONE, PRODUCER_PREPARED, parse_header
from polymq.wire.records import columns
from polymq.wire.transfer import RECORD_GROWTH_BYTES, copy_wanted

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.catalogue import Catalogue
    from polymq.core.kernel import Kernel
    from polymq.core.ports import Log, Ticket
    from polymq.core.prepared_state import Frame, Sink
    from polymq.core.schedule import Schedule
    from polymq.core.topic import Partition, Topic

__all__ = ["Commit", "Stage", "redated"]

# What one look at a log's headers may take of a turn, in bytes of log: they lie behind one another at 256 KiB, usually.
_SCAN_SIZE_BYTES: Final = 4 * 1024 * 1024
_NS_PER_US: Final = 1000
# Where a batch's header has its size and its time: docs/INTERNALS.md, section 2.
_SIZE: Final = struct.Struct("<I")
_SIZE_AT: Final = 8
_TIME: Final = struct.Struct("<q")
_TIME_AT: Final = 40


class Stage(enum.Enum):
    """Where a commit is."""

    SECURING = "the intent is being synced"
    SCANNING = "after a restart: what was appended already is looked for"
    MOVING = "frames are being appended"
    SYNCING = "what was appended is being synced"
    DONE = "the journal says that it is complete"


class Commit:
    """One commit. `problem` says why it cannot go on for now; "" if it can."""

    def __init__(self, kernel: Kernel, catalogue: Catalogue, sink: Sink, staging: Log | None, *, resumed: bool) -> None:
        assert sink.intent is not None
        self.sink = sink
        self.stage = Stage.SECURING
        self.problem = ""
        # What may be appended in this turn, in bytes; each frame counts for some thousand at least.
        self.room = 0
        self._turn = 0
        self._kernel = kernel
        self._catalogue = catalogue
        self._staging = staging
        self._resumed = resumed
        self._frames = sink.frames(sink.intent.parts)
        assert staging is not None or not self._frames
        self._next = 0
        self._ticket: Ticket = kernel.store.journal.ticket(sync=True)
        # After a restart: where each log is looked through, up to which offset; and what was found, by its offset in the staging log.
        self._scans: dict[int, tuple[int, int]] = {}
        self._found: set[int] = set()
        # Up to where each log has to be durable.
        self._ends: dict[int, tuple[Log, int]] = {}
        # What waits in schedules' logs for its due times: (schedule, first offset there, due times).
        self._inert: list[tuple[Schedule, int, array[int]]] = []

    def step(self) -> bool:
        """Go on as far as `room` goes; True once it is done."""
        steps: dict[Stage, Callable[[], None]] = {
            Stage.SECURING: self._secure,
            Stage.SCANNING: self._scan,
            Stage.MOVING: self._move,
            Stage.SYNCING: self._sync,
        }
        before = None
        while self.stage is not before and self.stage is not Stage.DONE:
            before = self.stage
            steps[before]()
        return self.stage is Stage.DONE

    def _synced(self) -> bool:
        """Whether what the ticket stands for is synced."""
        if self._ticket.state is TicketState.FAILED:
            self.problem = self._ticket.failure
        return self._ticket.state is TicketState.DONE

    def _secure(self) -> None:
        if not self._synced():
            return
        intent = self.sink.intent
        assert intent is not None
        if not self._resumed:
            self.stage = Stage.MOVING
            return
        for number, base in intent.bases.items():
            log = self._catalogue.log(number)
            if log is not None and base < log.end:
                self._scans[number] = base, log.end
        self.stage = Stage.SCANNING

    # -- after a restart -------------------------------------------------------------------------------------------

    def _scan(self) -> None:
        """Look through the headers of what was appended since the intent."""
        room = _SCAN_SIZE_BYTES
        while self._scans and room > 0:
            number, (offset, end) = next(iter(self._scans.items()))
            log = self._catalogue.log(number)
            if log is None or log.start >= end:
                del self._scans[number]
                continue
            if log.failed:
                self.problem = log.failed
                return
            view = log.batches(max(offset, log.start), room)
            if not view:
                return  # the disk is being read, or what was found unsynced is being synced
            room -= len(view)
            offset = self._look_at(number, log, view)
            if offset >= end:
                del self._scans[number]
            else:
                self._scans[number] = offset, end
        if self._scans:
            self._kernel.uncommitted = True
        else:
            self.stage = Stage.MOVING

    def _look_at(self, number: int, log: Log, view: memoryview) -> int:
        """Take note of batches of this staging log; gives the offset behind them."""
        at = end = 0
        while len(view) - at >= HEADER_SIZE_BYTES:
            header = parse_header(view, at)
            end = header.base_offset + header.count
            if header.producer_id == PRODUCER_PREPARED and header.producer_epoch == self.sink.log:
                self._found.add(header.sequence)
                schedule = self._catalogue.schedules.get(number)
                if schedule is not None:
                    dues = _times_of(view, at, at + header.size, header.base_offset, header.count)
                    self._inert.append((schedule, header.base_offset, dues))
                self._note(log, end)
            at += header.size
        return end

    # -- appending -------------------------------------------------------------------------------------------------

    def _move(self) -> None:
        """Append frames until the turn has had enough."""
        while self._next < len(self._frames):
            if self.room <= 0:
                self._kernel.uncommitted = True
                return
            frame = self._frames[self._next]
            if frame.first not in self._found:
                assert self._staging is not None
                view = self._staging.batches(frame.first, 1)
                if not view:
                    # The disk is being read; of a log that cannot be read nothing comes.
                    self.problem = self._staging.failed
                    return
                if not self._append(frame, view):
                    return
                self.room -= max(frame.size_bytes, limits.PREPARED_MOVED_SIZE_BYTES_PER_FRAME)
            self._next += 1
        self._ticket = self._kernel.store.journal.ticket(sync=True)
        self._kernel.uncommitted = True
        self.stage = Stage.SYNCING

    def _append(self, frame: Frame, view: memoryview) -> bool:
        """Append one frame where it belongs; False if nothing takes it for now. A topic that is gone takes nothing."""
        topic = self._catalogue.topics.get((self.sink.namespace, frame.topic))
        target = None if topic is None else self._target(topic, frame)
        if topic is None or target is None:
            return True
        partition, schedule, log = target
        if log.failed:
            self.problem = log.failed
            return False
        time_ns = max(self._kernel.wall_ns(), log.last_time_ns)
        if schedule is None:
            time_ns = max(time_ns, partition.last_time_ns)
        batch = redated(view, frame.first, frame.count, time_ns)
        first = log.end
        try:
            producer = PRODUCER_PREPARED, self.sink.log, frame.first
            log.append_records(memoryview(batch)[HEADER_SIZE_BYTES:], frame.count, now_ns=time_ns, origin=ORIGIN_NONE, producer=producer)
        except (StoreFull, StoreFailed) as error:
            self.problem = str(error)
            return False
        self.problem = ""
        self._note(log, log.end)
        if schedule is None:
            partition.last_time_ns = time_ns
            self._kernel.appended(topic)
        else:
            self._inert.append((schedule, first, _times_of(batch, 0, len(batch), frame.first, frame.count)))
        topic.expires = topic.expires or frame.expires
        topic.message_count += frame.count
        topic.message_bytes += frame.size_bytes
        return True

    def _target(self, topic: Topic, frame: Frame) -> tuple[Partition, Schedule | None, Log] | None:
        """Choose where a frame goes: its partition, or any in turn that takes writes; None if it is gone.

        Only logs that the intent names count: a partition that was added since, or a topic of the same name that was made
        since, is not looked through after a restart. One that has failed is given if there is none but such.
        """
        assert self.sink.intent is not None
        count = len(topic.partitions)
        failed = None
        for index in range(frame.partition, frame.partition + 1) if frame.partition >= 0 else range(self._turn, self._turn + count):
            if frame.partition >= count:
                return None
            partition = topic.partitions[index % count]
            schedule = self._catalogue.schedule(topic, partition) if frame.later else None
            log = partition.log if schedule is None else schedule.log
            if log.number not in self.sink.intent.bases:
                continue
            if not log.failed:
                self._turn = index % count + 1
                return partition, schedule, log
            failed = failed or (partition, schedule, log)
        return failed

    def _note(self, log: Log, end: int) -> None:
        self._ends[log.number] = log, max(end, self._ends.get(log.number, (log, 0))[1])

    # -- the end ---------------------------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Once everything is durable, say so, together with the due times of what waits."""
        if not self._synced():
            return
        for number, (log, end) in self._ends.items():
            if self._catalogue.log(number) is None or log.durable >= end:
                continue
            self.problem = log.failed
            if not log.failed:
                # The sync has not covered it: there is another one.
                self._ticket = self._kernel.store.journal.ticket(sync=True)
                self._kernel.uncommitted = True
            return
        for schedule, first, dues in self._inert:
            if self._catalogue.log(schedule.log.number) is not None:
                schedule.take_over(first, dues)
        self.stage = Stage.DONE


def redated(view: memoryview, first: int, count: int, time_ns: int) -> bytearray:
    """Copy the batch at the beginning of `view` for a batch of another time: records with times of their own keep them.

    `first` is the offset of its first record. The header's times, offset and size fit; the rest of it is as it was.
    """
    header = parse_header(view, 0)
    assert (header.base_offset, header.count) == (first, count)
    batch = bytearray(header.size + RECORD_GROWTH_BYTES * count)
    batch[:HEADER_SIZE_BYTES] = view[:HEADER_SIZE_BYTES]
    wanted = array("q", range(first, first + count))
    end, _index = copy_wanted(
        batch, HEADER_SIZE_BYTES, view, HEADER_SIZE_BYTES, count, header.base_time_ns, header.size, first, wanted, 0, time_ns
    )
    del batch[end:]
    _SIZE.pack_into(batch, _SIZE_AT, end)
    _TIME.pack_into(batch, _TIME_AT, time_ns)
    return batch


def _times_of(view: memoryview | bytearray, at: int, end: int, first: int, count: int) -> array[int]:
    """Give the times of a batch's records, in nanoseconds."""
    rows = columns(view, at, end, first, first + count)
    return array("q", [us * _NS_PER_US for us in rows.times_us])
