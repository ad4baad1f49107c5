"""How leases end other than by a settle: the half of a work group that is in `leases.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from polymq.errors import RefusalCode

from .conftest import SECOND_NS, World, inbox

if TYPE_CHECKING:
    from polymq.core.group import Subscription


def bodies(count: int) -> list[bytes]:
    return [b"m%d" % index for index in range(count)]


def test_requeued_message_goes_to_the_tail(single: World) -> None:
    consumer = single.consume("t", "g", 1)
    single.publish("t", *bodies(5))
    single.turn()
    first = inbox(consumer).ids[0]
    single.session.requeue(consumer, first, delay_ns=0)
    single.turn()
    for _ in range(5):
        single.settle(consumer, inbox(consumer).ids[-1])
        single.turn()
    assert inbox(consumer).got == [(b"m0", 1), (b"m1", 1), (b"m2", 1), (b"m3", 1), (b"m4", 1), (b"m0", 2)]


def test_what_is_published_after_a_message_was_given_back_comes_behind_it(single: World) -> None:
    consumer = single.consume("t", "g", 1)
    single.publish("t", *bodies(2))
    single.turn()
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=0)
    single.publish("t", b"later", b"still later")
    single.session.credit(consumer, 10)
    single.turn()
    assert inbox(consumer).got == [(b"m0", 1), (b"m1", 1), (b"m0", 2), (b"later", 1), (b"still later", 1)]


def test_requeue_with_a_delay_comes_back_exactly_then(world: World) -> None:
    consumer = world.consume("t", "g", 5)
    world.publish("t", b"x")
    world.turn()
    world.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=3 * SECOND_NS)
    world.turn()
    assert world.view().groups[0].deferred == 1
    world.wait(2.999)
    assert len(inbox(consumer).got) == 1
    world.wait(0.001)
    assert inbox(consumer).got == [(b"x", 1), (b"x", 2)]
    assert world.view().groups[0].deferred == 0


def test_lease_runs_out_exactly_and_the_message_comes_again(world: World) -> None:
    consumer = world.consume("t", "g", 5, lease_ns=2 * SECOND_NS)
    world.publish("t", b"x")
    world.turn()
    world.wait(1.999)
    assert len(inbox(consumer).got) == 1
    world.wait(0.001)
    assert inbox(consumer).got == [(b"x", 1), (b"x", 2)]
    view = world.view().groups[0]
    assert (view.timeout_count, view.requeue_count, view.leased) == (1, 0, 1)


def test_only_what_is_still_out_times_out(single: World) -> None:
    consumer = single.consume("t", "g", 10, lease_ns=SECOND_NS)
    single.publish("t", *bodies(4))
    single.turn()
    ids = list(inbox(consumer).ids)
    single.settle(consumer, ids[0], ids[2])
    single.session.credit(consumer, 0)
    single.wait(1)
    assert single.view().groups[0].timeout_count == 2
    assert single.settle(consumer, ids[1]) == [(0, RefusalCode.MESSAGE_NOT_LEASED)]


def test_a_second_delivery_is_not_ended_by_the_first_lease(single: World) -> None:
    consumer = single.consume("t", "g", 1, lease_ns=2 * SECOND_NS)
    single.publish("t", b"x")
    single.turn()
    single.wait(1)
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=0)
    single.turn()
    single.wait(1)
    assert inbox(consumer).got == [(b"x", 1), (b"x", 2)]
    single.wait(1)
    assert len(inbox(consumer).got) == 3


def test_touch_extends_up_to_the_cap(single: World) -> None:
    consumer = single.consume("t", "g", 1, lease_ns=2 * SECOND_NS)
    single.publish("t", b"x")
    single.turn()
    message_id = inbox(consumer).ids[0]
    for _ in range(2):
        single.wait(1.5)
        single.session.extend(consumer, message_id, lease_ns=2 * SECOND_NS, lease_ns_max=4 * SECOND_NS)
    assert len(inbox(consumer).got) == 1
    single.wait(0.999)
    assert len(inbox(consumer).got) == 1
    single.wait(0.001)
    assert len(inbox(consumer).got) == 2


def test_touching_one_of_many_leaves_the_others_alone(single: World) -> None:
    consumer = single.consume("t", "g", 3, lease_ns=2 * SECOND_NS)
    single.publish("t", *bodies(3))
    single.turn()
    ids = list(inbox(consumer).ids)
    single.wait(1)
    single.session.extend(consumer, ids[1], lease_ns=2 * SECOND_NS, lease_ns_max=60 * SECOND_NS)
    single.session.credit(consumer, 0)
    single.wait(1)
    assert consumer.leased == 1
    assert single.settle(consumer, ids[1]) == []


def test_messages_of_a_vanished_consumer_wait_for_their_lease(single: World) -> None:
    gone = single.consume("t", "g", 5, lease_ns=3 * SECOND_NS)
    single.publish("t", b"x")
    single.turn()
    single.session.unsubscribe(gone)
    other = single.consume("t", "g", 5)
    single.wait(2.9)
    assert inbox(other).got == []
    single.wait(0.1)
    assert inbox(other).got == [(b"x", 2)]


def spilling(single: World) -> World:
    """A broker that moves stragglers out of its windows after few messages."""
    single.settings = replace(single.settings, slots_dense=16)
    single.restart()
    return single


def pass_by(world: World, consumer: Subscription, messages: int, spare: int) -> None:
    """Let messages pass and settle them all but `spare`."""
    for _ in range(messages // 100):
        world.publish("t", *[b"x"] * 100)
        world.turn()
        world.settle(consumer, *(message_id for message_id in inbox(consumer).ids[-100:] if message_id != spare))


def test_a_lease_ends_though_thousands_have_passed_meanwhile(single: World) -> None:
    world = spilling(single)
    consumer = world.consume("t", "g", 2500, lease_ns=2 * SECOND_NS)
    world.publish("t", b"stuck")
    world.turn()
    stuck = inbox(consumer).ids[0]
    pass_by(world, consumer, 5000, stuck)
    share = consumer.group.shares[0]  # type: ignore[attr-defined]
    assert share.window.stragglers()
    world.wait(2)
    assert inbox(consumer).got[-1] == (b"stuck", 2)
    assert world.view().groups[0].timeout_count == 1
    assert world.settle(consumer, stuck) == []


def test_touching_works_though_thousands_have_passed_meanwhile(single: World) -> None:
    world = spilling(single)
    consumer = world.consume("t", "g", 2500, lease_ns=2 * SECOND_NS)
    world.publish("t", b"stuck")
    world.turn()
    stuck = inbox(consumer).ids[0]
    pass_by(world, consumer, 5000, stuck)
    world.wait(1)
    world.session.extend(consumer, stuck, lease_ns=2 * SECOND_NS, lease_ns_max=60 * SECOND_NS)
    world.wait(1.5)
    assert consumer.leased == 1
    world.wait(0.5)
    assert inbox(consumer).got[-1] == (b"stuck", 2)


def test_touching_again_and_again_costs_one_entry(single: World) -> None:
    consumer = single.consume("t", "g", 1, lease_ns=2 * SECOND_NS)
    single.publish("t", b"x")
    single.turn()
    message_id = inbox(consumer).ids[0]
    for _ in range(100):
        single.clock.now_ns += 1_000_000
        single.session.extend(consumer, message_id, lease_ns=2 * SECOND_NS, lease_ns_max=60 * SECOND_NS)
    assert (len(consumer.runs), len(consumer.touches), len(consumer.touched)) == (1, 1, 1)
    single.wait(1.999)
    assert consumer.leased == 1
    single.wait(0.001)
    assert inbox(consumer).got == [(b"x", 1), (b"x", 2)]
    single.settle(consumer, message_id)
    assert not consumer.touched


def test_many_deferred_at_once_are_woken_over_several_steps(single: World) -> None:
    consumer = single.consume("t", "g", 5000)
    single.publish("t", *bodies(4500))
    single.turn()
    for message_id in list(inbox(consumer).ids):
        single.session.requeue(consumer, message_id, delay_ns=SECOND_NS)
    single.turn()
    single.clock.now_ns += SECOND_NS
    single.broker.tick()
    assert single.view().groups[0].deferred == 2500
    single.turn()
    assert single.view().groups[0].deferred == 0
    assert len(inbox(consumer).got) == 9000


@pytest.mark.parametrize("settled", [1, 3, 8])
def test_a_settled_message_has_no_deadline_of_its_own_any_more(single: World, settled: int) -> None:
    consumer = single.consume("t", "g", 10)
    single.publish("t", *[b"x"] * 10)
    single.turn()
    ids = inbox(consumer).ids
    for message_id in ids[:4]:
        single.session.extend(consumer, message_id, lease_ns=2 * SECOND_NS, lease_ns_max=60 * SECOND_NS)
    single.settle(consumer, *ids[:settled])
    assert sorted(consumer.touched) == ids[min(settled, 4) : 4]
