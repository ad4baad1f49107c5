"""From the journal's entries to a catalogue: what the broker does before it serves anybody.

Entries are applied in order to plain collections first. While a snapshot is written in pieces, others stand between
them: what an entry says about a topic or a group that is not known yet is left out, since the piece that comes later says
it again, and what a piece says takes the place of what was known. Topics and groups are built at the end, when the logs are
open and it is known where each ends. What the journal says about messages that a power loss took is dropped then,
and that is journaled, so that it does not come back for the messages that get those offsets next.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from polymq import limits
from polymq.core import journal_entries as entries
from polymq.core.ahead import LEFT_OUT
from polymq.core.cursor_group import NOT_COMMITTED, CursorGroup
from polymq.core.group import GroupKind
from polymq.core.lease_window import LeaseWindow
from polymq.core.policies import GroupPolicy, TopicPolicy
from polymq.core.prepared_state import SinkReplay
from polymq.core.releases import reconcile
from polymq.core.schedule import Schedule, expand_runs
from polymq.core.topic import Partition, Topic
from polymq.core.work_group import WorkGroup
from polymq.errors import CorruptRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polymq.core.catalogue import Catalogue
    from polymq.core.kernel import Kernel
    from polymq.core.prepared import Prepared

__all__ = ["recover"]


# (topic, partition, first offset there, runs of offsets in the schedule)
_Release = tuple[Topic, Partition, int, bytes]


@dataclass(slots=True)
class _Topic:
    namespace: str
    name: str
    numbers: list[int]
    sync: bool
    ephemeral: bool
    paused: bool = False
    held: list[int | None] = field(default_factory=list)
    policy: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Group:
    id: int
    topic: tuple[str, str]
    name: str
    kind: str
    starts: list[int]
    paused: bool = False
    policy: dict[str, Any] = field(default_factory=dict)
    windows: dict[int, LeaseWindow] = field(default_factory=dict)
    due: dict[int, int] = field(default_factory=dict)
    ahead: dict[int, list[tuple[int, int, int]]] = field(default_factory=dict)
    cursors: dict[int, int] = field(default_factory=dict)
    schedule_floors: dict[int, int] = field(default_factory=dict)


class _Replay:
    """The state that the entries describe so far."""

    def __init__(self, slots_dense: int) -> None:
        self.slots_dense = slots_dense
        self.topics: dict[tuple[str, str], _Topic] = {}
        self.owners: dict[int, _Topic] = {}
        self.groups: dict[int, _Group] = {}
        # The groups of each topic, of one that is not known yet, too.
        self.members: dict[tuple[str, str], dict[int, _Group]] = {}
        # Whether something was noted about offsets that are free again.
        self.cut = False
        # The log of each partition's schedule by the partition's number, and the other way round.
        self.schedules: dict[int, int] = {}
        self.scheduled_for: dict[int, int] = {}
        self.scheduled: dict[int, dict[int, int]] = {}
        # Released offsets of a partition's schedule: (offset that the message gets in the partition, due time, whether
        # the batch has a note that says so).
        self.releases: dict[int, dict[int, tuple[int, int, bool]]] = {}
        self.prepared = SinkReplay()
        self.next_number = 0
        self.next_group_id = 1

    # -- catalogue -------------------------------------------------------------------------------------------------

    def apply(self, entry: bytes) -> None:
        """Apply one entry; raises CorruptRecord for a kind that this version does not know."""
        apply = _APPLY.get(entry[0])
        if apply is None:
            raise CorruptRecord("journal", position=0, expected="a known kind of entry", found=f"kind {entry[0]}")
        apply(self, entry)

    def catalogue(self, entry: bytes) -> None:
        change = orjson.loads(entry[1:])
        op = change.pop("op")
        if op.startswith("sink"):
            self.prepared.apply(op, change)
        else:
            getattr(self, "op_" + op)(**change)

    def op_numbers(self, *, next_number: int, next_group_id: int) -> None:
        self.next_number = max(self.next_number, next_number)
        self.next_group_id = max(self.next_group_id, next_group_id)

    def op_topic_created(self, *, namespace: str, name: str, numbers: list[int], sync: bool, ephemeral: bool) -> None:
        held: list[int | None] = [0] * len(numbers)
        topic = _Topic(namespace, name, numbers, sync, ephemeral, held=held)
        self.topics[namespace, name] = topic
        self.owners.update(dict.fromkeys(numbers, topic))
        self.next_number = max(self.next_number, *(number + 1 for number in numbers))

    def op_topic_grown(self, *, namespace: str, name: str, numbers: list[int]) -> None:
        self.next_number = max(self.next_number, *(number + 1 for number in numbers))
        topic = self.topics.get((namespace, name))
        if topic is None:
            return
        topic.numbers += numbers
        topic.held += [0] * len(numbers)
        self.owners.update(dict.fromkeys(numbers, topic))
        for group in self.members.get((namespace, name), {}).values():
            first = NOT_COMMITTED if group.kind == GroupKind.CURSOR.value else 0
            group.starts += [first] * (len(topic.numbers) - len(group.starts))

    def op_topic_deleted(self, *, namespace: str, name: str) -> None:
        for group_id in self.members.pop((namespace, name), ()):
            del self.groups[group_id]
        topic = self.topics.pop((namespace, name), None)
        if topic is None:
            return
        for number in topic.numbers:
            del self.owners[number]
            self.scheduled_for.pop(self.schedules.get(number, -1), None)
            for known in (self.schedules, self.scheduled, self.releases):
                known.pop(number, None)

    def op_topic_held(self, *, namespace: str, name: str, paused: bool, held: list[int | None]) -> None:
        topic = self.topics.get((namespace, name))
        if topic is not None:
            topic.paused = paused
            topic.held = held

    def op_topic_policy(self, *, namespace: str, name: str, policy: dict[str, Any]) -> None:
        topic = self.topics.get((namespace, name))
        if topic is not None:
            topic.policy = policy

    def op_group_policy(self, *, id: int, policy: dict[str, Any]) -> None:  # noqa: A002
        if id in self.groups:
            self.groups[id].policy = policy

    def op_schedule_created(self, *, partition: int, number: int) -> None:
        self.schedules[partition] = number
        self.scheduled_for[number] = partition
        self.next_number = max(self.next_number, number + 1)

    def op_staging_log(self, *, number: int) -> None:
        self.prepared.logs[number] = None
        self.next_number = max(self.next_number, number + 1)

    def op_group_created(self, **fields: Any) -> None:
        topic = (fields.pop("namespace"), fields.pop("topic"))
        group = _Group(topic=topic, **fields)
        self.groups[group.id] = group
        self.members.setdefault(topic, {})[group.id] = group
        self.next_group_id = max(self.next_group_id, group.id + 1)

    def op_group_deleted(self, *, id: int) -> None:  # noqa: A002
        group = self.groups.pop(id, None)
        if group is not None:
            del self.members[group.topic][id]

    def op_group_paused(self, *, id: int, paused: bool) -> None:  # noqa: A002
        if id in self.groups:
            self.groups[id].paused = paused

    # -- groups ----------------------------------------------------------------------------------------------------

    def known(self, group_id: int) -> _Group | None:
        """Give a group, if it and its topic are known."""
        group = self.groups.get(group_id)
        return group if group is not None and group.topic in self.topics else None

    def window(self, group: _Group, partition: int) -> LeaseWindow:
        """Give a group's window, made at its start when it is first needed."""
        window = group.windows.get(partition)
        if window is None:
            numbers = self.topics[group.topic].numbers
            window = LeaseWindow(partition, group.starts[numbers.index(partition)], self.slots_dense)
            group.windows[partition] = window
        return window

    def settled(self, entry: bytes) -> None:
        _kind, group_id, partition = entries.GROUP_PARTITION.unpack_from(entry)
        group = self.known(group_id)
        if group is not None:
            self.window(group, partition).restore_ranges(entry[entries.GROUP_PARTITION.size :])

    def requeued(self, entry: bytes) -> None:
        _kind, group_id, partition, offset, attempts, due_ns = entries.REQUEUED_FORM.unpack(entry)
        group = self.known(group_id)
        if group is None:
            return
        window = self.window(group, partition)
        window.restore_next(offset + 1)
        window.restore(offset, attempts, deferred=False)
        message_id = partition << limits.OFFSET_BITS | offset
        if due_ns:
            group.due[message_id] = due_ns
        else:
            group.due.pop(message_id, None)

    def emptied(self, entry: bytes) -> None:
        _kind, group_id, partition, end = entries.EMPTIED_FORM.unpack(entry)
        group = self.known(group_id)
        if group is not None:
            window = self.window(group, partition)
            window.empty(max(end, window.next))
            group.ahead[partition] = [row for row in group.ahead.get(partition, []) if row[1] > end]

    def rewound(self, entry: bytes) -> None:
        _kind, group_id, partition, offset = entries.EMPTIED_FORM.unpack(entry)
        group = self.groups.get(group_id)
        if group is not None:
            group.windows[partition] = LeaseWindow(partition, offset, self.slots_dense)
            group.ahead.pop(partition, None)
            for message_id in [message_id for message_id in group.due if message_id >> limits.OFFSET_BITS == partition]:
                del group.due[message_id]

    def lease_state(self, entry: bytes) -> None:
        _kind, group_id, partition, next_offset, floor = entries.LEASE_STATE_FORM.unpack(entry)
        window = LeaseWindow(partition, floor, self.slots_dense)
        self.groups[group_id].windows[partition] = window
        window.restore_next(next_offset)
        if next_offset > floor:
            window.restore_settled(floor, next_offset - 1)

    def unsettled(self, entry: bytes) -> None:
        _kind, group_id, partition = entries.GROUP_PARTITION.unpack_from(entry)
        window = self.groups[group_id].windows[partition]
        for offset, attempts in struct.iter_unpack("<qq", entry[entries.GROUP_PARTITION.size :]):
            window.restore(offset, attempts, deferred=False)

    def deferred(self, entry: bytes) -> None:
        _kind, group_id = entries.SCHEDULE_STATE_FORM.unpack_from(entry)
        pairs = struct.iter_unpack("<qq", entry[entries.SCHEDULE_STATE_FORM.size :])
        self.groups[group_id].due.update((message_id, due_ns) for due_ns, message_id in pairs)

    def dropped(self, entry: bytes) -> None:
        _kind, group_id, partition, first, end = entries.LEASE_STATE_FORM.unpack(entry)
        if group_id in self.groups:
            self.groups[group_id].ahead.setdefault(partition, []).append((first, end, LEFT_OUT))

    def ahead(self, entry: bytes) -> None:
        _kind, group_id, partition = entries.GROUP_PARTITION.unpack_from(entry)
        if group_id in self.groups:
            rows = struct.iter_unpack("<qqq", entry[entries.GROUP_PARTITION.size :])
            self.groups[group_id].ahead.setdefault(partition, []).extend(rows)

    def schedule_floor(self, entry: bytes) -> None:
        _kind, group_id, partition, offset = entries.EMPTIED_FORM.unpack(entry)
        if group_id in self.groups:
            self.groups[group_id].schedule_floors[partition] = offset

    def cursor(self, entry: bytes) -> None:
        _kind, group_id, partition, offset = entries.EMPTIED_FORM.unpack(entry)
        if group_id in self.groups:
            self.groups[group_id].cursors[partition] = offset

    def truncated(self, entry: bytes) -> None:
        _kind, number, end = entries.RELEASED_FORM.unpack(entry)
        if number in self.scheduled_for:
            self.truncate_schedule(self.scheduled_for[number], end)
        else:
            self.truncate(number, end)

    def truncate(self, partition: int, end: int) -> bool:
        """Drop what is noted about offsets from `end` on; True if there was anything."""
        topic = self.owners.get(partition)
        if topic is None:
            return False
        index = topic.numbers.index(partition)
        held_from = topic.held[index]
        changed = held_from is not None and held_from > end
        if changed:
            topic.held[index] = end
        for group in self.members.get((topic.namespace, topic.name), {}).values():
            changed = _truncate_group(group, partition, index, end) or changed
        return changed

    # -- schedules -------------------------------------------------------------------------------------------------

    def truncate_schedule(self, partition: int, end: int) -> bool:
        """Drop what is noted about offsets from `end` on of a partition's schedule; True if there was anything."""
        topic = self.owners.get(partition)
        if topic is None:
            return False
        changed = False
        for known in (self.scheduled.get(partition, {}), self.releases.get(partition, {})):
            beyond = [offset for offset in known if offset >= end]
            for offset in beyond:
                del known[offset]
            changed = changed or bool(beyond)
        for group in self.members.get((topic.namespace, topic.name), {}).values():
            if group.schedule_floors.get(partition, 0) > end:
                group.schedule_floors[partition] = end
                changed = True
        return changed

    def scheduled_entry(self, entry: bytes) -> None:
        _kind, partition, first, count, due_ns = entries.SCHEDULED_FORM.unpack(entry)
        waiting = self.scheduled.setdefault(partition, {})
        released = self.releases.setdefault(partition, {})
        for offset in range(first, first + count):
            waiting[offset] = due_ns
            # Scheduled anew: an earlier release of it was undone, and says nothing any more.
            released.pop(offset, None)

    def released(self, entry: bytes) -> None:
        _kind, partition, base_offset = entries.RELEASED_FORM.unpack_from(entry)
        offsets = struct.iter_unpack("<q", entry[entries.RELEASED_FORM.size :])
        self.release(partition, base_offset, (offset for (offset,) in offsets), noted=False)

    def released_runs(self, entry: bytes) -> None:
        _kind, partition, base_offset = entries.RELEASED_FORM.unpack_from(entry)
        self.release(partition, base_offset, expand_runs(entry[entries.RELEASED_FORM.size :]), noted=True)

    def release(self, partition: int, base_offset: int, offsets: Iterable[int], *, noted: bool) -> None:
        """Take messages of a schedule for appended at `base_offset`, unless the log says otherwise in the end."""
        waiting = self.scheduled.setdefault(partition, {})
        released = self.releases.setdefault(partition, {})
        for index, offset in enumerate(offsets):
            if offset in waiting:
                released[offset] = (base_offset + index, waiting.pop(offset), noted)

    def cancelled(self, entry: bytes) -> None:
        _kind, partition, offset = entries.RELEASED_FORM.unpack(entry)
        self.scheduled.setdefault(partition, {}).pop(offset, None)

    def schedule_state(self, entry: bytes) -> None:
        _kind, partition = entries.SCHEDULE_STATE_FORM.unpack(entry)
        self.scheduled[partition] = {}
        self.releases.pop(partition, None)

    def waiting(self, entry: bytes) -> None:
        _kind, partition = entries.SCHEDULE_STATE_FORM.unpack_from(entry)
        pairs = struct.iter_unpack("<qq", entry[entries.SCHEDULE_STATE_FORM.size :])
        waiting = self.scheduled.setdefault(partition, {})
        released = self.releases.setdefault(partition, {})
        for due_ns, offset in pairs:
            waiting[offset] = due_ns
            # As in `scheduled_entry`.
            released.pop(offset, None)


