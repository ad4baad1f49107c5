"""The only door to the broker: every publish, subscription, settle, read and change of every port goes through it.

A session belongs to one connection (or one HTTP request's principal). Access is checked here and nowhere else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from polymq import limits
from polymq.core import inspection
from polymq.core.access import STRANGER, Action
from polymq.core.bounds import admit
from polymq.core.cursor_door import CursorDoor
from polymq.core.group import GroupKind, Subscription
from polymq.core.policies import NO_TOPIC_POLICY
from polymq.core.prepared_door import PreparedDoor
from polymq.core.rewinding import rewind
from polymq.core.view_making import Latency, peer_unknown, producer_view, topic_view
from polymq.core.windows import Windows
from polymq.core.work_group import WorkGroup
from polymq.errors import Refusal, RefusalCode
from polymq.wire.batch import HEADER_SIZE_BYTES, RECORD_OVERHEAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from polymq.core.access import Principal
    from polymq.core.broker import Broker
    from polymq.core.group import Group
    from polymq.core.interest.targets import Entry, Target
    from polymq.core.policies import GroupPolicy, TopicPolicy
    from polymq.core.ports import Listener, Ticket
    from polymq.core.topic import Partition, Topic
    from polymq.core.views import DeferredView, PeekedView, PeerView, ProducerView, ScheduledView, TopicView
    from polymq.wire.live import LiveBatch
    from polymq.wire.records import Message
    from polymq.wire.slices import MessageBatch

__all__ = ["Session"]

# What was allowed before is remembered for so many names: anybody may ask for any number of names.
_ALLOWED_MAX = 1024


class Session(CursorDoor, PreparedDoor, Windows):
    """What one principal may do. Every method raises Refusal with the reason when it may not or cannot."""

    def __init__(self, broker: Broker, principal: Principal) -> None:
        self.broker = broker
        self.principal = principal
        self.live = principal.live_rules(broker.kernel.monotonic_ns)
        self.peer: PeerView = peer_unknown(broker.kernel.wall_ns())
        self.published: dict[str, int] = {}
        self.subscriptions: list[Subscription] = []
        self._allowed: set[tuple[Action, str, str]] = set()
        self._expired = False
        self.live_target: Target | None = None
        self._kernel = broker.kernel
        self._topics = broker.catalogue.topics
        self._targets: dict[str, Topic] = {}  # what was published to, found once: looked up again if it was deleted

    def close(self) -> None:
        """End the session: its subscriptions end, and groups that lived by them go."""
        for subscription in list(self.subscriptions):
            self.unsubscribe(subscription)
        self.broker.sessions.pop(self, None)

    def another(self) -> Session:
        """Open another session of the same principal, for what must outlive a request or ends by itself."""
        return self.broker.session(self.principal)

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
        self.live = principal.live_rules(self._kernel.monotonic_ns)
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
        target = self._found(topic)
        partition = target.partitions[0] if len(target.partitions) == 1 else target.pick()
        if target.policy is not NO_TOPIC_POLICY:
            admit(target, messages=batch.count, size_bytes=batch.size_bytes)
        wall_ns = self._kernel.wall_ns()
        if delay_ns > 0:
            schedule = self.broker.catalogue.schedule(target, partition)
            ticket = schedule.publish(batch, due_ns=_due_ns(wall_ns, delay_ns), wall_ns=wall_ns, origin=origin)
        else:
            ticket = partition.append(batch, wall_ns=wall_ns, origin=origin)
            self._kernel.fresh[target] = None
        target.message_count += batch.count
        target.message_bytes += batch.size_bytes
        self.published[topic] = self.published.get(topic, 0) + batch.count
        return ticket

    def publish_messages(self, topic: str, messages: Sequence[Message], *, origin: int, delay_ns: int = 0) -> Ticket:
        """Do as `publish` does with messages that have keys or headers: one object each, for paths that are not hot.

        All go where the first one's key says, if it has one.
        """
        target = self._found(topic)
        key = messages[0].key
        partition = target.pick() if key is None else target.pick_for(key)
        if delay_ns > 0:
            return self.publish_later(topic, partition.index, messages, origin=origin, delay_ns=delay_ns)[0]
        size_bytes = sum(len(message.body) for message in messages)
        if target.policy is not NO_TOPIC_POLICY:
            admit(target, messages=len(messages), size_bytes=size_bytes)
        ticket = partition.append_messages(messages, wall_ns=self._kernel.wall_ns(), origin=origin)
        self._kernel.fresh[target] = None
        target.message_count += len(messages)
        target.message_bytes += size_bytes
        self.published[topic] = self.published.get(topic, 0) + len(messages)
        return ticket

    def publish_later(self, topic: str, index: int, messages: Sequence[Message], *, origin: int, delay_ns: int) -> tuple[Ticket, int]:
        """Store messages to be appended to one of the topic's partitions after a delay; gives the first one's id while it waits, too."""
        size_bytes = sum(len(message.body) for message in messages)
        target = self._found(topic)
        partition = target.partition(index)
        if target.policy is not NO_TOPIC_POLICY:
            admit(target, messages=len(messages), size_bytes=size_bytes)
        wall_ns = self._kernel.wall_ns()
        due_ns = _due_ns(wall_ns, delay_ns)
        schedule = self.broker.catalogue.schedule(target, partition)
        message_id = schedule.log.number << limits.OFFSET_BITS | schedule.log.end
        ticket = schedule.publish_messages(messages, due_ns=due_ns, wall_ns=wall_ns, origin=origin)
        target.message_count += len(messages)
        target.message_bytes += size_bytes
        self.published[topic] = self.published.get(topic, 0) + len(messages)
        return ticket, message_id

    def _found(self, name: str) -> Topic:
        """Find what is published to, as it was found before if it is still there."""
        target = self._targets.get(name)
        if target is None or self._topics.get((target.namespace, name)) is not target:
            target = self._target(name)
        return target

    def publish_run(
        self, topic: str, partition: int, records: memoryview, count: int, *, origin: int, partitions: int | None = None
    ) -> tuple[Ticket, Partition, int]:
        """Append encoded records that have no time of their own to one partition, whole or not at all.

        `partition` counts within the topic, a negative one is any. A topic that is not there is made with so many `partitions`; 0: it is
        not. Gives the partition, and the offset of the first record.
        """
        target = self._targets.get(topic)
        if target is None or self._topics.get((target.namespace, topic)) is not target:
            target = self._target(topic, partitions)
        size_bytes = len(records) - count * RECORD_OVERHEAD_BYTES
        if target.policy is not NO_TOPIC_POLICY:
            admit(target, messages=count, size_bytes=size_bytes)
        chosen = target.partition(partition) if partition >= 0 else target.pick()
        first = chosen.log.end
        ticket = chosen.append_run(records, count, wall_ns=self._kernel.wall_ns(), origin=origin)
        self._kernel.fresh[target] = None
        target.message_count += count
        target.message_bytes += size_bytes
        self.published[topic] = self.published.get(topic, 0) + count
        return ticket, chosen, first

    def publish_records(self, topic: str, partition: int, records: memoryview, count: int, *, time_ns: int, origin: int) -> Ticket:
        """Append records that are encoded already, with times of their own as differences to `time_ns`; creates the topic.

        For messages that are older than their arrival here. `partition` counts within the topic. Raises Refusal.
        """
        target = self._target(topic)
        ticket = target.partitions[partition].append_records(records, count, time_ns=time_ns, origin=origin)
        self._kernel.fresh[target] = None
        return ticket

    def _target(self, name: str, partitions: int | None = None) -> Topic:
        self._authorize(Action.PUBLISH, name)
        self._refuse_when_stopping()
        target = self._topic(name) if partitions == 0 else self._ensure(name, partitions=partitions)
        self._targets[name] = target
        return target

    def journaled(self) -> Ticket:
        """Give a ticket for all that this turn has changed about topics and groups."""
        return self._kernel.store.journal.ticket(sync=self.broker.settings.sync)

    # -- topics ----------------------------------------------------------------------------------------------------

    def ensure_topic(self, topic: str, *, partitions: int | None = None, ephemeral: bool = False, action: Action = Action.PUBLISH) -> None:
        """Make a topic if it is not there, for who may do `action` with it; an existing one keeps its partitions."""
        self._authorize(action, topic)
        self._ensure(topic, partitions=partitions, ephemeral=ephemeral)

    def create_topic(self, topic: str, *, partitions: int | None = None, sync: bool | None = None, ephemeral: bool = False) -> None:
        """Make a topic if it is not there; an existing one keeps its partitions."""
        self._authorize(Action.MANAGE, topic)
        self._ensure(topic, partitions=partitions, sync=sync, ephemeral=ephemeral)

    def add_partitions(self, topic: str, count: int) -> None:
        """Give a topic so many partitions more."""
        self._authorize(Action.MANAGE, topic)
        self._refuse_when_stopping()
        self.broker.catalogue.add_partitions(self._topic(topic), count)

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

    def _ensure_group(self, topic: Topic, name: str, kind: GroupKind, *, ephemeral: bool, earliest: bool = False) -> Group:
        found = topic.groups.get(name)
        if found is not None:
            if found.kind is not kind:
                raise Refusal(RefusalCode.GROUP_NAME_INVALID, f"{name} is not a {kind.value} group")
            return found
        if not name or len(name.encode()) > limits.NAME_SIZE_BYTES_MAX:
            raise Refusal(RefusalCode.GROUP_NAME_INVALID)
        return self.broker.catalogue.create_group(topic, name, kind, ephemeral=ephemeral, earliest=earliest)

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
        group, was_open = subscription.group, subscription.open
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
        if delay_ns > limits.DELAY_NS_MAX:
            raise Refusal(RefusalCode.DELAY_OUT_OF_RANGE)
        _work(subscription).requeue(subscription, message_id, delay_ns=delay_ns)

    def extend(self, subscription: Subscription, message_id: int, *, lease_ns: int, lease_ns_max: int) -> None:
        """Lease a message for `lease_ns` from now on, at most to `lease_ns_max` after its delivery."""
        _work(subscription).extend(subscription, message_id, lease_ns=lease_ns, lease_ns_max=lease_ns_max)

    # -- live messages ---------------------------------------------------------------------------------------------

    def lets_listen(self, pattern: bytes, target: Target, *, queue: bytes = b"") -> bool:
        """Say whether a pattern may be listened to; if only in part, the target is restricted to what it may hear."""
        rules = self.live
        if rules is not None and not rules.may_listen(pattern, queue):
            return False
        if rules is not None and not rules.may_hear_all(pattern, queue):
            target.restrict(rules.may_hear)
        return True

    def listen(self, pattern: bytes, target: Target, *, tag: int, queue: bytes = b"", limit: int = 0) -> Entry:
        """Let a target have the live messages of this namespace that match a pattern; see `Interest.insert`. Nothing is kept.

        A target whose session may hear only a part of that is restricted to it, in all that it listens to.
        """
        if self.principal is STRANGER:
            raise Refusal(RefusalCode.UNAUTHENTICATED)
        if not self.lets_listen(pattern, target, queue=queue):
            raise Refusal(RefusalCode.FORBIDDEN)
        self.live_target = target
        return self.broker.live.space(self.principal.namespace).listen(pattern, target, tag=tag, queue=queue, limit=limit)

    def publish_live(self, batch: LiveBatch, sender: Target | None = None, *, checked: bool = False) -> int:
        """Hand messages on to whoever listens now, but not to `sender`; returns how many nobody took, which are marked.

        `broker.live.stored` then says what has become of those that are to be stored; None if there are none.
        A principal with rules may publish all of them, or none is handed on. `checked`: the caller has asked `live.may_publish` of
        each message, once, and it may.
        """
        rules = None if checked or self.principal is STRANGER else self.live
        if rules is not None and not all(rules.may_publish(batch.subject(index)) for index in range(batch.count)):
            raise Refusal(RefusalCode.FORBIDDEN)
        return self.publish_live_some(batch, sender, None)[1]

    def publish_live_some(self, batch: LiveBatch, sender: Target | None, late: Callable[[], bool] | None) -> tuple[int, int]:
        """Do as `publish_live` with `checked`, until `late` says so; see `LiveSpace.publish_some`."""
        if self.principal is STRANGER:
            raise Refusal(RefusalCode.UNAUTHENTICATED)
        live = self.broker.live
        live.stored = None
        live.publisher = self
        try:
            return live.space(self.principal.namespace).publish_some(batch, sender, late)
        finally:
            live.publisher = None

    @property
    def may_keep_live(self) -> bool:
        """Whether some live messages may be to be stored."""
        archive = self.broker.live.space(self.principal.namespace).archive
        return archive is not None and bool(archive.target.entries)

    def keeps_live(self, name: bytes) -> bool:
        """Say whether live messages of this name are to be stored."""
        return self.broker.live.space(self.principal.namespace).interest.keeps(name)

    # -- single messages -------------------------------------------------------------------------------------------

    def scheduled(self, topic: str, *, after: int = -1, count_max: int = limits.PEEK_MESSAGES_MAX) -> list[ScheduledView] | None:
        """List deferred publishes that wait, in order of their ids, behind the id `after`. None: ask again after a poll.

        A page may be shorter than `count_max`; an empty one is the end.
        """
        self._authorize(Action.READ, topic)
        return inspection.scheduled(self._topic(topic), after, _page(count_max))

    def cancel_scheduled(self, topic: str, message_id: int) -> None:
        """Drop a deferred publish by the id that `scheduled` shows."""
        self._authorize(Action.MANAGE, topic)
        if not inspection.cancel_scheduled(self._topic(topic), message_id):
            raise Refusal(RefusalCode.MESSAGE_NOT_FOUND)

    def deferred(self, topic: str, group: str, *, after: int = -1, count_max: int = limits.PEEK_MESSAGES_MAX) -> list[DeferredView]:
        """List what a group's consumers have given back for later, in order of ids, behind the id `after`."""
        self._authorize(Action.READ, topic, group)
        return inspection.deferred(self._work_group(topic, group), after, _page(count_max))

    def peek(self, topic: str, group: str, *, after: int = -1, count_max: int = limits.PEEK_MESSAGES_MAX) -> list[PeekedView] | None:
        """Show what waits for a group's consumers, without giving it out. Pages as `scheduled` does."""
        self._authorize(Action.READ, topic, group)
        return inspection.peek(self._work_group(topic, group), after, _page(count_max))

    def browse(self, topic: str, partition: int, offset: int, *, count_max: int = limits.PEEK_MESSAGES_MAX) -> list[PeekedView] | None:
        """Show messages of one partition from an offset on, whoever has had them. None: ask again after a poll."""
        self.log(topic, partition)
        return inspection.browse(self._topic(topic).partitions[partition], offset, _page(count_max))

    def replay(
        self, topic: str, group: str, *, offset: int | None = None, time_ns: int | None = None, partition: int | None = None
    ) -> bool:
        """Set a work group to an offset, or to what was appended at or after a time, in one partition or in all.

        Back: what is still in the log is delivered again, as for the first time. Forth: what lies between is left out.
        Whatever its consumers hold there is theirs no longer. False: the disk is being read, ask again after a poll.
        """
        self._authorize(Action.MANAGE, topic, group)
        assert (offset is None) != (time_ns is None)
        found = self._work_group(topic, group)
        shares = found.shares if partition is None else [found.shares[found.topic.partition(partition).index]]
        return rewind(found, shares, offset=offset, time_ns=time_ns)

    # -- policies --------------------------------------------------------------------------------------------------

    def topic_policy(self, topic: str) -> TopicPolicy:
        """Say how old and how many the messages of a topic may be."""
        self._authorize_look(topic)
        return self._topic(topic).policy

    def set_topic_policy(self, topic: str, policy: TopicPolicy) -> None:
        """Choose how old and how many the messages of a topic may be."""
        self._authorize(Action.MANAGE, topic)
        policy.check()
        self.broker.catalogue.set_topic_policy(self._topic(topic), policy)

    def group_policy(self, topic: str, group: str) -> GroupPolicy:
        """Say how a work group treats its messages."""
        self._authorize_look(topic, group)
        return self._work_group(topic, group).policy

    def set_group_policy(self, topic: str, group: str, policy: GroupPolicy) -> None:
        """Choose how a work group treats its messages."""
        self._authorize(Action.MANAGE, topic, group)
        policy.check(topic)
        self.broker.catalogue.set_group_policy(self._work_group(topic, group), policy)

    def _work_group(self, topic: str, group: str) -> WorkGroup:
        found = self._group(topic, group)
        if not isinstance(found, WorkGroup):
            raise Refusal(RefusalCode.GROUP_NOT_FOUND, f"{group} is not a work group")
        return found

    # -- statistics ------------------------------------------------------------------------------------------------

    def topic_names(self) -> list[str]:
        """List the names of the namespace's topics that may be read, sorted."""
        return [name for name in self.broker.catalogue.names.all(self.principal.namespace) if self._may(Action.READ, name)]

    def topic_page(self, after: str, count_max: int) -> tuple[list[str], str | None]:
        """Look at so many names behind `after`: gives those that may be read, and where to go on (None: those were all). Cost: O(count_max)."""
        names = self.broker.catalogue.names.page(self.principal.namespace, after, count_max)
        return [name for name in names if self._may(Action.READ, name)], names[-1] if len(names) == count_max else None

    def topic(self, name: str, *, groups: bool = True, consumers: bool = True) -> TopicView | None:
        """Describe one topic; None if there is none of that name, or it may not be read."""
        topic = self._topics.get((self.principal.namespace, name))
        if topic is None or not self._may(Action.READ, name):
            return None
        latency = Latency(self.broker.settings.latency_quantiles, self._kernel.monotonic_ns())
        return topic_view(topic, groups=groups, consumers=consumers, latency=latency)

    def producers(self) -> tuple[ProducerView, ...]:
        """Describe every session that has published to what may be read, as far as it has, the oldest first."""
        views = (producer_view(session) for session in self.broker.sessions if session.published)
        if self.principal.permissions is None:
            return tuple(views)
        seen = (replace(view, published=tuple(each for each in view.published if self._may(Action.READ, each[0]))) for view in views)
        return tuple(view for view in seen if view.published)

    def health(self) -> list[str]:
        """Say what is wrong with the data folder, for people; empty when well."""
        return self._kernel.store.health()

    # -- access ----------------------------------------------------------------------------------------------------

    def require(self, action: Action, topic: str, group: str = "") -> None:
        """Raise Refusal if that may not be done: for what a gateway does by itself."""
        self._authorize(action, topic, group)

    def _authorize(self, action: Action, topic: str, group: str = "") -> None:
        if not self._may(action, topic, group):
            if self._expired:
                raise Refusal(RefusalCode.LOGIN_EXPIRED)
            raise Refusal(RefusalCode.UNAUTHENTICATED if self.principal is STRANGER else RefusalCode.FORBIDDEN)

    def _authorize_look(self, topic: str, group: str = "") -> None:
        """Let see how something is whoever may read it or change it."""
        if not self._may(Action.MANAGE, topic, group):
            self._authorize(Action.READ, topic, group)

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


def _due_ns(wall_ns: int, delay_ns: int) -> int:
    if delay_ns > limits.DELAY_NS_MAX:
        raise Refusal(RefusalCode.DELAY_OUT_OF_RANGE)
    return wall_ns + delay_ns


def _page(count_max: int) -> int:
    return max(1, min(count_max, limits.PEEK_MESSAGES_MAX))


def _work(subscription: Subscription) -> WorkGroup:
    group = subscription.group
    if not isinstance(group, WorkGroup):
        raise Refusal(RefusalCode.MESSAGE_NOT_LEASED, "only messages of a work group are settled")
    return group
