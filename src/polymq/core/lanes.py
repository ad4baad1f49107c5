"""One after the other for each key: how an ordered work group hands out its messages.

Every key has a lane: the unsettled messages with that key, in the order of the log. Only the first of a lane may be
out; while it is out or deferred, those behind it wait, and those of other lanes do not. Messages without a key wait for
nobody. The group reads ahead as far as `_AHEAD_MAX` messages: when so many wait behind keys that do not get on,
nothing new is read. This costs an object or two per message; groups without this policy know nothing of it.
"""

from __future__ import annotations

from array import array
from collections import deque
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.core.lease_window import SETTLED, WAITING
from polymq.wire.batch import keys_of
from polymq.wire.crc import crc32c
from polymq.wire.expiry import expiry_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from polymq.core.group import Delivery, Subscription
    from polymq.core.kernel import Kernel
    from polymq.core.share import Share
    from polymq.core.work_group import WorkGroup
    from polymq.wire.slices import Slice

__all__ = ["Lanes"]

# Messages that are in lanes: about 200 bytes each.
_AHEAD_MAX: Final = 10_000
# Read in one go.
_PIECE_MESSAGES_MAX: Final = 256
# What one look for more may cost: so many messages read ahead, or a quarter as many looked up one by one. A few ms.
_EFFORT_MAX: Final = 1024
_EFFORT_LEARN: Final = 4
_LOOSE: Final = -1


