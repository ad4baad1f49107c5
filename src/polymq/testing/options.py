"""What one simulated run is made of: drawn from the seed, the choice of what can happen included.

A run in which everything can go wrong at once hides what goes wrong seldom, so every fault and every habit of the
clients is first switched on or off (swarm testing), and only then given a strength.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from polymq.store.settings import StoreSettings
from polymq.testing.management import OrderKind
from polymq.testing.network import NetworkConditions

if TYPE_CHECKING:
    from random import Random

__all__ = ["Ending", "LifePlan", "Options", "TopicPlan"]

_MS = 1_000_000
_LOCKSTEP_SHARE = 0.1
_ORDERS = tuple(kind for kind in OrderKind if kind not in (OrderKind.UNPAUSE_TOPIC, OrderKind.UNPAUSE_CHANNEL))


class Ending(enum.Enum):
    """How a life of the broker's process ends."""

    STOP = "stop"  # in an orderly way
    KILL = "kill"  # between two turns
    KILL_IN_OPERATION = "kill in a disk operation"
    POWER = "power loss"
    POWER_IN_OPERATION = "power loss in a disk operation"

    @property
    def power_loss(self) -> bool:
        """Whether unsynced data goes with it."""
        return self in (Ending.POWER, Ending.POWER_IN_OPERATION)

    @property
    def in_operation(self) -> bool:
        """Whether it comes in the middle of a turn."""
        return self in (Ending.KILL_IN_OPERATION, Ending.POWER_IN_OPERATION)


