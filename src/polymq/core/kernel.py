"""What groups and schedules share: time, chance, the journal, and the list of who has something to do this turn."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from polymq.core.deadlines import Timers

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.group import Group
    from polymq.core.ports import Clock, Random, Store
    from polymq.core.topic import Topic
    from polymq.core.work_group import WorkGroup

__all__ = ["COPY_ROOM_PER_TURN", "EFFORT_PER_TURN", "Kernel", "Moving"]

# About a millisecond: four batches, or a hundred look-ups.
EFFORT_PER_TURN: Final = 64
# Bytes that are appended anew because a consumer said so: it says it in a hundred, and they are written in this very turn. 20 ms.
COPY_ROOM_PER_TURN: Final = 4 * 1024 * 1024


class Moving(Protocol):
    """Who has appended something before it settles something else."""

    def settle(self) -> bool:
        """Settle what may be settled by now; True if nothing is left to do."""


class Kernel:
    """One per broker. `leases` runs on the monotonic clock, `schedules` on the wall clock."""

    def __init__(self, store: Store, clock: Clock, random: Random, *, slots_dense: int, latency_window_ns: int = 0) -> None:
        self.store = store
        self.random = random
        self.slots_dense = slots_dense
        # 0: how long messages take is not measured.
        self.latency_window_ns = latency_window_ns
        self.leases = Timers()
        self.schedules = Timers()
        self.monotonic_ns = clock.monotonic_ns
        self.wall_ns = clock.wall_ns
        self.journal = store.journal.append
        # What releases of deferred messages may still do in this turn, all partitions together (`schedule.py`).
        self.effort = EFFORT_PER_TURN
        # What `Renewing` may still append in this turn, all groups together.
        self.copy_room = COPY_ROOM_PER_TURN
        # Dictionaries stand in for ordered sets: the same input always gives the same order. `awake` is a queue.
        self.awake: OrderedDict[Group, None] = OrderedDict()
        self.fresh: dict[Topic, None] = {}
        self.waiting_for_disk: dict[Group, None] = {}
        self.with_settled: dict[WorkGroup, None] = {}
        # Who waits for dead letters to be durable, and whether something was appended that only the next commit writes.
        self.moving: dict[Moving, None] = {}
        self.uncommitted = False
        # Give the topic of a name in the namespace of another topic, made like that one if it is not there; set by the
        # broker. Raises Refusal.
        self.make_topic: Callable[[Topic, str], Topic] = _no_topics
        # Whether what a consumer holds comes back as soon as it leaves, where its group's policy does not say.
        self.requeue_on_close = False

    def moves(self, moving: Moving) -> None:
        """Ask somebody each turn whether what it has appended is durable, and have the next commit soon."""
        self.moving[moving] = None
        self.uncommitted = True

    def wake(self, group: Group) -> None:
        """Let a group deliver in this turn's dispatch."""
        self.awake[group] = None

    def appended(self, topic: Topic) -> None:
        """Let a topic's groups deliver once readers see what was appended."""
        self.fresh[topic] = None

    def wait_for_disk(self, group: Group) -> None:
        """Let a group try again in the next dispatch."""
        self.waiting_for_disk[group] = None

    def has_settled(self, group: WorkGroup) -> None:
        """Let a group write what was settled to the journal at the end of the turn."""
        self.with_settled[group] = None


def _no_topics(like: Topic, name: str) -> Topic:
    raise AssertionError(f"nobody makes {name} beside {like.name}")
