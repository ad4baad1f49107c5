"""From the journal's entries to a catalogue: what the broker does before it serves anybody.

Entries are applied in order to plain collections first; topics and groups are built at the end, when the logs are
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
from polymq.core.cursor_group import CursorGroup
from polymq.core.group import GroupKind
from polymq.core.lease_window import LeaseWindow
from polymq.core.schedule import Schedule
from polymq.core.topic import Partition, Topic
from polymq.core.work_group import WorkGroup
from polymq.errors import CorruptRecord

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polymq.core.catalogue import Catalogue
    from polymq.core.kernel import Kernel

__all__ = ["recover"]


@dataclass(slots=True)
class _Topic:
    namespace: str
    name: str
    numbers: list[int]
    sync: bool
    ephemeral: bool
    paused: bool = False
    held: list[int | None] = field(default_factory=list)
    groups: dict[int, _Group] = field(default_factory=dict)


@dataclass(slots=True)
class _Group:
    id: int
    topic: tuple[str, str]
    name: str
    kind: str
    starts: list[int]
    paused: bool = False
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
        self.schedules: dict[int, int] = {}
        self.scheduled: dict[int, dict[int, int]] = {}
        # Released offsets of a partition's schedule: (offset that the message gets in the partition, due time).
        self.releases: dict[int, dict[int, tuple[int, int]]] = {}
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
        getattr(self, "op_" + change.pop("op"))(**change)

    def op_numbers(self, *, next_number: int, next_group_id: int) -> None:
        self.next_number = max(self.next_number, next_number)
        self.next_group_id = max(self.next_group_id, next_group_id)

    def op_topic_created(self, *, namespace: str, name: str, numbers: list[int], sync: bool, ephemeral: bool) -> None:
        held: list[int | None] = [0] * len(numbers)
        topic = _Topic(namespace, name, numbers, sync, ephemeral, held=held)
        self.topics[namespace, name] = topic
        self.owners.update(dict.fromkeys(numbers, topic))
        self.next_number = max(self.next_number, *(number + 1 for number in numbers))

    def op_topic_deleted(self, *, namespace: str, name: str) -> None:
        topic = self.topics.pop((namespace, name), None)
        if topic is None:
            return
        for number in topic.numbers:
            del self.owners[number]
        for group_id in topic.groups:
            self.groups.pop(group_id, None)

    def op_topic_held(self, *, namespace: str, name: str, paused: bool, held: list[int | None]) -> None:
        topic = self.topics[namespace, name]
        topic.paused = paused
        topic.held = held

    def op_schedule_created(self, *, partition: int, number: int) -> None:
        self.schedules[partition] = number
        self.next_number = max(self.next_number, number + 1)

    def op_group_created(self, **fields: Any) -> None:
        topic = (fields.pop("namespace"), fields.pop("topic"))
        group = _Group(topic=topic, **fields)
        self.groups[group.id] = group
        if topic in self.topics:
            self.topics[topic].groups[group.id] = group
        self.next_group_id = max(self.next_group_id, group.id + 1)

    def op_group_deleted(self, *, id: int) -> None:  # noqa: A002
        group = self.groups.pop(id, None)
        if group is not None and group.topic in self.topics:
            self.topics[group.topic].groups.pop(id, None)

    def op_group_paused(self, *, id: int, paused: bool) -> None:  # noqa: A002
        if id in self.groups:
            self.groups[id].paused = paused

    # -- groups ----------------------------------------------------------------------------------------------------

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
        group = self.groups.get(group_id)
        if group is not None:
            self.window(group, partition).restore_ranges(entry[entries.GROUP_PARTITION.size :])

    def requeued(self, entry: bytes) -> None:
        _kind, group_id, partition, offset, attempts, due_ns = entries.REQUEUED_FORM.unpack(entry)
        group = self.groups.get(group_id)
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
        group = self.groups.get(group_id)
        if group is not None:
            window = self.window(group, partition)
            window.empty(max(end, window.next))
            group.ahead[partition] = [row for row in group.ahead.get(partition, []) if row[1] > end]

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
        _kind, partition, end = entries.RELEASED_FORM.unpack(entry)
        self.truncate(partition, end)

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
        for group in topic.groups.values():
            changed = _truncate_group(group, partition, index, end) or changed
        return changed

    # -- schedules -------------------------------------------------------------------------------------------------

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
        waiting = self.scheduled.setdefault(partition, {})
        released = self.releases.setdefault(partition, {})
        offsets = struct.iter_unpack("<q", entry[entries.RELEASED_FORM.size :])
        for index, (offset,) in enumerate(offsets):
            if offset in waiting:
                released[offset] = (base_offset + index, waiting.pop(offset))

    def schedule_state(self, entry: bytes) -> None:
        _kind, partition = entries.SCHEDULE_STATE_FORM.unpack(entry)
        self.scheduled[partition] = {}
        self.releases.pop(partition, None)

    def waiting(self, entry: bytes) -> None:
        _kind, partition = entries.SCHEDULE_STATE_FORM.unpack_from(entry)
        pairs = struct.iter_unpack("<qq", entry[entries.SCHEDULE_STATE_FORM.size :])
        self.scheduled[partition].update((offset, due_ns) for due_ns, offset in pairs)


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
}


def recover(kernel: Kernel, catalogue: Catalogue, journal: Iterable[bytes]) -> None:
    """Rebuild the catalogue from the journal; raises CorruptRecord.

    Ephemeral topics do not outlive a process: their logs are deleted. Cost: O(entries since the last snapshot).
    """
    replay = _Replay(kernel.slots_dense)
    for entry in journal:
        replay.apply(entry)
    catalogue.next_number = replay.next_number
    catalogue.next_group_id = replay.next_group_id
    for spec in replay.topics.values():
        if spec.ephemeral:
            _delete(kernel, replay, spec)
        else:
            topic = _build_topic(kernel, replay, spec)
            catalogue.topics[spec.namespace, spec.name] = topic
            if not topic.settled_to_readers:
                kernel.appended(topic)  # what was found unsynced becomes readable once it is synced
    for group in replay.groups.values():
        built = catalogue.topics.get(group.topic)
        if built is not None:
            _build_group(catalogue, built, group)
    for topic in catalogue.topics.values():
        if not topic.has_work_group and not all(partition.held_from is not None for partition in topic.partitions):
            # Its groups did not outlive the process: what comes now is for the first that will be.
            topic.hold()
            catalogue.journal_held(topic)
        elif topic.has_work_group and topic.held_anywhere and not topic.paused:
            # The process died while it kept the messages of a new topic until all of its groups were there.
            topic.release()
            catalogue.journal_held(topic)


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
    for partition in partitions:
        if replay.truncate(partition.number, partition.log.end):
            kernel.journal(entries.truncated(partition.number, partition.log.end))
        partition.held_from = spec.held[partition.index]
        if partition.number in replay.schedules:
            _build_schedule(kernel, replay, topic, partition)
    return topic


def _build_schedule(kernel: Kernel, replay: _Replay, topic: Topic, partition: Partition) -> None:
    """Restore what waits, including what was about to be released when the process died."""
    log = kernel.store.open_log(replay.schedules[partition.number], sync=topic.sync)
    schedule = Schedule(kernel, topic, partition, log)
    partition.schedule = schedule
    waiting = replay.scheduled.get(partition.number, {})
    for offset, (target, due_ns) in replay.releases.get(partition.number, {}).items():
        if target >= partition.log.end:
            waiting[offset] = due_ns
            kernel.journal(entries.scheduled(partition.number, offset, 1, due_ns))
    for offset, due_ns in waiting.items():
        if log.start <= offset < log.end:
            schedule.restore(offset, due_ns)


def _build_group(catalogue: Catalogue, topic: Topic, spec: _Group) -> None:
    kind = GroupKind(spec.kind)
    starts = list(spec.starts)
    group = catalogue.build_group(topic, spec.name, kind, group_id=spec.id, starts=starts, ephemeral=False)
    group.paused = spec.paused
    if isinstance(group, WorkGroup):
        group.restore(spec.windows, spec.due, spec.ahead)
        group.schedule_floors = spec.schedule_floors
        group.counted_from = [partition.log.readable for partition in topic.partitions]
    elif isinstance(group, CursorGroup):
        for partition in topic.partitions:
            group.committed[partition.index] = spec.cursors.get(partition.number, starts[partition.index])
