from __future__ import annotations

from itertools import pairwise

import pytest

from polymq import limits
from polymq.core.ports import TicketState
from polymq.errors import Refusal, RefusalCode, StoreFull
from polymq.wire.records import Message

from .conftest import SECOND_NS, World, inbox


def test_scheduled_messages_are_released_in_the_order_of_their_due_times(single: World) -> None:
    consumer = single.consume("t", "g", 5)
    single.publish("t", b"second", delay_ns=2 * SECOND_NS)
    single.publish("t", b"first", delay_ns=SECOND_NS)
    single.turn()
    assert single.view().scheduled == 2
    single.wait(5)
    assert inbox(consumer).bodies == [b"first", b"second"]
    assert (single.view().scheduled, single.view().message_count) == (0, 2)


def test_many_due_at_once_are_released_over_several_steps(single: World) -> None:
    consumer = single.consume("t", "g", 2500)
    bodies = [str(index).encode() for index in range(1500)]
    single.publish("t", *bodies, delay_ns=SECOND_NS)
    single.turn()
    single.wait(1)
    for _ in range(4):
        single.wait(0.01)
    assert inbox(consumer).bodies == bodies


def test_a_release_waits_for_its_own_log_to_be_readable(single: World) -> None:
    consumer = single.consume("t", "g", 5)
    single.publish("t", b"x", delay_ns=SECOND_NS)
    single.turn()
    log = single.store.logs[1]
    log.cold = True
    single.wait(1)
    assert inbox(consumer).got == []
    log.cold = False
    single.wait(0.01)
    assert inbox(consumer).bodies == [b"x"]


def test_no_room_is_a_refusal_and_leaves_nothing_behind(single: World) -> None:
    single.publish("t", b"x", delay_ns=SECOND_NS)
    single.turn()

    def full(*_arguments: object, **_names: object) -> None:
        raise StoreFull("no room")

    single.store.logs[1].append = full  # type: ignore[method-assign, assignment]
    with pytest.raises(Refusal) as refused:
        single.publish("t", b"y", delay_ns=SECOND_NS)
    assert refused.value.code is RefusalCode.STORE_FULL
    assert single.view().scheduled == 1


def test_messages_keep_the_time_at_which_they_were_published(single: World) -> None:
    single.consume("t", "g", 0)
    single.publish("t", b"x", delay_ns=SECOND_NS)
    single.turn()
    published_ns = single.clock.wall_ns()
    single.wait(1)
    (message,) = single.store.logs[0].messages()
    assert message.time_ns == published_ns


def test_a_deleted_topic_takes_its_schedule_along(single: World) -> None:
    single.publish("t", b"x", delay_ns=SECOND_NS)
    single.turn()
    single.session.delete_topic("t")
    single.wait(2)
    assert single.store.logs == {}


def test_large_messages_are_released_a_few_at_a_time(single: World) -> None:
    consumer = single.consume("t", "g", 100)
    for index in range(40):
        single.publish("t", bytes([index]) * 1_000_000, delay_ns=SECOND_NS)
    single.turn()
    single.wait(1)
    assert [body[:1] for body in inbox(consumer).bodies] == [bytes([index]) for index in range(40)]
    assert all(count == 1 for _base, count, _at in single.store.logs[0].index)


def test_emptying_a_topic_without_groups_drops_what_is_scheduled(single: World) -> None:
    single.publish("t", b"x", delay_ns=SECOND_NS)
    single.turn()
    single.session.empty_topic("t")
    assert single.view().scheduled == 0
    single.turn()
    single.restart()
    consumer = single.consume("t", "g", 5)
    single.wait(2)
    assert inbox(consumer).got == []


def test_a_snapshot_knows_what_was_released_and_is_not_synced(single: World) -> None:
    single.consume("t", "g", 0)
    single.publish("t", b"x", delay_ns=SECOND_NS)
    single.wait(1)
    single.broker.snapshot()
    log = single.store.logs[0]
    log.end = log.readable = 0
    log.data.clear()
    log.index.clear()
    single.restart()
    consumer = single.consume("t", "g", 5)
    single.wait(1)
    assert inbox(consumer).bodies == [b"x"]
    log.durable = log.end
    single.broker.snapshot()
    single.restart()
    assert single.view().scheduled == 0


def test_an_undone_release_does_not_come_back_at_the_next_start(single: World) -> None:
    consumer = single.consume("t", "g", 5)
    single.publish("t", b"x", b"y")
    single.publish("t", b"later", delay_ns=SECOND_NS)
    single.wait(1)
    log = single.store.logs[0]
    log.end = log.readable = 0
    log.data.clear()
    log.index.clear()
    for _ in range(3):
        single.restart()
        single.wait(0.1)
    consumer = single.consume("t", "g", 5)
    single.turn()
    assert inbox(consumer).bodies == [b"later"]
    assert log.end == 1


