"""Lists of what waits, a look at what comes next, and going back: through the Session, on one and on four partitions."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from polymq import limits
from polymq.core.group import GroupKind
from polymq.errors import Refusal, RefusalCode

from .conftest import SECOND_NS, World, inbox

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.views import PeekedView, ScheduledView


def all_scheduled(world: World, count_max: int) -> list[ScheduledView]:
    found: list[ScheduledView] = []
    for _ in range(1000):
        page = world.session.scheduled("t", after=found[-1].id if found else -1, count_max=count_max)
        assert page is not None
        if not page:
            return found
        assert len(page) <= count_max
        found += page
    raise AssertionError("the list has no end")


def all_peeked(world: World, count_max: int, group: str = "g") -> list[PeekedView]:
    found: list[PeekedView] = []
    for _ in range(1000):
        page = world.session.peek("t", group, after=found[-1].id if found else -1, count_max=count_max)
        assert page is not None
        if not page:
            return found
        assert len(page) <= count_max
        found += page
    raise AssertionError("the list has no end")


def refusal(call: Callable[[], object]) -> RefusalCode:
    with pytest.raises(Refusal) as refused:
        call()
    return refused.value.code


# --- What waits for its time ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count_max", [1, 3, 1000])
def test_deferred_publishes_are_listed_with_due_time_and_size(world: World, count_max: int) -> None:
    published_ns = world.clock.wall_ns()
    for index in range(20):
        world.publish("t", b"x" * index, delay_ns=(20 - index) * SECOND_NS)
    world.turn()
    found = all_scheduled(world, count_max)
    assert len(found) == 20
    assert all(before.id < after.id for before, after in pairwise(found))
    assert {(view.size_bytes, view.due_ns) for view in found} == {(size, published_ns + (20 - size) * SECOND_NS) for size in range(20)}
    assert {view.time_ns for view in found} == {published_ns}


def test_a_deferred_publish_is_cancelled_for_good(world: World) -> None:
    consumer = world.consume("t", "g", 10)
    world.publish("t", b"x", delay_ns=SECOND_NS)
    world.publish("t", b"yy", delay_ns=SECOND_NS)
    world.turn()
    (cancelled,) = [view.id for view in all_scheduled(world, 10) if view.size_bytes == 2]
    world.session.cancel_scheduled("t", cancelled)
    assert refusal(lambda: world.session.cancel_scheduled("t", cancelled)) is RefusalCode.MESSAGE_NOT_FOUND
    assert [view.size_bytes for view in all_scheduled(world, 10)] == [1]
    world.turn()
    world.restart()
    again = world.consume("t", "g", 10)
    world.wait(2)
    assert (inbox(consumer).bodies, inbox(again).bodies) == ([], [b"x"])


def test_what_does_not_wait_cannot_be_cancelled(world: World) -> None:
    world.consume("t", "g", 10)
    world.publish("t", b"x", delay_ns=SECOND_NS)
    world.turn()
    (view,) = all_scheduled(world, 10)
    for wrong in (view.id + 1, view.id + (9 << limits.OFFSET_BITS), 0, -1):
        assert refusal(lambda wrong=wrong: world.session.cancel_scheduled("t", wrong)) is RefusalCode.MESSAGE_NOT_FOUND  # type: ignore[misc]
    world.wait(1)
    assert refusal(lambda: world.session.cancel_scheduled("t", view.id)) is RefusalCode.MESSAGE_NOT_FOUND
    assert all_scheduled(world, 10) == []


def test_a_delay_may_be_a_century_and_not_for_ever(single: World) -> None:
    consumer = single.consume("t", "g", 1)
    century_ns = 100 * 365 * 86_400 * SECOND_NS
    single.publish("t", b"x", delay_ns=century_ns)
    single.publish("t", b"y")
    single.turn()
    single.restart()
    (view,) = all_scheduled(single, 10)
    assert view.due_ns == single.clock.wall_ns() + century_ns
    assert refusal(lambda: single.publish("t", b"x", delay_ns=limits.DELAY_NS_MAX + 1)) is RefusalCode.DELAY_OUT_OF_RANGE
    consumer = single.consume("t", "g", 1)
    single.turn()
    (message_id,) = inbox(consumer).ids
    late = limits.DELAY_NS_MAX + 1
    assert refusal(lambda: single.session.requeue(consumer, message_id, delay_ns=late)) is RefusalCode.DELAY_OUT_OF_RANGE
    single.session.requeue(consumer, message_id, delay_ns=century_ns)
    single.clock.now_ns += century_ns
    single.turn()
    assert sorted(inbox(consumer).bodies) == [b"y", b"y"]
    single.settle(consumer, inbox(consumer).ids[-1])
    single.turn()
    assert inbox(consumer).bodies[-1] == b"x"


def test_a_list_asks_again_while_the_disk_is_read(single: World) -> None:
    single.consume("t", "g", 0)
    single.publish("t", b"x", delay_ns=SECOND_NS)
    single.publish("t", b"y")
    single.turn()
    for log in single.store.logs.values():
        log.cold = True
    assert single.session.scheduled("t") is None
    assert single.session.peek("t", "g") is None
    assert single.session.browse("t", 0, 0) is None
    assert not single.session.replay("t", "g", time_ns=0)
    for log in single.store.logs.values():
        log.cold = False
    assert len(single.session.scheduled("t") or ()) == 1


def test_what_was_given_back_for_later_is_listed(world: World) -> None:
    consumer = world.consume("t", "g", 5)
    for index in range(5):
        world.publish("t", b"%d" % index)
    world.turn()
    for index, message_id in enumerate(inbox(consumer).ids[:4]):
        world.session.requeue(consumer, message_id, delay_ns=(index + 1) * SECOND_NS)
    world.session.credit(consumer, 0)
    due_ns = {message_id: world.clock.wall_ns() + (index + 1) * SECOND_NS for index, message_id in enumerate(inbox(consumer).ids[:4])}
    first = world.session.deferred("t", "g", count_max=3)
    rest = world.session.deferred("t", "g", after=first[-1].id, count_max=3)
    assert {view.id: view.due_ns for view in first + rest} == due_ns
    assert {view.attempts for view in first + rest} == {1}
    world.wait(2)
    assert len(world.session.deferred("t", "g")) == 2


# --- Peeking ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count_max", [1, 4, 1000])
def test_a_look_at_the_backlog_gives_out_nothing(world: World, count_max: int) -> None:
    consumer = world.consume("t", "g", 4)
    for index in range(12):
        world.publish("t", b"%d" % index)
    world.turn()
    held = {body for body, _attempts in inbox(consumer).got}
    world.session.credit(consumer, 0)
    world.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=0)
    world.session.requeue(consumer, inbox(consumer).ids[1], delay_ns=SECOND_NS)
    before = world.view()
    found = all_peeked(world, count_max)
    given_back = inbox(consumer).bodies[0]
    assert sorted(view.message.body for view in found) == sorted({b"%d" % index for index in range(12)} - held | {given_back})
    assert {view.attempts for view in found if view.message.body == given_back} == {1}
    assert {view.attempts for view in found if view.message.body != given_back} == {0}
    assert world.view() == before
    assert all(view.id == world.store.logs[view.partition].number << limits.OFFSET_BITS | view.offset for view in found)


def test_what_a_group_will_step_over_is_not_shown(single: World) -> None:
    consumer = single.consume("t", "g", 0)
    single.publish("t", b"a")
    single.turn()
    single.session.pause_topic("t", paused=True)
    for body in (b"b", b"c"):
        single.publish("t", body)
    single.turn()
    single.session.empty_topic("t")
    single.publish("t", b"d")
    single.turn()
    assert [view.message.body for view in all_peeked(single, 10)] == [b"a"]
    single.session.pause_topic("t", paused=False)
    assert [view.message.body for view in all_peeked(single, 1)] == [b"a", b"d"]
    assert [view.message.body for view in all_peeked(single, 10)] == [b"a", b"d"]
    assert inbox(consumer).got == []


def test_a_page_ends_at_its_bytes_and_at_what_the_limit_says(single: World) -> None:
    single.consume("t", "g", 0)
    for _ in range(4):
        single.publish("t", bytes(limits.PEEK_SIZE_BYTES_MAX // 2))
    single.publish("t", *[b""] * (limits.PEEK_MESSAGES_MAX + 5))
    single.turn()
    first = single.session.peek("t", "g", count_max=10**9)
    assert first is not None
    assert len(first) == 2
    assert len(all_peeked(single, limits.PEEK_MESSAGES_MAX)) == limits.PEEK_MESSAGES_MAX + 9
    page = single.session.browse("t", 0, 4, count_max=10**9)
    assert page is not None
    assert len(page) == limits.PEEK_MESSAGES_MAX


def test_browsing_shows_what_was_settled_too_and_ends_at_the_end(single: World) -> None:
    consumer = single.consume("t", "g", 9)
    single.publish("t", *[b"%d" % index for index in range(9)])
    single.turn()
    single.settle(consumer, *inbox(consumer).ids)
    page = single.session.browse("t", 0, 5)
    assert page is not None
    assert [(view.offset, view.message.body) for view in page] == [(5, b"5"), (6, b"6"), (7, b"7"), (8, b"8")]
    assert single.session.browse("t", 0, 9) == []
    assert refusal(lambda: single.session.browse("t", 1, 0)) is RefusalCode.TOPIC_NOT_FOUND
    single.store.logs[0].start = 3
    page = single.session.browse("t", 0, 0, count_max=2)
    assert page is not None
    assert [view.offset for view in page] == [3, 4]


def test_only_work_groups_have_a_backlog(single: World) -> None:
    single.session.ensure_topic("t")
    single.session.create_group("t", "c", kind=GroupKind.CURSOR)
    assert refusal(lambda: single.session.peek("t", "c")) is RefusalCode.GROUP_NOT_FOUND
    assert refusal(lambda: single.session.peek("t", "none")) is RefusalCode.GROUP_NOT_FOUND
    assert refusal(lambda: single.session.deferred("t", "c")) is RefusalCode.GROUP_NOT_FOUND


# --- Going back -------------------------------------------------------------------------------------------------------


def test_replay_delivers_everything_again_as_for_the_first_time(world: World) -> None:
    consumer = world.consume("t", "g", 100)
    for index in range(8):
        world.publish("t", b"%d" % index)
    world.turn()
    ids = list(inbox(consumer).ids)
    world.settle(consumer, *ids[:3])
    world.session.requeue(consumer, ids[3], delay_ns=0)
    world.session.requeue(consumer, ids[4], delay_ns=5 * SECOND_NS)
    world.session.credit(consumer, 0)
    world.turn()
    assert world.session.replay("t", "g", offset=0)
    view = world.view().groups[0]
    assert (view.depth, view.leased, view.deferred) == (8, 0, 0)
    assert [failure for _index, failure in world.settle(consumer, *ids[5:])] == [RefusalCode.MESSAGE_NOT_LEASED] * 3
    world.turn()
    world.restart()
    again = world.consume("t", "g", 100)
    world.wait(10)
    assert sorted(inbox(again).got) == [(b"%d" % index, 1) for index in range(8)]


def test_replay_by_time_starts_at_what_was_appended_then(world: World) -> None:
    consumer = world.consume("t", "g", 100)
    for index in range(8):
        world.publish("t", b"%d" % index)
        world.wait(1)
    since_ns = world.clock.wall_ns() - 3 * SECOND_NS
    world.settle(consumer, *inbox(consumer).ids)
    assert world.session.replay("t", "g", time_ns=since_ns)
    world.turn()
    assert sorted(inbox(consumer).got[8:]) == [(b"%d" % index, 1) for index in (5, 6, 7)]


def test_replay_forth_leaves_out_what_lies_between(single: World) -> None:
    consumer = single.consume("t", "g", 2)
    single.publish("t", *[b"%d" % index for index in range(9)])
    single.turn()
    assert single.session.replay("t", "g", offset=7, partition=0)
    single.turn()
    single.restart()
    again = single.consume("t", "g", 9)
    single.turn()
    assert sorted(inbox(again).bodies) == [b"7", b"8"]
    assert single.session.replay("t", "g", offset=10**6)
    assert single.view().groups[0].depth == 0
    assert inbox(consumer).got[:2] == [(b"0", 1), (b"1", 1)]


def test_one_partition_goes_back_and_the_others_stay() -> None:
    world = World(4)
    consumer = world.consume("t", "g", 100)
    for index in range(8):
        world.publish("t", b"%d" % index)
    world.turn()
    ids = list(inbox(consumer).ids)
    assert world.session.replay("t", "g", offset=0, partition=2)
    assert world.view().groups[0].leased == 6
    assert consumer.leased == 6
    world.turn()
    assert sorted(inbox(consumer).ids[8:]) == sorted(each for each in ids if each >> limits.OFFSET_BITS == world.store.logs[2].number)
    assert world.settle(consumer, *ids) == []
    assert consumer.leased == 0


def test_leases_that_ran_on_end_with_the_replay(single: World) -> None:
    consumer = single.consume("t", "g", 2, lease_ns=SECOND_NS)
    single.publish("t", b"a", b"b")
    single.turn()
    single.session.extend(consumer, inbox(consumer).ids[0], lease_ns=2 * SECOND_NS, lease_ns_max=9 * SECOND_NS)
    single.session.credit(consumer, 0)
    assert single.session.replay("t", "g", offset=0)
    single.wait(5)
    assert single.view().groups[0].timeout_count == 0
    single.session.credit(consumer, 2)
    single.turn()
    assert inbox(consumer).got[2:] == [(b"a", 1), (b"b", 1)]


def test_a_damaged_partition_refuses_a_replay_by_time(single: World) -> None:
    single.consume("t", "g", 0)
    single.store.logs[0].failed = "damaged"
    assert refusal(lambda: single.session.replay("t", "g", time_ns=1)) is RefusalCode.STORE_FAILED


def test_a_replay_outlives_a_snapshot(single: World) -> None:
    consumer = single.consume("t", "g", 9)
    single.publish("t", *[b"%d" % index for index in range(5)])
    single.turn()
    single.settle(consumer, *inbox(consumer).ids)
    single.session.credit(consumer, 0)
    assert single.session.replay("t", "g", offset=3)
    single.turn()
    single.broker.snapshot()
    single.restart()
    again = single.consume("t", "g", 9)
    single.turn()
    assert inbox(again).bodies == [b"3", b"4"]
