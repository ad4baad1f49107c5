"""The core's entries in the store's journal: one kind byte, then fixed fields, little-endian.

    32 catalogue   JSON object, `op` says what: topics, groups, pauses, partition numbers
    33 settled     u32 group, u32 partition, then (first i64, last i64) pairs
    34 requeued    u32 group, u32 partition, i64 offset, u32 attempts, i64 due (ns since 1970; 0 = at once)
    35 emptied     u32 group, u32 partition, i64 end: everything below is settled
    36 scheduled   u32 partition, i64 first offset in its schedule log, u32 count, i64 due
    37 released    u32 partition, i64 base offset that the messages will have, then i64 schedule offsets (not written any more)
    38 lease state u32 group, u32 partition, i64 next, i64 floor: everything between is settled but for what 41 says
    39 schedule state  u32 partition: nothing waits but for what 44 says
    40 cursor      u32 group, u32 partition, i64 offset
    41 unsettled   u32 group, u32 partition, then (offset i64, attempts i64) pairs
    42 dropped     u32 group, u32 partition, i64 first, i64 end: left out before the group came to them
    43 truncated   u32 partition, i64 end: a power loss took what was behind; nobody has settled anything there
    44 waiting     u32 partition, then (due i64, schedule offset i64) pairs
    45 deferred    u32 group, then (due i64, message id i64) pairs
    46 schedule floor  u32 group, u32 partition, i64 offset: what was scheduled before it is not for this group
    50 released runs   u32 partition, i64 base offset of the messages, then (first schedule offset i64, count i64) pairs
    51 cancelled   u32 partition, i64 schedule offset: it will not be appended
    52 rewound     u32 group, u32 partition, i64 offset: the group starts anew from there

Entries are facts, replayed in order by `recovery.py`; docs/DATA_FILES.md describes the frames around them. Kinds are
never reused.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CANCELLED",
    "CATALOGUE",
    "CURSOR",
    "DEFERRED",
    "DROPPED",
    "EMPTIED",
    "LEASE_STATE",
    "RELEASED",
    "RELEASED_RUNS",
    "REQUEUED",
    "REWOUND",
    "SCHEDULED",
    "SCHEDULE_FLOOR",
    "SCHEDULE_STATE",
    "SETTLED_RANGES",
    "TRUNCATED",
    "UNSETTLED",
    "WAITING",
    "cancelled",
    "catalogue",
    "cursor",
    "deferred",
    "dropped",
    "emptied",
    "integers",
    "lease_state",
    "released_runs",
    "requeued",
    "rewound",
    "schedule_floor",
    "schedule_state",
    "scheduled",
    "settled",
    "truncated",
    "unsettled",
    "waiting",
]

CATALOGUE: Final = 32
SETTLED_RANGES: Final = 33
REQUEUED: Final = 34
EMPTIED: Final = 35
SCHEDULED: Final = 36
RELEASED: Final = 37
LEASE_STATE: Final = 38
SCHEDULE_STATE: Final = 39
CURSOR: Final = 40
UNSETTLED: Final = 41
DROPPED: Final = 42
TRUNCATED: Final = 43
WAITING: Final = 44
DEFERRED: Final = 45
SCHEDULE_FLOOR: Final = 46
RELEASED_RUNS: Final = 50
CANCELLED: Final = 51
REWOUND: Final = 52

GROUP_PARTITION: Final = struct.Struct("<BII")
REQUEUED_FORM: Final = struct.Struct("<BIIqIq")
EMPTIED_FORM: Final = struct.Struct("<BIIq")
SCHEDULED_FORM: Final = struct.Struct("<BIqIq")
RELEASED_FORM: Final = struct.Struct("<BIq")
LEASE_STATE_FORM: Final = struct.Struct("<BIIqq")
SCHEDULE_STATE_FORM: Final = struct.Struct("<BI")


def integers(values: Sequence[int]) -> bytes:
    """Encode 64-bit integers side by side."""
    return struct.pack(f"<{len(values)}q", *values)


def catalogue(op: str, **fields: Any) -> bytes:
    """Encode a change of the catalogue: rare, so JSON."""
    return bytes([CATALOGUE]) + orjson.dumps({"op": op, **fields})


def settled(group: int, partition: int, ranges: bytes) -> bytes:
    """Encode what a group settled in one turn; `ranges` as `LeaseWindow.drain` gives it."""
    return GROUP_PARTITION.pack(SETTLED_RANGES, group, partition) + ranges


def requeued(group: int, partition: int, offset: int, *, attempts: int, due_ns: int) -> bytes:
    """Encode that a message was given back; `due_ns` 0 means that it waits for redelivery at once."""
    return REQUEUED_FORM.pack(REQUEUED, group, partition, offset, attempts, due_ns)


def emptied(group: int, partition: int, end: int) -> bytes:
    """Encode that a group was emptied up to an offset."""
    return EMPTIED_FORM.pack(EMPTIED, group, partition, end)


def scheduled(partition: int, first: int, count: int, due_ns: int) -> bytes:
    """Encode that messages were put into a partition's schedule."""
    return SCHEDULED_FORM.pack(SCHEDULED, partition, first, count, due_ns)


