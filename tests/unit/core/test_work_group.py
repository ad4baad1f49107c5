from __future__ import annotations

import pytest

from polymq import limits
from polymq.core.access import ANONYMOUS
from polymq.core.group import GroupKind
from polymq.errors import Refusal, RefusalCode

from .conftest import SECOND_NS, World, inbox


def bodies(count: int, prefix: str = "m") -> list[bytes]:
    return [f"{prefix}{index}".encode() for index in range(count)]


def test_messages_come_once_and_in_order(single: World) -> None:
    consumer = single.consume("t", "g", 100)
    single.publish("t", *bodies(10))
    single.publish("t", b"last")
    single.turn()
    assert inbox(consumer).got == [(body, 1) for body in [*bodies(10), b"last"]]


def test_every_partition_is_consumed(world: World) -> None:
    consumer = world.consume("t", "g", 100)
    for body in bodies(12):
        world.publish("t", body)
    world.turn()
    assert sorted(inbox(consumer).bodies) == sorted(bodies(12))
    assert world.settle(consumer, *inbox(consumer).ids) == []
    assert consumer.leased == 0
    view = world.view().groups[0]
    assert (view.depth, view.leased, view.message_count) == (0, 0, 12)


def test_credit_is_a_cap_on_what_is_out(world: World) -> None:
    consumer = world.consume("t", "g", 3)
    for body in bodies(8):
        world.publish("t", body)
    world.turn()
    assert len(inbox(consumer).got) == 3
    world.settle(consumer, inbox(consumer).ids[0])
    world.turn()
    assert len(inbox(consumer).got) == 4
    world.session.credit(consumer, 1)
    world.settle(consumer, *inbox(consumer).ids[1:3])
    world.turn()
    assert len(inbox(consumer).got) == 4
    world.settle(consumer, inbox(consumer).ids[3])
    world.turn()
    assert len(inbox(consumer).got) == 5


def test_two_consumers_share_evenly(single: World) -> None:
    first = single.consume("t", "g", 50)
    second = single.consume("t", "g", 50)
    single.publish("t", *bodies(100))
    single.turn()
    assert len(inbox(first).got) == len(inbox(second).got) == 50
    assert sorted(inbox(first).bodies + inbox(second).bodies) == sorted(bodies(100))


def test_single_messages_alternate_between_ready_consumers(single: World) -> None:
    first = single.consume("t", "g", 50)
    second = single.consume("t", "g", 50)
    for body in bodies(20):
        single.publish("t", body)
        single.turn()
    assert len(inbox(first).got) == len(inbox(second).got) == 10


def test_single_messages_are_handed_out_over_several_turns(single: World) -> None:
    consumer = single.consume("t", "g", 1000, lease_ns=SECOND_NS)
    single.publish("t", *bodies(600))
    single.turn()
    single.clock.now_ns += SECOND_NS
    counts = []
    for _ in range(4):
        single.broker.tick()
        counts.append(sum(delivery.slice.count for delivery in single.broker.dispatch()))
    assert counts == [256, 256, 88, 0]
    assert consumer.leased == 600


def test_groups_are_independent(world: World) -> None:
    one = world.consume("t", "one", 10)
    two = world.consume("t", "two", 10)
    world.publish("t", b"x")
    world.turn()
    assert inbox(one).got == inbox(two).got == [(b"x", 1)]
    assert inbox(one).ids == inbox(two).ids


def test_first_group_gets_the_backlog_and_later_ones_what_is_new(world: World) -> None:
    world.publish("t", b"old")
    world.turn()
    assert world.view().held == 1
    first = world.consume("t", "first", 10)
    later = world.consume("t", "later", 10)
    world.publish("t", b"new")
    world.turn()
    assert inbox(first).bodies == [b"old", b"new"]
    assert inbox(later).bodies == [b"new"]
    assert world.view().held == 0


