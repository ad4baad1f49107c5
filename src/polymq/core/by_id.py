"""Messages that are settled by whoever knows their ids, whether or not it is he who has them: functions over a work group.

What is out frees its consumer's slot, what waits or is deferred is taken from there; whatever else an id stands for is no message
(any more), and is passed over without a word. Cost: as a settle for what the asking consumer has; about 2 us for each other one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq import limits
from polymq.core.lease_window import DEFERRED, LEASED, WAITING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polymq.core.group import Subscription
    from polymq.core.work_group import WorkGroup

__all__ = ["settle_any"]


def settle_any(group: WorkGroup, ids: memoryview, first: int, count: int, subscription: Subscription | None) -> list[Subscription]:
    """Settle `ids[first : first + count]`, for the consumer that asks or for nobody; gives the others whose slots became free."""
    left: Iterable[int] = range(first, first + count)
    if subscription is not None and subscription.group is group and subscription.open:
        left = [index for index, _code in group.settle(subscription, ids, first, count)]
    freed: dict[Subscription, None] = {}
    for index in left:
        message_id = ids[index]
        share = group.by_number.get(message_id >> limits.OFFSET_BITS)
        if share is None:
            continue
        offset = message_id & limits.OFFSET_MAX
        state, _attempts, owner = share.window.slot(offset)
        if state == LEASED:
            holder = group.holder(owner)
            if holder is not None:
                group.settle(holder, ids, index, 1)
                freed[holder] = None
                continue
            # Its consumer has left, and the lease goes on.
            share.window.put_back(offset, deferred=False)
        elif state == WAITING:
            if message_id in group.renewed or message_id in group.gone:
                continue
            if group.retiring is not None and group.retiring.is_moving(message_id, share.window):
                continue
            group.leave_waiting(message_id)
        elif state == DEFERRED:
            share.window.wake(offset)
            group.deferred_count -= 1
        else:
            continue
        share.window.discard(offset)
        group.dirty(share)
        group.settled_count += 1
        if group.lanes is not None:
            group.lanes.settled(ids, index, 1)
            group.awaken()
    return list(freed)
