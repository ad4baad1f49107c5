"""Publishing later: messages wait in a log of their own and are appended to their partition when they are due.

The release is journaled before the append, with the offset that the append will get. After a crash between the two
the partition ends at or before that offset, so it is known that the messages are still to come: they are neither
lost nor appended twice. Memory: 16 bytes per waiting message.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.core import journal_entries
from polymq.core.deadlines import DueHeap
from polymq.errors import Refusal, RefusalCode, StoreFailed, StoreFull
from polymq.wire.records import Message, read_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.core.kernel import Kernel
    from polymq.core.ports import Log, Reader, Ticket
    from polymq.core.topic import Partition, Topic
    from polymq.wire.slices import MessageBatch

__all__ = ["Schedule"]

# Messages released in one go: keeps a turn short when very many are due at once.
_RELEASE_MAX: Final = 512
# The batch is the broker's own doing; each message keeps the time at which it was published.
_ORIGIN_NONE: Final = 0
# How long to wait before trying again when the disk or the partition is not ready.
_RETRY_NS: Final = 5_000_000


class Schedule:
    """What waits to be appended to one partition."""

    __slots__ = ("_due", "_kernel", "_reader", "_ready", "_released", "armed_ns", "log", "partition", "topic")

    def __init__(self, kernel: Kernel, topic: Topic, partition: Partition, log: Log) -> None:
        self.topic = topic
        self.partition = partition
        self.log = log
        self.armed_ns: int | None = None
        self._kernel = kernel
        self._due = DueHeap()
        self._ready: deque[int] = deque()
        # What was released and is not known to be durable in the partition: (its first offset there, offsets here).
        self._released: deque[tuple[int, list[int]]] = deque()
        self._reader: Reader | None = None

    def __len__(self) -> int:
        return len(self._due) + len(self._ready)

    def publish(self, batch: MessageBatch, *, due_ns: int, wall_ns: int, origin: int) -> Ticket:
        """Store messages until `due_ns` on the wall clock; raises Refusal."""
        return self._publish(batch.count, due_ns, lambda: self.log.append(batch, now_ns=wall_ns, origin=origin))

    def publish_messages(self, messages: Sequence[Message], *, due_ns: int, wall_ns: int, origin: int) -> Ticket:
        """Store messages that have more than a body until `due_ns` on the wall clock; raises Refusal."""
        return self._publish(len(messages), due_ns, lambda: self.log.append_messages(messages, now_ns=wall_ns, origin=origin))

    def _publish(self, count: int, due_ns: int, append: Callable[[], Ticket]) -> Ticket:
        first = self.log.end
        try:
            ticket = append()
        except StoreFull as error:
            raise Refusal(RefusalCode.STORE_FULL, str(error)) from error
        except StoreFailed as error:
            raise Refusal(RefusalCode.STORE_FAILED, str(error)) from error
        for offset in range(first, first + count):
            self._due.push(due_ns, offset)
        self._kernel.journal(journal_entries.scheduled(self.partition.number, first, count, due_ns))
        self._kernel.schedules.arm(self, due_ns)
        return ticket

    def restore(self, offset: int, due_ns: int) -> None:
        """Recovery: a message waits."""
        self._due.push(due_ns, offset)
        self._kernel.schedules.arm(self, due_ns)

    def fire(self, now_ns: int) -> None:
        """Append what is due (wall clock)."""
        while len(self._due) and self._due.first_due() <= now_ns and len(self._ready) < _RELEASE_MAX:
            self._ready.append(self._due.pop())
        before = len(self._ready)
        if self._ready:
            self._release(now_ns)
        if self._ready:
            retry_ns = now_ns if len(self._ready) < before else now_ns + _RETRY_NS
            self._kernel.schedules.arm(self, retry_ns)
        elif len(self._due):
            self._kernel.schedules.arm(self, self._due.first_due())

    def _release(self, now_ns: int) -> None:
        """Append the ready messages that can be read now, in the order in which they are due."""
        messages: list[Message] = []
        offsets: list[int] = []
        size_bytes = 0
        for offset in self._ready:
            if offset >= self.log.readable or size_bytes > limits.BATCH_SIZE_BYTES_TARGET:
                break
            found = self._read(offset)
            if found is None:
                break
            messages.append(found)
            offsets.append(offset)
            size_bytes += len(found.body)
        if not messages or self.partition.log.failed:
            return
        log = self.partition.log
        self.partition.last_time_ns = max(self.partition.last_time_ns, now_ns)
        kernel, number = self._kernel, self.partition.number
        # In the file before the append, which may itself write early when a segment is full.
        kernel.journal(journal_entries.released(number, log.end, offsets))
        kernel.store.journal.flush()
        try:
            if kernel.store.journal.staged:
                raise StoreFull("the journal waits for room")
            base_offset = log.end
            log.append_messages(messages, now_ns=self.partition.last_time_ns, origin=_ORIGIN_NONE)
        except (StoreFull, StoreFailed):
            for offset in offsets:
                kernel.journal(journal_entries.scheduled(number, offset, 1, now_ns))
            return
        self.releases()
        self._released.append((base_offset, offsets))
        for _ in offsets:
            self._ready.popleft()
        for group in self.topic.groups.values():
            group.released(self.partition, base_offset, offsets)
        kernel.appended(self.topic)

    def _read(self, offset: int) -> Message | None:
        if self._reader is None:
            self._reader = self.log.reader(offset)
        elif self._reader.offset != offset:
            self._reader.seek(offset)
        piece = self._reader.take(1, limits.SLICE_SIZE_BYTES_MAX)
        if piece is None:
            return None
        found = read_messages(piece.view, piece.position, piece.batch_left, piece.base_time_ns, 1, piece.end)
        return found[0]

    def count_from(self, offset: int) -> int:
        """Count what waits and was scheduled at or behind an offset of the schedule's log."""
        return sum(ready >= offset for ready in self._ready) + self._due.count_from(offset)

    def clear(self) -> None:
        """Drop everything that waits."""
        self._due.clear()
        self._ready.clear()
        self._kernel.journal(journal_entries.schedule_state(self.partition.number))
        for base_offset, offsets in self.releases():
            flat = journal_entries.integers([number for offset in offsets for number in (0, offset)])
            self._kernel.journal(journal_entries.waiting(self.partition.number, flat))
            self._kernel.journal(journal_entries.released(self.partition.number, base_offset, offsets))

    def close(self) -> None:
        """Be gone: nothing is released any more."""
        self._due.clear()
        self._ready.clear()
        self._released.clear()
        self.armed_ns = None

    def releases(self) -> list[tuple[int, list[int]]]:
        """Give what was released and may be lost yet, as (first offset in the partition, offsets here).

        An append that failed stays among them: only the next start can see whether it is there after all.
        """
        while self._released and self._released[0][0] + len(self._released[0][1]) <= self.partition.log.durable:
            self._released.popleft()
        return list(self._released)

    def pairs(self) -> list[bytes]:
        """Give (due i64, offset i64) pairs of everything that waits or is among `releases`, in pieces: for snapshots."""
        at_once = [*self._ready, *(offset for _base, offsets in self.releases() for offset in offsets)]
        ready = journal_entries.integers([number for offset in at_once for number in (0, offset)])
        return [*([ready] if ready else []), *self._due.pairs()]

    @property
    def first_needed(self) -> int:
        """Give the lowest offset of the schedule's log that still waits, or may have to again."""
        lowest = min(self._ready, default=self.log.end)
        lowest = min([lowest, *(min(offsets) for _base, offsets in self.releases())])
        return min(lowest, self._due.smallest_value()) if len(self._due) else lowest