def released_runs(partition: int, base_offset: int, runs: bytes) -> bytes:
    """Encode that scheduled messages were appended at `base_offset`; `runs` as `transfer.runs_of` gives them."""
    return RELEASED_FORM.pack(RELEASED_RUNS, partition, base_offset) + runs


def cancelled(partition: int, offset: int) -> bytes:
    """Encode that a scheduled message is not to be appended."""
    return RELEASED_FORM.pack(CANCELLED, partition, offset)


def rewound(group: int, partition: int, offset: int) -> bytes:
    """Encode that a group was set to an offset, whatever it has settled behind it."""
    return EMPTIED_FORM.pack(REWOUND, group, partition, offset)


def lease_state(group: int, partition: int, *, next_offset: int, floor: int) -> bytes:
    """Encode a group's place in one partition; `unsettled` entries follow."""
    return LEASE_STATE_FORM.pack(LEASE_STATE, group, partition, next_offset, floor)


def unsettled(group: int, partition: int, pairs: bytes) -> bytes:
    """Encode what a group was given and has not settled; pairs as `LeaseWindow.unsettled_pairs` gives them."""
    return GROUP_PARTITION.pack(UNSETTLED, group, partition) + pairs


def deferred(group: int, pairs: bytes) -> bytes:
    """Encode when deferred messages of a group are due; pairs as `DueHeap.pairs` gives them."""
    return SCHEDULE_STATE_FORM.pack(DEFERRED, group) + pairs


def schedule_state(partition: int) -> bytes:
    """Encode that what waits in a partition's schedule is listed anew; `waiting` entries follow."""
    return SCHEDULE_STATE_FORM.pack(SCHEDULE_STATE, partition)


def waiting(partition: int, pairs: bytes) -> bytes:
    """Encode what waits in a partition's schedule; pairs as `DueHeap.pairs` gives them."""
    return SCHEDULE_STATE_FORM.pack(WAITING, partition) + pairs


def cursor(group: int, partition: int, offset: int) -> bytes:
    """Encode where a cursor group will go on reading."""
    return EMPTIED_FORM.pack(CURSOR, group, partition, offset)


def dropped(group: int, partition: int, first: int, end: int) -> bytes:
    """Encode that a group will step over offsets [first, end)."""
    return LEASE_STATE_FORM.pack(DROPPED, group, partition, first, end)


def truncated(partition: int, end: int) -> bytes:
    """Encode that a partition ends at `end` after a recovery, and what was noted beyond does not count."""
    return RELEASED_FORM.pack(TRUNCATED, partition, end)


def schedule_floor(group: int, partition: int, offset: int) -> bytes:
    """Encode that a group was emptied while messages were scheduled."""
    return EMPTIED_FORM.pack(SCHEDULE_FLOOR, group, partition, offset)
