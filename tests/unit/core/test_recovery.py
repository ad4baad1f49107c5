from __future__ import annotations

import random
import sys

import pytest

from polymq.errors import CorruptRecord
from polymq.wire.tickets import TicketState

from .conftest import SECOND_NS, World, inbox


def bodies(count: int) -> list[bytes]:
    return [f"m{index}".encode() for index in range(count)]


def test_what_was_settled_does_not_come_back_and_the_rest_does(world: World) -> None:
    consumer = world.consume("t", "g", 10)
    for body in bodies(20):
        world.publish("t", body)
    world.turn()
    got = dict(zip(inbox(consumer).ids, inbox(consumer).bodies, strict=True))
    done = inbox(consumer).ids[1::2]
    world.settle(consumer, *done)
    world.session.credit(consumer, 0)
    world.turn()
    world.restart()
    again = world.consume("t", "g", 100)
    world.turn()
    settled = {got[message_id] for message_id in done}
    assert sorted(inbox(again).bodies) == sorted(set(bodies(20)) - settled)


def test_a_snapshot_stands_for_everything_before_it(world: World) -> None:
    consumer = world.consume("t", "g", 10)
    for body in bodies(15):
        world.publish("t", body)
    world.turn()
    ids = list(inbox(consumer).ids)
    world.settle(consumer, *ids[3:6])
    world.session.requeue(consumer, ids[0], delay_ns=5 * SECOND_NS)
    world.session.requeue(consumer, ids[1], delay_ns=0)
    world.session.credit(consumer, 0)
    world.turn()
    world.broker.snapshot()
    before = len(world.store.journal.entries)
    world.restart()
    assert len(world.store.journal.entries) == before
    again = world.consume("t", "g", 100)
    world.turn()
    assert len(inbox(again).got) == 15 - 3 - 1
    assert (b"m0", 2) not in inbox(again).got
    world.wait(5)
    assert inbox(again).got[-1][1] == 2
    assert len(set(inbox(again).bodies)) == 12


def test_attempts_of_given_back_messages_survive(single: World) -> None:
    consumer = single.consume("t", "g", 1)
    single.publish("t", b"x")
    single.turn()
    for _ in range(3):
        single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=0)
        single.turn()
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=0)
    single.session.credit(consumer, 0)
    single.turn()
    single.restart()
    again = single.consume("t", "g", 1)
    single.turn()
    assert inbox(again).got == [(b"x", 5)]


def test_deferred_messages_keep_their_due_time(world: World) -> None:
    consumer = world.consume("t", "g", 5)
    world.publish("t", b"x")
    world.publish("t", b"later", delay_ns=10 * SECOND_NS)
    world.turn()
    world.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=4 * SECOND_NS)
    world.wait(1)
    world.restart()
    again = world.consume("t", "g", 5)
    world.wait(2.9)
    assert inbox(again).got == []
    world.wait(0.1)
    assert inbox(again).got == [(b"x", 2)]
    world.wait(5.9)
    assert len(inbox(again).got) == 1
    world.wait(0.1)
    assert inbox(again).got[1:] == [(b"later", 1)]


def test_a_message_deferred_twice_keeps_the_second_due_time(single: World) -> None:
    consumer = single.consume("t", "g", 5)
    single.publish("t", b"x")
    single.turn()
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=SECOND_NS)
    single.wait(1)
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=60 * SECOND_NS)
    single.turn()
    single.restart()
    again = single.consume("t", "g", 5)
    single.wait(30)
    assert inbox(again).got == []


def test_release_that_died_before_its_append_is_neither_lost_nor_doubled(single: World) -> None:
    consumer = single.consume("t", "g", 5)
    single.publish("t", b"later", delay_ns=SECOND_NS)
    single.turn()
    single.clock.now_ns += SECOND_NS
    single.broker.tick()  # journals the release and stages the append, which is never committed
    single.restart()
    again = single.consume("t", "g", 5)
    single.wait(0.1)
    assert inbox(again).got == [(b"later", 1)]
    single.settle(again, *inbox(again).ids)
    single.turn()
    single.restart()
    third = single.consume("t", "g", 5)
    single.wait(100)
    assert inbox(third).got == []
    assert inbox(consumer).got == []


def test_release_that_finds_no_room_is_tried_again(single: World) -> None:
    consumer = single.consume("t", "g", 5)
    single.publish("t", b"later", delay_ns=SECOND_NS)
    single.turn()
    single.store.journal.full = True
    single.wait(1)
    assert inbox(consumer).got == []
    single.store.journal.full = False
    single.publish("t", b"between")
    single.turn()
    single.restart()
    again = single.consume("t", "g", 5)
    single.wait(1)
    assert sorted(inbox(again).bodies) == [b"between", b"later"]


