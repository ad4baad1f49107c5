"""What the three ways to consume have in common: a group's name, its consumers, and being woken to deliver."""

from __future__ import annotations

import enum
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from polymq.core.deadlines import DueHeap

if TYPE_CHECKING:
    from polymq.core.leases import Run
    from polymq.core.ports import Listener
    from polymq.core.session import Session
    from polymq.core.topic import Partition, Topic
    from polymq.wire.slices import Slice

__all__ = ["Delivery", "Group", "GroupKind", "Subscription"]


class GroupKind(enum.Enum):
    """How a group consumes (docs/ARCHITECTURE.md)."""

    WORK = "work"
    LIVE = "live"
    CURSOR = "cursor"


class Subscription:
    """One consumer of one group.

    `credit` is how many messages it may have out; `leased` how many it has. `held` is set while its connection
    cannot take more output. `owner` is its number within the group, never reused. `lease_ns` is how long it may
    keep a message; `sample_percent` 0 means everything, else that share (plus one) of the messages.
    """

    __slots__ = (
        "armed_ns",
        "closing",
        "credit",
        "delivered",
        "group",
        "held",
        "lease_ns",
        "leased",
        "listener",
        "open",
        "owner",
        "requeued",
        "runs",
        "runs_pruned_at",
        "sample_percent",
        "session",
        "settled",
        "touched",
        "touches",
    )

    def __init__(self, group: Group, listener: Listener, *, owner: int, lease_ns: int, sample_percent: int) -> None:
        self.group = group
        self.listener = listener
        self.owner = owner
        self.lease_ns = lease_ns
        self.sample_percent = sample_percent
        self.credit = 0
        self.leased = 0
        self.delivered = 0
        self.settled = 0
        self.requeued = 0
        self.held = False
        self.open = True
        self.closing = False
        self.armed_ns: int | None = None
        self.runs: deque[Run] = deque()
        self.runs_pruned_at = 1024
        # Messages whose lease was extended: (deadline, latest possible deadline) by id, and when to look at each.
        self.touched: dict[int, tuple[int, int]] = {}
        self.touches = DueHeap()
        self.session: Session | None = None

    @property
    def ready(self) -> bool:
        """Whether it can be handed something now."""
        return self.leased < self.credit and not self.held

    def fire(self, now_ns: int) -> None:
        """A lease may have run out: the group looks."""
        self.group.expire(self, now_ns)


@dataclass(slots=True)
class Delivery:
    """Records for one consumer, all with the same attempt number. The slice is valid during this turn's dispatch."""

    subscription: Subscription
    slice: Slice
    attempts: int


class Group(Protocol):
    """What the broker asks of a group of any kind."""

    id: int
    name: str
    topic: Topic
    kind: GroupKind
    paused: bool
    ephemeral: bool
    consumers: list[Subscription]

    def dispatch(self, deliveries: list[Delivery]) -> bool:
        """Hand out what can be handed out, up to a turn's share; True if there is more at once."""

    def subscribe(self, listener: Listener, *, lease_ns: int, sample_percent: int) -> Subscription: ...
    def unsubscribe(self, subscription: Subscription) -> None: ...
    def expire(self, subscription: Subscription, now_ns: int) -> None: ...
    def empty(self) -> None: ...
    def released(self, partition: Partition, base_offset: int, runs: bytes) -> None:
        """Hear that scheduled messages were appended at `base_offset`; `runs` says which of the schedule's log (`Schedule`)."""

    def grown(self, count: int) -> None:
        """Take note that the topic has so many partitions more."""

    def first_needed(self, partition_index: int) -> int:
        """Give the first offset of a partition that this group may still want."""
