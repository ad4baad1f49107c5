"""Too often, too old: what becomes of messages that are not delivered (any more)."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.core import broker, retiring
from polymq.core.policies import Expired, GroupPolicy, TopicPolicy
from polymq.errors import Refusal, RefusalCode, StoreFailed
from polymq.wire.records import Message

from .conftest import SECOND_NS, World, inbox

if TYPE_CHECKING:
    from polymq.core.group import Subscription

    from .fakes import FakeLog


def dead_log(world: World, name: str = "t.g.dead") -> FakeLog:
    topic = world.broker.catalogue.topics["", name]
    return world.store.logs[topic.partitions[0].number]


def tried(world: World, attempts: int, policy: GroupPolicy, message: Message | None = None) -> Subscription:
    """Have one message given back so many times."""
    consumer = world.consume("t", "g", 1)
    world.session.set_group_policy("t", "g", policy)
    world.session.publish_messages("t", [message or Message(b"x")], origin=1)
    world.turn()
    for _ in range(attempts):
        world.session.requeue(consumer, inbox(consumer).ids[-1], delay_ns=0)
        world.turn()
    return consumer


def test_a_message_that_was_out_too_often_becomes_a_dead_letter(world: World) -> None:
    published_ns = world.clock.wall_ns()
    message = Message(b"x", key=b"k", headers=((b"h", b"v"),), extras=((1, b"native"),), expiry_ns=published_ns + SECOND_NS)
    consumer = tried(world, 3, GroupPolicy(max_attempts=3), message)
    assert inbox(consumer).got == [(b"x", 1), (b"x", 2), (b"x", 3)]
    (letter,) = dead_log(world).messages()
    partition = next(partition for partition in world.view().partitions if partition.end)
    assert (letter.body, letter.key, letter.extras, letter.expiry_ns, letter.time_ns) == (b"x", b"k", message.extras, None, published_ns)
    assert letter.headers == (
        (b"h", b"v"),
        (b"polymq-dead-reason", b"attempts"),
        (b"polymq-dead-topic", b"t"),
        (b"polymq-dead-group", b"g"),
        (b"polymq-dead-partition", b"%d" % partition.partition),
        (b"polymq-dead-offset", b"0"),
        (b"polymq-dead-attempts", b"3"),
        (b"polymq-dead-time-ns", b"%d" % world.clock.wall_ns()),
    )
    view = world.view().groups[0]
    assert (view.depth, view.leased, view.dead_letter_count) == (0, 0, 1)
    assert (world.view("t.g.dead").message_count, world.view("t.g.dead").message_bytes) == (1, 1)


def test_a_dead_letter_is_settled_when_it_is_durable_and_not_before(single: World) -> None:
    tried(single, 1, GroupPolicy(max_attempts=1))
    single.turn()
    single.restart()
    consumer = single.consume("t", "g", 1)
    single.turn()
    # The crash left it in both: there it is a copy, here its attempts are known.
    assert inbox(consumer).got == []
    assert dead_log(single).end == 2
    single.store.sync()
    single.turn()
    assert single.broker.kernel.moving == {}
    single.turn()
    single.restart()
    again = single.consume("t", "g", 1)
    single.turn()
    assert inbox(again).got == []
    assert dead_log(single).end == 2
    assert single.view().groups[0].depth == 0


def test_timeouts_count_as_attempts(single: World) -> None:
    consumer = single.consume("t", "g", 1, lease_ns=SECOND_NS)
    single.session.set_group_policy("t", "g", GroupPolicy(max_attempts=2, dead_letter="graves"))
    single.publish("t", b"x")
    single.turn()
    single.wait(1)
    single.wait(1)
    assert inbox(consumer).got == [(b"x", 1), (b"x", 2)]
    assert [letter.body for letter in dead_log(single, "graves").messages()] == [b"x"]


def test_attempts_that_ended_in_timeouts_outlive_the_process(single: World) -> None:
    consumer = single.consume("t", "g", 1, lease_ns=SECOND_NS)
    single.session.set_group_policy("t", "g", GroupPolicy(max_attempts=3))
    single.publish("t", b"x")
    single.turn()
    single.wait(1)
    single.session.credit(consumer, 0)
    single.wait(1)
    single.restart()
    again = single.consume("t", "g", 1, lease_ns=SECOND_NS)
    single.turn()
    single.wait(1)
    assert inbox(again).got == [(b"x", 3)]
    assert dead_log(single).end == 1


def test_an_append_that_fails_in_the_dead_letter_topic_lets_the_message_wait_again(single: World) -> None:
    consumer = tried(single, 1, GroupPolicy(max_attempts=1))
    log = dead_log(single)
    log.failed = "the disk is broken"
    single.turn()
    assert single.view().groups[0].depth == 1
    assert inbox(consumer).got == [(b"x", 1)]
    log.failed = ""
    single.session.credit(consumer, 1)
    single.turn()
    assert log.end == 2
    single.store.sync()
    single.turn()
    assert single.view().groups[0].depth == 0


def test_without_a_place_for_dead_letters_a_message_waits(single: World) -> None:
    single.consume("t", "g", 0)
    consumer = single.consume("t", "g", 1)
    single.session.set_group_policy("t", "g", GroupPolicy(max_attempts=1))
    single.publish("t", b"x")
    single.turn()

    def refuse(*_arguments: object) -> None:
        raise Refusal(RefusalCode.LIMIT_REACHED)

    make, single.broker.kernel.make_topic = single.broker.kernel.make_topic, refuse  # type: ignore[assignment]
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=0)
    single.publish("t", b"y")
    single.turn()
    assert inbox(consumer).got == [(b"x", 1), (b"y", 1)]
    assert single.view().groups[0].depth == 1
    single.broker.kernel.make_topic = make
    single.settle(consumer, inbox(consumer).ids[1])
    single.turn()
    assert dead_log(single).end == 1


def test_the_limit_of_topics_holds_for_dead_letters_too(single: World) -> None:
    single.consume("t", "g", 0)
    topic = single.broker.catalogue.topics["", "t"]
    object.__setattr__(single.broker.settings, "topics_max", 1)
    with pytest.raises(Refusal) as refused:
        single.broker.kernel.make_topic(topic, "another")
    assert refused.value.code is RefusalCode.LIMIT_REACHED
    assert single.broker.kernel.make_topic(topic, "t") is topic


def test_only_so_many_letters_are_on_their_way(single: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retiring, "_MOVING_MAX", 2)
    consumer = single.consume("t", "g", 3, lease_ns=SECOND_NS)
    single.session.set_group_policy("t", "g", GroupPolicy(max_attempts=1))
    single.publish("t", b"a", b"b", b"c")
    single.turn()
    single.wait(1)
    assert dead_log(single).end == 2
    assert single.view().groups[0].depth == 1
    single.store.sync()
    single.session.credit(consumer, 3)
    single.turn()
    assert dead_log(single).end == 3


def test_emptying_or_replaying_while_letters_are_on_their_way(single: World) -> None:
    tried(single, 1, GroupPolicy(max_attempts=1))
    single.session.empty_group("t", "g")
    single.store.sync()
    single.turn()
    assert single.view().groups[0].depth == 0
    consumer = single.consume("t", "g", 1)
    assert single.session.replay("t", "g", offset=0)
    single.turn()
    single.session.requeue(consumer, inbox(consumer).ids[-1], delay_ns=0)
    single.turn()
    assert dead_log(single).end == 2
    assert single.session.replay("t", "g", offset=0)
    single.store.sync()
    single.turn()
    assert single.view().groups[0].leased == 1
    single.session.delete_group("t", "g")
    single.turn()
    assert single.broker.kernel.moving == {}


@given(st.integers(-5, 100), st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_what_is_too_many_is_spread_and_no_place_gives_more_than_it_has(count: int, sizes: list[int]) -> None:
    parts = retiring.apportion(count, sizes)
    assert sum(parts) == max(0, min(count, sum(sizes)))
    assert all(0 <= part <= size for part, size in zip(parts, sizes, strict=True))


# --- Without anybody who asks -----------------------------------------------------------------------------------------


def left_behind(world: World, count: int, policy: GroupPolicy, topic: str = "t") -> None:
    """Have so many messages with keys handed out once, and given back by a consumer that leaves."""
    consumer = world.consume(topic, "g", count)
    world.session.set_group_policy(topic, "g", policy)
    for index in range(count):
        world.session.publish_messages(topic, [Message(b"%d" % index, key=b"%d" % index)], origin=1)
    world.turn()
    for message_id in inbox(consumer).ids:
        world.session.requeue(consumer, message_id, delay_ns=0)
    assert len(inbox(consumer).ids) == count
    world.session.unsubscribe(consumer)


@pytest.mark.parametrize("ordered", [False, True])
def test_what_was_out_too_often_goes_without_anybody_asking(world: World, ordered: bool) -> None:
    consumer = world.consume("t", "g", 3, lease_ns=SECOND_NS)
    world.session.set_topic_policy("t", TopicPolicy(messages_max=3))
    world.session.set_group_policy("t", "g", GroupPolicy(max_attempts=1, ordered=ordered))
    world.publish("t", b"a", b"b", b"c")
    world.turn()
    world.session.unsubscribe(consumer)
    world.wait(1)
    world.wait(1)
    assert sorted(letter.body for letter in dead_log(world).messages()) == [b"a", b"b", b"c"]
    view = world.view().groups[0]
    assert (view.depth, view.leased, view.dead_letter_count) == (0, 0, 3)
    world.store.sync()
    world.turn()
    world.publish("t", b"there is room", b"again")
    world.wait(1)
    assert (world.view().groups[0].depth, dead_log(world).end) == (2, 3)
    again = world.consume("t", "g", 5)
    world.turn()
    assert sorted(inbox(again).got) == [(b"again", 1), (b"there is room", 1)]


@pytest.mark.parametrize("ordered", [False, True])
def test_given_back_messages_grow_too_old_without_anybody_asking(world: World, ordered: bool) -> None:
    left_behind(world, 4, GroupPolicy(ordered=ordered))
    world.session.set_topic_policy("t", TopicPolicy(ttl_ns=10 * SECOND_NS))
    world.wait(9)
    world.publish("t", b"young")
    world.turn()
    assert world.view().groups[0].depth == 5
    world.wait(2)
    view = world.view().groups[0]
    assert (view.depth, view.expired_count) == (1, 4)
    world.wait(1)
    needed = [world.broker.catalogue.topics["", "t"].groups["g"].first_needed(index) for index in range(len(world.view().partitions))]
    ends = [partition.end for partition in world.view().partitions]
    assert sum(ends) - sum(needed) == 1, "nothing but the young one is kept"
    again = world.consume("t", "g", 5)
    world.turn()
    assert inbox(again).got == [(b"young", 1)]


def test_lanes_grow_old_that_nobody_has_had(single: World) -> None:
    consumer = single.consume("t", "g", 1)
    single.session.set_group_policy("t", "g", GroupPolicy(ordered=True))
    single.session.set_topic_policy("t", TopicPolicy(ttl_ns=10 * SECOND_NS))
    for index in range(5):
        single.session.publish_messages("t", [Message(b"%d" % index, key=b"same")], origin=1)
    single.turn()
    single.wait(11)
    single.wait(1)
    view = single.view().groups[0]
    assert (view.depth, view.leased, view.expired_count) == (0, 1, 4)
    single.session.publish_messages("t", [Message(b"young", key=b"same")], origin=1)
    single.settle(consumer, inbox(consumer).ids[0])
    single.turn()
    assert inbox(consumer).bodies == [b"0", b"young"]


@pytest.mark.parametrize("ordered", [False, True])
def test_a_step_retires_only_so_many(single: World, monkeypatch: pytest.MonkeyPatch, ordered: bool) -> None:
    left_behind(single, 40, GroupPolicy(max_attempts=3, ordered=ordered))
    monkeypatch.setattr(broker, "_SWEEP_EFFORT_PER_STEP", 100)
    single.session.set_group_policy("t", "g", GroupPolicy(max_attempts=1, ordered=ordered))
    counts = []
    for _ in range(30):
        single.wait(1)
        counts.append(single.view().groups[0].dead_letter_count)
    assert counts[-1] == 40
    assert all(0 <= after - before <= 5 for before, after in pairwise([0, *counts]))


def test_what_is_not_to_be_retired_stays_in_order_and_is_passed_over(single: World, monkeypatch: pytest.MonkeyPatch) -> None:
    left_behind(single, 500, GroupPolicy(max_attempts=2))
    left_behind(single, 3, GroupPolicy(max_attempts=1), topic="u")
    monkeypatch.setattr(broker, "_SWEEP_EFFORT_PER_STEP", 100)
    for _ in range(6):
        single.wait(1)
    assert single.view("u").groups[0].dead_letter_count == 3, "another topic's turn comes"
    again = single.consume("t", "g", 500)
    for _ in range(10):
        single.turn()
    assert [int(body) for body in inbox(again).bodies] == list(range(500))


def test_whatever_was_given_back_retention_looks_at_every_topic(single: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "_SWEEP_EFFORT_PER_STEP", 100)
    for topic in ("t", "u", "v"):
        left_behind(single, 200, GroupPolicy(max_attempts=5), topic=topic)
    single.wait(1)
    looks = {number: len(log.retained) for number, log in single.store.logs.items()}
    single.wait(1)
    assert {number: len(log.retained) - looks[number] for number, log in single.store.logs.items()} == dict.fromkeys(looks, 1)


def test_the_middle_of_what_was_given_back_is_retired(single: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that were out more often lie among others; a step goes on where the one before ended."""
    consumer = single.consume("t", "g", 200)
    single.session.set_group_policy("t", "g", GroupPolicy(max_attempts=2))
    for index in range(200):
        single.publish("t", b"%d" % index)
    single.turn()
    for message_id in inbox(consumer).ids[150:160]:
        single.session.requeue(consumer, message_id, delay_ns=0)
    single.turn()
    single.session.credit(consumer, 0)
    for message_id in inbox(consumer).ids[:200]:
        single.session.requeue(consumer, message_id, delay_ns=0)
    monkeypatch.setattr(broker, "_SWEEP_EFFORT_PER_STEP", 50)
    for _ in range(60):
        single.wait(1)
    assert sorted(int(letter.body) for letter in dead_log(single).messages()) == list(range(150, 160))
    single.session.credit(consumer, 200)
    single.turn()
    assert [int(body) for body in inbox(consumer).bodies[210:]] == [*range(150), *range(160, 200)]