def _truncate_group(group: _Group, partition: int, index: int, end: int) -> bool:
    changed = False
    if group.starts[index] > end:
        group.starts[index] = end
        changed = True
    window = group.windows.get(partition)
    if window is not None and window.next > end:
        window.truncate(end)
        changed = True
    if group.cursors.get(partition, 0) > end:
        group.cursors[partition] = end
        changed = True
    ahead = group.ahead.get(partition, [])
    if any(last > end for _first, last, _attempts in ahead):
        group.ahead[partition] = [(first, min(last, end), attempts) for first, last, attempts in ahead if first < end]
        changed = True
    low, high = partition << limits.OFFSET_BITS | end, (partition + 1) << limits.OFFSET_BITS
    for message_id in [message_id for message_id in group.due if low <= message_id < high]:
        # Another message will get this offset, and is not to wait for this one's time.
        del group.due[message_id]
        changed = True
    return changed


_APPLY = {
    entries.CATALOGUE: _Replay.catalogue,
    entries.SETTLED_RANGES: _Replay.settled,
    entries.REQUEUED: _Replay.requeued,
    entries.EMPTIED: _Replay.emptied,
    entries.SCHEDULED: _Replay.scheduled_entry,
    entries.RELEASED: _Replay.released,
    entries.LEASE_STATE: _Replay.lease_state,
    entries.SCHEDULE_STATE: _Replay.schedule_state,
    entries.CURSOR: _Replay.cursor,
    entries.UNSETTLED: _Replay.unsettled,
    entries.DROPPED: _Replay.dropped,
    entries.AHEAD: _Replay.ahead,
    entries.TRUNCATED: _Replay.truncated,
    entries.WAITING: _Replay.waiting,
    entries.DEFERRED: _Replay.deferred,
    entries.SCHEDULE_FLOOR: _Replay.schedule_floor,
    entries.CANCELLED: _Replay.cancelled,
    entries.REWOUND: _Replay.rewound,
    entries.RELEASED_RUNS: _Replay.released_runs,
}


