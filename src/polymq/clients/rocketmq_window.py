"""What a consumer has of one queue: pulled and not yet settled. Decides what may be committed; knows no connection.

The position of a group in a queue is one number: everything below it is done with. Messages are settled in any order,
so the position is the first offset that is not.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.clients.rocketmq_messages import RocketMQMessage
    from polymq.clients.rocketmq_routes import MessageQueue

__all__ = ["QueueWindow"]

# Of one queue, pulled and not settled; as Java's clients have it.
_MESSAGES_MAX: Final = 1000
_SIZE_BYTES_MAX: Final = 100 * 1024 * 1024
# From the first that is not settled to the last pulled: one that hangs shall not have a restart repeat any number.
_SPAN_MAX: Final = 2000


class QueueWindow:
    """The messages of one queue between the position of the group and what is pulled next.

    Messages wait (`take` gives the next), then are in hand, then settled. `commit` is what the broker has been told,
    None before the first time.
    """

    def __init__(self, queue: MessageQueue, next_offset: int, *, committed: int | None = None) -> None:
        self.queue = queue
        self.next_offset = next_offset
        self.committed = committed
        self.is_confirmed = committed is not None  # False: it was told, or is to be, and no answer says that it was kept
        self.is_dropped = False
        self.in_hand: dict[int, RocketMQMessage] = {}
        self.locked_at: float | None = None
        self.size_bytes = 0  # of the bodies of what is waiting or in hand
        self._waiting: deque[RocketMQMessage] = deque()
        self._open: deque[int] = deque()  # offsets, from the first that is not settled
        self._done: set[int] = set()  # of them

    @property
    def position(self) -> int:
        """The first offset that is not done with."""
        return self._open[0] if self._open else self.next_offset

    @property
    def wants_commit(self) -> bool:
        """Whether the position is to be told: it has moved, or it was told once only, without an answer."""
        return self.position != self.committed or not self.is_confirmed

    def told(self, offset: int, *, is_answered: bool) -> None:
        """The broker has been told a position. What is not answered is told twice."""
        self.is_confirmed = is_answered or self.committed == offset
        self.committed = offset

    @property
    def count(self) -> int:
        """How many messages are waiting or in hand."""
        return len(self._waiting) + len(self.in_hand)

    @property
    def waiting(self) -> int:
        """How many messages nobody has in hand."""
        return len(self._waiting)

    @property
    def is_full(self) -> bool:
        """Whether to pull no more for now."""
        if self.count >= _MESSAGES_MAX or self.size_bytes >= _SIZE_BYTES_MAX:
            return True
        return bool(self._open) and self._open[-1] - self._open[0] > _SPAN_MAX

    def add(self, messages: Sequence[RocketMQMessage], next_offset: int) -> None:
        """Take what was pulled; what has been taken before, or lies behind, is left out."""
        first = self._open[-1] + 1 if self._open else 0
        for message in messages:
            if message.queue_offset >= first:
                self._waiting.append(message)
                self._open.append(message.queue_offset)
                self.size_bytes += message.size
                first = message.queue_offset + 1
        self.next_offset = max(next_offset, first)

    def take(self) -> RocketMQMessage | None:
        """Give the next message into somebody's hand."""
        if self.is_dropped or not self._waiting:
            return None
        message = self._waiting.popleft()
        self.in_hand[message.queue_offset] = message
        return message

    def put_back(self, message: RocketMQMessage) -> None:
        """Have a message that was in hand be the next one of those behind it."""
        if self.in_hand.get(message.queue_offset) is not message:
            return
        del self.in_hand[message.queue_offset]
        if self.is_dropped:
            return
        index = 0
        while index < len(self._waiting) and self._waiting[index].queue_offset < message.queue_offset:
            index += 1
        self._waiting.insert(index, message)

    def settled(self, message: RocketMQMessage) -> bool:
        """Have done with a message that was in hand; returns whether it was."""
        if self.in_hand.get(message.queue_offset) is not message:
            return False
        del self.in_hand[message.queue_offset]
        self._done.add(message.queue_offset)
        self.size_bytes -= message.size
        while self._open and self._open[0] in self._done:
            self._done.discard(self._open.popleft())
        return True

    def drop(self) -> None:
        """Give the queue up: nothing more is taken, and what waits is forgotten."""
        self.is_dropped = True
        self._waiting.clear()
