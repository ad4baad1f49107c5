"""What exists: topics with their partitions, and groups. Every change is journaled before it is answered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq import limits
from polymq.core import journal_entries
from polymq.core.cursor_group import NOT_COMMITTED, CursorGroup
from polymq.core.followers import Followers
from polymq.core.group import GroupKind
from polymq.core.live_group import LiveGroup
from polymq.core.ordered_names import TopicNames
from polymq.core.schedule import Schedule
from polymq.core.topic import Partition, Topic
from polymq.core.work_group import WorkGroup
from polymq.errors import Refusal, RefusalCode

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polymq.core.group import Group
    from polymq.core.kernel import Kernel
    from polymq.core.policies import GroupPolicy, TopicPolicy
    from polymq.core.ports import Log

__all__ = ["Catalogue"]


class Catalogue:
    """Topics by (namespace, name). Partition numbers and group ids are handed out once in the life of the folder."""

    def __init__(self, kernel: Kernel) -> None:
        self.topics: dict[tuple[str, str], Topic] = {}
        # Whose partition has which number.
        self.owners: dict[int, tuple[Topic, Partition]] = {}
        # Schedules by the numbers of their logs.
        self.schedules: dict[int, Schedule] = {}
        self.names = TopicNames()
        self.next_number = 0
        self.next_group_id = 1
        self.followers = Followers()
        self._kernel = kernel

    # -- topics ----------------------------------------------------------------------------------------------------

    def create_topic(self, namespace: str, name: str, *, partitions: int, sync: bool, ephemeral: bool) -> Topic:
        """Make a topic; raises Refusal when numbers have run out. Nobody reads it yet, so it holds everything."""
        assert partitions > 0
        assert (namespace, name) not in self.topics
        numbers = [self.take_number() for _ in range(partitions)]
        self._kernel.journal(
            journal_entries.catalogue("topic_created", namespace=namespace, name=name, numbers=numbers, sync=sync, ephemeral=ephemeral)
        )
        store = self._kernel.store
        logs = [store.create_log(number, sync=sync) for number in numbers]
        topic = Topic(
            namespace,
            name,
            [Partition(index, log) for index, log in enumerate(logs)],
            sync=sync,
            ephemeral=ephemeral,
        )
        topic.hold()
        self.enter(topic)
        self.followers.topic_created(topic)
        return topic

    def enter(self, topic: Topic) -> None:
        """Take a topic in that has been made, here or by a process before."""
        self.topics[topic.namespace, topic.name] = topic
        self.names.add(topic.namespace, topic.name)
        self.owners.update((partition.number, (topic, partition)) for partition in topic.partitions)
        self.schedules.update((each.schedule.log.number, each.schedule) for each in topic.partitions if each.schedule is not None)

    def add_partitions(self, topic: Topic, count: int) -> None:
        """Give a topic more partitions; its groups have them from their first message on. Raises Refusal when numbers have run out."""
        assert count > 0
        numbers = [self.take_number() for _ in range(count)]
        self._kernel.journal(journal_entries.catalogue("topic_grown", namespace=topic.namespace, name=topic.name, numbers=numbers))
        first = len(topic.partitions)
        logs = [self._kernel.store.create_log(number, sync=topic.sync) for number in numbers]
        fresh = [Partition(first + index, log) for index, log in enumerate(logs)]
        held = topic.held_anywhere
        topic.partitions += fresh
        self.owners.update((partition.number, (topic, partition)) for partition in fresh)
        if held:
            topic.hold()
        self.journal_held(topic)
        for group in topic.groups.values():
            group.grown(count)
            self._kernel.wake(group)

    def take_number(self) -> int:
        """Give the number of a log that is to be made; raises Refusal when they have run out."""
        if self.next_number > limits.PARTITION_NUMBER_MAX:
            raise Refusal(RefusalCode.LIMIT_REACHED, "every partition number of this data folder has been used")
        self.next_number += 1
        return self.next_number - 1

    def delete_topic(self, topic: Topic) -> None:
        """Remove a topic with its groups and its messages; consumers are told."""
        for group in list(topic.groups.values()):
            self._forget(group, "topic deleted")
        self._kernel.journal(journal_entries.catalogue("topic_deleted", namespace=topic.namespace, name=topic.name))
        self._kernel.fresh.pop(topic, None)
        del self.topics[topic.namespace, topic.name]
        self.names.remove(topic.namespace, topic.name)
        for partition in topic.partitions:
            del self.owners[partition.number]
            if partition.schedule is not None:
                partition.schedule.close()
                del self.schedules[partition.schedule.log.number]
                self._kernel.store.delete_log(partition.schedule.log.number)
            self._kernel.store.delete_log(partition.number)
        self.followers.topic_deleted(topic)

    def pause_topic(self, topic: Topic, *, paused: bool) -> None:
        """Keep new messages from the groups, or give them what was kept."""
        topic.paused = paused
        if paused:
            topic.hold()
        elif topic.has_work_group and not topic.withheld:
            topic.release()
            for group in topic.groups.values():
                self._kernel.wake(group)
        self.journal_held(topic)

    def withhold_topic(self, topic: Topic, *, withheld: bool) -> None:
        """Keep a new topic's messages until all groups are there that are to have them, or give them out now.

        Not journaled: a start that finds such a topic gives out what its groups are owed.
        """
        topic.withheld = withheld
        if withheld:
            topic.hold()
        elif not topic.paused:
            self.pause_topic(topic, paused=False)

    def empty_topic(self, topic: Topic) -> None:
        """Drop what no group has been given."""
        for partition in topic.partitions:
            if partition.schedule is not None and not topic.has_work_group:
                partition.schedule.clear()
            first = partition.held_from
            if first is None:
                continue
            end = partition.log.readable
            for group in topic.groups.values():
                if isinstance(group, WorkGroup):
                    group.drop(partition.index, first, end)
                    group.never_had(partition.index, end - first)
            partition.held_from = end
        self.journal_held(topic)

    def journal_held(self, topic: Topic) -> None:
        """Write to the journal what the topic keeps from its groups."""
        self._kernel.journal(held_entry(topic))

    def schedule(self, topic: Topic, partition: Partition) -> Schedule:
        """Give the schedule of a partition, made at its first deferred publish."""
        if partition.schedule is None:
            number = self.take_number()
            self._kernel.journal(journal_entries.catalogue("schedule_created", partition=partition.number, number=number))
            log = self._kernel.store.create_log(number, sync=topic.sync)
            partition.schedule = self.schedules[number] = Schedule(self._kernel, topic, partition, log)
        return partition.schedule

    def log(self, number: int) -> Log | None:
        """Give a partition's log, or that of its schedule; None if its topic is gone."""
        found = self.owners.get(number)
        if found is not None:
            return found[1].log
        schedule = self.schedules.get(number)
        return None if schedule is None else schedule.log

    # -- groups ----------------------------------------------------------------------------------------------------

    def create_group(self, topic: Topic, name: str, kind: GroupKind, *, ephemeral: bool, earliest: bool = False) -> Group:
        """Make a group: it starts at what the topic holds, else at the end. One of cursors has committed nothing.

        `earliest`: in place of the end, at the first message that is still there for replay.
        """
        assert name not in topic.groups
        group_id = self.next_group_id
        self.next_group_id += 1
        starts = [
            max(held_from, log.start) if held_from is not None else log.start if earliest else log.end
            for held_from, log in [(partition.held_from, partition.log) for partition in topic.partitions]
        ]
        if kind is GroupKind.CURSOR:
            starts = [NOT_COMMITTED] * len(starts)
        ephemeral = ephemeral or kind is GroupKind.LIVE
        if not ephemeral:
            self._kernel.journal(
                journal_entries.catalogue(
                    "group_created",
                    id=group_id,
                    namespace=topic.namespace,
                    topic=topic.name,
                    name=name,
                    kind=kind.value,
                    starts=starts,
                )
            )
        group = self.build_group(topic, name, kind, group_id=group_id, starts=starts, ephemeral=ephemeral)
        if kind is GroupKind.WORK and not topic.paused and not topic.withheld and topic.held_anywhere:
            topic.release()
            self.journal_held(topic)
        self._kernel.wake(group)
        self.followers.group_created(group)
        return group

    def build_group(self, topic: Topic, name: str, kind: GroupKind, *, group_id: int, starts: list[int], ephemeral: bool) -> Group:
        """Put a group into its topic without journaling it: also used by recovery."""
        group: Group
        if kind is GroupKind.WORK:
            group = WorkGroup(self._kernel, topic, name, group_id=group_id, starts=starts, ephemeral=ephemeral)
        elif kind is GroupKind.LIVE:
            group = LiveGroup(self._kernel, topic, name, group_id=group_id)
        else:
            group = CursorGroup(self._kernel, topic, name, group_id=group_id, starts=starts)
        topic.groups[name] = group
        return group

    def delete_group(self, group: Group) -> None:
        """Remove a group; its consumers are told. Without groups the topic keeps what comes next."""
        topic = group.topic
        self._forget(group, "group deleted")
        if not group.ephemeral:
            self._kernel.journal(journal_entries.catalogue("group_deleted", id=group.id))
        if not topic.has_work_group:
            topic.hold()
            self.journal_held(topic)

    def _forget(self, group: Group, reason: str) -> None:
        del group.topic.groups[group.name]
        self._kernel.awake.pop(group, None)
        self._kernel.waiting_for_disk.pop(group, None)
        if isinstance(group, WorkGroup):
            group.journal_settled()
            self._kernel.with_settled.pop(group, None)
            group.close()
        for consumer in list(group.consumers):
            group.unsubscribe(consumer)
            consumer.listener.closed(reason)
        self.followers.group_deleted(group)

    def pause_group(self, group: Group, *, paused: bool) -> None:
        """Stop or resume deliveries of a group."""
        group.paused = paused
        if not group.ephemeral:
            self._kernel.journal(journal_entries.catalogue("group_paused", id=group.id, paused=paused))
        self._kernel.wake(group)

    # -- policies --------------------------------------------------------------------------------------------------

    def set_topic_policy(self, topic: Topic, policy: TopicPolicy) -> None:
        """Choose how old and how many the messages of a topic may be."""
        topic.policy = policy
        for group in topic.groups.values():
            self._kernel.wake(group)
        self._kernel.journal(_topic_policy_entry(topic))

    def set_group_policy(self, group: WorkGroup, policy: GroupPolicy) -> None:
        """Choose how a work group treats its messages."""
        group.set_policy(policy)
        if not group.ephemeral:
            self._kernel.journal(_group_policy_entry(group))

    # -- snapshots -------------------------------------------------------------------------------------------------

    def units(self) -> Iterator[Iterator[bytes]]:
        """Give the journal entries that rebuild everything: a unit for each topic, then one for each of its groups.

        A unit is read before the next one is asked for, perhaps turns later. What comes into being meanwhile is in the
        journal behind the snapshot's beginning; what is gone by then is left out.
        """
        yield iter((journal_entries.catalogue("numbers", next_number=self.next_number, next_group_id=self.next_group_id),))
        for key, topic in list(self.topics.items()):
            if self.topics.get(key) is topic:
                yield _topic_entries(topic)
            for group in list(topic.groups.values()):
                if self.topics.get(key) is topic and topic.groups.get(group.name) is group and not group.ephemeral:
                    yield _group_entries(group)