@pytest.mark.parametrize("ordered", [False, True])
def test_what_cannot_be_read_just_now_is_retired_later_and_what_is_gone_is_gone(single: World, ordered: bool) -> None:
    left_behind(single, 4, GroupPolicy(max_attempts=1, ordered=ordered))
    log = single.store.logs[0]
    log.cold = True
    single.wait(1)
    assert single.view().groups[0].depth == 4
    log.cold = False
    log.start = 2  # trimmed
    single.wait(1)
    assert sorted(letter.body for letter in dead_log(single).messages()) == [b"2", b"3"]
    assert single.view().groups[0].depth == 0
    left_behind(single, 2, GroupPolicy(max_attempts=1, ordered=ordered))
    single.session.set_topic_policy("t", TopicPolicy(ttl_ns=100 * SECOND_NS))
    log.failed = "damaged"
    single.wait(1)
    assert (single.view().groups[0].depth, dead_log(single).end) == (2, 2)
    assert len(single.broker.catalogue.topics["", "t"].groups["g"].unreadable) == 2  # type: ignore[attr-defined]


def test_without_a_place_for_dead_letters_nothing_is_lost_while_nobody_asks(single: World) -> None:
    left_behind(single, 2, GroupPolicy(max_attempts=1))

    def refuse(*_arguments: object) -> None:
        raise Refusal(RefusalCode.LIMIT_REACHED)

    make, single.broker.kernel.make_topic = single.broker.kernel.make_topic, refuse  # type: ignore[assignment]
    single.wait(1)
    single.wait(1)
    assert single.view().groups[0].depth == 2
    single.broker.kernel.make_topic = make
    single.wait(1)
    assert (single.view().groups[0].depth, dead_log(single).end) == (0, 2)


