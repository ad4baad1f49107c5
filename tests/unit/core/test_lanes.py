"""Of the messages with one key, one is out at a time, in order."""

from __future__ import annotations

import random

import pytest

from polymq import limits
from polymq.core import lanes
from polymq.core.policies import GroupPolicy, TopicPolicy
from polymq.core.work_group import WorkGroup
from polymq.wire.records import Message

from .conftest import SECOND_NS, World, inbox

ORDERED = GroupPolicy(ordered=True)


def publish(world: World, *rows: tuple[bytes | None, bytes]) -> None:
    for key, body in rows:
        world.session.publish_messages("t", [Message(body, key=key)], origin=1)


def test_the_second_of_a_key_waits_for_the_first_and_other_keys_do_not(world: World) -> None:
    one, two = world.consume("t", "g", 9), world.consume("t", "g", 9)
    world.session.set_group_policy("t", "g", ORDERED)
    publish(world, (b"a", b"a1"), (b"a", b"a2"), (b"b", b"b1"), (None, b"x"), (None, b"y"))
    world.turn()
    got = inbox(one).bodies + inbox(two).bodies
    assert sorted(got) == [b"a1", b"b1", b"x", b"y"]
    view = world.view().groups[0]
    assert (view.depth, view.leased) == (1, 4)
    for consumer in (one, two):
        world.settle(consumer, *inbox(consumer).ids)
    world.turn()
    assert sorted(inbox(one).bodies + inbox(two).bodies) == [b"a1", b"a2", b"b1", b"x", b"y"]


def test_a_given_back_message_stays_the_first_of_its_key(single: World) -> None:
    consumer = single.consume("t", "g", 9, lease_ns=10 * SECOND_NS)
    single.session.set_group_policy("t", "g", ORDERED)
    publish(single, (b"a", b"1"), (b"a", b"2"), (b"a", b"3"))
    single.turn()
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=0)
    single.turn()
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=SECOND_NS)
    single.turn()
    assert single.view().groups[0].deferred == 1
    assert single.view().groups[0].depth == 2
    single.wait(1)
    single.wait(10)  # a timeout
    assert inbox(consumer).got == [(b"1", 1), (b"1", 2), (b"1", 3), (b"1", 4)]
    for _ in range(3):
        single.settle(consumer, inbox(consumer).ids[-1])
        single.turn()
    assert inbox(consumer).got[4:] == [(b"2", 1), (b"3", 1)]
    assert single.view().groups[0].depth == 0


def test_order_outlives_the_process(world: World) -> None:
    consumer = world.consume("t", "g", 9)
    world.session.set_group_policy("t", "g", ORDERED)
    publish(world, *[(b"k%d" % (index % 3), b"%d" % index) for index in range(12)])
    world.turn()
    first = dict(zip(inbox(consumer).bodies, inbox(consumer).ids, strict=True))
    world.settle(consumer, first[b"0"])
    world.session.requeue(consumer, first[b"1"], delay_ns=5 * SECOND_NS)
    world.session.credit(consumer, 0)
    world.turn()
    world.restart()
    again = world.consume("t", "g", 9)
    world.turn()
    assert sorted(inbox(again).bodies) == [b"2", b"3"]
    world.wait(5)
    assert sorted(inbox(again).bodies) == [b"1", b"2", b"3"]
    for _ in range(12):
        world.settle(again, *inbox(again).ids)
        world.turn()
    for key in range(3):
        mine = [int(body) for body in inbox(again).bodies if int(body) % 3 == key]
        assert mine == sorted(mine)
    assert len(inbox(again).bodies) == 11