def release_that_fails(world: World, *, arrives: bool) -> None:
    """Publish one deferred message and have its append fail, on the disk or not; then take a snapshot and start anew."""
    world.publish("t", b"later", delay_ns=SECOND_NS)
    world.turn()
    world.clock.now_ns += SECOND_NS
    world.broker.tick()
    log = world.store.logs[0]
    assert log.ticket is not None
    log.ticket.state, log.ticket, log.failed = TicketState.FAILED, None, "the disk is broken"
    log.end = log.readable
    world.broker.snapshot()
    log.failed = ""
    log.readable = log.end = int(arrives)
    world.restart()


@pytest.mark.parametrize("arrives", [False, True])
def test_release_whose_append_failed_is_neither_lost_nor_doubled_by_a_snapshot(single: World, arrives: bool) -> None:
    single.consume("t", "g", 0)
    release_that_fails(single, arrives=arrives)
    again = single.consume("t", "g", 5)
    single.wait(1)
    assert inbox(again).got == [(b"later", 1)]


def test_release_that_is_not_synced_keeps_what_it_was_made_of(single: World) -> None:
    single.consume("t", "g", 0)
    single.publish("t", b"later", delay_ns=SECOND_NS)
    single.turn()
    single.store.logs[0].durable = 0
    single.wait(1)
    single.wait(1)
    schedule = single.store.logs[1]
    assert set(schedule.retained) == {0}
    single.store.logs[0].durable = 1
    single.wait(1)
    assert schedule.retained[-1] == 1


def test_release_that_arrived_is_forgotten(single: World) -> None:
    single.consume("t", "g", 0)
    single.publish("t", b"later", delay_ns=SECOND_NS)
    single.wait(1)
    single.broker.snapshot()
    single.restart()
    again = single.consume("t", "g", 5)
    single.wait(1)
    assert inbox(again).got == [(b"later", 1)]
    assert single.view().scheduled == 0


def test_what_becomes_readable_after_a_start_is_handed_out(single: World) -> None:
    single.consume("t", "g", 0)
    single.publish("t", b"unsynced")
    single.turn()
    log = single.store.logs[0]
    log.readable = 0
    single.restart(cut=False)
    consumer = single.consume("t", "g", 5)
    for _ in range(3):
        single.broker.dispatch()
    assert inbox(consumer).got == []
    log.readable = 1
    for delivery in single.broker.dispatch():
        delivery.subscription.listener.take(delivery)  # type: ignore[attr-defined]
    assert inbox(consumer).got == [(b"unsynced", 1)]


def test_pauses_and_groups_survive(world: World) -> None:
    world.consume("t", "g", 0)
    world.session.pause_group("t", "g", paused=True)
    world.session.pause_topic("t", paused=True)
    world.publish("t", b"x")
    world.turn()
    world.restart()
    view = world.view()
    assert (view.paused, view.held, view.groups[0].paused) == (True, 1, True)
    world.session.pause_topic("t", paused=False)
    world.session.pause_group("t", "g", paused=False)
    consumer = world.consume("t", "g", 5)
    world.turn()
    assert inbox(consumer).got == [(b"x", 1)]


def test_backlog_of_a_topic_without_groups_survives(world: World) -> None:
    world.publish("t", b"x")
    world.turn()
    world.restart()
    consumer = world.consume("t", "g", 5)
    world.turn()
    assert inbox(consumer).got == [(b"x", 1)]


def test_emptied_group_stays_empty(world: World) -> None:
    consumer = world.consume("t", "g", 2)
    for body in bodies(5):
        world.publish("t", body)
    world.turn()
    world.session.empty_group("t", "g")
    world.turn()
    world.restart()
    assert world.view().groups[0].depth == 0
    assert inbox(consumer).reason == ""


def test_dropped_messages_stay_dropped(single: World) -> None:
    single.consume("t", "g", 0)
    single.publish("t", b"a")
    single.turn()
    single.session.pause_topic("t", paused=True)
    single.publish("t", b"b")
    single.turn()
    single.session.empty_topic("t")
    single.session.pause_topic("t", paused=False)
    single.publish("t", b"c")
    single.turn()
    for snapshot in (False, True):
        if snapshot:
            single.broker.snapshot()
        single.restart()
        assert single.view().groups[0].depth == 2
    consumer = single.consume("t", "g", 5)
    single.turn()
    assert inbox(consumer).bodies == [b"a", b"c"]


