"""The lag, whatever shape a source gives its offsets."""

from __future__ import annotations

from typing import Any

import pytest

from polymq.spark.pipeline.lag import distance, lag_of


@pytest.mark.parametrize(
    ("end", "latest", "found"),
    [
        ({"a": {"0": 5, "1": 7}}, {"a": {"0": 8, "1": 7}}, 3),
        ({"a": {"0": {"offset": 5, "epoch": 1, "log": 9}}}, {"a": {"0": {"offset": 9, "epoch": 3, "log": 12}}}, 4),
        (None, {"a": {"0": 8}}, 8),
        ({"a": {"0": 9}}, {"a": {"0": 8}}, 0),
        ({}, {"a": {"0": 2}, "b": "strange", "c": True, "d": None}, 2),
        (3, 10, 7),
    ],
)
def test_offsets_are_compared_place_by_place(end: Any, latest: Any, found: int) -> None:
    assert distance(end, latest) == found


def test_sources_are_added_up() -> None:
    assert lag_of([{"endOffset": '{"a": 1}', "latestOffset": '{"a": 4}'}, {"endOffset": None, "latestOffset": {"b": 2}}]) == 5


def test_nobody_knows() -> None:
    assert lag_of([]) is None
    assert lag_of([{"endOffset": "{}", "latestOffset": None}]) is None
    assert lag_of([{"endOffset": "no JSON", "latestOffset": "nor this"}]) == 0