def test_settling_what_is_not_out_is_refused(single: World) -> None:
    consumer = single.consume("t", "g", 1)
    other = single.consume("t", "g", 0)
    single.publish("t", b"x")
    single.turn()
    message_id = inbox(consumer).ids[0]
    assert single.settle(other, message_id) == [(0, RefusalCode.MESSAGE_NOT_OWNED)]
    assert single.settle(consumer, message_id + 1, 77 << limits.OFFSET_BITS) == [
        (0, RefusalCode.MESSAGE_NOT_LEASED),
        (1, RefusalCode.MESSAGE_NOT_LEASED),
    ]
    assert single.settle(consumer, message_id, message_id) == [(1, RefusalCode.MESSAGE_NOT_LEASED)]
    assert consumer.leased == 0


def test_paused_group_gets_nothing_until_it_goes_on(world: World) -> None:
    consumer = world.consume("t", "g", 5)
    world.session.pause_group("t", "g", paused=True)
    world.publish("t", b"x")
    world.turn()
    assert inbox(consumer).got == []
    world.session.pause_group("t", "g", paused=False)
    world.turn()
    assert inbox(consumer).got == [(b"x", 1)]


def test_paused_topic_keeps_what_is_new(world: World) -> None:
    consumer = world.consume("t", "g", 5)
    world.session.pause_topic("t", paused=True)
    world.publish("t", b"x")
    world.turn()
    view = world.view()
    assert (view.held, view.groups[0].depth, inbox(consumer).got) == (1, 0, [])
    world.session.pause_topic("t", paused=False)
    world.turn()
    assert inbox(consumer).got == [(b"x", 1)]


def test_emptying_a_paused_topic_drops_only_what_it_keeps(single: World) -> None:
    consumer = single.consume("t", "g", 0)
    single.publish("t", b"a", b"b")
    single.turn()
    single.session.pause_topic("t", paused=True)
    single.publish("t", b"c", b"d")
    single.turn()
    single.session.empty_topic("t")
    single.session.pause_topic("t", paused=False)
    single.publish("t", b"e")
    single.turn()
    assert single.view().groups[0].depth == 3
    single.session.credit(consumer, 10)
    single.turn()
    assert inbox(consumer).bodies == [b"a", b"b", b"e"]


def test_emptying_a_group_drops_waiting_leased_and_deferred(world: World) -> None:
    consumer = world.consume("t", "g", 2)
    for body in bodies(6):
        world.publish("t", body)
    world.turn()
    world.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=SECOND_NS)
    world.session.empty_group("t", "g")
    world.wait(100)
    view = world.view().groups[0]
    assert (view.depth, view.leased, view.deferred, consumer.leased) == (0, 0, 0, 0)
    seen = len(inbox(consumer).got)
    world.publish("t", b"new")
    world.turn()
    assert inbox(consumer).bodies[seen:] == [b"new"]
    assert world.settle(consumer, inbox(consumer).ids[1]) == [(0, RefusalCode.MESSAGE_NOT_LEASED)]


def test_deleting_the_last_group_makes_the_topic_keep_what_comes(world: World) -> None:
    consumer = world.consume("t", "g", 5)
    world.session.delete_group("t", "g")
    assert inbox(consumer).reason == "group deleted"
    world.publish("t", b"x")
    world.turn()
    assert world.view().held == 1
    again = world.consume("t", "g2", 5)
    world.turn()
    assert inbox(again).got == [(b"x", 1)]


def test_ephemeral_group_and_topic_go_with_the_last_consumer(world: World) -> None:
    first = world.consume("t", "g", 5, ephemeral_group=True, ephemeral_topic=True)
    second = world.consume("t", "g", 5, ephemeral_group=True, ephemeral_topic=True)
    world.session.unsubscribe(first)
    assert world.session.topic_names() == ["t"]
    world.session.unsubscribe(second)
    assert world.session.topic_names() == []
    assert world.store.logs == {}