# --- Too old ----------------------------------------------------------------------------------------------------------


def test_new_messages_that_are_too_old_are_settled_at_dispatch(world: World) -> None:
    world.consume("t", "g", 0)
    world.session.set_topic_policy("t", TopicPolicy(ttl_ns=10 * SECOND_NS))
    for index in range(8):
        world.publish("t", b"old %d" % index)
        world.turn()
    world.clock.now_ns += 10 * SECOND_NS
    world.publish("t", b"young")
    world.store.commit()
    world.clock.now_ns += SECOND_NS
    consumer = world.consume("t", "g", 100)
    world.turn()
    assert inbox(consumer).bodies == [b"young"]
    view = world.view().groups[0]
    assert (view.expired_count, view.depth, view.leased) == (8, 0, 1)
    world.turn()
    world.restart()
    again = world.consume("t", "g", 100)
    world.turn()
    assert inbox(again).bodies == [b"young"]


def test_old_messages_go_without_anybody_asking(world: World) -> None:
    world.consume("t", "g", 0)
    world.session.set_topic_policy("t", TopicPolicy(ttl_ns=10 * SECOND_NS))
    for _ in range(4):
        world.publish("t", b"x")
    world.turn()
    world.wait(10)
    assert world.view().groups[0].depth == 4
    world.wait(2)
    assert (world.view().groups[0].depth, world.view().groups[0].expired_count) == (0, 4)