def test_very_many_that_are_due_at_once_come_in_the_order_of_the_log(single: World) -> None:
    consumer = single.consume("t", "g", 2500)
    due_ms = [(7 * index) % 100 for index in range(300)]
    for index, milliseconds in enumerate(due_ms):
        single.publish("t", b"%d" % index, delay_ns=SECOND_NS + milliseconds * 1_000_000)
    single.turn()
    single.wait(2)
    assert inbox(consumer).bodies == [b"%d" % index for index in range(300)]
    assert single.view().scheduled == 0


def test_so_many_that_they_take_several_steps_are_counted_and_survive_a_snapshot_in_between(single: World) -> None:
    single.consume("t", "g", 0)
    count = 45_000
    for _ in range(9):
        single.publish("t", *[b"x"] * (count // 9), delay_ns=SECOND_NS)
    single.turn()
    single.clock.now_ns += SECOND_NS
    seen = []
    for _ in range(6):
        single.broker.tick()
        single.store.commit()
        seen.append(single.store.logs[0].end)
        assert single.view().scheduled == count - seen[-1]
        assert single.view().groups[0].scheduled == count - seen[-1]
    schedule = single.broker.catalogue.topics["", "t"].partitions[0].schedule
    assert schedule is not None
    assert (seen[0], 0 < seen[-1] < count, schedule.first_needed) == (0, True, 0)
    single.broker.snapshot()
    single.restart()
    assert single.view().scheduled == count - seen[-1]
    single.turn()
    assert single.store.logs[0].end == count
    assert single.store.logs[0].retained == []


def test_far_apart_messages_are_looked_up_a_few_at_a_time(single: World) -> None:
    consumer = single.consume("t", "g", 2500)
    wanted = []
    for index in range(200):
        single.publish("t", b"%d" % index, delay_ns=SECOND_NS)
        wanted.append(b"%d" % index)
        single.publish("t", *[b""] * 2100, delay_ns=3600 * SECOND_NS)
    single.turn()
    single.wait(1)
    assert inbox(consumer).bodies == wanted
    assert max(count for _base, count, _at in single.store.logs[0].index) <= 33


def test_schedules_share_what_a_turn_may_do() -> None:
    world = World(4)
    for _ in range(4):
        world.publish("t", *[bytes(1000)] * 2000, delay_ns=SECOND_NS)
    world.turn()
    world.clock.now_ns += SECOND_NS
    ends = []
    for _ in range(9):
        world.broker.tick()
        world.store.commit()
        ends.append([log.end for log in world.store.logs.values() if log.index and log.number < 4])
    steps = [sum(now) - sum(before) for before, now in pairwise(ends)]
    assert max(steps) <= 4 * 263
    assert all(ends[-1])


def test_a_failed_partition_is_not_asked_at_every_turn(single: World) -> None:
    single.publish("t", b"x", delay_ns=SECOND_NS)
    single.turn()
    single.store.logs[0].failed = "the disk is broken"
    single.wait(1)
    due_ns = single.broker.kernel.schedules.due_ns()
    assert due_ns is not None
    assert due_ns - single.clock.wall_ns() >= SECOND_NS // 2


def test_a_schedule_that_cannot_be_read_keeps_what_waits(single: World) -> None:
    single.publish("t", b"x", delay_ns=SECOND_NS)
    single.turn()
    single.store.logs[1].failed = "damaged"
    single.wait(1)
    assert single.view().scheduled == 1
    single.store.logs[1].failed = ""
    single.wait(1)
    assert single.store.logs[0].end == 1


def test_a_message_can_be_deferred_for_one_partition_of_several_and_is_still_there_after_a_kill() -> None:
    world = World(4)
    world.session.ensure_topic("t")
    ticket, message_id = world.session.publish_later("t", 2, [Message(b"x")], origin=2, delay_ns=SECOND_NS)
    world.turn()
    assert ticket.state is TicketState.DONE
    assert (message_id >> limits.OFFSET_BITS, message_id & limits.OFFSET_MAX) == (4, 0)
    world.restart()
    assert world.view().scheduled == 1
    world.wait(1)
    assert [world.store.logs[number].end for number in range(4)] == [0, 0, 1, 0]
    with pytest.raises(Refusal) as refused:
        world.session.publish_later("t", 4, [Message(b"x")], origin=2, delay_ns=SECOND_NS)
    assert refused.value.code is RefusalCode.TOPIC_NOT_FOUND
