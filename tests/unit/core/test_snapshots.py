"""Snapshots written unit by unit while the broker goes on: they say the same as everything that was journaled."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import pytest

from polymq import limits
from polymq.core.ahead import LEFT_OUT
from polymq.core.catalogue import Catalogue
from polymq.core.cursor_group import CursorGroup
from polymq.core.kernel import Kernel
from polymq.core.policies import GroupPolicy, TopicPolicy
from polymq.core.prepared import Prepared
from polymq.core.recovery import recover
from polymq.core.work_group import WorkGroup
from polymq.errors import Refusal

from .conftest import SECOND_NS, World, inbox
from .fakes import FakeRandom, FakeStore

if TYPE_CHECKING:
    from polymq.core.group import Group, Subscription
    from polymq.core.ports import Store
    from polymq.core.topic import Partition

NAMES = ("a", "b", "c")


def recovered(world: World, journal: list[bytes]) -> dict[str, Any]:
    """What a start would make of these entries, as far as it matters to anybody."""
    store = FakeStore()
    store.logs = dict(world.store.logs)
    kernel = Kernel(cast("Store", store), world.clock, FakeRandom(), slots_dense=world.settings.slots_dense)
    catalogue = Catalogue(kernel)
    recover(kernel, catalogue, Prepared(kernel, catalogue, expiry_ns=1), iter(journal))
    numbers = {"next_number": catalogue.next_number, "next_group_id": catalogue.next_group_id}
    return numbers | {name: topic_state(world, topic) for (_namespace, name), topic in catalogue.topics.items()}


def topic_state(world: World, topic: Any) -> dict[str, Any]:
    return {
        "paused": topic.paused,
        "sync": topic.sync,
        "policy": topic.policy,
        "partitions": [(partition.number, partition.held_from, schedule_state(world, partition)) for partition in topic.partitions],
        "groups": {name: group_state(world, group) for name, group in topic.groups.items()},
    }


def schedule_state(world: World, partition: Partition) -> object:
    """What waits, and when it is due; what is due by now is only due."""
    if partition.schedule is None:
        return None
    flat = b"".join(partition.schedule.pairs())
    pairs = memoryview(flat).cast("q").tolist()
    now_ns = world.clock.wall_ns()
    rows = zip(pairs[1::2], pairs[::2], strict=True)
    return partition.schedule.log.number, sorted((offset, due_ns if due_ns > now_ns else 0) for offset, due_ns in rows)


def group_state(world: World, group: Group) -> object:
    if isinstance(group, CursorGroup):
        return group.id, group.committed
    assert isinstance(group, WorkGroup)
    owed = []
    for share in group.shares:
        dropped = {offset for first, end, attempts in share.ahead.ranges() if attempts == LEFT_OUT for offset in range(first, end)}
        owed += [(share.partition.number, offset) for offset, _state, _attempts in share.window.unsettled()]
        fresh = range(share.window.next, share.partition.log.end)
        owed += [(share.partition.number, offset) for offset in fresh if offset not in dropped]
    flat = memoryview(b"".join(group.deferred.pairs())).cast("q").tolist()
    later = sorted(pair for pair in zip(flat[1::2], flat[::2], strict=True) if pair[1] > world.clock.wall_ns())
    waits = {number << limits.OFFSET_BITS | offset for number, offset in owed}
    floors = {number: floor for number, floor in group.schedule_floors.items() if floor}
    return group.id, group.paused, group.policy, sorted(owed), [pair for pair in later if pair[0] in waits], floors


class Life:
    """Random use of one broker."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.count = 0
        self.consumers: dict[Subscription, int] = {}

    def step(self) -> None:
        chance, session = self.chance, self.world.session
        topic = chance.choice(NAMES)
        group = chance.choice("gh")
        exists = topic in session.topic_names()
        groups = self.world.view(topic).groups if exists else ()
        kinds = {each.name for each in groups}
        draw = chance.random()
        if draw < 0.35:
            self.count += 1
            delay_ns = chance.choice((0, 0, 0, SECOND_NS, 3 * SECOND_NS))
            with suppress(Refusal):  # it may be full
                self.world.publish(topic, *[b"%d" % self.count] * chance.randrange(1, 4), delay_ns=delay_ns)
        elif draw < 0.45:
            consumer = self.world.consume(topic, group, chance.randrange(1, 9), lease_ns=2 * SECOND_NS)
            self.consumers[consumer] = 0
        elif draw < 0.75:
            self.use()
        elif draw < 0.78 and exists:
            session.delete_topic(topic)
        elif draw < 0.81 and group in kinds:
            session.delete_group(topic, group)
        elif draw < 0.84 and group in kinds:
            session.empty_group(topic, group)
        elif draw < 0.87 and exists:
            session.empty_topic(topic)
        elif draw < 0.91 and exists:
            session.pause_topic(topic, paused=chance.random() < 0.5)
        elif draw < 0.94 and group in kinds:
            session.pause_group(topic, group, paused=chance.random() < 0.5)
        elif draw < 0.97 and exists:
            log = session.log(topic, 0)
            session.commit_offset(topic, "cursor", 0, chance.randrange(log.start, log.readable + 1))

        elif exists:
            self.choose(topic, group if group in kinds else None)

    def choose(self, topic: str, group: str | None) -> None:
        """Choose policies, replay, cancel: what seldom happens."""
        chance, session = self.chance, self.world.session
        draw = chance.random()
        if draw < 0.25:
            session.set_topic_policy(topic, TopicPolicy(ttl_ns=chance.choice((0, 5 * SECOND_NS)), messages_max=chance.choice((0, 40))))
        elif draw < 0.5:
            for view in session.scheduled(topic, count_max=1) or ():
                session.cancel_scheduled(topic, view.id)
        elif group is not None and draw < 0.75:
            session.set_group_policy(topic, group, GroupPolicy(max_attempts=chance.randrange(3), ordered=chance.random() < 0.3))
        elif group is not None:
            session.replay(topic, group, offset=chance.randrange(20))

    def use(self) -> None:
        """Settle and give back some of what was handed out."""
        for consumer, seen in list(self.consumers.items()):
            if inbox(consumer).reason:
                del self.consumers[consumer]
                continue
            ids = inbox(consumer).ids[seen:]
            self.consumers[consumer] = seen + len(ids)
            for message_id in ids:
                draw = self.chance.random()
                if draw < 0.5:
                    self.world.settle(consumer, message_id)
                elif draw < 0.7:
                    with suppress(Refusal):  # its lease may have ended
                        self.world.session.requeue(consumer, message_id, delay_ns=self.chance.choice((0, 2 * SECOND_NS)))

    def turn(self) -> None:
        """One turn of the pump, not more: a snapshot takes several."""
        world = self.world
        world.broker.tick()
        world.store.commit()
        for delivery in world.broker.dispatch():
            delivery.subscription.listener.take(delivery)  # type: ignore[attr-defined]
        world.clock.now_ns += self.chance.choice((0, 0, SECOND_NS // 10, SECOND_NS))


@pytest.mark.parametrize("seed", range(25))
def test_a_snapshot_in_pieces_says_what_all_the_entries_say(world: World, seed: int) -> None:
    life = Life(world, seed)
    journal = world.store.journal
    for _turn in range(200):
        for _ in range(life.chance.randrange(4)):
            life.step()
        if life.chance.random() < 0.05:
            journal.wants_snapshot = True
        life.turn()
        if journal.snapshots and not journal.snapshotting and life.chance.random() < 0.9:
            continue
        assert recovered(world, journal.entries) == recovered(world, journal.history)
    assert journal.snapshots > 2
