"""Who gets how much: in proportion, never nothing, and never too much."""

from __future__ import annotations

import pytest

from polymq.spark.shares import edges, limited


@pytest.mark.parametrize(
    ("counts", "most", "expected"),
    [
        ([5, 5], 10, [5, 5]),
        ([100, 50], 60, [40, 20]),
        ([1, 1, 1], 1, [1, 0, 0]),
        ([0, 7, 3], 5, [0, 4, 1]),
        ([], 3, []),
    ],
)
def test_counts_are_shortened_in_proportion(counts: list[int], most: int, expected: list[int]) -> None:
    assert limited(counts, most) == expected


def test_ranges_are_cut_into_parts_of_about_the_same_size() -> None:
    assert edges(10, 20, total=10, parts_min=1, size_max=100) == [(10, 20)]
    assert edges(10, 20, total=10, parts_min=3, size_max=100) == [(10, 13), (13, 16), (16, 20)]
    assert edges(10, 20, total=10, parts_min=1, size_max=4) == [(10, 13), (13, 16), (16, 20)]
    assert edges(0, 10, total=100, parts_min=10, size_max=100) == [(0, 10)]
    assert edges(0, 2, total=2, parts_min=9, size_max=100) == [(0, 1), (1, 2)]
    assert edges(5, 5, total=5, parts_min=1, size_max=1) == []