def held_entry(topic: Topic) -> bytes:
    """Encode what a topic keeps from its groups."""
    held = [partition.held_from for partition in topic.partitions]
    return journal_entries.catalogue("topic_held", namespace=topic.namespace, name=topic.name, paused=topic.paused, held=held)


def _topic_policy_entry(topic: Topic) -> bytes:
    fields = topic.policy.fields()
    return journal_entries.catalogue("topic_policy", namespace=topic.namespace, name=topic.name, policy=fields)


def _group_policy_entry(group: WorkGroup) -> bytes:
    return journal_entries.catalogue("group_policy", id=group.id, policy=group.policy.fields())


def _topic_entries(topic: Topic) -> Iterator[bytes]:
    """Give what replaces all that is known about a topic, but for its groups."""
    numbers = [partition.number for partition in topic.partitions]
    yield journal_entries.catalogue(
        "topic_created",
        namespace=topic.namespace,
        name=topic.name,
        numbers=numbers,
        sync=topic.sync,
        ephemeral=topic.ephemeral,
    )
    yield held_entry(topic)
    if topic.policy.fields():
        yield _topic_policy_entry(topic)
    for partition in topic.partitions:
        if partition.schedule is not None:
            number = partition.schedule.log.number
            yield journal_entries.catalogue("schedule_created", partition=partition.number, number=number)
            yield journal_entries.schedule_state(partition.number)
            for pairs in partition.schedule.pairs():
                yield journal_entries.waiting(partition.number, pairs)
            for base_offset, _count, runs in partition.schedule.releases():
                yield journal_entries.released_runs(partition.number, base_offset, runs)


def _group_entries(group: Group) -> Iterator[bytes]:
    """Give what replaces all that is known about a group."""
    topic = group.topic
    if isinstance(group, CursorGroup):
        starts = list(group.committed)
    else:
        starts = [group.first_needed(partition.index) for partition in topic.partitions]
    yield journal_entries.catalogue(
        "group_created",
        id=group.id,
        namespace=topic.namespace,
        topic=topic.name,
        name=group.name,
        kind=group.kind.value,
        starts=starts,
    )
    if group.paused:
        yield journal_entries.catalogue("group_paused", id=group.id, paused=True)
    if isinstance(group, WorkGroup):
        if group.policy.fields():
            yield _group_policy_entry(group)
        yield from group.entries()
