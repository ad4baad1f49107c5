"""What the driver does: ask the broker how far the log goes, and cut what is new into ranges for the executors.

Without Spark's classes, so that it is tested without Spark. The readers in `source.py` are thin shells over this.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from polymq.errors import ConfigError, Refusal, RefusalCode
from polymq.spark.log import offsets
from polymq.spark.log.offsets import Place, Position, Positions, Range
from polymq.spark.log.reading import report_loss
from polymq.spark.option_values import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Container

    from polymq.clients.log import LogClient, PartitionInfo, TopicInfo
    from polymq.spark.log.options import Options
    from polymq.spark.option_values import Bound

__all__ = ["Planner"]

# An idle query asks for new offsets a hundred times a second; the broker is asked this often at most.
_POLL_INTERVAL_SECONDS: Final = 0.05


class Planner:
    """Plans the reads of one query. Holds no state that a restart would need: that is all in the positions."""

    def __init__(
        self,
        options: Options,
        client: LogClient,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._client = client
        self._sleep = sleep
        self._monotonic = monotonic
        self._polled_at = -_POLL_INTERVAL_SECONDS
        self._target: Positions | None = None

    def starting(self) -> Positions:
        """Say where a new query starts."""
        return self._bound(self._options.starting, self._topics(), "startingOffsets", EARLIEST)

    def freeze(self) -> None:
        """Let nothing that is written from now on be part of this query's run (AvailableNow)."""
        self._target = self.newest()

    def newest(self) -> Positions:
        """Say how far the log goes, where there is one."""
        return offsets.newest(self._topics(optional=self._options.topics))

    def advance(self, start: Positions, records_max: int | None) -> Positions:
        """Say where the next micro-batch that begins at `start` ends; `start` itself when there is nothing new.

        After a loss the positions move to where reading goes on, even when nothing can be read there yet: otherwise
        records that come later could make `start` look as if nothing had happened.
        """
        self._pause_between_polls()
        topics = self._topics(optional={place.topic for place in start})
        infos = _by_place(topics)
        # What is in `start` and no longer in the broker must not go unnoticed.
        target = start | (offsets.newest(topics) if self._target is None else self._target)
        ranges = self._ranges(start, target, infos)
        if records_max is not None:
            ranges = offsets.limit(ranges, records_max)
        result = dict(start)
        for each in ranges:
            before = start.get(each.place)
            is_moved = before is not None and (each.start, each.log) != (before.offset, before.log)
            if each.count > 0 or is_moved:
                result[each.place] = offsets.position_at(infos[each.place], each.end)
        return result

    def plan(self, start: Positions, end: Positions) -> list[Range]:
        """Cut what lies between two positions into ranges; works from these alone, as after a restart."""
        return self._split(self._ranges(start, end, _by_place(self._topics(optional=self._options.topics))))

    def plan_batch(self) -> list[Range]:
        """Cut what a batch read asks for into ranges."""
        topics = self._topics()
        infos = _by_place(topics)
        start = self._bound(self._options.starting, topics, "startingOffsets", EARLIEST)
        end = self._bound(self._options.ending, topics, "endingOffsets", LATEST)
        ranges = []
        for place, position in end.items():
            info = infos[place]
            if position.offset > info.end:
                report_loss(f"{place.topic}/{place.partition} ends at offset {info.end}, before {position.offset}", self._options)
            begin = max(start[place].offset, info.start)
            if begin > start[place].offset:
                report_loss(f"{place.topic}/{place.partition} starts at offset {begin}, not {start[place].offset}", self._options)
            ranges.append(Range(place, begin, max(begin, min(position.offset, info.end)), position.epoch, info.number))
        return self._split(ranges)

    def _split(self, ranges: list[Range]) -> list[Range]:
        return offsets.split(ranges, parts_min=self._options.partitions_min, records_max=self._options.records_per_partition_max)

    def _topics(self, optional: Container[str] = ()) -> list[TopicInfo]:
        """Ask for every topic of the query; those that are `optional` may be gone, any other raises Refusal."""
        found = []
        for name in self._options.topics:
            try:
                found.append(self._client.topic(name))
            except Refusal as error:
                if error.code is not RefusalCode.TOPIC_NOT_FOUND or name not in optional:
                    raise
        return found

    def _ranges(self, start: Positions, end: Positions, infos: dict[Place, PartitionInfo]) -> list[Range]:
        """Pair positions into ranges, with what was lost reported. A partition that is new is read from its start.

        A range ends where reading would go on behind `end`, however much more there is to read: the next micro-batch
        begins there, whether this one is planned for the first time or again after a restart.
        """
        ranges = []
        for place, last in sorted(end.items()):
            info = infos.get(place)
            if info is None:
                report_loss(f"{place.topic}/{place.partition} is no longer there, or no longer subscribed to", self._options)
                continue
            first = start.get(place)
            begin, loss = (info.start, None) if first is None else offsets.resume(place, first, info)
            stop, gone = offsets.resume(place, last, info)
            for text in (loss, gone):
                if text is not None:
                    report_loss(text, self._options)
            epoch = offsets.position_at(info, stop).epoch
            ranges.append(Range(place, begin, max(begin, stop), epoch, info.number))
        return ranges

    def _bound(self, bound: Bound, topics: list[TopicInfo], name: str, default: int) -> Positions:
        """Turn an option into positions; partitions that the JSON form does not name get the default."""
        if bound == "latest":
            return offsets.newest(topics)
        if bound == "earliest":
            return offsets.oldest(topics)
        assert isinstance(bound, dict)
        infos = _by_place(topics)
        missing = [f"{topic}/{partition}" for topic, by in bound.items() for partition in by if Place(topic, partition) not in infos]
        if missing:
            raise ConfigError([f"{name} speaks of {', '.join(missing)}, which the broker does not have"])
        result: dict[Place, Position] = {}
        for place, info in infos.items():
            offset = bound.get(place.topic, {}).get(place.partition, default)
            offset = {LATEST: info.readable, EARLIEST: info.start}.get(offset, offset)
            result[place] = offsets.position_at(info, offset)
        return result

    def _pause_between_polls(self) -> None:
        """Sleep until the poll interval has passed since the last poll."""
        wait = self._polled_at + _POLL_INTERVAL_SECONDS - self._monotonic()
        if wait > 0:
            self._sleep(wait)
        self._polled_at = self._monotonic()


def _by_place(topics: list[TopicInfo]) -> dict[Place, PartitionInfo]:
    return {Place(topic.name, info.partition): info for topic in topics for info in topic.partitions}
