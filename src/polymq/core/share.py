"""What one work group has of one partition: how far it has come, and the readers with which it goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq import limits
from polymq.core.ahead import Ahead
from polymq.core.reading import reach

if TYPE_CHECKING:
    from polymq.core.latency import DeliveryTimes
    from polymq.core.lease_window import LeaseWindow
    from polymq.core.ports import Reader
    from polymq.core.topic import Partition
    from polymq.wire.slices import Slice

__all__ = ["Share"]


class Share:
    """A work group's state in one partition."""

    __slots__ = ("ahead", "back", "lookups", "partition", "reader", "times", "window")

    def __init__(self, partition: Partition, window: LeaseWindow) -> None:
        self.partition = partition
        self.window = window
        self.reader: Reader | None = None
        self.back: Reader | None = None
        # How often `back` had to be moved far: each time may be a read of a whole window.
        self.lookups = 0
        self.ahead = Ahead()
        # When what was handed out was published; None: it is not measured.
        self.times: DeliveryTimes | None = None

    @property
    def limit(self) -> int:
        """The offset before which messages may be handed out without looking further."""
        limit = self.partition.limit
        return self.ahead.boundary(self.window.next, limit) if self.ahead else limit

    @property
    def untouched(self) -> int:
        """How many messages were never handed out."""
        next_offset: int = self.window.next
        return max(0, self.partition.limit - next_offset - self.ahead.left_out)

    @property
    def attempts(self) -> int:
        """The attempt that handing out the next message is."""
        return min(self.ahead.attempts_at(self.window.next) + 1, limits.ATTEMPTS_MAX) if self.ahead else 1

    def pass_left_out(self) -> None:
        """Step over what is left out, if the group has come to it."""
        next_offset: int = self.window.next
        end = self.ahead.pass_to(next_offset)
        if end > next_offset:
            self.window.skip(end - next_offset)

    def take(self, count: int, size_bytes: int) -> Slice | None:
        """Read the next messages that were never handed out."""
        if self.ahead:
            self.pass_left_out()
        start = self.window.next
        count = min(count, self.limit - start)
        if count <= 0:
            return None
        if self.reader is None:
            self.reader = self.partition.log.reader(start)
        elif self.reader.offset != start and not reach(self.reader, start):
            return None
        return self.reader.take(count, size_bytes)

    def take_back(self, offset: int) -> Slice | None:
        """Read one message that was handed out before; None while the disk is read."""
        if self.back is None:
            self.back = self.partition.log.reader(offset)
            self.lookups += 1
        else:
            self.lookups += not 0 <= offset - self.back.offset <= limits.SLICE_MESSAGES_MAX
            if not reach(self.back, offset):
                return None
        piece = self.back.take(1, limits.SLICE_SIZE_BYTES_MAX)
        return piece if piece is None or piece.offset == offset else None

    @property
    def waiting_for_disk(self) -> bool:
        """Whether a read is under way."""
        return (self.reader is not None and self.reader.waiting) or (self.back is not None and self.back.waiting)
