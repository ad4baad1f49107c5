"""Publishing later: messages wait in a log of their own and are appended to their partition when they are due.

A release is one batch in the partition that says in its first record which messages of the schedule it holds (runs of
their offsets there), and one entry in the journal that says the same. The two reach the disk in any order, so the next
start (`recovery.py`) believes the batch as far as the last checkpoint does not vouch for the journal: every message is
in the partition exactly once, or still waits. Memory: 16 bytes per waiting message.

Messages are appended in the order of their due times. When more than a few are due at once, those published first
come first: so they can be read in the order in which they lie, whole stretches at a time, whether they are in memory
or on the disk.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.core import journal_entries
from polymq.core.deadlines import DueHeap
from polymq.errors import Refusal, RefusalCode, StoreFailed, StoreFull
from polymq.wire.batch import ORIGIN_NONE, PRODUCER_BROKER, encode_message, read_messages
from polymq.wire.transfer import RECORD_GROWTH_BYTES, copy_wanted, runs_of, stretch_end

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from polymq.core.kernel import Kernel
    from polymq.core.ports import Log, Reader, Ticket
    from polymq.core.topic import Partition, Topic
    from polymq.wire.batch import Message
    from polymq.wire.slices import MessageBatch, Slice

__all__ = ["Schedule", "expand_runs"]

# As many as this are appended in the order of their due times: each may lie elsewhere and has to be looked up.
_ORDERED_MAX: Final = 32
# Of more, as many as this are put in the order of the log at a time, so many per step (a millisecond or two).
_LATE_MAX: Final = 32_768
_LATE_PER_STEP: Final = 8_192
_WANTED_MAX: Final = 4_096
# Records between two wanted ones that are walked over rather than looked up: a look-up costs about as much.
_GAP_MAX: Final = 2_048
# What the steps of a turn cost, of `Kernel.effort`: a batch, a look-up, putting many in order.
_EFFORT_BATCH: Final = 16
_EFFORT_LOOKUP: Final = 1
_EFFORT_ORDER: Final = 32
_LOOKUPS_MAX: Final = 32
# A batch is closed rather than filled up with ever smaller pieces.
_BATCH_SIZE_BYTES_ENOUGH: Final = limits.BATCH_SIZE_BYTES_TARGET * 3 // 4
# How long to wait before trying again: while the disk is read; when nothing came of that; when there is no room, as
# each try reads and encodes a batch; when the partition has failed.
_READING_NS: Final = 1_000_000
_RETRY_NS: Final = 5_000_000
_FULL_NS: Final = 100_000_000
_FAILED_NS: Final = 1_000_000_000
_ALL: Final = (1 << 63) - 1
_RUN: Final = struct.Struct("<qq")
_U32: Final = struct.Struct("<I")


def expand_runs(runs: bytes) -> Iterator[int]:
    """Give the numbers that (first i64, count i64) pairs stand for."""
    for first, count in _RUN.iter_unpack(runs):
        yield from range(first, first + count)


class Schedule:
    """What waits to be appended to one partition."""

    __slots__ = (
        "_due",
        "_gathering",
        "_kernel",
        "_late",
        "_next",
        "_reader",
        "_released",
        "_wanted",
        "armed_ns",
        "log",
        "partition",
        "topic",
    )

    def __init__(self, kernel: Kernel, topic: Topic, partition: Partition, log: Log) -> None:
        self.topic = topic
        self.partition = partition
        self.log = log
        self.armed_ns: int | None = None
        self._kernel = kernel
        self._due = DueHeap()
        # What is due and has not been appended: `_wanted` from `_next` on, in this order; then `_late`, by offset.
        self._wanted: array[int] = array("q")
        self._next = 0
        self._late = DueHeap()
        self._gathering = False
        # What was released and is not known to be durable in the partition: (its first offset there, count, runs here).
        self._released: deque[tuple[int, int, bytes]] = deque()
        self._reader: Reader | None = None

    def __len__(self) -> int:
        return len(self._due) + len(self._late) + len(self._wanted) - self._next

    def publish(self, batch: MessageBatch, *, due_ns: int, wall_ns: int, origin: int) -> Ticket:
        """Store messages until `due_ns` on the wall clock; raises Refusal."""
        return self._publish(lambda: self.log.append(batch, now_ns=wall_ns, origin=origin), batch.count, due_ns)

    def publish_messages(self, messages: Sequence[Message], *, due_ns: int, wall_ns: int, origin: int) -> Ticket:
        """Do what `publish` does for messages with keys and headers."""
        return self._publish(lambda: self.log.append_messages(messages, now_ns=wall_ns, origin=origin), len(messages), due_ns)

    def _publish(self, append: Callable[[], Ticket], count: int, due_ns: int) -> Ticket:
        first = self.log.end
        try:
            ticket = append()
        except StoreFull as error:
            raise Refusal(RefusalCode.STORE_FULL, str(error)) from error
        except StoreFailed as error:
            raise Refusal(RefusalCode.STORE_FAILED, str(error)) from error
        self._due.push_run(due_ns, first, count)
        self._kernel.journal(journal_entries.scheduled(self.partition.number, first, count, due_ns))
        self._kernel.schedules.arm(self, due_ns)
        return ticket

    def take_over(self, first: int, dues: array[int]) -> None:
        """Have records wait that lie in the schedule's log already, from `first` on, each until its own time."""
        for index, due_ns in enumerate(dues):
            self._due.push(due_ns, first + index)
        for at in range(0, len(dues), _WANTED_MAX):
            pairs = [number for index, due_ns in enumerate(dues[at : at + _WANTED_MAX]) for number in (due_ns, first + at + index)]
            self._kernel.journal(journal_entries.waiting(self.partition.number, journal_entries.integers(pairs)))
        if len(self._due):
            self._kernel.schedules.arm(self, self._due.first_due())

    def restore(self, offset: int, due_ns: int) -> None:
        """Recovery: a message waits."""
        self._due.push(due_ns, offset)
        self._kernel.schedules.arm(self, due_ns)

    def restore_release(self, base_offset: int, runs: bytes) -> None:
        """Recovery: these were appended, and may be lost yet, or cannot be seen now. A later start may have to append them."""
        self._released.append((base_offset, sum(count for _first, count in _RUN.iter_unpack(runs)), runs))

    # -- releasing -------------------------------------------------------------------------------------------------

    def fire(self, now_ns: int) -> None:
        """Append what is due (wall clock), as far as this turn's effort goes."""
        served = False
        while self._kernel.effort > 0:
            if self._next == len(self._wanted):
                self._gather(now_ns)
                if not self._wanted:
                    break
            wait_ns = self._release(now_ns)
            if wait_ns:
                self._kernel.schedules.arm(self, now_ns + wait_ns)
                return
            served = True
        if self._next < len(self._wanted) or len(self._late):
            # Whoever had no turn comes first the next time.
            self._kernel.schedules.arm(self, now_ns - (not served))
        elif len(self._due):
            self._kernel.schedules.arm(self, self._due.first_due())

    def _gather(self, now_ns: int) -> None:
        """Choose what to append next; nothing is chosen while many are put in order."""
        self._next = 0
        if not len(self._late):
            self._wanted = self._due.take(now_ns, _ORDERED_MAX)
            if not len(self._due) or self._due.first_due() > now_ns:
                return
            for offset in self._wanted:
                self._late.push(offset, offset)
            self._gathering = True
        if self._gathering:
            self._wanted = array("q")
            more = self._due.move(now_ns, self._late, _LATE_PER_STEP)
            self._gathering = more and len(self._late) < _LATE_MAX
            self._kernel.effort -= _EFFORT_ORDER
        else:
            self._wanted = self._late.take(_ALL, _WANTED_MAX)

    def _release(self, now_ns: int) -> int:
        """Append one batch of what is wanted; gives how long to wait before another try if nothing could be."""
        log, first = self.partition.log, self._next
        if log.failed:
            return _FAILED_NS
        time_ns = max(now_ns, self.partition.last_time_ns, log.last_time_ns)
        records, lookups = bytearray(), 0
        while self._next < len(self._wanted) and len(records) < _BATCH_SIZE_BYTES_ENOUGH and lookups < _LOOKUPS_MAX:
            lookups += self._seek()
            piece = self._take(limits.BATCH_SIZE_BYTES_TARGET - len(records))
            if piece is None:
                break
            at = len(records)
            records.extend(bytes(piece.end - piece.position + RECORD_GROWTH_BYTES * piece.count))
            end, self._next = copy_wanted(
                records,
                at,
                piece.view,
                piece.position,
                piece.batch_left,
                piece.base_time_ns,
                piece.end,
                piece.offset,
                self._wanted,
                self._next,
                time_ns,
            )
            del records[end:]
        self._kernel.effort -= _EFFORT_BATCH + _EFFORT_LOOKUP * lookups
        if self._next == first:
            if self._reader is not None and self._reader.waiting:
                return _READING_NS
            return _FAILED_NS if self.log.failed else _RETRY_NS
        if not self._append(records, runs_of(self._wanted, first, self._next), self._next - first, time_ns):
            self._next = first
            return _FULL_NS
        return 0

    def _seek(self) -> bool:
        """Have the reader stand at the next wanted message, or a little before it; tell whether it had to be moved."""
        offset = self._wanted[self._next]
        if self._reader is None:
            self._reader = self.log.reader(offset)
        elif not 0 <= offset - self._reader.offset <= _GAP_MAX:
            self._reader.seek(offset)
        else:
            return False
        return True

    def _take(self, size_bytes: int) -> Slice | None:
        """Read a stretch in which there are wanted messages; None while the disk is read, or if it cannot be."""
        assert self._reader is not None
        last = self._wanted[stretch_end(self._wanted, self._next, _GAP_MAX) - 1]
        count = last + 1 - self._reader.offset
        while True:
            piece = self._reader.take(count, size_bytes)
            if piece is None or piece.offset + piece.count > self._wanted[self._next]:
                return piece
            # All of it lay before what is wanted.
            count -= piece.count

    def _append(self, records: bytearray, runs: bytes, count: int, time_ns: int) -> bool:
        """Append a batch of records with the note that says where they come from; tell whether there was room."""
        log = self.partition.log
        size = _U32.unpack_from(records)[0]
        (message,) = read_messages(records, 0, 1, time_ns, 1, size)
        extras = [extra for extra in message.extras if extra[0] != ORIGIN_NONE]
        marked = encode_message(replace(message, extras=(*extras, (ORIGIN_NONE, runs))), time_ns)
        base_offset = log.end
        try:
            with memoryview(records) as view:
                joined = b"".join((marked, view[size:]))
            log.append_records(joined, count, now_ns=time_ns, origin=ORIGIN_NONE, producer=(PRODUCER_BROKER, -1, -1))
        except (StoreFull, StoreFailed):
            return False
        self.partition.last_time_ns = time_ns
        self._kernel.journal(journal_entries.released_runs(self.partition.number, base_offset, runs))
        self.releases()
        self._released.append((base_offset, count, runs))
        for group in self.topic.groups.values():
            group.released(self.partition, base_offset, runs)
        self._kernel.appended(self.topic)
        return True

    # -- what waits ------------------------------------------------------------------------------------------------

    def count_from(self, offset: int) -> int:
        """Count what waits and was scheduled at or behind an offset of the schedule's log."""
        wanted = sum(ready >= offset for ready in self._wanted[self._next :])
        return wanted + self._late.count_from(offset) + self._due.count_from(offset)

    def waiting_after(self, offset: int, count_max: int) -> list[tuple[int, int]]:
        """List (offset, due time) of what is not due yet and was scheduled behind an offset, in that order."""
        flat = self._due.after(offset, count_max)
        return list(zip(flat[::2], flat[1::2], strict=True))

    def cancel(self, offset: int) -> bool:
        """Drop one message; False if it does not wait any more (or never did)."""
        if not self._due.remove(offset):
            return False
        self._kernel.journal(journal_entries.cancelled(self.partition.number, offset))
        return True

    def clear(self) -> None:
        """Drop everything that waits."""
        self._forget()
        self._kernel.journal(journal_entries.schedule_state(self.partition.number))
        for base_offset, _count, runs in self.releases():
            for pairs in _at_once(expand_runs(runs)):
                self._kernel.journal(journal_entries.waiting(self.partition.number, pairs))
            self._kernel.journal(journal_entries.released_runs(self.partition.number, base_offset, runs))

    def close(self) -> None:
        """Be gone: nothing is released any more."""
        self._forget()
        self._released.clear()
        self.armed_ns = None

    def _forget(self) -> None:
        self._due.clear()
        self._late.clear()
        self._wanted = array("q")
        self._next = 0
        self._gathering = False

    def releases(self) -> list[tuple[int, int, bytes]]:
        """Give what was released and may be lost yet, as (first offset in the partition, count, runs of offsets here).

        An append that failed stays among them: only the next start can see whether it is there after all.
        """
        while self._released and self._released[0][0] + self._released[0][1] <= self.partition.log.durable:
            self._released.popleft()
        return list(self._released)

    def pairs(self) -> Iterator[bytes]:
        """Give (due i64, offset i64) pairs of everything that waits or is among `releases`, in pieces: for snapshots."""
        for _base_offset, _count, runs in self.releases():
            yield from _at_once(expand_runs(runs))
        yield from _at_once(iter(self._wanted[self._next :]))
        yield from self._late.pairs()
        yield from self._due.pairs()

    @property
    def first_needed(self) -> int:
        """Give the lowest offset of the schedule's log that still waits, or may have to again."""
        lowest = min(self._wanted[self._next :], default=self.log.end)
        for _base_offset, _count, runs in self.releases():
            lowest = min(lowest, *(first for first, _count in _RUN.iter_unpack(runs)))
        for heap in (self._late, self._due):
            if len(heap):
                lowest = min(lowest, heap.smallest_value())
        return lowest


def _at_once(offsets: Iterator[int]) -> Iterator[bytes]:
    """Encode offsets as pairs with the due time 0, in pieces: they were due when they were chosen."""
    numbers = list(offsets)
    for first in range(0, len(numbers), _WANTED_MAX):
        yield journal_entries.integers([number for offset in numbers[first : first + _WANTED_MAX] for number in (0, offset)])
