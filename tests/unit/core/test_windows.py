"""Queues over sessions: the group that keeps what is published, lifetimes, and giving back."""

from __future__ import annotations

from array import array

import pytest

from polymq import limits
from polymq.core.access import STRANGER
from polymq.core.group import GroupKind
from polymq.core.policies import Full, TopicPolicy
from polymq.errors import Refusal, RefusalCode
from polymq.wire.slices import MessageBatch

from .conftest import SECOND_NS, World, inbox
from .fakes import Inbox


def lasting(*lifetimes: int) -> memoryview:
    return memoryview(array("q", lifetimes))


def test_a_queue_keeps_what_comes_before_its_consumers(world: World) -> None:
    world.session.ensure_queue("t", "g")
    world.session.ensure_queue("t", "g")
    world.session.create_group("t", "later")
    world.publish("t", b"a", b"b")
    world.turn()
    consumer = world.consume("t", "g", 10)
    world.turn()
    assert [body for body, _ in inbox(consumer).got] == [b"a", b"b"]
    assert len(world.view().partitions) == 1
    assert {group.name for group in world.view().groups} == {"g", "later"}


@pytest.mark.parametrize("publishes", [False, True])
def test_a_queue_of_a_topic_that_others_have_had_begins_with_what_is_still_there(single: World, *, publishes: bool) -> None:
    first = single.consume("t", "channel", 10)
    single.publish("t", b"a", b"b")
    single.turn()
    assert len(inbox(first).got) == 2
    if publishes:
        single.session.ensure_queue("t", "g")
        single.publish("t", b"c")
    inbox_ = Inbox()
    consumer = single.session.subscribe_to_queue("t", "g", listener=inbox_, lease_ns=SECOND_NS)
    single.session.credit(consumer, 10)
    single.turn()
    assert [body for body, _ in inbox_.got] == [b"a", b"b", b"c"][: 2 + publishes]


def test_a_queue_does_not_bring_back_what_was_emptied_before_it(single: World) -> None:
    single.session.ensure_topic("t")
    single.publish("t", b"a")
    single.turn()
    single.session.empty_topic("t")
    single.session.ensure_queue("t", "g")
    single.publish("t", b"b")
    single.turn()
    inbox_ = Inbox()
    single.session.credit(single.session.subscribe_to_queue("t", "g", listener=inbox_, lease_ns=SECOND_NS), 10)
    single.turn()
    assert [body for body, _ in inbox_.got] == [b"b"]


def test_a_group_of_another_kind_is_no_queue(single: World) -> None:
    single.session.ensure_topic("t")
    single.session.create_group("t", "g", kind=GroupKind.CURSOR)
    with pytest.raises(Refusal) as refused:
        single.session.ensure_queue("t", "g")
    assert refused.value.code is RefusalCode.GROUP_NAME_INVALID


def test_who_may_not_publish_makes_no_queue(single: World) -> None:
    session = single.broker.session(STRANGER)
    for attempt in (
        lambda: session.ensure_queue("t", "g"),
        lambda: session.publish_expiring("t", MessageBatch.of([b"x"]), lasting(1), unit_ns=1, origin=4),
        lambda: session.settle_any("t", "g", lasting(1), 0, 1),
        lambda: session.renew("t", "g", 1, lifetime_ns=0),
        lambda: session.bury("t", "g", 1),
    ):
        with pytest.raises(Refusal) as refused:
            attempt()
        assert refused.value.code is RefusalCode.UNAUTHENTICATED
    assert single.session.topic_names() == []


def test_each_message_lasts_as_long_as_it_says(single: World) -> None:
    single.session.ensure_queue("t", "g")
    ticket = single.session.publish_expiring("t", MessageBatch.of([b"a", b"b", b"c"]), lasting(2, 0, 1), unit_ns=SECOND_NS, origin=4)
    single.turn()
    assert ticket.state.name == "DONE"
    assert single.view().message_count == 3
    assert single.session.published == {"t": 3}
    single.wait(1)
    consumer = single.consume("t", "g", 10)
    single.turn()
    assert [body for body, _ in inbox(consumer).got] == [b"a", b"b"]


def test_limits_of_a_batch(single: World) -> None:
    single.session.ensure_queue("t", "g")
    too_large = MessageBatch.of([bytes(limits.BATCH_SIZE_BYTES_MAX - 95)])
    with pytest.raises(Refusal) as refused:
        single.session.publish_expiring("t", too_large, lasting(1), unit_ns=1, origin=4)
    assert refused.value.code is RefusalCode.BATCH_TOO_LARGE
    single.session.set_topic_policy("t", TopicPolicy(messages_max=1, full=Full.REJECT))
    single.session.publish_expiring("t", MessageBatch.of([b"x"]), lasting(1), unit_ns=SECOND_NS, origin=4)
    single.turn()
    with pytest.raises(Refusal) as refused:
        single.session.publish_expiring("t", MessageBatch.of([b"x"]), lasting(1), unit_ns=SECOND_NS, origin=4)
    assert refused.value.code is RefusalCode.TOPIC_FULL


def test_what_is_given_back_goes_before_what_is_new(single: World) -> None:
    consumer = single.consume("t", "g", 2)
    single.publish("t", b"a", b"b", b"c", b"d")
    single.turn()
    single.session.give_back(consumer)
    assert consumer.leased == 0
    single.session.credit(consumer, 3)
    single.turn()
    assert inbox(consumer).got == [(b"a", 1), (b"b", 1), (b"a", 2), (b"b", 2), (b"c", 1)]
    single.session.unsubscribe(consumer)
    single.session.give_back(consumer)


def test_what_is_over_goes_also_if_nobody_asks(single: World) -> None:
    single.session.ensure_queue("t", "g")
    single.session.publish_expiring("t", MessageBatch.of([b"a"] * 5000), lasting(*[2] * 5000), unit_ns=SECOND_NS, origin=4)
    single.session.publish_expiring("t", MessageBatch.of([b"b", b"c", b"d"]), lasting(0, 2, 9), unit_ns=SECOND_NS, origin=4)
    single.turn()
    single.wait(1)
    assert single.view().groups[0].depth == 5003
    single.wait(2)
    # What comes behind one that is not over waits for somebody.
    group = single.view().groups[0]
    assert (group.depth, group.expired_count) == (3, 5000)
    consumer = single.consume("t", "g", 10)
    single.turn()
    assert [body for body, _ in inbox(consumer).got] == [b"b", b"d"]


def test_whoever_consumes_first_makes_a_topic_of_one_partition(world: World) -> None:
    consumer = world.session.subscribe_to_queue("t", "g", listener=Inbox(), lease_ns=SECOND_NS)
    assert len(world.view().partitions) == 1
    world.session.credit(consumer, 1)
    world.publish("t", b"x")
    world.turn()
    assert inbox(consumer).got == [(b"x", 1)]
    world.session.create_group("t", "cursor", kind=GroupKind.CURSOR)
    with pytest.raises(Refusal):
        world.session.subscribe_to_queue("t", "cursor", listener=Inbox(), lease_ns=SECOND_NS)
