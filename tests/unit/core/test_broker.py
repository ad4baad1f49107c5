from __future__ import annotations

from random import Random

from polymq.core.broker import Broker

from .conftest import World, inbox


def test_retention_keeps_what_some_group_needs(single: World) -> None:
    consumer = single.consume("t", "g", 10)
    single.consume("t", "slow", 0)
    single.publish("t", *[b"x"] * 10)
    single.turn()
    single.settle(consumer, *inbox(consumer).ids)
    single.wait(1)
    assert single.store.logs[0].retained[-1] == 0
    single.session.delete_group("t", "slow")
    single.wait(1)
    assert single.store.logs[0].retained[-1] == 10


def test_what_nobody_consumes_stays_as_long_as_is_said(single: World) -> None:
    single.publish("t", *[b"x"] * 10)
    single.publish("u", b"x")
    single.turn()
    single.wait(1)
    assert [log.retained for log in single.store.logs.values()] == [[], []]
    single.broker.unclaimed_age_ns = lambda topic: 5 if topic.name == "t" else 0
    single.wait(1)
    assert [log.retained[-1:] for log in single.store.logs.values()] == [[10], []]
    assert single.store.logs[0].ages == [5]
    single.store.logs[0].start = 4
    assert single.broker.catalogue.topics["", "t"].held == 6, "what is gone is not waiting for anybody"
    consumer = single.consume("t", "g", 0)
    single.wait(1)
    assert single.store.logs[0].retained[-1] == 4, "what a group needs stays"
    single.session.credit(consumer, 10)
    single.turn()
    assert len(inbox(consumer).bodies) == 6


def test_the_store_looks_after_its_room_though_nothing_happens(single: World) -> None:
    for looks in range(1, 4):
        single.wait(1)
        assert single.store.looks == looks
    assert single.store.finished_size_bytes_max >= 1 << 60
    broker = Broker(single.store, single.clock, Random(1), disk_bytes=1000)
    broker.fire(0)
    assert single.store.finished_size_bytes_max == 100


def test_a_snapshot_is_taken_when_the_journal_wants_one(single: World) -> None:
    single.consume("t", "g", 0)
    single.store.journal.wants_snapshot = True
    single.turn()
    assert single.store.journal.snapshots == 1


def test_the_next_turn_is_due_when_something_happens_next(single: World) -> None:
    now_ns = single.clock.now_ns
    first_look_ns = single.broker.due_ns()
    assert first_look_ns is not None
    assert first_look_ns > now_ns
    single.publish("t", b"x", delay_ns=7)
    single.turn()
    assert single.broker.due_ns() == now_ns + 7
    consumer = single.consume("t", "g", 1, lease_ns=5)
    single.publish("t", b"y")
    single.turn()
    assert inbox(consumer).bodies == [b"y"]
    assert single.broker.due_ns() == now_ns + 5


def test_a_turn_hands_out_to_some_and_the_others_come_first_in_the_next(single: World) -> None:
    consumers = [single.consume(f"t{index}", "g", 10) for index in range(40)]
    single.turn()
    for index in range(40):
        single.publish(f"t{index}", b"first")
    served: list[list[int]] = []
    for second in (b"second", b"third", b"fourth"):
        single.broker.tick()
        single.store.commit()
        deliveries = single.broker.dispatch()
        for delivery in deliveries:
            delivery.subscription.listener.take(delivery)  # type: ignore[attr-defined]
        served.append([consumers.index(delivery.subscription) for delivery in deliveries])
        # Whoever has been served has something to get again, and has to wait until all the others were.
        single.publish("t0", second)
    assert served[0] == list(range(16))
    assert single.broker.due_ns() == single.clock.now_ns
    assert served[1] == list(range(16, 32))
    assert served[2] == [*range(32, 40), 0]
    assert inbox(consumers[0]).bodies == [b"first", b"second", b"third"]
    single.turn()
    assert [inbox(consumer).bodies[0] for consumer in consumers] == [b"first"] * 40


def test_settling_is_no_reason_to_look_for_more_if_there_was_room_before(single: World) -> None:
    consumer = single.consume("t", "g", 2)
    single.publish("t", b"x")
    single.turn()
    single.settle(consumer, *inbox(consumer).ids)
    single.broker.tick()
    single.store.commit()
    due_ns = single.broker.due_ns()
    assert due_ns is not None
    assert due_ns > single.clock.now_ns
    single.publish("t", b"a", b"b", b"c")
    single.turn()
    assert inbox(consumer).bodies == [b"x", b"a", b"b"]
    single.settle(consumer, inbox(consumer).ids[1])
    single.turn()
    assert inbox(consumer).bodies == [b"x", b"a", b"b", b"c"]


def test_offsets_that_are_free_again_are_said_to_be_so_before_they_are_given_out(single: World) -> None:
    single.publish("t", b"x", delay_ns=5_000_000_000)
    single.turn()
    single.restart()
    assert single.store.secured == 0, "nothing was cut"
    schedule = next(log for log in single.store.logs.values() if log.number != single.view().partitions[0].number)
    schedule.readable = schedule.end = 0
    single.restart()
    assert single.store.secured == len(single.store.journal.entries) > 0
