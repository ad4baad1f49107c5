"""What groups and schedules share: time, chance, the journal, and the list of who has something to do this turn."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.core.deadlines import Timers

if TYPE_CHECKING:
    from polymq.core.group import Group
    from polymq.core.ports import Clock, Random, Store
    from polymq.core.topic import Topic
    from polymq.core.work_group import WorkGroup

__all__ = ["Kernel"]


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
        # Dictionaries stand in for ordered sets: the same input always gives the same order.
        self.awake: dict[Group, None] = {}
        self.fresh: dict[Topic, None] = {}
        self.waiting_for_disk: dict[Group, None] = {}
        self.with_settled: dict[WorkGroup, None] = {}

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
