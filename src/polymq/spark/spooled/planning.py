"""What the driver does: say how far the spool is durable, and cut what is new into ranges for the executors.

Without Spark's classes, so that it is tested without Spark. Nothing is remembered that a restart would need: an offset
is the number of a record and the number of its spool, and the files say the rest.
"""

from __future__ import annotations

import itertools
import time
import warnings
from typing import TYPE_CHECKING, Any, Final

from polymq.errors import ConfigError, StoreFailed
from polymq.spark.losses import DataLoss, report_loss
from polymq.spark.option_values import EARLIEST, LATEST
from polymq.spark.spooled.options import PLACE
from polymq.spool import folder
from polymq.spool.reading import Catalogue

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.spark.option_values import Bound
    from polymq.spark.spooled.options import Options
    from polymq.spool.reading import Piece

__all__ = ["Offset", "Planner", "decode", "encode"]

# An idle query asks a hundred times a second; the spool's files are looked at this often at most.
_POLL_INTERVAL_SECONDS: Final = 0.02

# Number of the spool, number of the next record.
Offset = tuple[int, int]


def encode(offset: Offset) -> dict[str, Any]:
    """Give the JSON form, of the shape that all our sources have: {"spool": {"0": {"offset": 7, "log": "spool's id"}}}."""
    number, record = offset
    return {PLACE: {"0": {"offset": record, "log": f"{number:016x}"}}}


def decode(found: Mapping[str, Any]) -> Offset:
    """Read what `encode` has written; raises DataLoss for the offset of another source."""
    try:
        fields = found[PLACE]["0"]
        return int(fields["log"], 16), int(fields["offset"])
    except (KeyError, TypeError, ValueError) as error:
        raise DataLoss(f"the checkpoint is not one of a query over a spool: {str(found)[:200]}") from error


class Planner:
    """Plans the reads of one query."""

    def __init__(
        self,
        options: Options,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._catalogue = Catalogue(options.location, options.protocol)
        self._sleep = sleep
        self._monotonic = monotonic
        self._polled_at = -_POLL_INTERVAL_SECONDS
        self._target: int | None = None

    def starting(self) -> Offset:
        """Say where a new query starts."""
        return self._catalogue.number(), self._bound(self._options.starting)

    def newest(self) -> Offset:
        """Say how far the spool is durable."""
        return self._catalogue.number(), self._catalogue.end()

    def freeze(self) -> None:
        """Let nothing that becomes durable from now on be part of this query's run (AvailableNow)."""
        self._target = self._catalogue.end()

    def advance(self, start: Offset, records_max: int | None) -> Offset:
        """Say where the next micro-batch that begins at `start` ends; `start` itself when there is nothing new."""
        self._pause_between_polls()
        number, end = self.newest()
        if self._target is not None:
            end = min(end, self._target)
        begin = self._resume(start, number)
        if records_max is not None:
            end = min(end, begin + records_max)
        return number, max(begin, end)

    def reaches(self, end: Offset) -> bool:
        """Whether the files say that the spool is durable up to `end`, which they need not after a power loss: a writer has to look."""
        try:
            number, known = self.newest()
        except StoreFailed:
            return False
        return number != end[0] or known >= end[1]

    def plan(self, start: Offset, end: Offset) -> list[list[Piece]]:
        """Cut what lies between two positions into pieces for tasks; works from these and the files alone, as after a restart."""
        number = self._catalogue.number()
        if end[0] != number:
            report_loss(f"the spool in {self._options.location} is another one than that of the checkpoint", self._options)
            return []
        first = self._resume(start, number)
        if end[1] > self._catalogue.end():
            self._report_early_end(end[1], "durable")
        return self._cut(first, min(end[1], self._catalogue.end()))

    def plan_batch(self) -> list[list[Piece]]:
        """Cut what a batch read asks for into pieces."""
        first, end = self._bound(self._options.starting), self._bound(self._options.ending)
        there, newest = self._catalogue.start(), self._catalogue.end()
        if first < there:
            report_loss(f"the spool begins with record {there}, not {first}", self._options)
        if end > newest:
            report_loss(f"the spool ends before record {newest}, not {end}", self._options)
        return self._cut(max(first, there), min(end, newest))

    def commit(self, end: Offset) -> None:
        """Tell the spooler what has been read for good; nothing hangs on it but how much is kept."""
        number = folder.identity(self._options.location)
        if number is None or number.number != end[0] or folder.committed(self._options.location) >= end[1]:
            return
        try:
            folder.write_committed(self._options.location, end[1])
        except OSError as error:
            warnings.warn(f"the spool cannot be told what was read: {error.strerror or error}", RuntimeWarning, stacklevel=2)

    def _resume(self, start: Offset, number: int) -> int:
        """Say where reading goes on behind `start`; what was lost is reported."""
        location = self._options.location
        there = self._catalogue.start()
        if start[0] != number:
            report_loss(f"the spool in {location} is another one than that of the checkpoint: the one that was read is gone", self._options)
            return there
        if start[1] < there:
            report_loss(f"the spool in {location} begins with record {there}; {there - start[1]} were dropped unread", self._options)
            return there
        if start[1] > self._catalogue.end():
            self._report_early_end(start[1], "read")
            return self._catalogue.end()
        return start[1]

    def _report_early_end(self, record: int, had_been: str) -> None:
        hint = "" if self._options.feed is not None else "; if the machine lost power, start its spooler first, which finds what is there"
        report_loss(f"the spool in {self._options.location} ends before record {record}, which had been {had_been}{hint}", self._options)

    def _cut(self, first: int, end: int) -> list[list[Piece]]:
        """Make about as many tasks as are wanted, of as many records each."""
        count = end - first
        if count <= 0:
            return []
        parts = max(-(-count // self._options.records_per_partition_max), min(self._options.partitions_min, count))
        edges = [first + count * index // parts for index in range(parts + 1)]
        tasks = []
        for begin, stop in itertools.pairwise(edges):
            pieces = self._catalogue.pieces(begin, stop)
            if sum(piece.end - piece.first for piece in pieces) < stop - begin:
                report_loss(f"records between {begin} and {stop} were dropped from the spool while they were planned", self._options)
            if pieces:
                tasks.append(pieces)
        return tasks

    def _bound(self, bound: Bound) -> int:
        if isinstance(bound, str):
            return self._catalogue.start() if bound == "earliest" else self._catalogue.end()
        offset = bound.get(PLACE, {}).get(0)
        if offset is None or set(bound[PLACE]) != {0}:
            raise ConfigError(['offsets of a spool are {"spool": {"0": offset}}'])
        if offset == EARLIEST:
            return self._catalogue.start()
        return self._catalogue.end() if offset == LATEST else offset

    def _pause_between_polls(self) -> None:
        wait = self._polled_at + _POLL_INTERVAL_SECONDS - self._monotonic()
        if wait > 0:
            self._sleep(wait)
        self._polled_at = self._monotonic()