@dataclass(frozen=True, slots=True)
class LifePlan:
    """One life: how long, and how it ends (for endings in an operation: at the first one after that time, or later)."""

    lasts_ns: int
    ending: Ending
    operations: int = 0
    downtime_ns: int = 0


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """One topic. `sync`: publishes are answered after the sync; `ephemeral_channel`: one more, that goes with its consumers."""

    name: str
    partitions: int
    sync: bool
    channels: int
    ephemeral_channel: bool = False

    @property
    def plain(self) -> bool:
        """Whether a publish makes it just like that when it is not there."""
        return self.partitions == 1 and not self.sync


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that a run is made of. Percentages are per command or message unless they say otherwise."""

    topics: tuple[TopicPlan, ...]
    lives: tuple[LifePlan, ...]
    store: StoreSettings
    network: NetworkConditions
    sector_size_bytes: int
    disk_delay_ns_max: int
    messages_per_life: int
    publishers: int
    consumers_per_channel: int
    think_ns_max: int
    pipeline: int
    body_size_bytes: tuple[int, int]  # from, below; of equal size, one batch fits where another one was
    multi_publish_percent: int
    multi_publish_count_max: int
    deferred_percent: int
    deferred_ns_max: int
    ready_max: int
    message_timeout_ms: int
    requeue_percent: int
    requeue_ns_max: int
    touch_percent: int
    forget_percent: int  # messages that a consumer never settles
    foreign_percent: int  # FINs of what belongs to another connection, or to nobody
    confirm_percent: int  # settles after which the consumer sends something that is answered
    disconnect_percent: int
    cut_percent: int  # per disk-independent moment: connection resets and stalls
    failed_sync_percent: int  # per life
    failed_write_percent: int
    full_disk_percent: int
    evict_percent: int  # of moments at which everything leaves the page cache
    wall_step_ns_max: int
    failed_start_percent: int = 0  # of lives that begin with a disk that is full or fails
    heartbeat_ms: int = 30_000
    slow_percent: int = 0  # of consumers
    vanish_percent: int = 0
    leave_percent: int = 0
    manage_percent: int = 0  # of the operator's moments
    orders: tuple[OrderKind, ...] = ()
    log_readers: int = 0
    retention_ns: int | None = None
    # Topics that RocketMQ's groups read, and queues of PHPMQ; none in runs of NSQ alone.
    sends: tuple[TopicPlan, ...] = ()
    queues: tuple[TopicPlan, ...] = ()

    @property
    def all_topics(self) -> tuple[TopicPlan, ...]:
        """Every topic that is there from the beginning."""
        return (*self.topics, *self.sends, *self.queues)

    @classmethod
    def draw_with_others(cls, random: Random) -> Options:
        """Draw a run in which there are other protocols as well, and nobody who deletes or empties topics."""

        def plan(name: str, *partitions: int) -> TopicPlan:
            return TopicPlan(name, partitions=random.choice(partitions), sync=random.random() < 0.4, channels=0)

        options = cls.draw(random)
        sends = (plan("orders", 1, 4),) if random.random() < 0.7 else ()
        queues = (plan("tasks", 1),) if not sends or random.random() < 0.5 else ()
        return replace(
            options,
            topics=tuple(each for each in options.topics if not each.name.endswith("#ephemeral"))[:1],
            sends=sends,
            queues=queues,
            messages_per_life=min(options.messages_per_life, 100),
            consumers_per_channel=1,
            manage_percent=0,
            retention_ns=None,
        )

    @classmethod
    def draw(cls, random: Random) -> Options:
        """Draw a run."""

        def maybe(*values: int) -> int:
            """Nothing in half of all runs."""
            return random.choice(values) if random.random() < 0.5 else 0

        lives = _draw_lives(random)
        options = cls(
            topics=_draw_topics(random),
            lives=lives,
            store=_draw_store(random),
            network=_draw_network(random),
            sector_size_bytes=random.choice((512, 4096)),
            disk_delay_ns_max=random.choice((0, 5 * _MS, 50 * _MS, 200 * _MS)),
            messages_per_life=random.choice((30, 100, 300)),
            publishers=random.choice((1, 2, 3)),
            consumers_per_channel=random.choice((1, 2, 3)),
            think_ns_max=random.choice((20 * _MS, 60 * _MS, 200 * _MS)),
            pipeline=random.choice((1, 3, 10)),
            body_size_bytes=random.choice(((0, 20), (0, 200), (0, 3000), (600, 601))),
            multi_publish_percent=maybe(10, 50, 90),
            multi_publish_count_max=random.choice((3, 10, 40)),
            deferred_percent=maybe(10, 50),
            deferred_ns_max=random.choice((200 * _MS, 3000 * _MS, 30_000 * _MS)),
            ready_max=random.choice((1, 2, 5, 100)),
            message_timeout_ms=random.choice((1000, 1500, 5000)),
            requeue_percent=maybe(5, 30),
            requeue_ns_max=random.choice((0, 300 * _MS, 2000 * _MS)),
            touch_percent=maybe(5, 30),
            forget_percent=maybe(2, 20),
            foreign_percent=maybe(2, 10),
            confirm_percent=random.choice((5, 30, 100)),
            disconnect_percent=maybe(1, 5),
            cut_percent=maybe(1, 5),
            failed_sync_percent=maybe(50),
            failed_write_percent=maybe(30),
            full_disk_percent=maybe(50),
            evict_percent=maybe(1, 10),
            wall_step_ns_max=maybe(500 * _MS, 5000 * _MS),
            failed_start_percent=maybe(30),
            heartbeat_ms=random.choice((1000, 30_000)),
            slow_percent=maybe(50),
            vanish_percent=maybe(2),
            leave_percent=maybe(1, 5),
            manage_percent=maybe(10, 50),
            orders=tuple(random.sample(list(_ORDERS), random.randrange(1, len(_ORDERS) + 1))),
            log_readers=maybe(1, 2),
            retention_ns=random.choice((0, 1000 * _MS)) if random.random() < 0.3 else None,
        )
        return _lockstep(options, random) if random.random() < _LOCKSTEP_SHARE else options

    def describe(self) -> str:
        """One line per option."""
        return "\n".join(f"  {each.name} = {getattr(self, each.name)}" for each in fields(self))


def _lockstep(options: Options, random: Random) -> Options:
    """Make batches and frames of one size follow one another over two crashes in a row.

    Only then does what lies behind a cut tail begin exactly where the next process ends.
    """
    pair = (
        LifePlan(lasts_ns=700 * _MS, ending=Ending.POWER),
        LifePlan(lasts_ns=random.choice((50 * _MS, 200 * _MS)), ending=random.choice((Ending.KILL, Ending.POWER))),
    )
    return replace(
        options,
        topics=(TopicPlan("topic0", partitions=1, sync=False, channels=1),),
        lives=pair * 2,
        store=replace(options.store, segment_size_bytes_first=64 * 1024, segment_size_bytes_max=64 * 1024, batch_size_bytes_target=256),
        messages_per_life=300,
        publishers=1,
        consumers_per_channel=1,
        think_ns_max=20 * _MS,
        pipeline=1,
        body_size_bytes=(600, 601),
        multi_publish_percent=0,
        deferred_percent=0,
        confirm_percent=30,
        disconnect_percent=0,
        cut_percent=0,
        failed_sync_percent=0,
        failed_write_percent=0,
        full_disk_percent=0,
        failed_start_percent=0,
        slow_percent=0,
        vanish_percent=0,
        leave_percent=0,
        manage_percent=0,
        log_readers=0,
        retention_ns=None,
    )


def _draw_lives(random: Random) -> tuple[LifePlan, ...]:
    endings = random.choice(
        (
            (Ending.KILL, Ending.KILL_IN_OPERATION),
            (Ending.POWER, Ending.POWER_IN_OPERATION),
            (Ending.POWER, Ending.KILL),
            tuple(Ending),
        )
    )
    return tuple(
        LifePlan(
            lasts_ns=random.choice((20 * _MS, 200 * _MS, 700 * _MS, 1500 * _MS, 3000 * _MS)),
            ending=random.choice(endings),
            operations=random.choice((0, 1, 2, 5, 20)),
            downtime_ns=random.choice((0, 10 * _MS, 1200 * _MS)),
        )
        for _ in range(random.choice((1, 2, 3, 4, 5)))
    )


def _draw_topics(random: Random) -> tuple[TopicPlan, ...]:
    topics = [
        TopicPlan(
            name=f"topic{number}",
            partitions=random.choice((1, 1, 4)),
            sync=random.random() < 0.4,
            channels=random.choice((1, 1, 2, 3)),
            ephemeral_channel=random.random() < 0.2,
        )
        for number in range(random.choice((1, 1, 2)))
    ]
    if random.random() < 0.1:
        topics.append(TopicPlan("passing#ephemeral", partitions=1, sync=False, channels=0, ephemeral_channel=True))
    return tuple(topics)


def _draw_store(random: Random) -> StoreSettings:
    """Small segments, so that a run of some hundred messages rolls; small batches now and then."""
    first = random.choice((4096, 16 * 1024, 64 * 1024))
    return StoreSettings(
        segment_size_bytes_first=first,
        segment_size_bytes_max=first * random.choice((1, 4)),
        batch_size_bytes_target=random.choice((2048, 256 * 1024)),
        free_bytes_min=0,
        reserved_part_max=1.0,
        open_segments_max=random.choice((4, 400)),
        hot_size_bytes=random.choice((0, 8192, 1 << 28)),
        window_size_bytes=random.choice((4096, 256 * 1024)),
        read_ahead_size_bytes=random.choice((4096, 1 << 22)),
        journal_growth_bytes_min=random.choice((4096, 8 << 20)),
        journal_growth_bytes_max=random.choice((16 * 1024, 64 << 20)),
        index_interval_bytes=random.choice((1024, 64 * 1024)),
        # Small pieces, so that what happens and what ends a life comes between them.
        snapshot_piece_entries=random.choice((1, 4, 96)),
        snapshot_piece_size_bytes=random.choice((64, 1024, 256 * 1024)),
    )


def _draw_network(random: Random) -> NetworkConditions:
    return NetworkConditions(
        delay_ns_max=random.choice((1, _MS, 30 * _MS)),
        window_size_bytes=random.choice((2000, 1 << 20, 1 << 20)),
        partial_send_percent=random.choice((0, 0, 30)),
        partial_receive_percent=random.choice((0, 0, 30)),
    )
