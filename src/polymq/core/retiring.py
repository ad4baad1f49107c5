"""Messages that a work group does not deliver (any more): tried too often, too old, or too many.

Those that are dropped are settled. Those that go to a dead-letter topic are appended there, and settled here only
when that is durable: a crash in between leaves two copies, never none. Until then they are neither waiting nor out.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.core.browsing import messages_at
from polymq.core.lease_window import WAITING
from polymq.core.policies import Expired, dead_letter_name
from polymq.errors import Refusal, StoreFailed, StoreFull
from polymq.wire.batch import ORIGIN_NONE, read_messages
from polymq.wire.expiry import expiry_of, leading
from polymq.wire.records import skip
from polymq.wire.slices import Slice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.core.kernel import Kernel
    from polymq.core.lanes import Lanes
    from polymq.core.lease_window import LeaseWindow
    from polymq.core.ports import Log
    from polymq.core.share import Share
    from polymq.core.topic import Topic
    from polymq.core.work_group import WorkGroup
    from polymq.wire.records import Message

__all__ = ["HEADER_PREFIX", "Retiring", "apportion"]

# Headers of a dead letter: where it comes from and why it is there.
HEADER_PREFIX: Final = b"polymq-dead-"
# Dead letters on their way to the disk; more wait for their turn.
_MOVING_MAX: Final = 10_000
# What is too many is settled so many at a time: each may need a slot, if older messages are out.
_SKIP_MAX: Final = 1 << 20
# Slices of new messages that are looked through in a step for those that are over: 20 us each.
_STEPS_MAX: Final = 40
# What a sweep spends on reading a message, and on moving the reader far for it: 10 and 100 us, in looks at a slot of 0.5 us.
_SWEEP_READ: Final = 20
_SWEEP_LOOKUP: Final = 200
_I64: Final = struct.Struct("<q")


class Retiring:
    """One per group that has a use for it."""

    __slots__ = ("_group", "_kernel", "_moving", "_moving_count", "_moving_windows", "_swept")

    def __init__(self, kernel: Kernel, group: WorkGroup) -> None:
        self._kernel = kernel
        self._group = group
        # What is in a dead-letter log but perhaps not durable there: (log, end there, share, its window, offsets).
        self._moving: deque[tuple[Log, int, Share, LeaseWindow, list[int]]] = deque()
        self._moving_count = 0
        # The ids of that, and in which window they are so.
        self._moving_windows: dict[int, LeaseWindow] = {}
        # Where the last sweep has ended, in given-back messages.
        self._swept = 0

    def __len__(self) -> int:
        return self._moving_count

    # -- deciding --------------------------------------------------------------------------------------------------

    def takes(self, share: Share, offset: int, piece: Slice) -> bool | None:
        """Decide about a given-back message: True if it is retired, None if it has to be and cannot be just now."""
        attempts = share.window.slot(offset)[1]
        most = self._group.policy.max_attempts
        if most and attempts >= most:
            return self._retire(share, offset, attempts, piece, b"attempts")
        if not self.is_old(piece):
            return False
        if self._group.topic.policy.expired is Expired.DEAD_LETTER:
            moved = self._retire(share, offset, attempts, piece, b"expired")
            self._group.expired_count += bool(moved)
            return moved
        self._group.expired_count += 1
        share.window.discard(offset)
        self._group.dirty(share)
        return True

    def _retire(self, share: Share, offset: int, attempts: int, piece: Slice, reason: bytes) -> bool | None:
        (message,) = read_messages(piece.view, piece.position, piece.batch_left, piece.base_time_ns, 1, piece.end)
        return self.move(share, [(offset, attempts, message)], reason) or None

    def is_old(self, piece: Slice) -> bool:
        """Say whether what a slice begins with is not to be delivered any more: by its own time, or because it is too old."""
        return 0 < expiry_of(piece) <= self._kernel.wall_ns() or self.is_too_old(piece)

    def is_too_old(self, piece: Slice) -> bool:
        """Say whether what a slice begins with is older than its topic allows."""
        ttl_ns = self._group.topic.policy.ttl_ns
        return bool(ttl_ns) and _appended_ns(piece) < self._kernel.wall_ns() - ttl_ns

    def expire(self, share: Share) -> bool | None:
        """Step over new messages that are too old; False if it has to wait, None if the log cannot say which they are."""
        cutoff_ns = self._kernel.wall_ns() - self._group.topic.policy.ttl_ns
        try:
            end = share.partition.end_of_old(cutoff_ns, share.window.next)
        except StoreFailed:
            return None
        if end is None:
            self._kernel.wait_for_disk(self._group)
            return False
        share.pass_left_out()
        first = share.window.next
        end = min(end, share.limit, first + _SKIP_MAX)
        if end <= first:
            return True
        if self._group.topic.policy.expired is Expired.DEAD_LETTER:
            return self._move_new(share, first, end)
        share.window.skip(end - first)
        self._group.expired_count += end - first
        self._group.dirty(share)
        return True

    def fresh(self, share: Share, piece: Slice, alike: int, now_ns: int) -> Slice | None:
        """Give what a slice of new messages begins with that are not over by their own time, stepping over those that are.

        `alike`: as `leading` says of the slice at `now_ns`. None: nothing is left, or has to wait; a dispatch looks again.
        """
        if alike < 0:
            over, first = -alike, share.window.next
            self._group.topic.expires = True
            if self._group.topic.policy.expired is Expired.DEAD_LETTER:
                if self._move_new(share, first, first + over):
                    self._kernel.wake(self._group)
                return None
            share.window.skip(over)
            self._group.expired_count += over
            self._group.dirty(share)
            if over == piece.count:
                self._kernel.wake(self._group)
                return None
            piece = _without(piece, over)
            # At the same time: whatever comes behind what was over then was not.
            alike = leading(piece, now_ns)
            assert alike > 0
        return piece if alike == piece.count else _only(piece, alike)

    def step_over(self, share: Share) -> None:
        """Step over new messages of one partition that are over by their own time, some of them at a time."""
        now_ns = self._kernel.wall_ns()
        for _ in range(_STEPS_MAX):
            piece = share.take(limits.SLICE_MESSAGES_MAX, limits.SLICE_SIZE_BYTES_MAX)
            alike = leading(piece, now_ns) if piece is not None else 0
            if piece is None or alike >= 0:
                break
            self.fresh(share, piece, alike, now_ns)

    def _move_new(self, share: Share, first: int, end: int) -> bool:
        """Move messages that were never handed out to the dead-letter topic, some of them at a time."""
        found = messages_at(share.partition.log, range(first, min(end, first + limits.PEEK_MESSAGES_MAX)))
        if not found:
            self._kernel.wait_for_disk(self._group)
            return False
        if not self.move(share, [(offset, 0, message) for offset, message in found], b"expired"):
            return False
        # Handed out to nobody: unsettled, and not waiting either.
        share.window.restore_next(found[-1][0] + 1)
        self._group.expired_count += len(found)
        return True

    def shed(self, count: int) -> None:
        """Settle the oldest messages that nobody holds, given-back ones first."""
        group = self._group
        if group.lanes is not None:
            self._shed_lanes(group.lanes, count)
            return
        while count > 0 and group.waiting:
            message_id, _barrier = group.waiting.pop()
            if message_id in group.gone:
                group.gone.remove(message_id)
                continue
            self._shed_one(message_id)
            count -= 1
        for share, part in zip(group.shares, apportion(count, [share.untouched for share in group.shares]), strict=True):
            self._step_over(share, part)

    def _shed_lanes(self, lanes: Lanes, count: int) -> None:
        """Settle the oldest of each partition: what its lanes hold is older than what they have not come to.

        Cost: O(messages in lanes), a few ms when they are full.
        """
        shares = self._group.shares
        waiting: dict[int, list[int]] = {share.partition.number: [] for share in shares}
        for message_id in lanes.waiting():
            waiting[message_id >> limits.OFFSET_BITS].append(message_id)
        sizes = [len(waiting[share.partition.number]) + share.untouched for share in shares]
        for share, part in zip(shares, apportion(count, sizes), strict=True):
            oldest = sorted(waiting[share.partition.number])[:part]
            for message_id in oldest:
                self._shed_one(message_id)
            lanes.drop(set(oldest))
            self._step_over(share, part - len(oldest))

    def _shed_one(self, message_id: int) -> None:
        """Settle a message that waits."""
        group = self._group
        share = group.by_number[message_id >> limits.OFFSET_BITS]
        share.window.discard(message_id & limits.OFFSET_MAX)
        group.dirty(share)
        group.dropped_count += 1

    def _step_over(self, share: Share, count: int) -> None:
        """Settle new messages of one partition."""
        while count > 0:
            share.pass_left_out()
            step = min(count, share.limit - share.window.next, _SKIP_MAX)
            if step <= 0:
                break
            share.window.skip(step)
            self._group.dirty(share)
            self._group.dropped_count += step
            count -= step

    # -- without anybody who asks ----------------------------------------------------------------------------------

    def sweep(self, effort: int) -> int:
        """Retire given-back messages that nobody is there to be refused; gives what is left of `effort`.

        One look at a slot is 1 of it. Those that were not reached come first the next time.
        """
        group = self._group
        lanes = group.lanes
        count = len(lanes) if lanes is not None else len(group.waiting)
        if not count or effort <= 0:
            return effort
        start = self._swept if self._swept < count else 0
        ids = lanes.ids(start, effort) if lanes is not None else group.waiting.firsts_from(start, effort)
        gone: set[int] = set()
        seen, effort = self._sweep(ids, effort, gone)
        self._swept = start + seen - len(gone)
        if gone and lanes is not None:
            lanes.drop(gone)
            self._kernel.wake(group)
        elif gone:
            group.waiting.take_out(start, seen, gone)
        return effort

    def _sweep(self, ids: Sequence[int], effort: int, gone: set[int]) -> tuple[int, int]:
        """Put into `gone` which of these do not wait any more; gives how many were looked at, and what is left of the effort."""
        group = self._group
        most = group.policy.max_attempts or limits.ATTEMPTS_MAX + 1
        old_ends = {share.partition.number: self._old_end(share) for share in group.shares}
        for seen, message_id in enumerate(ids):
            if effort <= 0:
                return seen, 0
            effort -= 1
            number, offset = message_id >> limits.OFFSET_BITS, message_id & limits.OFFSET_MAX
            share = group.by_number[number]
            state, attempts, _owner = share.window.slot(offset)
            if state != WAITING or message_id in group.gone or (attempts < most and offset >= old_ends[number]):
                continue
            before = share.lookups
            piece = share.take_back(offset)
            effort -= _SWEEP_READ + _SWEEP_LOOKUP * (share.lookups - before)
            if piece is not None:
                retired = self.takes(share, offset, piece)
                if retired is None:
                    return seen, effort
                if retired:
                    gone.add(message_id)
            elif share.back is not None and share.back.waiting:
                return seen, effort
            else:
                group.cannot_read(share, offset)
                gone.add(message_id)
        return len(ids), effort

    def _old_end(self, share: Share) -> int:
        """Give an offset before which everything is too old, as far as that is known."""
        ttl_ns = self._group.topic.policy.ttl_ns
        if not ttl_ns:
            return 0
        try:
            return share.partition.end_of_old(self._kernel.wall_ns() - ttl_ns, share.window.next) or 0
        except StoreFailed:
            return 0

    # -- moving ----------------------------------------------------------------------------------------------------

    def move(self, share: Share, rows: Sequence[tuple[int, int, Message]], reason: bytes) -> bool:
        """Append (offset, attempts, message) rows to the dead-letter topic; False if that is not possible just now."""
        group = self._group
        if not self.has_room:
            self._kernel.wait_for_disk(group)
            return False
        try:
            topic = self._kernel.make_topic(group.topic, group.policy.dead_letter or dead_letter_name(group.topic.name, group.name))
            partition = topic.pick()
            log = partition.log
            partition.last_time_ns = max(partition.last_time_ns, log.last_time_ns, self._kernel.wall_ns())
            letters = [self._letter(share, offset, attempts, message, reason) for offset, attempts, message in rows]
            log.append_messages(letters, now_ns=partition.last_time_ns, origin=ORIGIN_NONE)
        except (Refusal, StoreFull, StoreFailed):
            self._kernel.wait_for_disk(group)
            return False
        topic.message_count += len(letters)
        topic.message_bytes += sum(len(letter.body) for letter in letters)
        self.settle_later(log, log.end, share, [offset for offset, _attempts, _message in rows])
        group.dead_letter_count += len(rows)
        self._kernel.appended(topic)
        return True

    def settle_later(self, log: Log, end: int, share: Share, offsets: list[int]) -> None:
        """Settle messages, which are neither waiting nor out, when what is before `end` of a log is durable: it has copies of them."""
        self._moving.append((log, end, share, share.window, offsets))
        self._moving_count += len(offsets)
        number = share.partition.number << limits.OFFSET_BITS
        self._moving_windows.update((number | offset, share.window) for offset in offsets)
        self._kernel.moves(self)

    @property
    def has_room(self) -> bool:
        """Whether more may be on its way."""
        return self._moving_count < _MOVING_MAX

    def letter(self, share: Share, offset: int, attempts: int, message: Message, reason: bytes) -> tuple[Topic, Message]:
        """Make a dead letter, and the topic where it goes; raises Refusal."""
        group = self._group
        topic = self._kernel.make_topic(group.topic, group.policy.dead_letter or dead_letter_name(group.topic.name, group.name))
        return topic, self._letter(share, offset, attempts, message, reason)

    def _letter(self, share: Share, offset: int, attempts: int, message: Message, reason: bytes) -> Message:
        """Make the message that tells where another one has been."""
        group = self._group
        told = {
            b"reason": reason,
            b"topic": group.topic.name.encode(),
            b"group": group.name.encode(),
            b"partition": b"%d" % share.partition.index,
            b"offset": b"%d" % offset,
            b"attempts": b"%d" % attempts,
            b"time-ns": b"%d" % self._kernel.wall_ns(),
        }
        kept = tuple(header for header in message.headers if not header[0].startswith(HEADER_PREFIX))
        headers = kept + tuple((HEADER_PREFIX + name, value) for name, value in told.items())
        extras = tuple(extra for extra in message.extras if extra[0] != ORIGIN_NONE)
        return replace(message, headers=headers, extras=extras, expiry_ns=None)

    def moving(self) -> set[int]:
        """Give the ids of what is on its way."""
        return {
            share.partition.number << limits.OFFSET_BITS | offset
            for _log, _end, share, window, offsets in self._moving
            if share.window is window
            for offset in offsets
        }

    def is_moving(self, message_id: int, window: LeaseWindow) -> bool:
        """Say whether a message of a window is on its way."""
        return self._moving_windows.get(message_id) is window

    def settle(self) -> bool:
        """Settle what is durable in the dead-letter topic; what failed there waits again. True if nothing is left to do."""
        group = self._group
        while self._moving:
            log, end, share, window, offsets = self._moving[0]
            if log.durable < end and not log.failed:
                return False
            self._moving.popleft()
            self._moving_count -= len(offsets)
            number = share.partition.number << limits.OFFSET_BITS
            for offset in offsets:
                if self.is_moving(number | offset, window):
                    del self._moving_windows[number | offset]
            if share.window is not window:
                continue  # the group has been set to another place since
            for offset in offsets:
                if window.slot(offset)[0] != WAITING:
                    continue  # emptied since
                if log.durable >= end:
                    window.discard(offset)
                    group.dirty(share)
                else:
                    group.wait_again(share, offset)
            self._kernel.wake(group)
        return True

    def forget(self) -> None:
        """The group is gone."""
        self._moving.clear()
        self._moving_windows.clear()
        self._moving_count = 0


def apportion(count: int, sizes: Sequence[int]) -> list[int]:
    """Spread `count`, or as much as there is, over what is there in several places, by their sizes."""
    total = sum(sizes)
    count = max(0, min(count, total))
    if not count:
        return [0] * len(sizes)
    parts = [count * size // total for size in sizes]
    # What the rounding has left goes to those of which most is left: there are fewer than there are places.
    left = count - sum(parts)
    for index in sorted(range(len(sizes)), key=lambda index: parts[index] - sizes[index])[:left]:
        parts[index] += 1
    return parts


def _place(piece: Slice, count: int) -> tuple[int, int, int]:
    """Say where a slice goes on behind `count` records: position, what is left of the batch, its time."""
    seen, position, left, time_ns = skip(piece.view, piece.position, piece.batch_left, piece.base_time_ns, count, piece.end, piece.end)
    assert seen == count
    return position, left, time_ns


def _without(piece: Slice, count: int) -> Slice:
    """Give a slice without its first records."""
    position, left, time_ns = _place(piece, count)
    return Slice(
        piece.view,
        partition=piece.partition,
        position=position,
        end=piece.end,
        offset=piece.offset + count,
        count=piece.count - count,
        batch_left=left,
        base_time_ns=time_ns,
    )


def _only(piece: Slice, count: int) -> Slice:
    """Give a slice of nothing but the first records."""
    return Slice(
        piece.view,
        partition=piece.partition,
        position=piece.position,
        end=_place(piece, count)[0],
        offset=piece.offset,
        count=count,
        batch_left=piece.batch_left,
        base_time_ns=piece.base_time_ns,
    )


def _appended_ns(piece: Slice) -> int:
    """Say when the first message of a slice was appended."""
    if piece.batch_left:
        return piece.base_time_ns
    # The slice begins with the header of a batch.
    base_time_ns: int = _I64.unpack_from(piece.view, piece.position + 40)[0]
    return base_time_ns