def test_given_back_messages_grow_too_old_as_well(single: World) -> None:
    consumer = single.consume("t", "g", 1)
    single.session.set_topic_policy("t", TopicPolicy(ttl_ns=10 * SECOND_NS))
    single.publish("t", b"x")
    single.turn()
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=11 * SECOND_NS)
    single.wait(11)
    view = single.view().groups[0]
    assert (inbox(consumer).got, view.expired_count, view.depth, view.deferred) == ([(b"x", 1)], 1, 0, 0)


@pytest.mark.parametrize("given_back", [False, True])
def test_too_old_messages_become_dead_letters_if_the_policy_says_so(single: World, given_back: bool) -> None:
    consumer = single.consume("t", "g", int(given_back))
    single.session.set_topic_policy("t", TopicPolicy(ttl_ns=10 * SECOND_NS, expired=Expired.DEAD_LETTER))
    single.publish("t", b"x")
    single.turn()
    if given_back:
        single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=11 * SECOND_NS)
    single.wait(11)
    single.wait(1)
    (letter,) = dead_log(single).messages()
    assert (letter.body, dict(letter.headers)[b"polymq-dead-reason"]) == (b"x", b"expired")
    assert dict(letter.headers)[b"polymq-dead-attempts"] == b"%d" % given_back
    single.store.sync()
    single.turn()
    single.turn()
    single.restart()
    again = single.consume("t", "g", 5)
    single.turn()
    assert inbox(again).got == []
    assert dead_log(single).end == 1


