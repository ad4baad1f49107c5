"""Where a query starts: what comes before what, and which partitions are meant. What is refused: test_options.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.spark.log.offsets import Place
from polymq.spark.log.options import Options
from polymq.spark.option_values import EARLIEST, LATEST

if TYPE_CHECKING:
    from polymq.spark.log.bounds import Bound


def bound(**given: str) -> Bound:
    return Options.parse({"server": "h:1", "subscribe": "a,b"} | given, streaming=True).starting


def test_times_come_before_offsets() -> None:
    both = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"a": {"0": 7, "n/00": 8}}'}
    assert bound(**both).of(Place("a", 0)) == (7, True)
    assert bound(**both).of(Place("a", 0, "n")) == (8, True)
    assert bound(**both).of(Place("b", 0)) == (EARLIEST, False)
    assert bound(startingTimestamp="9", **both).of(Place("b", 5)) == (9, True)
    assert bound(**both).unknown({Place("a", 0): None}) == ["a/n/0"]


def test_partitions_that_are_not_named_are_read_as_a_whole() -> None:
    batch = Options.parse({"server": "h:1", "subscribe": "a", "endingOffsets": '{"a": {"0": 5}}'}, streaming=False)
    assert (batch.ending.of(Place("a", 0)), batch.ending.of(Place("a", 1))) == ((5, False), (LATEST, False))
    assert bound(startingOffsets='{"a": {"0": 5}}').of(Place("a", 1)) == (EARLIEST, False)
