"""What the Session shows of single messages: what waits for its time, and what a group will be given next.

Functions over topics and groups; access is the Session's to check. A list that is shorter than it could be ends
where reading on would have meant to wait: whoever wants more asks again behind the last id.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.core.ahead import LEFT_OUT
from polymq.core.browsing import messages_at
from polymq.core.lease_window import DEFERRED, LEASED, SETTLED
from polymq.core.views import DeferredView, PeekedView, QueuedView, ScheduledView

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polymq.core.share import Share
    from polymq.core.topic import Partition, Topic
    from polymq.core.work_group import WorkGroup

__all__ = ["browse", "cancel_scheduled", "deferred", "peek", "queued", "scheduled"]

# Places of messages that are looked at one by one, at 0.3 us each.
_SLOTS_MAX: Final = 10_000


def scheduled(topic: Topic, after: int, count_max: int) -> list[ScheduledView] | None:
    """List deferred publishes in order of their ids, behind the id `after`; None: the disk is being read, ask again."""
    schedules = [partition.schedule for partition in topic.partitions if partition.schedule is not None]
    for schedule in sorted(schedules, key=lambda schedule: schedule.log.number):
        number = schedule.log.number
        if after >> limits.OFFSET_BITS > number:
            continue
        offset = after & limits.OFFSET_MAX if after >= 0 and after >> limits.OFFSET_BITS == number else -1
        rows = dict(schedule.waiting_after(offset, count_max))
        found = messages_at(schedule.log, list(rows))
        if found is None:
            return None
        if found:
            # The next partition's are another page: their ids are larger.
            return [
                ScheduledView(number << limits.OFFSET_BITS | offset, rows[offset], len(message.body), message.time_ns)
                for offset, message in found
            ]
    return []


def cancel_scheduled(topic: Topic, message_id: int) -> bool:
    """Drop a deferred publish; False if it does not wait (any more)."""
    for partition in topic.partitions:
        schedule = partition.schedule
        if schedule is not None and schedule.log.number == message_id >> limits.OFFSET_BITS:
            return schedule.cancel(message_id & limits.OFFSET_MAX)
    return False


def deferred(group: WorkGroup, after: int, count_max: int) -> list[DeferredView]:
    """List what consumers have given back for later, in order of ids, behind the id `after`."""
    flat = group.deferred.after(after, count_max)
    views: list[DeferredView] = []
    for message_id, due_ns in zip(flat[::2], flat[1::2], strict=True):
        state, attempts, _owner = group.by_number[message_id >> limits.OFFSET_BITS].window.slot(message_id & limits.OFFSET_MAX)
        if state == DEFERRED:
            views.append(DeferredView(message_id, due_ns, attempts))
    return views


def browse(partition: Partition, offset: int, count_max: int) -> list[PeekedView] | None:
    """Show messages of a partition from an offset on; None: the disk is being read, ask again."""
    log = partition.log
    first = max(offset, log.start)
    found = messages_at(log, range(first, min(first + count_max, log.readable)))
    if found is None:
        return None
    return [PeekedView(partition.number << limits.OFFSET_BITS | at, partition.index, at, 0, message) for at, message in found]


def peek(group: WorkGroup, after: int, count_max: int) -> list[PeekedView] | None:
    """Show what a group would be given, behind the id `after`; None: the disk is being read, ask again.

    In order of ids, which is the order of the log within a partition: given-back messages come first there.
    """
    for share in sorted(group.shares, key=lambda share: share.partition.number):
        number = share.partition.number
        if after >> limits.OFFSET_BITS > number:
            continue
        first = (after & limits.OFFSET_MAX) + 1 if after >= 0 and after >> limits.OFFSET_BITS == number else 0
        offsets = array("q", _backlog(group, share, first, count_max))
        found = messages_at(share.partition.log, offsets)
        if found is None:
            return None
        if found:
            return [
                PeekedView(number << limits.OFFSET_BITS | at, share.partition.index, at, share.window.slot(at)[1], message)
                for at, message in found
            ]
    return []


def queued(group: WorkGroup, count_max: int) -> list[QueuedView] | None:
    """Show what a group is not done with, the oldest first, whoever has it; None: the disk is being read, ask again.

    Cost: looks at no more than `_SLOTS_MAX` messages that were handed out, of each partition, and at all that are far behind the others.
    """
    # What has a copy already is nobody's, until it is settled.
    moving = group.retiring.moving() if group.retiring is not None else set()
    for share in sorted(group.shares, key=lambda share: share.partition.number):
        window, number = share.window, share.partition.number << limits.OFFSET_BITS
        slots = {offset: state for offset, state, _attempts, _owner in window.stragglers()}
        for offset in range(window.floor, min(window.next, window.floor + _SLOTS_MAX)):
            state = window.slot(offset)[0]
            if state != SETTLED and number | offset not in moving:
                slots[offset] = state
        offsets = [*slots, *range(window.next, min(share.limit, window.next + count_max))][:count_max]
        found = messages_at(share.partition.log, offsets)
        if found is None:
            return None
        if found:
            return [QueuedView(number | at, slots.get(at) == LEASED, slots.get(at) == DEFERRED, message) for at, message in found]
    return []


def _backlog(group: WorkGroup, share: Share, first: int, count_max: int) -> Iterator[int]:
    """Give offsets of messages that wait for a consumer, ascending, from `first` on. Cost: O(given back)."""
    number = share.partition.number
    waiting = group.waiting.firsts() if group.lanes is None else group.lanes.waiting()
    mine = (
        message_id & limits.OFFSET_MAX
        for message_id in waiting
        if message_id >> limits.OFFSET_BITS == number and message_id not in group.gone
    )
    given_back = sorted(offset for offset in mine if offset >= first)[:count_max]
    yield from given_back
    left = count_max - len(given_back)
    offset = max(first, share.window.next)
    left_out = [(skip_first, skip_end) for skip_first, skip_end, attempts in share.ahead.ranges() if attempts == LEFT_OUT]
    for skip_first, skip_end in [*left_out, (share.partition.limit, share.partition.limit)]:
        end = min(skip_first, share.partition.limit, offset + left)
        if end > offset:
            yield from range(offset, end)
            left -= end - offset
        offset = max(offset, skip_end)
