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


def heap_of(*entries: tuple[int, int]) -> DueHeap:
    heap = DueHeap()
    for due, value in entries:
        heap.push(due, value)
    return heap


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1000))), st.integers(0, 50), st.integers(0, 40))
def test_taking_gives_what_is_due_in_order_and_leaves_the_rest(entries: list[tuple[int, int]], due_max: int, count: int) -> None:
    heap = heap_of(*entries)
    due = [entry for entry in sorted(entries) if entry[0] <= due_max][:count]
    assert list(heap.take(due_max, count)) == [value for _due, value in due]
    assert [(heap.first_due(), heap.pop()) for _ in range(len(heap))] == sorted(entries)[len(due) :]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 1000))), st.integers(0, 50), st.integers(0, 40))
def test_moving_orders_what_is_due_by_value_and_says_whether_there_is_more(
    entries: list[tuple[int, int]], due_max: int, count: int
) -> None:
    heap, target = heap_of(*entries), DueHeap()
    due = [entry for entry in sorted(entries) if entry[0] <= due_max]
    assert heap.move(due_max, target, count) == (len(due) > count)
    assert [target.pop() for _ in range(len(target))] == sorted(value for _due, value in due[:count])
    assert len(heap) == len(entries) - len(due[:count])


def test_a_run_is_its_values_one_by_one() -> None:
    heap = heap_of((5, 3))
    heap.push_run(4, 10, 3)
    assert list(heap.take(9, 9)) == [10, 11, 12, 3]


def test_an_emptied_heap_gives_its_memory_back_and_goes_on() -> None:
    heap = DueHeap()
    heap.push_run(1, 0, 100_000)
    assert len(heap.take(1, 100_000)) == 100_000
    heap.push(1, 7)
    assert (heap.first_due(), heap.pop(), len(heap)) == (1, 7, 0)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60)), unique_by=lambda entry: entry[1]), st.integers(0, 60))
def test_one_entry_is_taken_out_from_anywhere(entries: list[tuple[int, int]], value: int) -> None:
    heap = heap_of(*entries)
    assert heap.remove(value) == any(each == value for _due, each in entries)
    assert [(heap.first_due(), heap.pop()) for _ in range(len(heap))] == sorted(entry for entry in entries if entry[1] != value)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60))), st.integers(0, 60), st.integers(0, 60))
def test_a_range_of_values_is_taken_out(entries: list[tuple[int, int]], first: int, end: int) -> None:
    heap = heap_of(*entries)
    heap.drop_between(first, end)
    kept = sorted(entry for entry in entries if not first <= entry[1] < end)
    assert [(heap.first_due(), heap.pop()) for _ in range(len(heap))] == kept


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(0, 60)), unique_by=lambda entry: entry[1]), st.integers(-1, 60), st.integers(1, 9)
)
def test_entries_are_listed_in_the_order_of_their_values(entries: list[tuple[int, int]], value: int, count: int) -> None:
    heap = heap_of(*entries)
    flat = heap.after(value, count)
    expected = sorted((each, due) for due, each in entries if each > value)[:count]
    assert list(zip(flat[::2], flat[1::2], strict=True)) == expected
    assert len(heap) == len(entries)
