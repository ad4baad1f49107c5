from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from polymq.core.deadlines import DueHeap, Timers


@given(st.lists(st.tuples(st.integers(-(2**62), 2**62), st.integers(0, 2**62))))
def test_heap_gives_the_earliest_first_and_of_equals_the_smallest(entries: list[tuple[int, int]]) -> None:
    heap = DueHeap()
    for due, value in entries:
        heap.push(due, value)
    flat = array("q", b"".join(heap.pairs()))
    assert sorted(zip(flat[::2], flat[1::2], strict=True)) == sorted(entries)
    if entries:
        assert heap.smallest_value() == min(value for _due, value in entries)
    out = []
    while len(heap):
        due = heap.first_due()
        out.append((due, heap.pop()))
    assert out == sorted(entries)


class Sleeper:
    def __init__(self) -> None:
        self.armed_ns: int | None = None
        self.fired: list[int] = []

    def fire(self, now_ns: int) -> None:
        self.fired.append(now_ns)


def test_timers_wake_once_at_the_earliest_time_asked_for() -> None:
    timers, sleeper = Timers(), Sleeper()
    assert timers.due_ns() is None
    timers.arm(sleeper, 50)
    timers.arm(sleeper, 30)
    timers.arm(sleeper, 40)
    assert timers.due_ns() == 30
    timers.fire(29)
    timers.fire(60)
    assert sleeper.fired == [60]
    assert timers.due_ns() is None


def test_disarmed_sleepers_are_left_alone() -> None:
    timers, sleeper = Timers(), Sleeper()
    timers.arm(sleeper, 10)
    sleeper.armed_ns = None
    assert timers.due_ns() is None
    timers.fire(20)
    assert sleeper.fired == []


def test_a_large_heap_comes_in_pieces() -> None:
    heap = DueHeap()
    for value in range(10_000):
        heap.push(1, value)
    pieces = heap.pairs()
    assert [len(piece) // 16 for piece in pieces] == [4096, 4096, 1808]
