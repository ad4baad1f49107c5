"""The part of `Session` for queues: whoever publishes makes the group that keeps the messages, and ids are enough to settle.

`Session` has these methods from here; access is checked as there. Read next: `by_id.py`, `renewing.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq import limits
from polymq.core import inspection
from polymq.core.access import Action
from polymq.core.bounds import admit
from polymq.core.by_id import settle_any
from polymq.core.group import GroupKind
from polymq.core.policies import NO_TOPIC_POLICY
from polymq.core.work_group import WorkGroup
from polymq.errors import Refusal, RefusalCode
from polymq.wire.batch import HEADER_SIZE_BYTES
from polymq.wire.expiry import EXPIRING_RECORD_OVERHEAD_BYTES, encode_expiring

if TYPE_CHECKING:
    from polymq.core.access import Principal
    from polymq.core.group import Group, Subscription
    from polymq.core.kernel import Kernel
    from polymq.core.ports import Listener, Ticket
    from polymq.core.topic import Topic
    from polymq.core.views import QueuedView
    from polymq.wire.slices import MessageBatch

__all__ = ["Windows"]


class Windows:
    """What a session may do with queues. Every method raises Refusal with the reason when it may not or cannot."""

    principal: Principal
    published: dict[str, int]
    _kernel: Kernel
    _topics: dict[tuple[str, str], Topic]

    if TYPE_CHECKING:

        def _authorize(self, action: Action, topic: str, group: str = "") -> None: ...
        def _found(self, name: str) -> Topic: ...
        def _ensure(self, name: str, *, partitions: int | None = None) -> Topic: ...
        def _ensure_group(self, topic: Topic, name: str, kind: GroupKind, *, ephemeral: bool, earliest: bool = False) -> Group: ...
        def subscribe(self, topic: str, group: str, *, listener: Listener, lease_ns: int) -> Subscription: ...

    def ensure_queue(self, topic: str, group: str) -> None:
        """Make a topic with one partition, and a work group of it, if they are not there: for whoever publishes to the group.

        The group begins with what the topic holds, or, if other groups have had that, with the first message that is still there.
        """
        found = self._topics.get((self.principal.namespace, topic))
        there = found.groups.get(group) if found is not None else None
        if there is None:
            self._authorize(Action.PUBLISH, topic)
            there = self._ensure_group(found or self._ensure(topic, partitions=1), group, GroupKind.WORK, ephemeral=False, earliest=True)
        _check_kind(there)

    def subscribe_to_queue(self, topic: str, group: str, *, listener: Listener, lease_ns: int) -> Subscription:
        """Join the work group of a topic, made as by `ensure_queue` if they are not there. No credit yet."""
        self._authorize(Action.SUBSCRIBE, topic, group)
        found = self._ensure(topic, partitions=1)
        _check_kind(found.groups.get(group) or self._ensure_group(found, group, GroupKind.WORK, ephemeral=False, earliest=True))
        return self.subscribe(topic, group, listener=listener, lease_ns=lease_ns)

    def publish_expiring(self, topic: str, batch: MessageBatch, lifetimes: memoryview, *, unit_ns: int, origin: int) -> Ticket:
        """Do as `publish` with messages that last for a time: `lifetimes` in units of `unit_ns`, at the places of the batch; 0: for ever."""
        size = HEADER_SIZE_BYTES + batch.size_bytes + batch.count * EXPIRING_RECORD_OVERHEAD_BYTES
        if size > limits.BATCH_SIZE_BYTES_MAX:
            raise Refusal(RefusalCode.BATCH_TOO_LARGE)
        target = self._found(topic)
        partition = target.pick()
        if target.policy is not NO_TOPIC_POLICY:
            admit(target, messages=batch.count, size_bytes=batch.size_bytes)
        records = bytearray(size)
        now_ns = self._kernel.wall_ns()
        end = encode_expiring(records, 0, batch, lifetimes, unit_ns, now_ns)
        partition.last_time_ns = max(partition.last_time_ns, partition.log.last_time_ns, now_ns)
        with memoryview(records) as view:
            ticket = partition.append_records(view[:end], batch.count, time_ns=partition.last_time_ns, origin=origin)
        target.expires = True
        self._kernel.fresh[target] = None
        target.message_count += batch.count
        target.message_bytes += batch.size_bytes
        self.published[topic] = self.published.get(topic, 0) + batch.count
        return ticket

    def give_back(self, subscription: Subscription) -> None:
        """End all leases of a consumer at once: what it had out goes before what is new."""
        group = subscription.group
        assert isinstance(group, WorkGroup)
        if subscription.open:
            group.take_all_back(subscription, foremost=True)

    def settle_any(
        self, topic: str, group: str, ids: memoryview, first: int, count: int, *, subscription: Subscription | None = None
    ) -> list[Subscription]:
        """Settle `ids[first : first + count]`, whoever has them out; gives the consumers other than the asking one whose slots became free.

        What is no message of the group (any more) is passed over, as are a topic and a group that are not there.
        """
        found = self._queue(topic, group)
        return [] if found is None else settle_any(found, ids, first, count, subscription)

    def renew(self, topic: str, group: str, message_id: int, *, lifetime_ns: int) -> bool:
        """Append a message anew, with a lifetime that begins now (0: for ever), and settle the old one; whoever has it out.

        Its consumer's slot becomes free when the copy is written. False: there is no such message (any more).
        """
        if lifetime_ns > limits.DELAY_NS_MAX:
            raise Refusal(RefusalCode.DELAY_OUT_OF_RANGE)
        return self._append_anew(topic, group, message_id, lifetime_ns)

    def bury(self, topic: str, group: str, message_id: int) -> bool:
        """Do as `renew`, but into the group's dead-letter topic."""
        return self._append_anew(topic, group, message_id, None)

    def is_crowded(self, topic: str, group: str) -> bool:
        """Whether so many messages of a queue wait to be appended anew that it is better not to ask for more just now."""
        found = self._queue(topic, group)
        return found is not None and found.renewing is not None and found.renewing.is_crowded

    def queued(self, topic: str, group: str, *, count_max: int = limits.PEEK_MESSAGES_MAX) -> list[QueuedView] | None:
        """Show what a queue holds, out or not, the oldest first. None: ask again after a poll; empty also where there is no such queue."""
        self._authorize(Action.READ, topic, group)
        found = self._topics.get((self.principal.namespace, topic))
        there = found.groups.get(group) if found is not None else None
        return inspection.queued(there, min(count_max, limits.PEEK_MESSAGES_MAX)) if isinstance(there, WorkGroup) else []

    def _append_anew(self, topic: str, group: str, message_id: int, lifetime_ns: int | None) -> bool:
        found = self._queue(topic, group)
        share = found.by_number.get(message_id >> limits.OFFSET_BITS) if found is not None else None
        return found is not None and share is not None and found.renew().want(share, message_id & limits.OFFSET_MAX, lifetime_ns)

    def _queue(self, topic: str, group: str) -> WorkGroup | None:
        self._authorize(Action.SUBSCRIBE, topic, group)
        found = self._topics.get((self.principal.namespace, topic))
        there = found.groups.get(group) if found is not None else None
        return there if isinstance(there, WorkGroup) else None


def _check_kind(group: Group) -> None:
    if group.kind is not GroupKind.WORK:
        raise Refusal(RefusalCode.GROUP_NAME_INVALID, f"{group.name} of {group.topic.name} is not a work group")
