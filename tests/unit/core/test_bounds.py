"""How much a topic may hold."""

from __future__ import annotations

import pytest

from polymq.core.policies import Full, GroupPolicy, TopicPolicy
from polymq.errors import Refusal, RefusalCode
from polymq.wire.records import Message

from .conftest import SECOND_NS, World, inbox


def refused(world: World, *bodies: bytes, delay_ns: int = 0) -> bool:
    try:
        world.publish("t", *bodies, delay_ns=delay_ns)
    except Refusal as refusal:
        assert refusal.code is RefusalCode.TOPIC_FULL
        return True
    return False


def test_a_full_topic_refuses_until_something_is_settled(world: World) -> None:
    consumer = world.consume("t", "g", 100)
    world.session.set_topic_policy("t", TopicPolicy(messages_max=3))
    assert not refused(world, b"a")
    assert refused(world, b"b", b"c", b"d")  # a batch is whole or not at all
    assert not refused(world, b"b", b"c")
    assert refused(world, b"d")  # staged in the same turn
    world.turn()
    assert refused(world, b"d")  # out
    world.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=SECOND_NS)
    assert refused(world, b"d")  # deferred
    world.settle(consumer, inbox(consumer).ids[1])
    assert not refused(world, b"d")


def test_the_group_that_is_furthest_behind_decides(single: World) -> None:
    quick = single.consume("t", "quick", 9)
    single.consume("t", "slow", 0)
    single.session.set_topic_policy("t", TopicPolicy(messages_max=2))
    single.publish("t", b"a", b"b")
    single.turn()
    single.settle(quick, *inbox(quick).ids)
    assert refused(single, b"c")
    single.session.delete_group("t", "slow")
    assert not refused(single, b"c")


def test_deferred_publishes_and_messages_without_a_group_count(single: World) -> None:
    single.session.create_topic("t")
    single.session.set_topic_policy("t", TopicPolicy(messages_max=2))
    assert not refused(single, b"a", delay_ns=SECOND_NS)
    single.turn()
    assert not refused(single, b"b")
    single.turn()
    assert refused(single, b"c")
    assert refused(single, b"c", delay_ns=SECOND_NS)


def test_bytes_are_counted_by_the_mean(single: World) -> None:
    consumer = single.consume("t", "g", 100)
    single.session.set_topic_policy("t", TopicPolicy(bytes_max=5000))
    log = single.store.logs[0]
    for index in range(1, 5):
        assert not refused(single, bytes(1000))
        log.size_bytes = 1100 * index
        single.turn()
    assert refused(single, bytes(1000))
    single.settle(consumer, *inbox(consumer).ids[:2])
    assert not refused(single, bytes(1000))


def test_the_oldest_are_dropped_and_what_is_out_stays(world: World) -> None:
    consumer = world.consume("t", "g", 2)
    world.session.set_topic_policy("t", TopicPolicy(messages_max=6, full=Full.DROP_OLDEST))
    for index in range(20):
        world.publish("t", b"%d" % index)
        world.turn()
    view = world.view().groups[0]
    assert (view.leased, view.depth, view.dropped_count) == (2, 4, 14)
    world.session.credit(consumer, 100)
    world.turn()
    held = inbox(consumer).bodies[:2]
    assert set(held) == {b"0", b"1"}
    assert len(inbox(consumer).bodies) == 6
    assert min(int(body) for body in inbox(consumer).bodies[2:]) >= 12
    world.settle(consumer, *inbox(consumer).ids)
    world.turn()
    world.restart()
    again = world.consume("t", "g", 100)
    world.turn()
    assert inbox(again).got == []


def test_given_back_messages_are_older_than_new_ones(single: World) -> None:
    consumer = single.consume("t", "g", 2)
    single.session.set_topic_policy("t", TopicPolicy(messages_max=3, full=Full.DROP_OLDEST))
    single.publish("t", b"a", b"b", b"c")
    single.turn()
    single.session.credit(consumer, 0)
    for message_id in inbox(consumer).ids:
        single.session.requeue(consumer, message_id, delay_ns=0)
    single.publish("t", b"d", b"e")
    single.turn()
    single.session.credit(consumer, 9)
    single.turn()
    assert inbox(consumer).bodies[2:] == [b"c", b"d", b"e"]
    assert single.view().groups[0].dropped_count == 2


def test_an_ordered_group_drops_its_oldest_as_well(world: World) -> None:
    consumer = world.consume("t", "g", 1)
    world.session.set_group_policy("t", "g", GroupPolicy(ordered=True))
    world.session.set_topic_policy("t", TopicPolicy(messages_max=4, full=Full.DROP_OLDEST))
    for index in range(12):
        world.session.publish_messages("t", [Message(b"%d" % index, key=b"same")], origin=1)
        world.turn()
    view = world.view().groups[0]
    assert (view.leased, view.depth, view.dropped_count) == (1, 3, 8)
    for _ in range(4):
        world.settle(consumer, inbox(consumer).ids[-1])
        world.turn()
    assert inbox(consumer).bodies == [b"0", b"9", b"10", b"11"]
    world.restart()
    again = world.consume("t", "g", 100)
    world.turn()
    assert inbox(again).got == []