def test_order_is_kept_whatever_happens(world: World) -> None:
    chance = random.Random(5)
    consumers = [world.consume("t", "g", 3, lease_ns=SECOND_NS) for _ in range(3)]
    world.session.set_group_policy("t", "g", ORDERED)
    done: dict[bytes, list[int]] = {}
    seen = [0, 0, 0]
    sent = 0
    for _ in range(400):
        if sent < 200:
            publish(world, (b"%d" % chance.randrange(4), b"%d" % sent))
            sent += 1
        world.turn()
        out: list[bytes] = []
        for index, consumer in enumerate(consumers):
            box = inbox(consumer)
            for message_id, body in list(zip(box.ids, box.bodies, strict=True))[seen[index] :]:
                action = chance.random()
                if action < 0.6 and not world.settle(consumer, message_id):
                    done.setdefault(body, []).append(1)
                elif action < 0.8:
                    world.session.requeue(consumer, message_id, delay_ns=chance.choice([0, SECOND_NS // 2]))
                else:
                    out.append(body)
            seen[index] = len(box.ids)
        world.clock.now_ns += SECOND_NS // 4
    assert len(done) == 200
    assert all(times == [1] for times in done.values())
    assert world.view().groups[0].depth == 0


def test_what_is_read_ahead_is_bounded(single: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "_AHEAD_MAX", 10)
    consumer = single.consume("t", "g", 100)
    single.session.set_group_policy("t", "g", ORDERED)
    publish(single, *[(b"stuck", b"s%d" % index) for index in range(15)], (b"other", b"o"))
    single.turn()
    assert inbox(consumer).bodies == [b"s0"]
    group = single.broker.catalogue.topics["", "t"].groups["g"]
    assert len(group.lanes) == 10  # type: ignore[attr-defined]
    for _ in range(7):
        single.settle(consumer, inbox(consumer).ids[-1])
        single.turn()
    assert b"o" in inbox(consumer).bodies


def test_reading_far_ahead_takes_several_turns(single: World) -> None:
    consumer = single.consume("t", "g", 100)
    single.session.set_group_policy("t", "g", ORDERED)
    publish(single, *[(b"stuck", b"") for _ in range(3000)], (b"other", b"o"))
    single.store.commit()
    counts = []
    for _ in range(5):
        single.broker.tick()
        counts.append(len(single.broker.dispatch()))
    assert (counts[0], sum(counts)) == (1, 2)
    assert counts.index(1, 1) >= 2
    single.restart()
    again = single.consume("t", "g", 100)
    single.turn()
    assert inbox(again).bodies == [b"", b"o"]
    assert consumer.leased == 2


def test_the_policy_can_be_chosen_and_dropped_while_messages_are_out(world: World) -> None:
    consumer = world.consume("t", "g", 2)
    publish(world, *[(b"a", b"%d" % index) for index in range(6)])
    world.turn()
    assert len(inbox(consumer).bodies) == 2
    world.session.set_group_policy("t", "g", ORDERED)
    world.session.credit(consumer, 9)
    world.turn()
    assert len(inbox(consumer).bodies) == 2
    world.session.requeue(consumer, inbox(consumer).ids[1], delay_ns=0)
    world.turn()
    assert inbox(consumer).bodies == [b"0", b"1"]
    world.settle(consumer, inbox(consumer).ids[0])
    world.turn()
    assert inbox(consumer).bodies == [b"0", b"1", b"1"]
    world.session.set_group_policy("t", "g", GroupPolicy())
    world.turn()
    assert sorted(inbox(consumer).bodies) == [b"0", b"1", b"1", b"2", b"3", b"4", b"5"]
    assert world.view().groups[0].depth == 0


def test_peeking_emptying_and_replaying_see_through_lanes(single: World) -> None:
    consumer = single.consume("t", "g", 1)
    single.session.set_group_policy("t", "g", ORDERED)
    publish(single, *[(b"a", b"%d" % index) for index in range(4)])
    single.turn()
    page = single.session.peek("t", "g")
    assert page is not None
    assert [view.message.body for view in page] == [b"1", b"2", b"3"]
    single.session.empty_group("t", "g")
    assert single.view().groups[0].depth == 0
    assert single.session.replay("t", "g", offset=2)
    single.turn()
    assert inbox(consumer).got == [(b"0", 1), (b"2", 1)]


def test_dead_letters_and_age_let_the_next_of_the_key_come(single: World) -> None:
    consumer = single.consume("t", "g", 1)
    single.session.set_group_policy("t", "g", GroupPolicy(ordered=True, max_attempts=1))
    publish(single, (b"a", b"1"), (b"a", b"2"), (b"a", b"3"))
    single.turn()
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=0)
    single.turn()
    assert inbox(consumer).bodies == [b"1", b"2"]
    dead = single.broker.catalogue.topics["", "t.g.dead"].partitions[0].number
    single.store.logs[dead].failed = "the disk is broken"
    single.turn()
    assert single.view().groups[0].depth == 2
    single.store.logs[dead].failed = ""
    single.session.set_topic_policy("t", TopicPolicy(ttl_ns=SECOND_NS))
    single.settle(consumer, inbox(consumer).ids[1])
    single.clock.now_ns += 2 * SECOND_NS
    single.turn()
    assert inbox(consumer).bodies == [b"1", b"2"]
    single.store.sync()
    single.turn()
    assert (single.view().groups[0].depth, single.view().groups[0].expired_count) == (0, 1)


@pytest.mark.parametrize("fails", [False, True])
def test_a_dead_letter_on_its_way_holds_up_no_lane_that_is_made_meanwhile(single: World, fails: bool) -> None:
    consumer = single.consume("t", "g", 1)
    single.session.set_group_policy("t", "g", GroupPolicy(max_attempts=1))
    publish(single, (b"a", b"1"), (b"a", b"2"))
    single.turn()
    single.session.credit(consumer, 0)
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=0)
    single.wait(1)
    dead = single.store.logs[single.broker.catalogue.topics["", "t.g.dead"].partitions[0].number]
    assert dead.end == 1
    single.session.set_group_policy("t", "g", GroupPolicy(ordered=True))
    assert single.view().groups[0].depth == 1
    single.session.credit(consumer, 1)
    single.turn()
    assert inbox(consumer).bodies == [b"1", b"2"], "what is on its way is not handed out"
    if fails:
        dead.failed = "the disk is broken"
    else:
        single.store.sync()
    single.turn()
    single.settle(consumer, inbox(consumer).ids[1])
    single.turn()
    publish(single, (b"a", b"3"))
    single.turn()
    if fails:
        assert inbox(consumer).got[2:] == [(b"1", 2)]
        single.settle(consumer, inbox(consumer).ids[2])
        single.turn()
    assert inbox(consumer).bodies[-1] == b"3"
    assert single.view().groups[0].depth == 0


def test_replaying_another_partition_leaves_dead_letters_on_their_way() -> None:
    world = World(2)
    consumer = world.consume("t", "g", 2)
    world.session.set_group_policy("t", "g", GroupPolicy(ordered=True, max_attempts=1))
    publish(world, (None, b"x"), (None, b"y"))
    world.turn()
    first, second = inbox(consumer).ids
    world.settle(consumer, second)
    world.session.requeue(consumer, first, delay_ns=0)
    world.turn()
    group = world.broker.catalogue.topics["", "t"].groups["g"]
    assert isinstance(group, WorkGroup)
    number = second >> limits.OFFSET_BITS
    share = group.by_number[number]
    group.rewind(share, share.partition.log.readable)
    world.turn()
    assert group.dead_letter_count == 1
    world.store.sync()
    world.turn()
    assert group.unfinished == 0


def test_a_sample_is_drawn_from_lanes_too(single: World) -> None:
    consumer = single.consume("t", "g", 100, sample_percent=49)
    single.session.set_group_policy("t", "g", ORDERED)
    publish(single, *[(None, b"%d" % index) for index in range(100)])
    single.turn()
    assert 0 < len(inbox(consumer).bodies) < 100
    assert single.view().groups[0].depth == 0


def test_keys_are_read_again_from_the_disk_without_waiting_for_it(single: World) -> None:
    single.consume("t", "g", 0)
    single.session.set_group_policy("t", "g", ORDERED)
    consumer = single.consume("t", "g", 1)
    publish(single, *[(b"a", b"%d" % index) for index in range(3)])
    single.turn()
    single.restart()
    log = single.store.logs[0]
    log.cold = True
    consumer = single.consume("t", "g", 1)
    single.turn()
    assert inbox(consumer).got == []
    log.cold = False
    single.turn()
    assert inbox(consumer).bodies == [b"0"]


def test_messages_that_are_gone_or_damaged_do_not_block_their_key(single: World) -> None:
    consumer = single.consume("t", "g", 1)
    single.session.set_group_policy("t", "g", ORDERED)
    publish(single, *[(b"a", b"%d" % index) for index in range(3)])
    single.turn()
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=0)
    log = single.store.logs[0]
    log.start = 1
    single.turn()
    assert inbox(consumer).bodies == [b"0", b"1"]
    log.failed = "damaged"
    single.settle(consumer, inbox(consumer).ids[1])
    single.turn()
    group = single.broker.catalogue.topics["", "t"].groups["g"]
    assert isinstance(group, WorkGroup)
    unreadable = [single.store.logs[0].number << limits.OFFSET_BITS | 2]
    assert group.unreadable == unreadable
    for policy in (GroupPolicy(), ORDERED):
        single.session.set_group_policy("t", "g", policy)
        single.turn()
        assert (group.unreadable, single.view().groups[0].depth) == (unreadable, 1)


def test_messages_with_a_key_go_to_one_partition() -> None:
    world = World(4)
    world.consume("t", "g", 0)
    publish(world, *[(b"same", b"%d" % index) for index in range(8)])
    world.turn()
    assert sorted(log.end for log in world.store.logs.values()) == [0, 0, 0, 8]
    world.session.publish_messages("t", [Message(b"later", key=b"same")], origin=1, delay_ns=SECOND_NS)
    world.turn()
    world.wait(1)
    assert 9 in [log.end for log in world.store.logs.values()]
    assert world.view().message_count == 9