def test_very_many_old_messages_become_dead_letters_page_by_page(single: World) -> None:
    single.session.create_group("t", "g") if "t" in single.session.topic_names() else single.consume("t", "g", 0)
    single.session.set_topic_policy("t", TopicPolicy(ttl_ns=SECOND_NS, expired=Expired.DEAD_LETTER))
    count = 2 * limits.PEEK_MESSAGES_MAX + 10
    single.publish("t", *[b"%d" % index for index in range(count)])
    single.turn()
    single.clock.now_ns += 2 * SECOND_NS
    consumer = single.consume("t", "g", 10)
    single.turn()
    assert [letter.body for letter in dead_log(single).messages()] == [b"%d" % index for index in range(count)]
    assert inbox(consumer).got == []
    assert single.view().groups[0].expired_count == count


def test_what_is_too_old_is_not_known_while_the_disk_is_read(single: World) -> None:
    single.consume("t", "g", 0)
    single.session.set_topic_policy("t", TopicPolicy(ttl_ns=SECOND_NS))
    single.publish("t", b"x")
    single.turn()
    single.clock.now_ns += 2 * SECOND_NS
    log = single.store.logs[0]
    real, log.offset_at = log.offset_at, lambda _time_ns: None  # type: ignore[method-assign, assignment]
    consumer = single.consume("t", "g", 10)
    single.turn()
    assert (inbox(consumer).got, single.view().groups[0].depth) == ([], 1)
    log.offset_at = real  # type: ignore[method-assign]
    single.turn()
    assert (inbox(consumer).got, single.view().groups[0].depth) == ([], 0)


