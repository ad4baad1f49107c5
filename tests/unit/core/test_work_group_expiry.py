"""Messages that are over by a time of their own: not delivered, neither as new ones nor when they come back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from polymq.core import work_group
from polymq.core.policies import Expired, GroupPolicy, TopicPolicy
from polymq.wire.records import Message

from .conftest import SECOND_NS, World, inbox

if TYPE_CHECKING:
    import pytest

    from polymq.core.group import Subscription


def publish(world: World, *lifetimes_s: int, first: int = 0) -> None:
    """Publish messages as one batch; 0: for ever."""
    now_ns = world.clock.wall_ns()
    messages = [
        Message(b"%d" % (first + index), expiry_ns=now_ns + seconds * SECOND_NS if seconds else None)
        for index, seconds in enumerate(lifetimes_s)
    ]
    world.session.publish_messages("t", messages, origin=1)
    world.turn()


def bodies(consumer: Subscription) -> list[bytes]:
    return [body for body, _attempts in inbox(consumer).got]


def test_what_is_over_is_stepped_over(single: World) -> None:
    single.consume("t", "g", 0)
    publish(single, 5, 0, 9, 5, 5, 0, 9)
    publish(single, 5, first=10)
    single.wait(5)
    consumer = single.consume("t", "g", 10)
    single.turn()
    assert bodies(consumer) == [b"1", b"2", b"5", b"6"]
    group = single.view().groups[0]
    assert (group.depth, group.leased, group.expired_count) == (0, 4, 4)
    single.settle(consumer, *inbox(consumer).ids)
    single.turn()
    single.restart()
    assert single.view().groups[0].depth == 0


def test_what_is_over_is_settled_for_good(single: World) -> None:
    single.consume("t", "g", 10)
    single.session.close()
    single.session = single.broker.session(single.session.principal)
    publish(single, 1, 1)
    single.wait(1)
    single.consume("t", "g", 1)
    single.turn()
    single.restart()
    assert single.view().groups[0].depth == 0


def test_it_is_over_at_its_very_time_and_not_before(single: World) -> None:
    consumer = single.consume("t", "g", 0)
    publish(single, 1)
    single.clock.now_ns += SECOND_NS - 1
    single.session.credit(consumer, 1)
    single.turn()
    assert bodies(consumer) == [b"0"]
    single.clock.now_ns += 1
    single.session.give_back(consumer)
    single.turn()
    assert bodies(consumer) == [b"0"]
    assert single.view().groups[0].expired_count == 1


def test_what_comes_back_and_is_over_is_dropped_also_after_a_crash(single: World) -> None:
    consumer = single.consume("t", "g", 3)
    publish(single, 5, 0, 9)
    assert bodies(consumer) == [b"0", b"1", b"2"]
    single.restart()
    single.wait(5)
    again = single.consume("t", "g", 3)
    single.turn()
    assert bodies(again) == [b"1", b"2"]
    assert single.view().groups[0].depth == 0


def test_what_is_out_may_be_settled_after_its_time(single: World) -> None:
    consumer = single.consume("t", "g", 1)
    publish(single, 1)
    single.wait(5)
    assert single.settle(consumer, inbox(consumer).ids[0]) == []
    assert single.view().groups[0].expired_count == 0


def test_dead_letters_are_made_of_it_if_the_topic_says_so(single: World) -> None:
    single.consume("t", "g", 0)
    single.session.set_topic_policy("t", TopicPolicy(expired=Expired.DEAD_LETTER))
    publish(single, 1, 1, 0, 1)
    single.wait(1)
    consumer = single.consume("t", "g", 10)
    single.turn()
    single.store.sync()
    single.turn()
    assert bodies(consumer) == [b"2"]
    log = single.store.logs[single.broker.catalogue.topics["", "t.g.dead"].partitions[0].number]
    assert [letter.body for letter in log.messages()] == [b"0", b"1", b"3"]
    assert {letter.expiry_ns for letter in log.messages()} == {None}


def test_an_ordered_group_drops_it_too(single: World) -> None:
    consumer = single.consume("t", "g", 0)
    single.session.set_group_policy("t", "g", GroupPolicy(ordered=True))
    now_ns = single.clock.wall_ns()
    ends = [SECOND_NS, None, SECOND_NS]
    rows = [Message(b"%d" % index, key=b"k", expiry_ns=end and now_ns + end) for index, end in enumerate(ends)]
    single.session.publish_messages("t", rows, origin=1)
    single.wait(1)
    single.session.credit(consumer, 10)
    single.turn()
    assert bodies(consumer) == [b"1"]
    single.settle(consumer, *inbox(consumer).ids)
    single.turn()
    assert single.view().groups[0].depth == 0


@given(st.lists(st.integers(0, 3), min_size=1, max_size=30), st.integers(1, 4), st.integers(1, 5))
def test_everything_else_is_delivered_in_order(lifetimes_s: list[int], seconds: int, credit: int) -> None:
    world = World(1)
    world.consume("t", "g", 0)
    publish(world, *lifetimes_s)
    world.wait(seconds)
    consumer = world.consume("t", "g", credit)
    world.turn()
    while inbox(consumer).ids:
        world.settle(consumer, *inbox(consumer).ids)
        inbox(consumer).ids.clear()
        world.turn()
    assert bodies(consumer) == [b"%d" % index for index, each in enumerate(lifetimes_s) if not 0 < each <= seconds]
    assert world.view().groups[0].depth == 0


def test_time_goes_on_while_one_looks(single: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look at the clock is later than the one before, and each time one more is over."""
    consumer = single.consume("t", "g", 0)
    now_ns = single.clock.wall_ns()
    single.session.publish_messages("t", [Message(b"%d" % index, expiry_ns=now_ns + 10 + index) for index in range(100)], origin=1)
    single.turn()
    single.clock.now_ns += 10

    def wall_ns() -> int:
        single.clock.now_ns += 1
        return now_ns + single.clock.now_ns

    monkeypatch.setattr(single.broker.kernel, "wall_ns", wall_ns)
    single.session.credit(consumer, 100)
    single.broker.tick()
    deliveries = single.broker.dispatch()
    assert sum(delivery.slice.count for delivery in deliveries) > 0
    assert deliveries[0].slice.offset > 0


def test_a_dispatch_retires_some_of_what_came_back(single: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_group, "_RETIRED_MAX", 3)
    consumer = single.consume("t", "g", 10)
    publish(single, *[1] * 10, 0)
    single.session.give_back(consumer)
    single.session.credit(consumer, 0)
    single.turn()
    single.clock.now_ns += SECOND_NS
    single.session.credit(consumer, 10)
    single.broker.tick()
    single.broker.dispatch()
    assert single.view().groups[0].expired_count == 3
    single.turn()
    assert single.view().groups[0].expired_count == 10
    assert bodies(consumer)[10:] == [b"10"]


def test_an_ordered_group_drops_what_ends_in_its_lane(single: World) -> None:
    consumer = single.consume("t", "g", 1)
    single.session.set_group_policy("t", "g", GroupPolicy(ordered=True))
    end_ns = single.clock.wall_ns() + SECOND_NS
    rows = [Message(b"a", key=b"k"), Message(b"b", key=b"k", expiry_ns=end_ns), Message(b"c", key=b"k")]
    single.session.publish_messages("t", rows, origin=1)
    single.turn()
    single.wait(1)
    single.settle(consumer, *inbox(consumer).ids)
    single.turn()
    assert bodies(consumer) == [b"a", b"c"]
