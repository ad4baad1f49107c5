"""What the driver does: find the queues, ask how far they go, and cut what is new into ranges for the executors.

Without Spark's classes, so that it is tested without Spark. The readers in `source.py` are thin shells over this. A broker that is
away takes its queues out of the name server's answers, so a queue that is missing is gone only if its broker is there (`_absent`).
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Final

from polymq.clients.rocketmq_queues import MessageQueue
from polymq.errors import ConfigError, ConnectFailed, Refusal, RefusalCode
from polymq.spark.option_values import EARLIEST, LATEST
from polymq.spark.rocketmq import offsets
from polymq.spark.rocketmq.offsets import Position, Positions, Range, name_of
from polymq.spark.rocketmq.patience import Patience, report_loss

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from polymq.clients.rocketmq_queues import Extent, QueueClient
    from polymq.spark.rocketmq.options import Bound, Options

__all__ = ["Planner"]

# An idle query asks for new offsets a hundred times a second; brokers are asked this often at most, and name servers less.
_POLL_INTERVAL_SECONDS: Final = 0.1
_ROUTE_AGE_SECONDS: Final = 5.0
# A queue that seems to be shorter than it was is looked at for so long before that is believed: a broker that has just started
# may not show all that it has.
_SHORT_SECONDS: Final = 2.0
_SHORT_PAUSE_SECONDS: Final = 0.5


class Planner:
    """Plans the reads of one query. Holds no state that a restart would need: that is all in the positions."""

    def __init__(
        self,
        options: Options,
        client: QueueClient,
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._client = client
        self._sleep = sleep
        self._monotonic = monotonic
        self._polled_at = -_POLL_INTERVAL_SECONDS
        self._patience = Patience(options.retry_seconds, sleep, monotonic)
        # Where this run ends, and the numbers of queues in the last positions that there were.
        self._target: dict[MessageQueue, int] | None = None
        self._numbers: dict[MessageQueue, int] = {}

    def starting(self) -> Positions:
        """Say where a new query starts."""
        return self._patience.until_done(lambda: self._positions(self._options.starting, "startingOffsets", EARLIEST))

    def freeze(self) -> None:
        """Let nothing that is sent from now on be part of this query's run (AvailableNow)."""
        self._target = self._patience.until_done(lambda: self._client.ends(self._there(self._options.topics)))

    def newest(self) -> Positions:
        """Say how far the queues go that are there."""
        ends = self._patience.until_done(lambda: self._client.ends(self._there(self._options.topics)))
        numbers = offsets.numbered(self._numbers, ends)
        return {queue: Position(end, numbers[queue]) for queue, end in ends.items()}

    def advance(self, start: Positions, records_max: int | None) -> Positions:
        """Say where the next micro-batch that begins at `start` ends; `start` itself when there is nothing new.

        After a loss the positions move to where reading goes on, even when nothing can be read there yet: otherwise
        messages that come later could make `start` look as if nothing had happened.
        """
        self._pause_between_polls()
        return self._patience.until_done(lambda: self._advance(start, records_max))

    def plan(self, start: Positions, end: Positions) -> list[Range]:
        """Cut what lies between two positions into ranges; works from these alone, as after a restart."""

        def ranges() -> list[Range]:
            changed = {queue: position.offset for queue, position in end.items() if start.get(queue) != position}
            there = self._there(self._optional(start | end))
            self._absent(set(changed) - set(there))
            wanted = {queue: offset for queue, offset in changed.items() if queue in there}
            numbers = {queue: position.partition for queue, position in end.items()}
            return self._ranges(start, wanted, self._extents(wanted, wanted), numbers)

        return self._split(self._patience.until_done(ranges))

    def plan_batch(self) -> list[Range]:
        """Cut what a batch read asks for into ranges."""
        return self._split(self._patience.until_done(self._batch))

    # --- Inside -------------------------------------------------------------------------------------------------------

    def _advance(self, start: Positions, records_max: int | None) -> Positions:
        known = {queue: position.partition for queue, position in start.items()}
        there = self._there(self._optional(start))
        self._absent(set(start) - set(there))
        ends = self._client.ends(there) if self._target is None else {q: end for q, end in self._target.items() if q in there}
        self._numbers = numbers = offsets.numbered(known, ends)
        changed = {queue: end for queue, end in ends.items() if queue not in start or start[queue].offset != end}
        if not changed:
            return start
        extents = self._extents(changed, {queue: start[queue].offset for queue in changed if queue in start})
        ranges = self._ranges(start, changed, extents, numbers)
        if records_max is not None:
            ranges = offsets.limit(ranges, records_max)
        moved = {}
        for each in ranges:
            before = start.get(each.queue)
            if each.count > 0 or (before is not None and each.start != before.offset):
                moved[each.queue] = Position(each.end, each.partition)
        if not moved:
            return start
        # Queues that are new get their numbers together, or these would be in the order of their first messages.
        fresh = {each.queue: Position(each.start, each.partition) for each in ranges if each.queue not in start}
        return start | fresh | moved

    def _batch(self) -> list[Range]:
        start = self._positions(self._options.starting, "startingOffsets", EARLIEST)
        end = self._positions(self._options.ending, "endingOffsets", LATEST)
        both = {queue: position for queue, position in end.items() if queue in start}
        extents = self._client.extents(both)
        ranges = []
        for queue, position in both.items():
            extent = extents[queue]
            if position.offset > extent.end:
                report_loss(f"{name_of(queue)} ends at offset {extent.end}, before {position.offset}", self._options)
            begin = max(start[queue].offset, extent.first)
            if begin > start[queue].offset:
                report_loss(f"{name_of(queue)} starts at offset {begin}, not {start[queue].offset}", self._options)
            ranges.append(Range(queue, position.partition, begin, max(begin, min(position.offset, extent.end))))
        return ranges

    def _split(self, ranges: list[Range]) -> list[Range]:
        return offsets.split(ranges, parts_min=self._options.partitions_min, records_max=self._options.records_per_partition_max)

    @staticmethod
    def _optional(positions: Collection[MessageQueue]) -> set[str]:
        """Name the topics that a query has seen: these may be gone."""
        return {queue.topic for queue in positions}

    def _there(self, optional: Collection[str] = ()) -> list[MessageQueue]:
        """List the queues of the query that are there; a topic that is not, and is not `optional`, raises Refusal."""
        options, found = self._options, []
        if options.pattern:
            pattern = re.compile(options.pattern)
            topics = [name for name in self._client.topics() if pattern.fullmatch(name)]
        else:
            topics = list(options.topics)
        for topic in topics:
            route = self._client.route(topic, age_seconds_max=_ROUTE_AGE_SECONDS)
            if route is not None:
                found += [queue for queue in route.read_queues if self._is_asked_for(queue)]
            elif topic not in optional and not options.pattern:
                raise Refusal(RefusalCode.TOPIC_NOT_FOUND, f"no name server knows {topic}")
        return found

    def _is_asked_for(self, queue: MessageQueue) -> bool:
        assigned = self._options.assigned
        return not assigned or queue.queue_id in assigned.get(queue.topic, {}).get(queue.broker_name, ())

    def _absent(self, queues: set[MessageQueue]) -> None:
        """Report queues that are no longer there as lost; raises ConnectFailed when it is not known: then a broker is away."""
        for queue in sorted(queues, key=name_of):
            is_subscribed = bool(self._options.pattern) or queue.topic in self._options.topics
            if is_subscribed and self._is_asked_for(queue) and not self._client.is_gone(queue):
                raise ConnectFailed(f"{name_of(queue)} cannot be reached: its broker is away")
            report_loss(f"{name_of(queue)} is no longer there, or no longer asked for", self._options)

    def _extents(self, queues: Collection[MessageQueue], reached: Mapping[MessageQueue, int] | None = None) -> dict[MessageQueue, Extent]:
        """Ask for the extents of queues; of those that seem to end before what was `reached`, again for a while."""
        extents = self._client.extents(queues)
        deadline = self._monotonic() + min(_SHORT_SECONDS, self._options.retry_seconds)
        while True:
            short = [queue for queue, offset in (reached or {}).items() if extents[queue].end < offset]
            if not short or self._monotonic() >= deadline:
                return extents
            self._sleep(_SHORT_PAUSE_SECONDS)
            extents |= self._client.extents(short)

    def _ranges(
        self,
        start: Positions,
        ends: Mapping[MessageQueue, int],
        extents: Mapping[MessageQueue, Extent],
        numbers: Mapping[MessageQueue, int],
    ) -> list[Range]:
        """Pair positions into ranges, with what was lost reported. A queue that is new is read from its start.

        A range ends where reading would go on behind `ends`, however much more there is to read: the next micro-batch
        begins there, whether this one is planned for the first time or again after a restart.
        """
        ranges = []
        for queue, last in ends.items():
            extent = extents[queue]
            first = start.get(queue)
            begin, loss = (extent.first, None) if first is None else offsets.resume(queue, first.offset, extent)
            stop, gone = offsets.resume(queue, last, extent)
            for text in (loss, gone):
                if text is not None:
                    report_loss(text, self._options)
            ranges.append(Range(queue, numbers[queue], begin, max(begin, stop)))
        return ranges

    def _positions(self, bound: Bound, name: str, default: int) -> Positions:
        """Turn an option into positions of all queues; those that the JSON form does not name get the default."""
        queues = self._there()
        every = [queue for topic in {each.topic for each in queues} for queue in self._every_queue(topic)]
        self._numbers = offsets.numbered({}, every)
        self._check_named(bound, queues, name)
        extents = self._client.extents(queues)
        result = {}
        for queue in queues:
            extent = extents[queue]
            given = bound.numbers.get(queue.topic, {}).get(queue.broker_name, {}).get(queue.queue_id)
            if bound.time_ms is not None or (bound.are_times and given is not None):
                offset = self._client.offset_at(queue, bound.time_ms if bound.time_ms is not None else given or 0)
            else:
                offset = given if given is not None else {"earliest": EARLIEST, "latest": LATEST}.get(bound.word, default)
                offset = {LATEST: extent.end, EARLIEST: extent.first}.get(offset, offset)
            result[queue] = Position(offset, self._numbers[queue])
        return result

    def _every_queue(self, topic: str) -> tuple[MessageQueue, ...]:
        route = self._client.route(topic, age_seconds_max=_ROUTE_AGE_SECONDS)
        return route.read_queues if route is not None else ()

    def _check_named(self, bound: Bound, queues: list[MessageQueue], name: str) -> None:
        """Raise ConfigError for queues that options name and brokers do not have."""
        named: dict[str, Mapping[str, Mapping[str, Iterable[int]]]] = {"assign": self._options.assigned, name: bound.numbers}
        problems = []
        for option, topics in named.items():
            wanted = [MessageQueue(t, b, number) for t, brokers in topics.items() for b, numbers in brokers.items() for number in numbers]
            missing = [name_of(queue) for queue in wanted if queue not in queues]
            if missing:
                problems.append(f"{option} speaks of {', '.join(missing)}, which the brokers do not have")
        if problems:
            raise ConfigError(problems)

    def _pause_between_polls(self) -> None:
        """Sleep until the poll interval has passed since the last poll."""
        wait = self._polled_at + _POLL_INTERVAL_SECONDS - self._monotonic()
        if wait > 0:
            self._sleep(wait)
        self._polled_at = self._monotonic()