def test_ephemeral_topics_and_groups_do_not_survive(world: World) -> None:
    world.consume("e", "g", 1, ephemeral_topic=True)
    world.publish("t", b"x")
    world.consume("t", "e", 1, ephemeral_group=True)
    world.turn()
    world.restart()
    assert world.session.topic_names() == ["t"]
    assert world.view().groups == ()
    assert len(world.store.logs) == world.settings.partitions


def test_deleted_things_stay_deleted_and_numbers_are_never_reused(world: World) -> None:
    world.publish("t", b"x")
    world.session.delete_topic("t")
    world.turn()
    world.restart()
    assert world.session.topic_names() == []
    world.publish("t", b"y")
    assert min(world.store.logs) == world.settings.partitions


def test_offsets_that_a_power_loss_took_are_not_settled_for_their_successors(single: World) -> None:
    consumer = single.consume("t", "g", 10)
    single.publish("t", b"kept")
    single.turn()
    single.publish("t", b"lost")
    single.turn()
    single.settle(consumer, *inbox(consumer).ids)
    single.turn()
    log = single.store.logs[0]
    log.end = log.readable = 1
    del log.data[log.index[1][2] :]
    del log.index[1:]
    for _ in range(2):
        single.restart()
    single.publish("t", b"new")
    again = single.consume("t", "g", 10)
    single.turn()
    assert inbox(again).bodies == [b"new"]
    single.restart()
    third = single.consume("t", "g", 10)
    single.turn()
    assert inbox(third).bodies == [b"new"]


def test_unknown_entries_are_reported(single: World) -> None:
    single.store.journal.entries.append(bytes([200]))
    with pytest.raises(CorruptRecord, match="kind 200"):
        single.restart()


@pytest.mark.parametrize("seed", range(20))
def test_random_lives_lose_nothing_and_return_nothing_settled(world: World, seed: int) -> None:
    chance = random.Random(seed)
    published: set[bytes] = set()
    settled: set[bytes] = set()
    world.session.create_topic("t")
    world.session.create_group("t", "g")
    for _life in range(4):
        consumers = [world.consume("t", "g", chance.randrange(1, 20), lease_ns=3 * SECOND_NS) for _ in range(2)]
        names = {}
        seen = [0, 0]
        for _step in range(40):
            if chance.random() < 0.6:
                batch = [f"{len(published) + index}".encode() for index in range(chance.randrange(1, 5))]
                world.publish("t", *batch, delay_ns=chance.choice((0, 0, 0, SECOND_NS)))
                published.update(batch)
            for index, consumer in enumerate(consumers):
                fresh = list(zip(inbox(consumer).ids, inbox(consumer).bodies, strict=True))[seen[index] :]
                seen[index] += len(fresh)
                for message_id, body in fresh:
                    names[message_id] = body
                    assert body not in settled
                    fate = chance.random()
                    if fate < 0.6 and not world.settle(consumer, message_id):
                        settled.add(body)
                    elif fate < 0.7:
                        world.session.requeue(consumer, message_id, delay_ns=chance.choice((0, 2 * SECOND_NS)))
            if chance.random() < 0.05:
                world.broker.snapshot()
            world.wait(chance.choice((0, 0, 0.5, 1.5)))
        world.turn()
        world.restart()
    last = world.consume("t", "g", 2500)
    world.wait(10)
    world.wait(10)
    assert set(inbox(last).bodies) == published - settled


def test_a_topic_whose_only_groups_were_ephemeral_keeps_what_comes_after_a_crash(world: World) -> None:
    world.consume("t", "tail", 5, ephemeral_group=True)
    world.publish("t", b"theirs")
    world.turn()
    world.restart()
    world.publish("t", b"kept")
    world.turn()
    for _ in range(2):
        assert world.view().held == 1
        world.restart()
    consumer = world.consume("t", "g", 5)
    world.turn()
    assert inbox(consumer).bodies == [b"kept"]


def test_many_topics_start_quickly_enough_to_need_no_patience(single: World) -> None:
    for index in range(2000):
        single.session.create_topic(f"t{index}")
        single.session.create_group(f"t{index}", "g")
    single.turn()
    steps = 0

    def count(*_arguments: object) -> None:
        nonlocal steps
        steps += 1

    sys.setprofile(count)
    try:
        single.restart()
    finally:
        sys.setprofile(None)
    # Calls, not seconds: a start that looks at every topic for every other one makes millions.
    assert steps < 2000 * 400
