"""Settling by whoever knows the id."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest

from polymq.core.group import GroupKind
from polymq.core.policies import GroupPolicy
from polymq.core.work_group import WorkGroup

from .conftest import SECOND_NS, World, inbox

if TYPE_CHECKING:
    from polymq.core.group import Subscription


def settle_any(world: World, *ids: int, by: Subscription | None = None, group: str = "g") -> list[Subscription]:
    return world.session.settle_any("t", group, memoryview(array("q", ids)), 0, len(ids), subscription=by)


def out(world: World, *bodies: bytes, credit: int = 10) -> Subscription:
    consumer = world.consume("t", "g", credit)
    world.publish("t", *bodies)
    world.turn()
    return consumer


def test_who_has_them_settles_as_ever(single: World) -> None:
    consumer = out(single, b"a", b"b", b"c", credit=2)
    assert settle_any(single, *inbox(consumer).ids, by=consumer) == []
    single.turn()
    assert inbox(consumer).got == [(b"a", 1), (b"b", 1), (b"c", 1)]
    assert (consumer.leased, consumer.settled) == (1, 2)


def test_somebody_else_frees_the_slot_of_who_has_it(single: World) -> None:
    owner = out(single, b"a", b"b", credit=1)
    other = single.consume("t", "g", 0)
    assert settle_any(single, inbox(owner).ids[0], by=other) == [owner]
    assert (owner.leased, owner.settled, other.leased, other.settled) == (0, 1, 0, 0)
    single.turn()
    assert inbox(owner).got == [(b"a", 1), (b"b", 1)]
    assert settle_any(single, inbox(owner).ids[1]) == [owner]
    single.turn()
    single.restart()
    assert single.view().groups[0].depth == 0


def test_what_waits_again_is_taken_from_there(single: World) -> None:
    owner = out(single, b"a", b"b", b"c")
    ids = inbox(owner).ids
    single.session.credit(owner, 0)
    single.session.give_back(owner)
    assert single.view().groups[0].depth == 3
    assert settle_any(single, ids[1], ids[1]) == []
    group = single.view().groups[0]
    assert (group.depth, group.leased) == (2, 0)
    assert [view.id for view in single.session.peek("t", "g") or []] == [ids[0], ids[2]]
    inbox(owner).got.clear()
    single.session.credit(owner, 10)
    single.turn()
    assert inbox(owner).got == [(b"a", 2), (b"c", 2)]
    single.restart()
    assert single.view().groups[0].depth == 2


def test_what_is_deferred_is_settled(single: World) -> None:
    owner = out(single, b"a")
    single.session.requeue(owner, inbox(owner).ids[0], delay_ns=SECOND_NS)
    assert settle_any(single, inbox(owner).ids[0]) == []
    single.wait(2)
    assert inbox(owner).got == [(b"a", 1)]
    group = single.view().groups[0]
    assert (group.depth, group.leased, group.deferred) == (0, 0, 0)


def test_what_a_consumer_that_has_left_holds_is_settled(single: World) -> None:
    owner = out(single, b"a")
    single.session.unsubscribe(owner)
    assert single.view().groups[0].leased == 1
    assert settle_any(single, inbox(owner).ids[0]) == []
    group = single.view().groups[0]
    assert (group.depth, group.leased) == (0, 0)
    single.wait(100)
    assert single.view().groups[0].depth == 0


def test_what_is_no_message_is_passed_over(single: World) -> None:
    owner = out(single, b"a", credit=1)
    single.publish("t", b"new")
    (message_id,) = inbox(owner).ids
    for stranger in (message_id + 1, message_id + 99, message_id + (1 << 50), 1 << 62, 0 if message_id else 5):
        assert settle_any(single, stranger) == []
    assert settle_any(single, message_id, message_id) == [owner]
    assert settle_any(single, message_id) == []
    assert (owner.leased, owner.settled) == (0, 1)
    assert settle_any(single, 5, group="nobody") == []
    assert single.session.settle_any("nothing", "g", memoryview(array("q", [5])), 0, 1) == []
    single.session.create_group("t", "cursor", kind=GroupKind.CURSOR)
    assert settle_any(single, message_id, group="cursor") == []


def test_an_ordered_group_goes_on(single: World) -> None:
    owner = single.consume("t", "g", 10)
    single.session.set_group_policy("t", "g", GroupPolicy(ordered=True))
    from polymq.wire.records import Message

    single.session.publish_messages("t", [Message(b"%d" % index, key=b"k") for index in range(3)], origin=1)
    single.turn()
    assert inbox(owner).got == [(b"0", 1)]
    assert settle_any(single, inbox(owner).ids[0]) == [owner]
    single.turn()
    single.session.credit(owner, 0)
    single.session.give_back(owner)
    assert settle_any(single, inbox(owner).ids[1]) == []
    single.session.credit(owner, 10)
    single.turn()
    assert inbox(owner).got == [(b"0", 1), (b"1", 1), (b"2", 1)]


@pytest.mark.parametrize("count", [10, 5000])
def test_many_that_wait_are_taken_out_together(single: World, count: int) -> None:
    owner = out(single, *[b"%d" % index for index in range(count)], credit=count)
    ids = inbox(owner).ids
    single.session.credit(owner, 0)
    single.session.give_back(owner)
    kept = ids[::5]
    settle_any(single, *[each for each in ids if each not in set(kept)])
    assert single.view().groups[0].depth == len(kept)
    inbox(owner).got.clear()
    single.session.credit(owner, count)
    single.turn()
    assert [body for body, _ in inbox(owner).got] == [b"%d" % index for index in range(0, count, 5)]
    group = single.broker.catalogue.topics["", "t"].groups["g"]
    assert isinstance(group, WorkGroup)
    assert not group.gone
