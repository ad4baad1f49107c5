"""After a crash: which deferred messages are in their partition, and which still wait.

Journal and partition reach the disk in any order, so either may know of a release that the other has lost. Up to the
last checkpoint the journal is right: whatever a checkpoint vouches for was noted before it. Behind it the partition is
right: the batches there say themselves what they hold. Pure functions; `recovery.py` acts on the answer.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.core import journal_entries
from polymq.core.schedule import expand_runs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from polymq.core.ports import Log

__all__ = ["Found", "reconcile"]

_PAIRS_PER_ENTRY: Final = 4096
_OFFSET_END: Final = 1 << 63


@dataclass(slots=True)
class Found:
    """What the journal did not know. `done`: (first offset in the partition, runs of offsets in the schedule).

    `kept` are the releases that may be lost yet: in the log behind its last checkpoint, or into a log that cannot be
    read as far. Where it ends is for a later start to find out.
    """

    done: list[tuple[int, bytes]] = field(default_factory=list)
    kept: list[tuple[int, bytes]] = field(default_factory=list)
    # Due time by offset in the schedule.
    undone: dict[int, int] = field(default_factory=dict)

    def entries(self, partition: int) -> Iterator[bytes]:
        """Give the journal entries that tell it."""
        rows = [number for offset, due_ns in self.undone.items() for number in (due_ns, offset)]
        for first in range(0, len(rows), 2 * _PAIRS_PER_ENTRY):
            yield journal_entries.waiting(partition, journal_entries.integers(rows[first : first + 2 * _PAIRS_PER_ENTRY]))
        for base_offset, runs in self.done:
            yield journal_entries.released_runs(partition, base_offset, runs)


def reconcile(log: Log, schedule_log: Log, waiting: dict[int, int], releases: Mapping[int, tuple[int, int, bool]]) -> Found:
    """Correct `waiting` (due time by schedule offset) by what is in the log.

    `releases` is what the journal says was appended: (offset in the partition, due time, whether its batch has a note).
    """
    found = Found()
    noted = {offset: target for target, offset in _noted(log, schedule_log)}
    kept = {offset: target for offset, target in noted.items() if target >= log.durable}
    for offset, (target, due_ns, has_note) in releases.items():
        if target < log.durable or offset in noted:
            continue
        if log.failed or (not has_note and target < log.end):
            kept[offset] = target
        else:
            found.undone[offset] = due_ns
    # Offsets behind the end of the schedule are for other messages by the time of the next start.
    there = schedule_log.end if not schedule_log.failed else _OFFSET_END
    found.kept = _stretches(sorted((target, offset) for offset, target in kept.items() if offset < there))
    lost = [(target, offset) for offset, target in noted.items() if waiting.pop(offset, None) is not None]
    found.done = _stretches(lost)
    waiting.update(found.undone)
    return found


def _noted(log: Log, schedule_log: Log) -> Iterator[tuple[int, int]]:
    """Give (offset in the partition, offset in the schedule) of what the batches behind the last checkpoint say.

    A power loss may take the end of the schedule's log while the release stays; other messages get those offsets then,
    in a later epoch. A release from before that is not theirs. (The epoch that has just begun has no messages yet.)
    """
    epochs = [(epoch, first) for epoch, first in schedule_log.epochs if first < schedule_log.end] or [(0, 0)]
    firsts = [first for _epoch, first in epochs]
    for base_offset, epoch, note in log.notes:
        for index, offset in enumerate(expand_runs(note)):
            at = bisect_right(firsts, offset) - 1
            if at >= 0 and epochs[at][0] <= epoch:
                yield base_offset + index, offset


def _stretches(pairs: list[tuple[int, int]]) -> list[tuple[int, bytes]]:
    """Put pairs that go up together into one (first of the one kind, run of the other)."""
    rows: list[list[int]] = []
    for target, offset in pairs:
        if rows and rows[-1][0] + rows[-1][2] == target and rows[-1][1] + rows[-1][2] == offset:
            rows[-1][2] += 1
        else:
            rows.append([target, offset, 1])
    return [(target, journal_entries.integers([offset, count])) for target, offset, count in rows]