def recover(kernel: Kernel, catalogue: Catalogue, prepared: Prepared, journal: Iterable[bytes]) -> None:
    """Rebuild the catalogue from the journal; raises CorruptRecord.

    Ephemeral topics do not outlive a process: their logs are deleted. Cost: O(entries since the last snapshot).
    """
    replay = _Replay(kernel.slots_dense)
    for entry in journal:
        replay.apply(entry)
    catalogue.next_number = replay.next_number
    catalogue.next_group_id = replay.next_group_id
    found: list[_Release] = []
    for spec in replay.topics.values():
        if spec.ephemeral:
            _delete(kernel, replay, spec)
        else:
            topic = _build_topic(kernel, replay, spec)
            found += [release for partition in topic.partitions for release in _build_schedule(kernel, replay, topic, partition)]
            catalogue.enter(topic)
            if not topic.settled_to_readers:
                kernel.appended(topic)  # what was found unsynced becomes readable once it is synced
    for group in replay.groups.values():
        built = catalogue.topics.get(group.topic)
        if built is not None:
            _build_group(catalogue, built, group)
    for topic, partition, base_offset, runs in found:
        for topic_group in topic.groups.values():
            topic_group.released(partition, base_offset, runs)
    for topic in catalogue.topics.values():
        _cut_schedules(kernel, replay, topic)
    for topic in catalogue.topics.values():
        if not topic.has_work_group and not all(partition.held_from is not None for partition in topic.partitions):
            # Its groups did not outlive the process: what comes now is for the first that will be.
            topic.hold()
            catalogue.journal_held(topic)
        elif topic.has_work_group and topic.held_anywhere and not topic.paused:
            # The process died while it kept the messages of a new topic until all of its groups were there.
            topic.release()
            catalogue.journal_held(topic)
    if prepared.restore(replay.prepared) or replay.cut:
        # Others get these offsets, and what was noted about them must not come back and be taken to be about those.
        kernel.store.secure()