def test_deleted_topic_tells_its_consumers_and_is_made_anew(world: World) -> None:
    consumer = world.consume("t", "g", 5)
    world.publish("t", b"x")
    world.session.delete_topic("t")
    assert inbox(consumer).reason == "topic deleted"
    world.publish("t", b"y")
    world.turn()
    assert inbox(consumer).got == []
    assert world.view().held == 1


def test_held_consumer_gets_nothing_and_blocks_nobody(single: World) -> None:
    slow = single.consume("t", "g", 100)
    quick = single.consume("t", "g", 100)
    single.session.hold(slow, held=True)
    single.publish("t", *bodies(10))
    single.turn()
    assert (len(inbox(slow).got), len(inbox(quick).got)) == (0, 10)


def test_sampling_drops_the_rest_for_good(single: World) -> None:
    consumer = single.consume("t", "g", 2500, sample_percent=9)
    single.publish("t", *bodies(1000))
    single.turn()
    assert len(inbox(consumer).got) == 100
    assert single.view().groups[0].depth == 0


def test_what_was_given_back_is_drawn_from_as_well(single: World) -> None:
    first = single.consume("t", "g", 1000)
    single.publish("t", *bodies(1000))
    single.turn()
    for message_id in inbox(first).ids:
        single.session.requeue(first, message_id, delay_ns=SECOND_NS)
    single.session.unsubscribe(first)
    second = single.consume("t", "g", 2500, sample_percent=9)
    single.wait(2)
    assert {attempts for _, attempts in inbox(second).got} == {2}
    assert 50 < len(inbox(second).got) < 200
    assert single.settle(second, *inbox(second).ids) == []
    assert single.view().groups[0].depth == 0
    single.turn()
    single.restart()
    third = single.consume("t", "g", 2500)
    single.turn()
    assert inbox(third).got == [], "what was not drawn is gone for good"


def test_cold_data_is_waited_for_not_skipped(single: World) -> None:
    consumer = single.consume("t", "g", 5)
    single.store.logs[0].cold = True
    single.publish("t", b"x")
    single.broker.tick()
    single.store.commit()
    assert single.broker.dispatch() == []
    single.store.logs[0].cold = False
    single.turn()
    assert inbox(consumer).got == [(b"x", 1)]


def test_group_may_be_full(single: World) -> None:
    single.settings = type(single.settings)(group_consumers_max=1)
    single.restart()
    single.consume("t", "g", 1)
    with pytest.raises(Refusal) as refused:
        single.consume("t", "g", 1)
    assert refused.value.code is RefusalCode.GROUP_FULL


def test_deliveries_that_are_settled_are_forgotten_behind_one_that_is_not(single: World) -> None:
    consumer = single.consume("t", "g", 2)
    single.publish("t", b"stuck")
    single.turn()
    stuck = inbox(consumer).ids[0]
    for _ in range(1100):
        single.publish("t", b"x")
        single.turn()
        assert single.settle(consumer, inbox(consumer).ids[-1]) == []
    assert len(consumer.runs) < 100
    assert single.settle(consumer, stuck) == []


def test_a_session_that_ends_takes_its_subscriptions_with_it(single: World) -> None:
    other = single.broker.session(ANONYMOUS)
    single.session, kept = other, single.session
    single.consume("t", "g", 1)
    other.close()
    single.session = kept
    assert single.view().groups[0].consumer_count == 0


def test_a_record_that_is_gone_is_given_up_and_frees_the_floor(single: World) -> None:
    consumer = single.consume("t", "g", 1)
    single.publish("t", b"gone", b"kept")
    single.turn()
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=0)
    single.session.credit(consumer, 5)
    single.store.logs[0].start = 1
    single.turn()
    assert inbox(consumer).bodies == [b"gone", b"kept"]
    single.settle(consumer, inbox(consumer).ids[-1])
    assert consumer.group.first_needed(0) == 2