def test_lanes_of_which_everything_was_dropped_are_gone(single: World) -> None:
    consumer = single.consume("t", "g", 1)
    single.session.set_group_policy("t", "g", GroupPolicy(ordered=True))
    for key, body in ((b"a", b"a1"), (b"b", b"b1"), (b"c", b"c1"), (None, b"x"), (b"a", b"a2"), (b"b", b"b2")):
        single.session.publish_messages("t", [Message(body, key=key)], origin=1)
    single.turn()
    assert inbox(consumer).bodies == [b"a1"]
    single.session.set_topic_policy("t", TopicPolicy(messages_max=3, full=Full.DROP_OLDEST))
    single.session.publish_messages("t", [Message(b"b3", key=b"b")], origin=1)
    single.turn()
    assert single.view().groups[0].dropped_count == 4
    single.session.publish_messages("t", [Message(b"c2", key=b"c")], origin=1)
    single.turn()
    assert single.view().groups[0].dropped_count == 5
    for _ in range(6):
        single.settle(consumer, inbox(consumer).ids[-1])
        single.turn()
    assert inbox(consumer).bodies == [b"a1", b"b3", b"c2"]
    assert single.view().groups[0].depth == 0


def test_lanes_that_are_not_known_yet_are_dropped_from_too(world: World) -> None:
    consumer = world.consume("t", "g", 100)
    for index in range(8):
        world.session.publish_messages("t", [Message(b"%d" % index, key=b"same")], origin=1)
    world.turn()
    world.session.credit(consumer, 0)
    for message_id in inbox(consumer).ids:
        world.session.requeue(consumer, message_id, delay_ns=0)
    world.session.set_group_policy("t", "g", GroupPolicy(ordered=True))
    world.session.set_topic_policy("t", TopicPolicy(messages_max=3, full=Full.DROP_OLDEST))
    world.session.publish_messages("t", [Message(b"8", key=b"same")], origin=1)
    world.turn()
    assert (world.view().groups[0].depth, world.view().groups[0].dropped_count) == (3, 6)
    world.session.credit(consumer, 1)
    world.turn()
    for _ in range(3):
        world.settle(consumer, inbox(consumer).ids[-1])
        world.turn()
    assert inbox(consumer).bodies[8:] == [b"6", b"7", b"8"]


def test_what_is_already_left_out_is_not_dropped_again(single: World) -> None:
    consumer = single.consume("t", "g", 0)
    single.publish("t", b"a")
    single.turn()
    single.session.pause_topic("t", paused=True)
    single.publish("t", b"left out")
    single.turn()
    single.session.empty_topic("t")
    single.session.pause_topic("t", paused=False)
    single.session.set_topic_policy("t", TopicPolicy(messages_max=1, full=Full.DROP_OLDEST))
    single.publish("t", b"b", b"c")
    single.turn()
    single.session.credit(consumer, 9)
    single.turn()
    assert inbox(consumer).bodies == [b"c"]
    assert single.view().groups[0].dropped_count == 2


@pytest.mark.parametrize("by_bytes", [False, True])
def test_a_topic_without_a_group_drops_too(world: World, by_bytes: bool) -> None:
    world.session.create_topic("t")
    policy = TopicPolicy(bytes_max=300, full=Full.DROP_OLDEST) if by_bytes else TopicPolicy(messages_max=3, full=Full.DROP_OLDEST)
    world.session.set_topic_policy("t", policy)
    for index in range(12):
        world.publish("t", b"%d" % index)
        for log in world.store.logs.values():
            log.size_bytes = 100 * log.end
        world.turn()
    assert world.view().held == 3
    world.turn()
    world.restart()
    consumer = world.consume("t", "g", 100)
    world.turn()
    assert len(inbox(consumer).bodies) == 3
    assert min(int(body) for body in inbox(consumer).bodies) >= 8


def test_an_empty_log_has_no_mean(single: World) -> None:
    single.session.create_topic("t")
    single.session.set_topic_policy("t", TopicPolicy(bytes_max=1, full=Full.DROP_OLDEST))
    single.publish("t", b"x")
    single.turn()
    assert single.view().held == 1


def test_messages_on_their_way_to_the_dead_letters_count(single: World) -> None:
    consumer = single.consume("t", "g", 1)
    single.session.set_topic_policy("t", TopicPolicy(messages_max=1))
    single.session.set_group_policy("t", "g", GroupPolicy(max_attempts=1))
    single.publish("t", b"a")
    single.turn()
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=0)
    single.turn()
    assert refused(single, b"b")
    single.store.sync()
    single.turn()
    assert not refused(single, b"b")
