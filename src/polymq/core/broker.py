"""The root of the core: what the pump calls every turn.

`tick` lets time pass, the store commits, `dispatch` hands out. Everybody else talks to a `Session`.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from polymq.core import followers
from polymq.core.access import ByPermissions
from polymq.core.bounds import shed
from polymq.core.broker_statistics import register_statistics
from polymq.core.catalogue import Catalogue
from polymq.core.group import GroupKind
from polymq.core.kernel import COPY_ROOM_PER_TURN, EFFORT_PER_TURN, Kernel
from polymq.core.left_out import LeftOut
from polymq.core.live import Live
from polymq.core.prepared import Prepared
from polymq.core.recovery import recover
from polymq.core.session import Session
from polymq.core.settings import CoreSettings
from polymq.core.statistics import Registry
from polymq.core.work_group import WorkGroup
from polymq.errors import Refusal, RefusalCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from polymq.core.access import Authorizer, Principal
    from polymq.core.followers import CatalogueListener
    from polymq.core.group import Delivery
    from polymq.core.live import LiveFeeder
    from polymq.core.ports import Clock, Random, Store
    from polymq.core.topic import Topic

__all__ = ["Broker"]

# Retention looks at every topic once per round; a second's step looks at so many topics.
_HOUSEKEEPING_NS: Final = 1_000_000_000
_TOPICS_PER_STEP: Final = 500
# Looks at given-back messages in a step, of all groups together: 10 ms, if all of it has to be read for.
_SWEEP_EFFORT_PER_STEP: Final = 16_384
# What one group gets at least, so that a step does not end in looks of one message each.
_SWEEP_EFFORT_LEAST: Final = 256
# Deliveries after which the other groups have to wait for the next turn, in order: about a millisecond, if each goes to
# another connection. Whoever waits gets more at once, and publishers get their answers meanwhile. With 1,000 topics of
# five groups under load 128 gave 11,000 messages/s, 32 gave 28,000 and 16 gave 40,000, for 2.5, 8 and 20 at once.
_DELIVERIES_PER_TURN: Final = 16
# More than any disk has.
_NO_LIMIT: Final = 1 << 62


class Broker:
    """Topics, groups and time. Synchronous; called from one thread."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        random: Random,
        *,
        authorizer: Authorizer | None = None,
        settings: CoreSettings | None = None,
        disk_bytes: int = 0,
    ) -> None:
        self.settings = settings or CoreSettings()
        self.store = store
        self.authorizer: Authorizer = authorizer or ByPermissions()
        self.statistics = Registry()
        self.left_out = LeftOut()
        self.kernel = Kernel(
            store,
            clock,
            random,
            slots_dense=self.settings.slots_dense,
            latency_window_ns=self.settings.latency_window_ns if self.settings.latency_quantiles else 0,
        )
        self.catalogue = Catalogue(self.kernel)
        self.prepared = Prepared(self.kernel, self.catalogue, expiry_ns=self.settings.prepared_expiry_ns)
        self.live = Live(random)
        self.kernel.make_topic = self._make_topic
        self.kernel.requeue_on_close = self.settings.requeue_on_close
        # Who brings what the log has to live listeners.
        self.feeders: list[LiveFeeder] = []
        # Says of a topic how long messages stay while no group is there to need them; 0: as long as there is room, as without it.
        self.unclaimed_age_ns: Callable[[Topic], int] | None = None
        self.sessions: dict[Session, None] = {}
        self.stopping = False
        self.armed_ns: int | None = None
        self._disk_bytes = disk_bytes
        self._to_look_at: list[Topic] = []
        self._to_sweep: OrderedDict[WorkGroup, None] = OrderedDict()
        register_statistics(self)
        self.left_out.register(self.statistics)

    def start(self) -> None:
        """Take over what the data folder holds; raises StoreError."""
        recover(self.kernel, self.catalogue, self.prepared, self.store.replay())
        self.store.forget_others(self.catalogue.next_number)
        self.kernel.leases.arm(self, self.kernel.monotonic_ns() + _HOUSEKEEPING_NS)

    def session(self, principal: Principal) -> Session:
        """Open the only door. The caller ends it with `Session.close`."""
        session = Session(self, principal)
        self.sessions[session] = None
        return session

    def follow(self, listener: CatalogueListener) -> None:
        """Tell `listener` of every topic and group that comes or goes from here on."""
        self.catalogue.followers.add(listener)

    def unfollow(self, listener: CatalogueListener) -> None:
        """Tell `listener` nothing more."""
        self.catalogue.followers.remove(listener)

    def tell(self, listener: CatalogueListener) -> None:
        """Tell `listener` what there is, as if it were being created now."""
        followers.tell(listener, self.catalogue.topics.values())

    def _make_topic(self, like: Topic, name: str) -> Topic:
        """Give a topic in the namespace of another, made with its durability; raises Refusal."""
        found = self.catalogue.topics.get((like.namespace, name))
        if found is not None:
            return found
        if len(self.catalogue.topics) >= self.settings.topics_max:
            raise Refusal(RefusalCode.LIMIT_REACHED, f"there are {self.settings.topics_max} topics already")
        return self.catalogue.create_topic(like.namespace, name, partitions=1, sync=like.sync, ephemeral=False)

    # -- a turn ----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        """Let time pass: leases end, deferred messages fall due; then the turn's settles go to the journal."""
        kernel = self.kernel
        kernel.uncommitted = False
        kernel.copy_room = COPY_ROOM_PER_TURN
        if self.live.is_busy:
            self.live.tick()
        for moving in list(kernel.moving):  # one may have another begin
            if moving.settle():
                del kernel.moving[moving]
        kernel.leases.fire(kernel.monotonic_ns())
        if kernel.schedules.due_ns() is not None:
            kernel.effort = EFFORT_PER_TURN
            kernel.schedules.fire(kernel.wall_ns())
        if kernel.with_settled:
            for group in kernel.with_settled:
                group.journal_settled()
            kernel.with_settled.clear()
        if kernel.fresh:
            for feeder in self.feeders:
                feeder.note()
        journal = self.store.journal
        if journal.wants_snapshot:
            journal.begin_snapshot(self._units())
        if journal.snapshotting:
            # Here everything that has changed is journaled, so what a unit says is true behind it.
            journal.continue_snapshot()

    def _units(self) -> Iterator[Iterator[bytes]]:
        yield from self.catalogue.units()
        yield from self.prepared.units()

    def dispatch(self) -> list[Delivery]:
        """Hand out what can be handed out now. The slices are valid until the next turn's reads."""
        kernel = self.kernel
        for feeder in self.feeders:
            feeder.show()
        if kernel.fresh:
            for topic in list(kernel.fresh):
                for group in topic.groups.values():
                    kernel.awake[group] = None
                if topic.policy.bounded and shed(topic):
                    self.catalogue.journal_held(topic)
                if topic.settled_to_readers:
                    del kernel.fresh[topic]
        if kernel.waiting_for_disk:
            kernel.awake.update(kernel.waiting_for_disk)
            kernel.waiting_for_disk.clear()
        if not kernel.awake:
            return []
        awake = kernel.awake
        deliveries: list[Delivery] = []
        for _ in range(len(awake)):
            group, _ = awake.popitem(last=False)
            if group.dispatch(deliveries):
                awake[group] = None
            if len(deliveries) >= _DELIVERIES_PER_TURN:
                break
        return deliveries

    def due_ns(self) -> int | None:
        """Give the monotonic time by which the next turn must run; in the past if there is work at once."""
        kernel = self.kernel
        now_ns = kernel.monotonic_ns()
        if kernel.awake or kernel.uncommitted or self.store.journal.snapshotting or self.live.is_busy:
            return now_ns
        if self.feeders and any(feeder.is_busy for feeder in self.feeders):
            return now_ns
        due_ns = kernel.leases.due_ns()
        wall_due_ns = kernel.schedules.due_ns()
        if wall_due_ns is not None:
            in_monotonic_ns = now_ns + max(0, wall_due_ns - kernel.wall_ns())
            due_ns = in_monotonic_ns if due_ns is None else min(due_ns, in_monotonic_ns)
        return due_ns

    def stop(self) -> None:
        """Take no more; the pump settles what is under way, then closes the store."""
        self.stopping = True

    def snapshot(self) -> None:
        """Write everything that the journal stands for anew, attempts of what is out included: before a clean stop."""
        self.tick()
        self.store.journal.snapshot(self._units())

    # -- housekeeping ----------------------------------------------------------------------------------------------

    def fire(self, now_ns: int) -> None:
        """Look at the disk, and at some topics: what every group has finished with may go."""
        share = self._disk_bytes * self.settings.retention_disk_share
        self.store.look_after_room(int(share) or _NO_LIMIT)
        if not self._to_look_at:
            self._to_look_at = list(self.catalogue.topics.values())
        for topic in self._to_look_at[:_TOPICS_PER_STEP]:
            if (topic.namespace, topic.name) in self.catalogue.topics:
                self._expire(topic)
                self._retain(topic)
        del self._to_look_at[:_TOPICS_PER_STEP]
        self._sweep()
        self.prepared.look_after()
        self.kernel.leases.arm(self, now_ns + _HOUSEKEEPING_NS)

    def _expire(self, topic: Topic) -> None:
        """Let groups retire what nobody asks for: the new at once, the given back when it is their turn."""
        for group in topic.groups.values():
            if isinstance(group, WorkGroup):
                if topic.policy.ttl_ns:
                    group.expire_old()
                elif topic.expires:
                    group.step_over()
                if group.has_given_back:
                    self._to_sweep[group] = None

    def _sweep(self) -> None:
        """Let some groups look through what was given back, each with its part of a step's effort; the others come first in the next."""
        effort = _SWEEP_EFFORT_PER_STEP
        while effort > 0 and self._to_sweep:
            part = min(effort, max(effort // len(self._to_sweep), _SWEEP_EFFORT_LEAST))
            group, _ = self._to_sweep.popitem(last=False)
            if group.topic.groups.get(group.name) is group:
                effort -= part - group.sweep(part)

    def _retain(self, topic: Topic) -> None:
        wall_ns = self.kernel.wall_ns()
        unclaimed_age_ns = 0 if self.unclaimed_age_ns is None else self.unclaimed_age_ns(topic)
        for partition in topic.partitions:
            if partition.log.end == partition.log.start or self.prepared.holds(partition.number):
                continue
            keepers = [group for group in topic.groups.values() if group.kind is not GroupKind.LIVE]
            if keepers:
                needed = min(group.first_needed(partition.index) for group in keepers)
                partition.log.retain(needed, now_ns=wall_ns, age_ns=self.settings.retention_age_ns, size_bytes=_NO_LIMIT)
            elif unclaimed_age_ns:
                partition.log.retain(partition.log.end, now_ns=wall_ns, age_ns=unclaimed_age_ns, size_bytes=_NO_LIMIT)
            if partition.schedule is None or self.prepared.holds(partition.schedule.log.number):
                continue
            if partition.schedule.log.end > partition.schedule.log.start:
                partition.schedule.log.retain(partition.schedule.first_needed, now_ns=wall_ns, age_ns=0, size_bytes=0)
