from __future__ import annotations

import struct
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from polymq.core.ahead import LEFT_OUT, Ahead


def ahead(*ranges: tuple[int, int, int]) -> Ahead:
    made = Ahead()
    made.extend(ranges)
    return made


def test_nothing_is_known_of_what_was_not_said() -> None:
    empty = Ahead()
    assert not empty
    assert empty.boundary(5, 9) == 9
    assert empty.attempts_at(5) == 0
    assert empty.pass_to(5) == 5


def test_alike_messages_end_where_a_range_begins_or_ends() -> None:
    known = ahead((10, 20, LEFT_OUT), (20, 30, 3))
    assert known.boundary(0, 100) == 10
    assert known.boundary(0, 5) == 5
    assert known.pass_to(10) == 20
    assert known.boundary(20, 100) == 30
    assert known.boundary(20, 25) == 25
    assert [known.attempts_at(offset) for offset in (19, 20, 29)] == [0, 3, 3]
    assert known.pass_to(30) == 30
    assert not known


def test_what_is_left_out_is_stepped_over_in_one_go_and_counted() -> None:
    known = ahead((0, 2, LEFT_OUT), (2, 3, LEFT_OUT), (5, 9, LEFT_OUT))
    assert known.left_out == 7
    assert known.pass_to(0) == 3
    assert known.left_out == 4
    assert known.pass_to(7) == 9
    assert (known.left_out, len(known)) == (0, 0)


def test_a_later_range_wins_where_two_overlap() -> None:
    known = ahead((0, 10, LEFT_OUT), (5, 12, LEFT_OUT))
    assert list(known.ranges()) == [(0, 12, LEFT_OUT)]
    assert known.left_out == 12
    known = ahead((0, 10, 3), (5, 12, 4))
    assert list(known.ranges()) == [(0, 5, 3), (5, 12, 4)]
    known = ahead((4, 5, LEFT_OUT), (6, 7, 2), (3, 9, LEFT_OUT))
    assert list(known.ranges()) == [(3, 9, LEFT_OUT)]
    assert known.left_out == 6


def test_a_range_that_goes_on_from_the_last_makes_that_longer() -> None:
    known = ahead((0, 2, 1), (2, 3, 1), (3, 4, 1), (4, 5, 2), (6, 7, 2), (7, 8, LEFT_OUT), (8, 10, LEFT_OUT))
    assert list(known.ranges()) == [(0, 4, 1), (4, 5, 2), (6, 7, 2), (7, 10, LEFT_OUT)]
    assert known.left_out == 3
    assert known.pass_to(7) == 10
    assert known.left_out == 0


def test_ranges_below_an_offset_are_forgotten() -> None:
    known = ahead((0, 2, LEFT_OUT), (3, 6, 1), (8, 9, LEFT_OUT))
    known.cut_below(4)
    assert list(known.ranges()) == [(3, 6, 1), (8, 9, LEFT_OUT)]
    assert known.left_out == 1


def test_very_many_ranges_are_passed_and_written_in_pieces() -> None:
    known = ahead(*((2 * at, 2 * at + 1, LEFT_OUT) for at in range(10_000)))
    assert known.pass_to(2 * 6000) == 2 * 6000 + 1
    assert (len(known), known.left_out) == (3999, 3999)
    known.extend([(10**6, 10**6 + 1, 5)] * 1)
    pieces = list(known.pieces())
    assert [len(piece) for piece in pieces] == [24 * 4000]
    assert list(struct.iter_unpack("<qqq", b"".join(pieces))) == list(known.ranges())
    assert [len(piece) // 24 for piece in ahead(*((at, at + 1, at % 2) for at in range(5000))).pieces()] == [4096, 904]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12), st.sampled_from((LEFT_OUT, 1, 2)))))
def test_it_is_what_a_plain_dictionary_of_offsets_says(rows: list[tuple[int, int, int]]) -> None:
    known = Ahead()
    model: dict[int, int] = {}
    end = 0
    for first, size, attempts in sorted(rows):
        first = max(first, end)
        end = first + size
        known.append(first, end, attempts)
        model.update(dict.fromkeys(range(first, end), attempts))
    assert known.left_out == sum(value == LEFT_OUT for value in model.values())
    offset = 0
    while offset < end:
        behind = known.pass_to(offset)
        assert all(model.get(each) == LEFT_OUT for each in range(offset, behind))
        offset = behind
        boundary = known.boundary(offset, end)
        if offset < end:
            assert boundary > offset
        assert {model.get(each, 0) for each in range(offset, boundary)} <= {known.attempts_at(offset)}
        offset = boundary
    known.pass_to(end)
    assert not known
    assert known.left_out == 0


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 10)), max_size=12), st.integers(0, 50))
def test_ranges_are_left_out_in_any_order(ranges: list[tuple[int, int]], passed: int) -> None:
    made = Ahead()
    out: set[int] = set()
    for first, count in ranges:
        made.leave_out(first, first + count)
        out.update(range(first, first + count))
    rows = list(made.ranges())
    assert {offset for first, end, _attempts in rows for offset in range(first, end)} == out
    assert made.left_out == len(out)
    assert all(before[1] <= after[0] for before, after in pairwise(rows))
    assert made.pass_to(passed) == min(set(range(passed, 100)) - out)


def test_leaving_out_keeps_what_is_known_about_the_others() -> None:
    made = ahead((0, 10, 3), (20, 30, 5))
    made.leave_out(5, 25)
    assert list(made.ranges()) == [(0, 5, 3), (5, 25, LEFT_OUT), (25, 30, 5)]
