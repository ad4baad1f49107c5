from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.gateways.rocketmq import locks as locks_module
from polymq.gateways.rocketmq.locks import Locks
from polymq.protocols.rocketmq.bodies import MessageQueue

if TYPE_CHECKING:
    import pytest

SECOND_NS = 1_000_000_000
QUEUES = [MessageQueue("T", "broker-a", number) for number in range(4)]


def test_what_is_free_is_locked_and_stays_its_owners() -> None:
    locks = Locks()
    assert locks.lock("G", "a", QUEUES[:2], 0) == QUEUES[:2]
    assert locks.lock("G", "a", QUEUES[:2], SECOND_NS) == QUEUES[:2]
    assert locks.lock("G", "b", QUEUES, 2 * SECOND_NS) == QUEUES[2:]
    assert [locks.owner("G", "T", number, 2 * SECOND_NS) for number in range(5)] == ["a", "a", "b", "b", None]
    assert locks.count == 4


def test_another_group_and_another_topic_have_locks_of_their_own() -> None:
    locks = Locks()
    locks.lock("G", "a", QUEUES, 0)
    assert locks.lock("H", "b", QUEUES, 0) == QUEUES
    other = [MessageQueue("U", "broker-a", 0)]
    assert locks.lock("G", "b", other, 0) == other


def test_a_lock_runs_out_a_minute_after_it_was_asked_for_last() -> None:
    locks = Locks()
    locks.lock("G", "a", QUEUES[:1], 0)
    locks.lock("G", "a", QUEUES[:1], 30 * SECOND_NS)
    assert locks.lock("G", "b", QUEUES[:1], 90 * SECOND_NS - 1) == []
    assert locks.lock("G", "b", QUEUES[:1], 90 * SECOND_NS) == QUEUES[:1]
    assert locks.owner("G", "T", 0, 90 * SECOND_NS) == "b"
    assert locks.count == 1


def test_only_the_owner_unlocks() -> None:
    locks = Locks()
    locks.lock("G", "a", QUEUES[:2], 0)
    locks.unlock("G", "b", QUEUES)
    assert locks.count == 2
    locks.unlock("G", "a", [*QUEUES, MessageQueue("unknown", "broker-a", 9)])
    assert locks.count == 0
    locks.unlock("never", "a", QUEUES)
    assert locks.lock("G", "b", QUEUES, 0) == QUEUES


def test_a_queue_that_is_named_twice_is_locked_once() -> None:
    locks = Locks()
    assert locks.lock("G", "a", [QUEUES[0], QUEUES[0]], 0) == [QUEUES[0], QUEUES[0]]
    assert locks.count == 1


def test_where_there_is_no_room_nothing_is_locked_until_locks_have_run_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks_module, "LOCKED_QUEUES_MAX", 3)
    locks = Locks()
    assert locks.lock("G", "a", QUEUES, 0) == QUEUES[:3]
    assert locks.lock("H", "b", QUEUES[:1], 59 * SECOND_NS) == []
    assert locks.lock("G", "a", QUEUES[:1], 59 * SECOND_NS) == QUEUES[:1]
    assert locks.lock("H", "b", QUEUES, 61 * SECOND_NS) == QUEUES[:2]
    assert locks.count == 3


def test_locks_that_have_run_out_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks_module, "_SWEEP_AFTER", 10)
    locks = Locks()
    for number in range(100):
        locks.lock(f"G{number}", "a", QUEUES[:1], number * 10 * SECOND_NS)
    assert locks.count < 20