class Lanes:
    """The lanes of one group. A lane is the checksum of a key: keys that share one wait for each other, which is rare."""

    __slots__ = ("_group", "_kernel", "_lane_of", "_loose", "_queues", "_ready", "_share_turn", "_unknown")

    def __init__(self, kernel: Kernel, group: WorkGroup) -> None:
        self._kernel = kernel
        self._group = group
        # Message ids by lane, in the order of the log; and the lane of every one of them.
        self._queues: dict[int, deque[int]] = {}
        self._lane_of: dict[int, int] = {}
        # Lanes whose first message may be given out, and messages that have no key.
        self._ready: deque[int] = deque()
        self._loose: deque[int] = deque()
        # Unsettled messages whose keys are not known yet, in order: they come before anything new.
        self._unknown: deque[int] = deque()
        self._share_turn = 0
        self.reset()

    def __len__(self) -> int:
        """Count the messages that are in lanes: waiting, out or deferred."""
        return len(self._lane_of) + len(self._unknown)

    def reset(self) -> None:
        """Begin anew with what the windows say: keys have to be read again."""
        self._queues.clear()
        self._lane_of.clear()
        self._ready.clear()
        self._loose.clear()
        self._unknown.clear()
        # What is on its way to the dead letters has left its lane, though its slot waits for the disk; so has what was put aside.
        left = self._group.retiring.moving() if self._group.retiring is not None else set()
        left.update(self._group.unreadable, self._group.renewed)
        for share in self._group.shares:
            number = share.partition.number << limits.OFFSET_BITS
            ids = (number | offset for offset, _state, _attempts in share.window.unsettled())
            self._unknown.extend(message_id for message_id in ids if message_id not in left)

    # -- handing out -----------------------------------------------------------------------------------------------

    def next(self, consumer: Subscription, now_ns: int) -> Delivery | None:
        """Give the next message that may go out; None if there is none, or the disk is being read for it."""
        while True:
            if not self._ready and not self._loose and not self._fill():
                return None
            message_id = self._foremost()
            if message_id is None:
                self._unready()
                continue
            share, offset = self._place(message_id)
            if share.window.slot(offset)[0] != WAITING:
                # Given out meanwhile, or gone: whoever ends that says so.
                self._unready()
                continue
            piece = share.take_back(offset)
            if piece is None and share.back is not None and share.back.waiting:
                return None
            if piece is None:
                self._unready()
                self._group.cannot_read(share, offset)
                self._leave(message_id)
                continue
            look = self._group.retiring is not None or expiry_of(piece)
            retired = self._group.retire().takes(share, offset, piece) if look else False
            if retired is None:
                return None
            self._unready()
            if retired or self._group.sampled_out(consumer, share, offset):
                self._leave(message_id)
                continue
            return self._group.give_again(consumer, share, offset, piece, now_ns)

    def _foremost(self) -> int | None:
        """Give the foremost candidate; None if what waited there was dropped."""
        if self._ready:
            queue = self._queues.get(self._ready[0])
            return queue[0] if queue else None
        message_id = self._loose[0]
        return message_id if message_id in self._lane_of else None

    def _unready(self) -> None:
        """Take the foremost candidate away."""
        if self._ready:
            self._ready.popleft()
        else:
            self._loose.popleft()

    def _place(self, message_id: int) -> tuple[Share, int]:
        return self._group.by_number[message_id >> limits.OFFSET_BITS], message_id & limits.OFFSET_MAX

    def _fill(self) -> bool:
        """Put more messages into lanes; True if one of them may go out."""
        effort = _EFFORT_MAX
        while not self._ready and not self._loose and len(self._lane_of) < _AHEAD_MAX:
            if self._unknown:
                effort -= _EFFORT_LEARN
                if not self._learn():
                    return False
            else:
                effort -= _PIECE_MESSAGES_MAX
                if not any(self._read_ahead(share) for share in self._in_turn()):
                    return False
            if effort <= 0:
                # The next turn goes on.
                self._kernel.wake(self._group)
                break
        return bool(self._ready or self._loose)

    def _in_turn(self) -> list[Share]:
        shares = self._group.shares
        self._share_turn = (self._share_turn + 1) % len(shares)
        return shares[self._share_turn :] + shares[: self._share_turn]

    def _learn(self) -> bool:
        """Read the key of the first message that is unsettled and not in a lane; False while the disk is read."""
        message_id = self._unknown[0]
        share, offset = self._place(message_id)
        if share.window.slot(offset)[0] != SETTLED:
            piece = share.take_back(offset)
            if piece is None and share.back is not None and share.back.waiting:
                return False
            if piece is None:
                if share.window.slot(offset)[0] == WAITING:
                    self._group.cannot_read(share, offset)
            else:
                self._enter(message_id, _keys(piece)[0])
        self._unknown.popleft()
        return True

    def _read_ahead(self, share: Share) -> bool:
        """Take new messages of one partition into lanes; False if there are none."""
        piece = self._group.take_new(share, min(_PIECE_MESSAGES_MAX, _AHEAD_MAX - len(self._lane_of)), limits.SLICE_SIZE_BYTES_MAX)
        if piece is None:
            return False
        before = share.attempts - 1
        share.window.restore_next(piece.offset + piece.count)
        for offset in range(piece.offset, piece.offset + piece.count) if before else ():
            share.window.restore(offset, before, deferred=False)
        first = share.partition.number << limits.OFFSET_BITS | piece.offset
        for index, key in enumerate(_keys(piece)):
            self._enter(first + index, key)
        return True

    def _enter(self, message_id: int, key: bytes | None) -> None:
        lane = _LOOSE if key is None else crc32c(key)
        self._lane_of[message_id] = lane
        if lane == _LOOSE:
            self._loose.append(message_id)
            return
        queue = self._queues.setdefault(lane, deque())
        queue.append(message_id)
        if len(queue) == 1:
            self._ready.append(lane)

    # -- what becomes of it ----------------------------------------------------------------------------------------

    def settled(self, ids: memoryview, first: int, count: int) -> None:
        """Let those behind the messages that were just settled come forward."""
        for index in range(first, first + count):
            message_id = ids[index]
            if message_id in self._lane_of:
                share, offset = self._place(message_id)
                if share.window.slot(offset)[0] == SETTLED:
                    self._leave(message_id)

    def back(self, message_id: int) -> None:
        """A message waits again: it is still the first of its lane."""
        lane = self._lane_of.get(message_id)
        if lane == _LOOSE:
            self._loose.append(message_id)
        elif lane is not None:
            self._ready.append(lane)

    def add(self, message_id: int) -> None:
        """Take back a message that had left its lane; it waits for nobody."""
        self._lane_of[message_id] = _LOOSE
        self._loose.append(message_id)

    def leave(self, message_id: int) -> None:
        """Let those behind a message come forward that was out, and goes on elsewhere."""
        if message_id in self._lane_of:
            self._leave(message_id)
        elif message_id in self._unknown:
            self._unknown.remove(message_id)

    def _leave(self, message_id: int) -> None:
        """Take a message out of its lane, and let the next one come forward."""
        lane = self._lane_of.pop(message_id)
        if lane == _LOOSE:
            return
        queue = self._queues[lane]
        queue.remove(message_id)
        if queue:
            self._ready.append(lane)
        else:
            del self._queues[lane]

    def drop(self, gone: Collection[int]) -> None:
        """Forget messages that waited and were settled; whoever comes after them takes their place."""
        unknown = False
        for message_id in sorted(gone):  # those at the front of a lane first, or each would be looked for
            lane = self._lane_of.pop(message_id, None)
            if lane is None:
                unknown = True
            elif lane != _LOOSE:
                # A lane whose first message waits is ready: nothing is to be said of it.
                queue = self._queues[lane]
                queue.remove(message_id)
                if not queue:
                    del self._queues[lane]
        if unknown:
            self._unknown = deque(message_id for message_id in self._unknown if message_id not in gone)

    def ids(self, start: int, count: int) -> list[int]:
        """Give the ids of at most `count` messages, waiting or not, without the `start` that came first."""
        return list(islice(chain(self._lane_of, self._unknown), start, start + count))

    def waiting(self) -> Iterator[int]:
        """Give the ids of what waits."""
        for message_id in array("q", [*self._lane_of, *self._unknown]):
            share, offset = self._place(message_id)
            if share.window.slot(offset)[0] == WAITING:
                yield message_id


def _keys(piece: Slice) -> list[bytes | None]:
    return keys_of(piece.view, piece.position, piece.batch_left, piece.count, piece.end)