def test_ephemeral_groups_remember_nothing_of_what_was_settled(single: World) -> None:
    consumer = single.consume("t", "g", 10, ephemeral_group=True)
    single.publish("t", *bodies(10))
    single.turn()
    single.settle(consumer, *inbox(consumer).ids[::2])
    single.turn()
    share = consumer.group.shares[0]  # type: ignore[attr-defined]
    assert share.window.drain() == b""


def test_emptying_a_group_drops_what_is_scheduled_for_it_alone(world: World) -> None:
    emptied = world.consume("t", "emptied", 10)
    other = world.consume("t", "other", 10)
    world.publish("t", b"before", delay_ns=SECOND_NS)
    world.turn()
    world.session.empty_group("t", "emptied")
    assert {view.name: view.scheduled for view in world.view().groups} == {"emptied": 0, "other": 1}
    for _ in range(4):
        world.publish("t", b"after", delay_ns=SECOND_NS)
    world.turn()
    world.restart()
    emptied, other = world.consume("t", "emptied", 10), world.consume("t", "other", 10)
    world.wait(2)
    assert inbox(emptied).bodies == [b"after"] * 4
    assert sorted(inbox(other).bodies) == [*[b"after"] * 4, b"before"]


def test_only_a_work_group_takes_the_backlog(single: World) -> None:
    single.publish("t", b"x")
    single.turn()
    single.consume("t", "watch", 0, kind=GroupKind.LIVE)
    single.session.commit_offset("t", "reader", 0, 0)
    assert single.view().held == 1
    worker = single.consume("t", "work", 5)
    single.turn()
    assert inbox(worker).bodies == [b"x"]
    single.session.delete_group("t", "work")
    single.publish("t", b"y")
    single.turn()
    assert single.view().held == 1


def test_what_cannot_be_read_is_neither_settled_nor_in_the_way(world: World) -> None:
    consumer = world.consume("t", "g", 100)
    for body in bodies(8):
        world.publish("t", body)
    world.turn()
    broken = world.store.logs[0]
    theirs = [message_id for message_id in inbox(consumer).ids if message_id >> limits.OFFSET_BITS == 0]
    others = len(inbox(consumer).ids) - len(theirs)
    for message_id in list(inbox(consumer).ids):
        world.session.requeue(consumer, message_id, delay_ns=0)
    broken.failed = "damaged"
    world.turn()
    assert len(inbox(consumer).got) == 8 + others
    assert world.view().groups[0].depth == len(theirs)
    broken.failed = ""
    world.restart()
    again = world.consume("t", "g", 100)
    world.turn()
    assert sorted(inbox(again).bodies) == sorted(bodies(8))


@pytest.mark.parametrize("steps", [limits.SLICE_MESSAGES_MAX + 2, -1])
def test_given_back_messages_far_apart_are_looked_for_a_few_at_a_time(single: World, steps: int) -> None:
    count = 100
    consumer = single.consume("t", "g", count * abs(steps), lease_ns=60 * SECOND_NS)
    for _ in range(count):
        single.publish("t", *bodies(abs(steps)))
        single.turn()
    while consumer.ready:
        single.turn()
    ids = inbox(consumer).ids
    for message_id in ids[:: steps if steps > 0 else -1]:
        single.session.requeue(consumer, message_id, delay_ns=0)
    counts: list[int] = []
    while consumer.ready:
        single.broker.tick()
        counts.append(sum(delivery.slice.count for delivery in single.broker.dispatch()))
    assert counts == [32, 32, 32, 4]


def test_given_back_messages_that_lie_together_are_not_looked_for_one_by_one(single: World) -> None:
    consumer = single.consume("t", "g", 500, lease_ns=60 * SECOND_NS)
    single.publish("t", *bodies(500))
    single.turn()
    for message_id in inbox(consumer).ids[::2]:
        single.session.requeue(consumer, message_id, delay_ns=0)
    single.broker.tick()
    assert sum(delivery.slice.count for delivery in single.broker.dispatch()) == 250