def _delete(kernel: Kernel, replay: _Replay, spec: _Topic) -> None:
    kernel.journal(entries.catalogue("topic_deleted", namespace=spec.namespace, name=spec.name))
    for number in spec.numbers:
        kernel.store.delete_log(number)
        if number in replay.schedules:
            kernel.store.delete_log(replay.schedules[number])


def _build_topic(kernel: Kernel, replay: _Replay, spec: _Topic) -> Topic:
    logs = [kernel.store.open_log(number, sync=spec.sync) for number in spec.numbers]
    partitions = [Partition(index, log) for index, log in enumerate(logs)]
    topic = Topic(spec.namespace, spec.name, partitions, sync=spec.sync, ephemeral=False)
    topic.paused = spec.paused
    topic.policy = TopicPolicy.of(spec.policy)
    for partition in partitions:
        # Where a log that could not be read ends is not known: what was settled there stays so until the next start.
        if not partition.log.failed and replay.truncate(partition.number, partition.log.end):
            kernel.journal(entries.truncated(partition.number, partition.log.end))
            replay.cut = True
        partition.held_from = spec.held[partition.index]
    return topic


def _build_schedule(kernel: Kernel, replay: _Replay, topic: Topic, partition: Partition) -> list[_Release]:
    """Restore what waits, including releases that are not in the log after all; list those that only the log knows of."""
    number = replay.schedules.get(partition.number)
    if number is None:
        return []
    log = kernel.store.open_log(number, sync=topic.sync)
    schedule = Schedule(kernel, topic, partition, log)
    partition.schedule = schedule
    waiting = replay.scheduled.get(partition.number, {})
    found = reconcile(partition.log, log, waiting, replay.releases.get(partition.number, {}))
    for entry in found.entries(partition.number):
        kernel.journal(entry)
    for base_offset, runs in found.kept:
        schedule.restore_release(base_offset, runs)
    for offset, due_ns in waiting.items():
        # Of a log that could not be read nobody knows where it ends: the next start may find them.
        if log.failed or log.start <= offset < log.end:
            schedule.restore(offset, due_ns)
    return [(topic, partition, base_offset, runs) for base_offset, runs in found.done]


