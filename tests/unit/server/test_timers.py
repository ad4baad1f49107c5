from __future__ import annotations

import random
import weakref

import pytest

from polymq.server.timers import Alarm, Timers


def test_deadlines_come_up_in_order_and_once() -> None:
    timers: Timers[str] = Timers()
    timers.set("b", 20)
    timers.set("a", 10)
    timers.set("c", 30)
    assert timers.due_ns() == 10
    assert timers.expired(9) == []
    assert timers.expired(20) == ["a", "b"]
    assert timers.expired(20) == []
    assert timers.expired(99) == ["c"]
    assert timers.due_ns() is None


def test_a_deadline_moves_both_ways() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 50)
    timers.set("a", 100)
    assert timers.expired(50) == []
    timers.set("a", 60)
    assert timers.expired(59) == []
    assert timers.expired(60) == ["a"]
    assert timers.expired(1000) == []


def test_a_cancelled_deadline_does_not_come_up() -> None:
    timers: Timers[str] = Timers()
    timers.set("a", 10)
    timers.cancel("a")
    timers.cancel("never set")
    assert timers.expired(10) == []
    timers.set("a", 10)
    timers.forget("a")
    assert timers.expired(10) == []
    timers.set("a", 30)
    assert timers.expired(30) == ["a"]


def test_pushing_a_deadline_back_does_not_grow_the_heap() -> None:
    timers: Timers[str] = Timers()
    for due_ns in range(1, 10_000):
        timers.set("a", due_ns)
        if due_ns % 3 == 0:
            timers.cancel("a")
    assert len(timers._heap) == 1


def test_against_a_plain_dictionary() -> None:
    chance = random.Random(1)
    timers: Timers[int] = Timers()
    model: dict[int, int] = {}
    now_ns = 0
    for _ in range(5000):
        key = chance.randrange(20)
        action = chance.randrange(4)
        if action == 0:
            timers.cancel(key)
            model.pop(key, None)
        elif action == 1:
            now_ns += chance.randrange(30)
            assert sorted(timers.expired(now_ns)) == sorted(key for key, due_ns in model.items() if due_ns <= now_ns)
            model = {key: due_ns for key, due_ns in model.items() if due_ns > now_ns}
        else:
            due_ns = now_ns + chance.randrange(100)
            timers.set(key, due_ns)
            model[key] = due_ns
        first_ns = timers.due_ns()
        if model:
            assert first_ns is not None
            assert first_ns <= min(model.values())


def test_an_alarm_rings_once_unless_it_is_cancelled(caplog: pytest.LogCaptureFixture) -> None:
    timers: Timers[Alarm] = Timers()
    rung: list[str] = []
    first, second = Alarm(timers, lambda: rung.append("first")), Alarm(timers, lambda: rung.append("second"))
    for alarm in (first, second):
        timers.set(alarm, 5)
    due = timers.expired(5)
    second.cancel()
    for alarm in (*due, *due):
        alarm.ring()
    assert rung == ["first"]

    third = Alarm(timers, lambda: rung.append("third"))
    timers.set(third, 7)
    third.cancel()
    assert timers.expired(10) == []

    Alarm(timers, lambda: [][0]).ring()
    assert "internal error" in caplog.text


class Heavy:
    """A key that can be looked after."""


@pytest.mark.parametrize("moved", [False, True])
def test_a_key_that_is_forgotten_is_not_kept_alive(moved: bool) -> None:
    timers: Timers[Heavy] = Timers()
    key = Heavy()
    gone = weakref.ref(key)
    timers.set(key, 100)
    if moved:
        timers.set(key, 50)
    timers.forget(key)
    del key
    assert gone() is None
    assert timers.expired(1000) == []
