from __future__ import annotations

import sys
from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from polymq.core.pairs import PairQueue

NUMBER = st.integers(-(2**63), 2**63 - 1)
STEP = st.one_of(st.tuples(NUMBER, NUMBER), st.integers(1, 2500), st.sampled_from(["keep", "clear"]))


def filled(count: int) -> PairQueue:
    queue = PairQueue()
    for number in range(count):
        queue.append(number, -number)
    return queue


@given(st.lists(STEP, max_size=30), st.integers(0, 4000))
def test_it_is_a_queue(steps: list[tuple[int, int] | int | str], before: int) -> None:
    queue = filled(before)
    model = deque((number, -number) for number in range(before))
    for step in steps:
        if isinstance(step, tuple):
            queue.append(*step)
            model.append(step)
        elif isinstance(step, int):
            for _ in range(min(step, len(model))):
                assert queue.peek() == queue.pop() == model.popleft()
        elif step == "keep":
            queue.keep(lambda first: first % 3 == 0)
            model = deque(pair for pair in model if pair[0] % 3 == 0)
        else:
            queue.clear()
            model.clear()
        assert len(queue) == len(model)
        assert bool(queue) is bool(model)
        assert list(queue.firsts()) == [first for first, _second in model]


@given(st.integers(0, 40), st.integers(0, 20), st.integers(0, 45), st.integers(0, 45), st.sets(st.integers(0, 40)))
def test_some_are_taken_out_of_the_middle(count: int, spent: int, start: int, size: int, unwanted: set[int]) -> None:
    queue = filled(count)
    for _ in range(min(spent, count)):
        queue.pop()
    pairs = [(number, -number) for number in range(min(spent, count), count)]
    assert list(queue.firsts_from(start, size)) == [first for first, _second in pairs[start : start + size]]
    queue.take_out(start, size, unwanted)
    left = pairs[:start] + [pair for pair in pairs[start : start + size] if pair[0] not in unwanted] + pairs[start + size :]
    assert [queue.pop() for _ in range(len(queue))] == left


def test_what_was_taken_out_takes_no_room() -> None:
    queue = filled(0)
    for number in range(100_000):
        queue.append(number, 0)
        queue.pop()
    assert sys.getsizeof(queue._firsts) < 50_000
