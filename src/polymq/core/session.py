"""The only door to the broker: every publish, subscription, settle, read and change of every port goes through it.

A session belongs to one connection (or one HTTP request's principal). Access is checked here and nowhere else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq import limits
from polymq.core.access import STRANGER, Action
from polymq.core.cursor_group import CursorGroup
from polymq.core.group import GroupKind, Subscription
from polymq.core.view_making import peer_unknown, producer_view, topic_view
from polymq.core.work_group import WorkGroup
from polymq.errors import Refusal, RefusalCode
from polymq.wire.batch import HEADER_SIZE_BYTES, RECORD_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polymq.core.access import Principal
    from polymq.core.broker import Broker
    from polymq.core.group import Group
    from polymq.core.ports import Listener, Log, Ticket
    from polymq.core.topic import Topic
    from polymq.core.views import PeerView, ProducerView, TopicView
    from polymq.wire.slices import MessageBatch

__all__ = ["Session"]

# What was allowed before is remembered for so many names: anybody may ask for any number of names.
_ALLOWED_MAX = 1024


class Session:
    """What one principal may do. Every method raises Refusal with the reason when it may not or cannot."""

    def __init__(self, broker: Broker, principal: Principal) -> None:
        self.broker = broker
        self.principal = principal
        self.peer: PeerView = peer_unknown(broker.kernel.wall_ns())
        self.published: dict[str, int] = {}
        self.subscriptions: list[Subscription] = []
        self._allowed: set[tuple[Action, str, str]] = set()
        self._expired = False
        self._kernel = broker.kernel
        self._topics = broker.catalogue.topics
        # What this session publishes to, found once: topics are looked up again when they have been deleted.
        self._targets: dict[str, Topic] = {}

    def close(self) -> None:
        """End the session: its subscriptions end, and groups that lived by them go."""
        for subscription in list(self.subscriptions):
            self.unsubscribe(subscription)
        self.broker.sessions.pop(self, None)

    def describe(self, peer: PeerView) -> None:
        """Say who is at the other end, for statistics."""
        self.peer = peer

    def forget(self, topic: str) -> None:
        """A topic is gone: drop what refers to it."""
        self._targets.pop(topic, None)
        self.published.pop(topic, None)

    def login(self, principal: Principal) -> None:
        """Become somebody else: what was allowed before is asked anew."""
        self.principal = principal
        self._expired = False
        self._allowed.clear()
        self._targets.clear()

    def expire(self) -> None:
        """The login holds no longer: all that needs permission is refused, as LOGIN_EXPIRED, until the next `login`."""
        self._expired = True
        self._allowed.clear()
        self._targets.clear()

    # -- publishing ------------------------------------------------------------------------------------------------

    def publish(self, topic: str, batch: MessageBatch, *, origin: int, delay_ns: int = 0) -> Ticket:
        """Append a batch, whole or not at all; creates the topic. The ticket resolves when it is durable."""
        if batch.size_bytes + batch.count * RECORD_OVERHEAD_BYTES + HEADER_SIZE_BYTES > limits.BATCH_SIZE_BYTES_MAX:
            raise Refusal(RefusalCode.BATCH_TOO_LARGE)
        target = self._targets.get(topic)
        if target is None or self._topics.get((target.namespace, topic)) is not target:
            target = self._target(topic)
        partition = target.partitions[0] if len(target.partitions) == 1 else target.pick()
        wall_ns = self._kernel.wall_ns()
        if delay_ns > 0:
            schedule = self.broker.catalogue.schedule(target, partition)
            ticket = schedule.publish(batch, due_ns=wall_ns + delay_ns, wall_ns=wall_ns, origin=origin)
        else:
            ticket = partition.append(batch, wall_ns=wall_ns, origin=origin)
            self._kernel.fresh[target] = None
        target.message_bytes += batch.size_bytes
        self.published[topic] = self.published.get(topic, 0) + batch.count
        return ticket

    def publish_records(self, topic: str, partition: int, records: memoryview, count: int, *, time_ns: int, origin: int) -> Ticket:
        """Append records that are encoded already, with times of their own as differences to `time_ns`; creates the topic.

        For messages that are older than their arrival here. `partition` counts within the topic. Raises Refusal.
        """
        target = self._target(topic)
        ticket = target.partitions[partition].append_records(records, count, time_ns=time_ns, origin=origin)
        self._kernel.fresh[target] = None
        return ticket

    def _target(self, name: str) -> Topic:
        self._authorize(Action.PUBLISH, name)
        self._refuse_when_stopping()
        target = self._ensure(name)
        self._targets[name] = target
        return target

    def journaled(self) -> Ticket:
        """Give a ticket for all that this turn has changed about topics and groups."""
        return self._kernel.store.journal.ticket(sync=self.broker.settings.sync)

    # -- topics ----------------------------------------------------------------------------------------------------

    def ensure_topic(self, topic: str, *, ephemeral: bool = False) -> None:
        """Make a topic if it is not there."""
        self._authorize(Action.PUBLISH, topic)
        self._ensure(topic, ephemeral=ephemeral)

    def create_topic(self, topic: str, *, partitions: int | None = None, sync: bool | None = None, ephemeral: bool = False) -> None:
        """Make a topic if it is not there; an existing one keeps its partitions."""
        self._authorize(Action.MANAGE, topic)
        self._ensure(topic, partitions=partitions, sync=sync, ephemeral=ephemeral)

    def delete_topic(self, topic: str) -> None:
        """Remove a topic, its groups and its messages."""
        self._authorize(Action.MANAGE, topic)
        self._delete_topic(self._topic(topic))

    def empty_topic(self, topic: str) -> None:
        """Drop the messages that no group has been given."""
        self._authorize(Action.MANAGE, topic)
        self.broker.catalogue.empty_topic(self._topic(topic))

    def pause_topic(self, topic: str, *, paused: bool) -> None:
        """Keep new messages from the groups, or give them what was kept."""
        self._authorize(Action.MANAGE, topic)
        self.broker.catalogue.pause_topic(self._topic(topic), paused=paused)

    def withhold_topic(self, topic: str, *, withheld: bool) -> None:
        """Keep a new topic's messages until all groups are there that are to have them, or give them out now."""
        self._authorize(Action.MANAGE, topic)
        self.broker.catalogue.withhold_topic(self._topic(topic), withheld=withheld)

    def _ensure(self, name: str, *, partitions: int | None = None, sync: bool | None = None, ephemeral: bool = False) -> Topic:
        found = self._topics.get((self.principal.namespace, name))
        if found is not None:
            return found
        if not name or len(name.encode()) > limits.NAME_SIZE_BYTES_MAX:
            raise Refusal(RefusalCode.TOPIC_NAME_INVALID)
        self._refuse_when_stopping()
        settings = self.broker.settings
        if len(self._topics) >= settings.topics_max:
            raise Refusal(RefusalCode.LIMIT_REACHED, f"there are {settings.topics_max} topics already")
        return self.broker.catalogue.create_topic(
            self.principal.namespace,
            name,
            partitions=partitions or settings.partitions,
            sync=settings.sync if sync is None else sync,
            ephemeral=ephemeral,
        )

    def _topic(self, name: str) -> Topic:
        topic = self._topics.get((self.principal.namespace, name))
        if topic is None:
            raise Refusal(RefusalCode.TOPIC_NOT_FOUND)
        return topic

    # -- groups ----------------------------------------------------------------------------------------------------

    def create_group(self, topic: str, group: str, *, kind: GroupKind = GroupKind.WORK, ephemeral: bool = False) -> None:
        """Make a group of an existing topic, if it is not there."""
        self._authorize(Action.MANAGE, topic, group)
        self._ensure_group(self._topic(topic), group, kind, ephemeral=ephemeral)

    def delete_group(self, topic: str, group: str) -> None:
        """Remove a group. An ephemeral topic goes with its last group."""
        self._authorize(Action.MANAGE, topic, group)
        self._delete_group(self._group(topic, group))

    def empty_group(self, topic: str, group: str) -> None:
        """Drop everything that a group has, leased messages included."""
        self._authorize(Action.MANAGE, topic, group)
        self._group(topic, group).empty()

    def pause_group(self, topic: str, group: str, *, paused: bool) -> None:
        """Stop or resume deliveries."""
        self._authorize(Action.MANAGE, topic, group)
        self.broker.catalogue.pause_group(self._group(topic, group), paused=paused)

    def foresee(self, topic: str, group: str, partition: int, ranges: Iterable[tuple[int, int, int]]) -> None:
        """Tell a new work group what it will come to: (first offset, end, how often given out before, or LEFT_OUT), in order.

        For groups that are taken over from another server: what it does not have, and the attempts of what it has.
        """
        self._authorize(Action.MANAGE, topic, group)
        found = self._group(topic, group)
        if not isinstance(found, WorkGroup):
            raise Refusal(RefusalCode.GROUP_NAME_INVALID, f"{group} is not a work group")
        found.foresee(partition, ranges)

    def _ensure_group(self, topic: Topic, name: str, kind: GroupKind, *, ephemeral: bool) -> Group:
        found = topic.groups.get(name)
        if found is not None:
            return found
        if not name or len(name.encode()) > limits.NAME_SIZE_BYTES_MAX:
            raise Refusal(RefusalCode.GROUP_NAME_INVALID)
        return self.broker.catalogue.create_group(topic, name, kind, ephemeral=ephemeral)

    def _group(self, topic: str, group: str) -> Group:
        found = self._topic(topic).groups.get(group)
        if found is None:
            raise Refusal(RefusalCode.GROUP_NOT_FOUND)
        return found

    def _delete_group(self, group: Group) -> None:
        topic = group.topic
        self.broker.catalogue.delete_group(group)
        if topic.ephemeral and not topic.groups:
            self._delete_topic(topic)

    def _delete_topic(self, topic: Topic) -> None:
        self.broker.catalogue.delete_topic(topic)
        for session in self.broker.sessions:
            session.forget(topic.name)

    # -- consuming -------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topic: str,
        group: str,
        *,
        kind: GroupKind = GroupKind.WORK,
        listener: Listener,
        lease_ns: int,
        sample_percent: int = 0,
        ephemeral_topic: bool = False,
        ephemeral_group: bool = False,
    ) -> Subscription:
        """Join a group, made (with its topic) if it is not there. No credit yet."""
        self._authorize(Action.SUBSCRIBE, topic, group)
        self._refuse_when_stopping()
        found = self._ensure_group(self._ensure(topic, ephemeral=ephemeral_topic), group, kind, ephemeral=ephemeral_group)
        most = self.broker.settings.group_consumers_max
        if most and len(found.consumers) >= most:
            raise Refusal(RefusalCode.GROUP_FULL, str(most))
        subscription = found.subscribe(listener, lease_ns=lease_ns, sample_percent=sample_percent)
        self.subscriptions.append(subscription)
        subscription.session = self
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Leave a group; an ephemeral group goes with its last consumer."""
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)
        group = subscription.group
        was_open = subscription.open
        group.unsubscribe(subscription)
        if was_open and group.ephemeral and not group.consumers:
            self._delete_group(group)

    def credit(self, subscription: Subscription, messages: int) -> None:
        """Set how many messages the consumer may have out at once."""
        assert messages >= 0
        subscription.credit = messages
        self._kernel.wake(subscription.group)

    def hold(self, subscription: Subscription, *, held: bool) -> None:
        """Say that the consumer's connection cannot take more output, or can again."""
        subscription.held = held
        if not held:
            self._kernel.wake(subscription.group)

    def settle(self, subscription: Subscription, ids: memoryview, first: int, count: int) -> list[tuple[int, RefusalCode]]:
        """Settle `ids[first : first + count]` (int64 message ids); gives (index, why) for those that could not be."""
        return _work(subscription).settle(subscription, ids, first, count)

    def requeue(self, subscription: Subscription, message_id: int, *, delay_ns: int) -> None:
        """Give a message back, for now or for later."""
        _work(subscription).requeue(subscription, message_id, delay_ns=delay_ns)

    def extend(self, subscription: Subscription, message_id: int, *, lease_ns: int, lease_ns_max: int) -> None:
        """Lease a message for `lease_ns` from now on, at most to `lease_ns_max` after its delivery."""
        _work(subscription).extend(subscription, message_id, lease_ns=lease_ns, lease_ns_max=lease_ns_max)

    # -- reading ---------------------------------------------------------------------------------------------------

    def log(self, topic: str, partition: int) -> Log:
        """Give one partition for reading; `partition` counts within the topic."""
        self._authorize(Action.READ, topic)
        partitions = self._topic(topic).partitions
        if not 0 <= partition < len(partitions):
            raise Refusal(RefusalCode.TOPIC_NOT_FOUND, f"topic {topic} has partitions 0 … {len(partitions) - 1}")
        return partitions[partition].log

    def commit_offset(self, topic: str, group: str, partition: int, offset: int) -> None:
        """Note where a cursor group goes on; makes the group."""
        self._authorize(Action.SUBSCRIBE, topic, group)
        self.log(topic, partition)
        found = self._ensure_group(self._topic(topic), group, GroupKind.CURSOR, ephemeral=False)
        if not isinstance(found, CursorGroup):
            raise Refusal(RefusalCode.GROUP_NAME_INVALID, f"{group} is not a cursor group")
        found.commit(partition, offset)

    def committed(self, topic: str, group: str) -> list[int]:
        """Give a cursor group's committed offsets, one per partition."""
        self._authorize(Action.READ, topic, group)
        found = self._group(topic, group)
        if not isinstance(found, CursorGroup):
            raise Refusal(RefusalCode.GROUP_NOT_FOUND, f"{group} is not a cursor group")
        return list(found.committed)

    # -- statistics ------------------------------------------------------------------------------------------------

    def topic_names(self) -> list[str]:
        """List the names of the namespace's topics that may be read, sorted."""
        mine = sorted(name for namespace, name in self._topics if namespace == self.principal.namespace)
        return [name for name in mine if self._may(Action.READ, name)]

    def topic(self, name: str, *, groups: bool = True, consumers: bool = True) -> TopicView | None:
        """Describe one topic; None if there is none of that name, or it may not be read."""
        topic = self._topics.get((self.principal.namespace, name))
        if topic is None or not self._may(Action.READ, name):
            return None
        return topic_view(topic, groups=groups, consumers=consumers)

    def producers(self) -> tuple[ProducerView, ...]:
        """Describe every session that has published to what may be read, the oldest first."""
        views = (producer_view(session) for session in self.broker.sessions if session.published)
        if self.principal.permissions is None:
            return tuple(views)
        return tuple(view for view in views if any(self._may(Action.READ, topic) for topic, _ in view.published))

    def health(self) -> list[str]:
        """Say what is wrong with the data folder, for people; empty when well."""
        return self._kernel.store.health()

    # -- access ----------------------------------------------------------------------------------------------------

    def _authorize(self, action: Action, topic: str, group: str = "") -> None:
        if not self._may(action, topic, group):
            if self._expired:
                raise Refusal(RefusalCode.LOGIN_EXPIRED)
            raise Refusal(RefusalCode.UNAUTHENTICATED if self.principal is STRANGER else RefusalCode.FORBIDDEN)

    def _may(self, action: Action, topic: str, group: str = "") -> bool:
        key = (action, topic, group)
        if key in self._allowed:
            return True
        if self._expired or not self.broker.authorizer.allows(self.principal, action, topic, group):
            return False
        if len(self._allowed) >= _ALLOWED_MAX:
            self._allowed.clear()
        self._allowed.add(key)
        return True

    def _refuse_when_stopping(self) -> None:
        if self.broker.stopping:
            raise Refusal(RefusalCode.SHUTTING_DOWN)


def _work(subscription: Subscription) -> WorkGroup:
    group = subscription.group
    if not isinstance(group, WorkGroup):
        raise Refusal(RefusalCode.MESSAGE_NOT_LEASED, "only messages of a work group are settled")
    return group
