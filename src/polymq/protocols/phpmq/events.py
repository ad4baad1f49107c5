"""What a client asked for, as the decoder hands it to the gateway: the only thing that passes between the two.

Runs of like messages for one queue are one event, so the hot ones (`Publish`, `Settle`) stand for thousands. Names of queues
are bytes as sent; ids are message ids of the core. What is not ours among the ids is only counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polymq.protocols.phpmq.problems import Problem
    from polymq.wire.slices import MessageBatch

__all__ = ["Consume", "Event", "ForeignId", "Publish", "Remove", "Requeue", "Settle", "Violation"]


@dataclass(slots=True)
class Publish:
    """A run of 001 for one queue, all of one dialect. `ttls`: the seconds of each by its place in the batch's arrays, None if all are 0.

    The batch is valid as long as the view that was fed. Not frozen, because making a frozen object takes three times as long.
    """

    queue: bytes
    batch: MessageBatch
    ttls: memoryview | None
    legacy: bool


@dataclass(slots=True)
class Settle:
    """A run of 004 for one queue: `ids[first + i]` for i < `count`, an int64 memoryview valid until the next feed; `foreign` were not ours."""

    queue: bytes
    ids: memoryview
    first: int
    count: int
    foreign: int


@dataclass(frozen=True, slots=True)
class Consume:
    """002: from here on at most `count` messages of this queue out at a time, in place of what was said before."""

    queue: bytes
    count: int


@dataclass(frozen=True, slots=True)
class Requeue:
    """005: to the end of the queue, with a TTL that begins now."""

    queue: bytes
    id: int
    ttl_s: int


@dataclass(frozen=True, slots=True)
class Remove:
    """006: away, whatever its TTL."""

    queue: bytes
    id: int


@dataclass(frozen=True, slots=True)
class ForeignId:
    """005 or 006 of an id that this server cannot have minted."""

    queue: bytes


@dataclass(frozen=True, slots=True)
class Violation:
    """The peer broke the protocol; the connection is closed without a word. Always the last event."""

    problem: Problem
    text: str


Event = Publish | Settle | Consume | Requeue | Remove | ForeignId | Violation