def test_the_log_is_asked_the_same_until_it_answers(single: World) -> None:
    """A new question at each attempt would never be answered."""
    single.consume("t", "g", 0)
    single.session.set_topic_policy("t", TopicPolicy(ttl_ns=SECOND_NS))
    single.publish("t", b"x")
    single.turn()
    log = single.store.logs[0]
    real, asked = log.offset_at, []

    def reads_the_disk(time_ns: int) -> None:
        asked.append(time_ns)

    log.offset_at = reads_the_disk  # type: ignore[method-assign]
    single.clock.now_ns += 5 * SECOND_NS
    first_ns = single.clock.wall_ns() - SECOND_NS
    consumer = single.consume("t", "g", 10)
    single.turn()
    single.wait(1)
    assert set(asked) == {first_ns}
    assert len(asked) > 1
    # What is wanted now is less: the answer to the question would be too much.
    single.session.set_topic_policy("t", TopicPolicy(ttl_ns=4 * SECOND_NS))
    asked.clear()
    single.wait(1)
    assert set(asked) == {first_ns - SECOND_NS}
    log.offset_at = real  # type: ignore[method-assign]
    single.turn()
    view = single.view().groups[0]
    assert (inbox(consumer).got, view.depth, view.expired_count) == ([], 0, 1)
    single.publish("t", b"y")
    single.turn()
    assert inbox(consumer).bodies == [b"y"]


def test_an_answer_serves_whoever_asks_for_no_less(single: World) -> None:
    single.publish("t", b"x")
    single.turn()
    (partition,) = single.broker.catalogue.topics["", "t"].partitions
    cutoff_ns = single.clock.wall_ns() + 10
    log = single.store.logs[0]
    assert partition.end_of_old(cutoff_ns, 0) == 1
    log.cold = True
    assert [partition.end_of_old(cutoff_ns + more, 0) for more in (0, 5, -1)] == [1, 1, None]
    assert partition.end_of_old(cutoff_ns, 1) is None
    log.cold = False
    log.failed = "damaged"
    with pytest.raises(StoreFailed):
        partition.end_of_old(cutoff_ns, 1)
    assert partition.asked_ns is None


def test_where_the_log_cannot_say_what_is_too_old_it_is_delivered(single: World) -> None:
    single.consume("t", "g", 0)
    single.session.set_topic_policy("t", TopicPolicy(ttl_ns=SECOND_NS))
    single.publish("t", b"x")
    single.turn()
    single.clock.now_ns += 2 * SECOND_NS
    log = single.store.logs[0]

    def damaged(_time_ns: int) -> int:
        log.failed = "damaged"
        try:
            return type(log).offset_at(log, 0) or 0
        finally:
            log.failed = ""

    log.offset_at = damaged  # type: ignore[method-assign, assignment]
    consumer = single.consume("t", "g", 10)
    single.turn()
    assert inbox(consumer).bodies == [b"x"]
