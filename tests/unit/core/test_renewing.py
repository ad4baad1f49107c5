"""Messages that go on as new ones: the copy first, then the slot, then the settle."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest

from polymq.core import broker, renewing
from polymq.core.access import ANONYMOUS
from polymq.core.group import GroupKind, Subscription
from polymq.core.policies import GroupPolicy
from polymq.core.work_group import WorkGroup
from polymq.errors import Refusal, RefusalCode
from polymq.wire.batch import ATTRIBUTE_RENEWED
from polymq.wire.records import Message, parse_header

from .conftest import SECOND_NS, World, inbox

if TYPE_CHECKING:
    from .fakes import FakeLog


def log_of(world: World, name: str = "t") -> FakeLog:
    return world.store.logs[world.broker.catalogue.topics["", name].partitions[0].number]


def out(world: World, *bodies: bytes, credit: int = 1) -> Subscription:
    consumer = world.consume("t", "g", credit)
    world.publish("t", *bodies)
    world.turn()
    return consumer


def renew(world: World, message_id: int, seconds: int = 0) -> bool:
    return world.session.renew("t", "g", message_id, lifetime_ns=seconds * SECOND_NS)


def test_a_message_goes_to_the_end_with_a_new_lifetime(single: World) -> None:
    consumer = out(single, b"a", b"b")
    assert renew(single, inbox(consumer).ids[0], 5)
    single.turn()
    assert inbox(consumer).got == [(b"a", 1), (b"b", 1)]
    assert (consumer.leased, consumer.requeued) == (1, 1)
    single.settle(consumer, inbox(consumer).ids[1])
    single.turn()
    assert inbox(consumer).got[2:] == [(b"a", 2)]
    copy = log_of(single).messages()[-1]
    assert copy.expiry_ns == single.clock.wall_ns() + 5 * SECOND_NS
    single.store.sync()
    single.turn()
    single.settle(consumer, inbox(consumer).ids[2])
    single.turn()
    single.restart()
    assert single.view().groups[0].depth == 0


def test_a_lifetime_of_before_is_over_with_it(single: World) -> None:
    consumer = single.consume("t", "g", 1)
    message = Message(b"x", key=b"k", headers=((b"h", b"v"),), expiry_ns=single.clock.wall_ns() + SECOND_NS)
    single.session.publish_messages("t", [message], origin=1)
    single.turn()
    assert renew(single, inbox(consumer).ids[0])
    single.wait(5)
    assert inbox(consumer).got == [(b"x", 1), (b"x", 2)]
    copy = log_of(single).messages()[-1]
    assert (copy.key, copy.headers, copy.expiry_ns) == (b"k", ((b"h", b"v"),), None)


def test_the_slot_is_free_when_the_copy_is_written_and_not_before(single: World) -> None:
    consumer = out(single, b"a", b"b")
    assert renew(single, inbox(consumer).ids[0], 5)
    assert log_of(single).end == 3
    single.broker.tick()
    assert consumer.leased == 1
    assert single.broker.due_ns() == single.clock.monotonic_ns()
    single.store.commit()
    single.broker.tick()
    assert consumer.leased == 0


def test_a_crash_leaves_both_until_the_copy_is_durable(single: World) -> None:
    consumer = out(single, b"a")
    assert renew(single, inbox(consumer).ids[0], 100)
    single.turn()
    assert inbox(consumer).got == [(b"a", 1), (b"a", 2)]
    single.restart()
    assert single.view().groups[0].depth == 2
    single.store.sync()
    again = single.consume("t", "g", 2)
    single.turn()
    assert renew(single, inbox(again).ids[0])
    single.turn()
    single.store.sync()
    single.turn()
    single.restart()
    assert single.view().groups[0].depth == 2


def test_a_crash_before_the_copy_is_written_loses_nothing(single: World) -> None:
    consumer = out(single, b"a")
    assert renew(single, inbox(consumer).ids[0])
    single.broker.tick()
    single.restart()
    again = single.consume("t", "g", 1)
    single.turn()
    assert [body for body, _ in inbox(again).got] == [b"a"]


def test_while_the_disk_is_read_the_message_stays_with_its_consumer(single: World) -> None:
    consumer = out(single, b"a")
    log_of(single).cold = True
    assert renew(single, inbox(consumer).ids[0])
    assert not renew(single, inbox(consumer).ids[0])
    single.turn()
    assert (consumer.leased, log_of(single).end) == (1, 1)
    log_of(single).cold = False
    single.turn()
    assert inbox(consumer).got == [(b"a", 1), (b"a", 2)]
    assert single.broker.kernel.moving != {}
    single.store.sync()
    single.turn()
    assert single.broker.kernel.moving == {}


def test_who_leaves_meanwhile_is_not_given_it_again(single: World) -> None:
    consumer = out(single, b"a")
    assert renew(single, inbox(consumer).ids[0])
    single.session.give_back(consumer)
    single.session.credit(consumer, 0)
    single.turn()
    assert single.view().groups[0].depth == 1
    single.session.credit(consumer, 5)
    single.turn()
    assert inbox(consumer).got == [(b"a", 1), (b"a", 2)]


def test_what_is_settled_meanwhile_stays_settled(single: World) -> None:
    consumer = out(single, b"a")
    assert renew(single, inbox(consumer).ids[0])
    single.settle(consumer, inbox(consumer).ids[0])
    single.turn()
    assert inbox(consumer).got == [(b"a", 1), (b"a", 2)]


def test_what_cannot_be_copied_waits_again(single: World) -> None:
    consumer = out(single, b"a")
    single.store.journal.full = True
    assert renew(single, inbox(consumer).ids[0])
    single.broker.tick()
    assert (consumer.leased, consumer.requeued, log_of(single).end) == (0, 0, 1)
    single.store.journal.full = False
    single.turn()
    assert inbox(consumer).got == [(b"a", 1), (b"a", 2)]
    assert renew(single, inbox(consumer).ids[0])
    single.turn()
    assert inbox(consumer).got[2:] == [(b"a", 3)]


def test_what_waits_and_cannot_be_copied_waits_again(single: World) -> None:
    consumer = out(single, b"a")
    single.session.credit(consumer, 0)
    single.session.give_back(consumer)
    single.store.journal.full = True
    assert renew(single, inbox(consumer).ids[0])
    single.store.journal.full = False
    assert single.view().groups[0].depth == 1
    single.session.credit(consumer, 1)
    single.turn()
    assert inbox(consumer).got == [(b"a", 1), (b"a", 2)]


@pytest.mark.parametrize("ordered", [False, True], ids=["queue", "lanes"])
def test_what_comes_back_before_its_copy_is_written_is_nobodys(single: World, ordered: bool) -> None:
    consumer = out(single, b"a")
    if ordered:
        single.session.set_group_policy("t", "g", GroupPolicy(ordered=True))
    other = single.consume("t", "g", 10)
    assert renew(single, inbox(consumer).ids[0])
    single.session.give_back(consumer)
    single.session.unsubscribe(consumer)
    single.turn()
    assert inbox(other).got == [(b"a", 2)]
    single.store.sync()
    single.turn()
    single.settle(other, *inbox(other).ids)
    single.turn()
    group = single.broker.catalogue.topics["", "t"].groups["g"]
    assert isinstance(group, WorkGroup)
    assert group.unfinished == 0
    single.restart()
    assert single.view().groups[0].depth == 0


def test_what_is_deferred_before_its_copy_is_written_does_not_come_back(single: World) -> None:
    consumer = out(single, b"a")
    assert renew(single, inbox(consumer).ids[0])
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=SECOND_NS)
    single.turn()
    assert inbox(consumer).got == [(b"a", 1), (b"a", 2)]
    single.wait(2)
    assert inbox(consumer).got == [(b"a", 1), (b"a", 2)]
    assert single.view().groups[0].deferred == 0


def test_what_is_acknowledged_as_well_while_nobody_has_it_is_one_message(single: World) -> None:
    consumer = out(single, b"a")
    message_id = inbox(consumer).ids[0]
    assert renew(single, message_id)
    single.session.give_back(consumer)
    single.session.settle_any("t", "g", memoryview(array("q", [message_id])), 0, 1)
    single.turn()
    assert inbox(consumer).got == [(b"a", 1), (b"a", 2)]
    assert single.view().groups[0].depth == 0


def test_a_turn_copies_some_and_the_next_goes_on(single: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "COPY_ROOM_PER_TURN", 2 * 4096)
    consumer = out(single, *[b"x"] * 10, credit=10)
    single.broker.tick()
    for message_id in list(inbox(consumer).ids):
        assert renew(single, message_id)
    assert log_of(single).end == 12
    assert single.broker.due_ns() == single.clock.monotonic_ns()
    single.broker.tick()
    assert log_of(single).end == 14
    single.turn()
    assert log_of(single).end == 20
    assert (len(inbox(consumer).got), consumer.leased) == (20, 10)


def test_a_group_set_elsewhere_meanwhile_gives_it_out_again(single: World) -> None:
    consumer = out(single, b"a")
    log_of(single).cold = True
    assert renew(single, inbox(consumer).ids[0])
    group = single.broker.catalogue.topics["", "t"].groups["g"]
    assert isinstance(group, WorkGroup)
    group.rewind(group.shares[0], 0)
    log_of(single).cold = False
    single.turn()
    assert [body for body, _ in inbox(consumer).got] == [b"a", b"a"]
    single.session.give_back(consumer)
    single.turn()
    assert [body for body, _ in inbox(consumer).got] == [b"a", b"a", b"a"]


def test_other_groups_do_not_get_it_twice(single: World) -> None:
    consumer = out(single, b"a")
    other = single.consume("t", "other", 10)
    late = single.consume("t", "late", 0)
    single.session.create_group("t", "reader", kind=GroupKind.CURSOR)
    assert renew(single, inbox(consumer).ids[0])
    single.publish("t", b"z")
    single.turn()
    assert [body for body, _ in inbox(other).got] == [b"z"]
    single.restart()
    late = single.consume("t", "late", 10)
    single.turn()
    assert [body for body, _ in inbox(late).got] == [b"z"]


def test_the_copy_says_that_others_have_had_it(single: World) -> None:
    consumer = out(single, b"a", b"b", credit=2)
    for message_id in list(inbox(consumer).ids):
        assert renew(single, message_id)
    single.publish("t", b"c")
    single.turn()
    log = log_of(single)
    assert [(parse_header(log.data, at).attributes, count) for _base, count, at in log.index] == [
        (0, 2),
        (ATTRIBUTE_RENEWED, 1),
        (ATTRIBUTE_RENEWED, 1),
        (0, 1),
    ]
    assert single.session.bury("t", "g", inbox(consumer).ids[2])
    (letter,) = [parse_header(log.data, at) for log in [log_of(single, "t.g.dead")] for _base, _count, at in log.index]
    assert letter.attributes == 0


def shown(world: World) -> list[int]:
    """The offsets that readers of the log are shown."""
    log = log_of(world)
    return [base for base, _count, at in log.index if not parse_header(log.data, at).attributes]


@pytest.mark.parametrize(
    ("lifetime", "lifetimes", "expected"),
    [(0, (5, 50, 0), [0]), (10, (5, 5, 10), [0]), (10, (11,), [0, 1]), (10, (0,), [0, 1]), (10, (5, 50, 20, 60), [0, 2, 4])],
)  # fmt: skip
def test_readers_of_the_log_see_a_copy_that_lasts_longer(
    single: World, lifetime: int, lifetimes: tuple[int, ...], expected: list[int]
) -> None:
    consumer = single.consume("t", "g", 1)
    message = Message(b"x", extras=((3, b"e"),), expiry_ns=single.clock.wall_ns() + lifetime * SECOND_NS if lifetime else None)
    single.session.publish_messages("t", [message], origin=1)
    single.turn()
    for each in lifetimes:
        assert renew(single, inbox(consumer).ids[-1], each)
        single.turn()
    assert shown(single) == expected
    copies = log_of(single).messages()
    assert [(3, b"e") in each.extras for each in copies] == [True] * (1 + len(lifetimes))
    assert [len(copies[offset].extras) for offset in expected] == [1] * len(expected)


def test_a_copy_for_many_groups_takes_more_of_a_turn(single: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "COPY_ROOM_PER_TURN", 6 * 4096)
    consumer = out(single, *[b"x"] * 10, credit=10)
    for number in range(31):
        single.session.create_group("t", f"g{number}")
    single.broker.tick()
    for message_id in list(inbox(consumer).ids):
        assert renew(single, message_id)
    assert log_of(single).end == 12  # of three times the cost
    single.turn()
    assert log_of(single).end == 20


def test_depths_of_other_groups_are_right_after_a_restart(single: World) -> None:
    consumer = out(single, b"a", b"b", credit=2)
    other = single.consume("t", "other", 10)
    for message_id in list(inbox(consumer).ids):
        assert renew(single, message_id)
    single.publish("t", b"c", b"d")
    single.turn()
    assert [body for body, _ in inbox(other).got] == [b"c", b"d"]
    single.settle(other, *inbox(other).ids)
    single.turn()
    single.publish("t", b"e", b"f")
    single.session.credit(other, 0)
    single.store.sync()
    single.turn()
    single.restart()
    (group,) = [group for group in single.view().groups if group.name == "other"]
    assert group.depth == 2
    again = single.consume("t", "other", 10)
    single.turn()
    assert [body for body, _ in inbox(again).got] == [b"e", b"f"]


def test_a_restart_does_not_forget_the_attempts_of_what_is_not_copied(single: World) -> None:
    consumer = out(single, b"a")
    single.session.set_group_policy("t", "g", GroupPolicy(max_attempts=1))
    single.session.requeue(consumer, inbox(consumer).ids[0], delay_ns=SECOND_NS)
    single.session.set_group_policy("t", "g", GroupPolicy(max_attempts=2))
    single.wait(2)
    assert inbox(consumer).got == [(b"a", 1), (b"a", 2)]
    group = single.broker.catalogue.topics["", "t"].groups["g"]
    assert renew(single, inbox(consumer).ids[-1])
    group.paused = True
    single.broker.tick()
    single.store.commit()
    single.restart()
    again = single.consume("t", "g", 1)
    single.turn()
    assert (inbox(again).got, len(log_of(single, "t.g.dead").messages())) == ([], 1)


@pytest.mark.parametrize("ordered", [False, True], ids=["queue", "lanes"])
def test_a_message_that_goes_round_is_tried_as_often_as_its_group_allows(single: World, ordered: bool) -> None:
    consumer = out(single, b"a", b"b")
    single.session.set_group_policy("t", "g", GroupPolicy(max_attempts=4, ordered=ordered))
    assert renew(single, inbox(consumer).ids[-1])
    single.turn()
    single.settle(consumer, inbox(consumer).ids[-1])
    for _ in range(2):
        single.turn()
        assert renew(single, inbox(consumer).ids[-1])
    single.turn()
    assert inbox(consumer).got == [(b"a", 1), (b"b", 1), (b"a", 2), (b"a", 3), (b"a", 4)]
    end = log_of(single).end
    assert renew(single, inbox(consumer).ids[-1])
    single.turn()
    assert (len(inbox(consumer).got), log_of(single).end) == (5, end)
    (letter,) = log_of(single, "t.g.dead").messages()
    assert {(b"polymq-dead-reason", b"attempts"), (b"polymq-dead-attempts", b"4")} < set(letter.headers)


@pytest.mark.parametrize("snapshots", [False, True], ids=["journal", "snapshot"])
def test_a_restart_does_not_forget_how_often_it_was_tried(single: World, snapshots: bool) -> None:
    consumer = out(single, b"a")
    for _ in range(5):
        assert renew(single, inbox(consumer).ids[-1])
        single.turn()
        single.store.sync()
        single.turn()
    assert inbox(consumer).got[-1] == (b"a", 6)
    single.session.give_back(consumer)
    single.session.unsubscribe(consumer)
    if snapshots:
        single.store.journal.wants_snapshot = True
        single.turn()
    single.restart()
    again = single.consume("t", "g", 1)
    single.turn()
    # The journal does not say that it was handed out for the sixth time, a snapshot does.
    attempt = 7 if snapshots else 6
    assert inbox(again).got == [(b"a", attempt)]
    assert renew(single, inbox(again).ids[-1])
    single.turn()
    assert inbox(again).got[1:] == [(b"a", attempt + 1)]


def test_a_rejected_message_becomes_a_dead_letter(single: World) -> None:
    consumer = out(single, b"a", b"b")
    assert single.session.bury("t", "g", inbox(consumer).ids[0])
    single.turn()
    assert inbox(consumer).got == [(b"a", 1), (b"b", 1)]
    (letter,) = log_of(single, "t.g.dead").messages()
    assert letter.body == b"a"
    assert (b"polymq-dead-reason", b"rejected") in letter.headers
    assert (single.view().groups[0].dead_letter_count, single.view("t.g.dead").message_count) == (1, 1)
    single.store.sync()
    single.turn()
    single.restart()
    assert single.view().groups[0].depth == 1


def test_an_ordered_group_goes_on(single: World) -> None:
    consumer = single.consume("t", "g", 10)
    single.session.set_group_policy("t", "g", GroupPolicy(ordered=True))
    single.session.publish_messages("t", [Message(b"%d" % index, key=b"k") for index in range(2)], origin=1)
    single.turn()
    assert renew(single, inbox(consumer).ids[0])
    single.turn()
    single.settle(consumer, inbox(consumer).ids[1])
    single.turn()
    assert [body for body, _ in inbox(consumer).got] == [b"0", b"1", b"0"]


def test_what_is_no_message_is_refused(single: World, monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = out(single, b"a", b"b", credit=2)
    first, second = inbox(consumer).ids
    assert not renew(single, 1 << 60)
    assert not renew(single, second + 5)
    assert not single.session.renew("nothing", "g", first, lifetime_ns=0)
    with pytest.raises(Refusal) as refused:
        single.session.renew("t", "g", first, lifetime_ns=1 << 63)
    assert refused.value.code is RefusalCode.DELAY_OUT_OF_RANGE
    monkeypatch.setattr(renewing, "RENEWALS_MAX", 1)
    log_of(single).cold = True
    monkeypatch.setattr(renewing, "_RENEWALS_END", 1)
    assert not single.session.is_crowded("t", "g")
    assert renew(single, first)
    assert not renew(single, first)
    assert single.session.is_crowded("t", "g")
    with pytest.raises(Refusal) as refused:
        renew(single, second)
    assert refused.value.code is RefusalCode.LIMIT_REACHED
    log_of(single).cold = False
    single.turn()
    assert not single.session.is_crowded("t", "g")
    assert renew(single, second)
    single.session.delete_group("t", "g")
    single.turn()
    assert single.broker.session(ANONYMOUS).topic("t") is not None