def _cut_schedules(kernel: Kernel, replay: _Replay, topic: Topic) -> None:
    """Forget what was noted about scheduled messages that a power loss took: others get their offsets.

    Not before groups have been told of releases: one that is in the partition may be of a message that is not in the
    schedule's log any more.
    """
    for partition in topic.partitions:
        if partition.schedule is None:
            continue
        log = partition.schedule.log
        if not log.failed and replay.truncate_schedule(partition.number, log.end):
            kernel.journal(entries.truncated(log.number, log.end))
            replay.cut = True


def _build_group(catalogue: Catalogue, topic: Topic, spec: _Group) -> None:
    kind = GroupKind(spec.kind)
    starts = list(spec.starts)
    group = catalogue.build_group(topic, spec.name, kind, group_id=spec.id, starts=starts, ephemeral=False)
    group.paused = spec.paused
    if isinstance(group, WorkGroup):
        for number, window in spec.windows.items():
            for first, end, attempts in spec.ahead.get(number, ()):
                # The group has stepped over it, and nothing that it settled since has said so.
                if attempts == LEFT_OUT and first < window.next:
                    window.restore_settled(first, min(end, window.next) - 1)
        group.restore(spec.windows, spec.due, spec.ahead)
        group.schedule_floors = spec.schedule_floors
        group.set_policy(GroupPolicy.of(spec.policy))
        group.counted_from = [partition.log.readable for partition in topic.partitions]
    elif isinstance(group, CursorGroup):
        for partition in topic.partitions:
            group.committed[partition.index] = spec.cursors.get(partition.number, starts[partition.index])
