"""What the driver does: ask the nodes how far their logs go, and cut what is new into ranges for the executors.

Without Spark's classes, so that it is tested without Spark. The readers in `source.py` are thin shells over this.
"""

from __future__ import annotations

import time
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from polymq.errors import ConfigError, ConnectFailed
from polymq.spark.log import offsets
from polymq.spark.log.nodes import Nodes
from polymq.spark.log.offsets import Place, Position, Positions, Range
from polymq.spark.losses import report_loss
from polymq.spark.option_values import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Container

    from polymq.clients.log import LogClient, PartitionInfo
    from polymq.spark.log.bounds import Bound
    from polymq.spark.log.nodes import Survey
    from polymq.spark.log.options import Options

__all__ = ["Planner"]

# An idle query asks for new offsets a hundred times a second; the broker is asked this often at most,
_POLL_INTERVAL_SECONDS: Final = 0.05
# and asking takes about a tenth of the time at most: a list of thousands of topics, or of many nodes, is work.
_POLL_SHARE: Final = 10
_POLL_INTERVAL_SECONDS_MAX: Final = 2.0
_NS_PER_MS: Final = 1_000_000
# Between two looks for a node that is waited for.
_WAIT_SECONDS: Final = 0.25


class Planner:
    """Plans the reads of one query. Holds no state that a restart would need: that is all in the positions."""

    def __init__(
        self,
        options: Options,
        connect: Callable[[str], LogClient],
        *,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._nodes = Nodes(options, connect, monotonic=monotonic)
        self._sleep = sleep
        self._monotonic = monotonic
        self._poll_due = monotonic()
        self._target: Positions | None = None
        # When a node was first missing, by its name.
        self._missing_since: dict[str, float] = {}
        self._advanced_at: float | None = None

    def starting(self) -> Positions:
        """Say where a new query starts. Every node must be there: one that came later would be read from its start."""
        return offsets.numbered(self._bound(self._options.starting, self._survey_all()), {})

    def freeze(self) -> None:
        """Let nothing that is written from now on be part of this query's run (AvailableNow)."""
        self._target = offsets.newest(self._survey_all(optional=self._options.subscription.topics).topics)

    def newest(self) -> Positions:
        """Say how far the log goes, where there is one."""
        return offsets.newest(self._nodes.survey(self._options.subscription.topics).topics)

    def advance(self, start: Positions, records_max: int | None) -> Positions:
        """Say where the next micro-batch that begins at `start` ends; `start` itself when there is nothing new.

        After a loss the positions move to where reading goes on, even when nothing can be read there yet: otherwise
        records that come later could make `start` look as if nothing had happened.
        """
        survey = self._poll(start)
        adopted = self._adopted(start, survey)
        infos = offsets.places_of(survey.topics)
        left_out = self._left_out(adopted, survey)
        # What is in `start` and no longer in the broker must not go unnoticed.
        target = adopted | (offsets.newest(survey.topics) if self._target is None else self._target)
        ranges = self._ranges(adopted, {place: last for place, last in target.items() if place.node not in left_out}, infos)
        if self._is_too_little(ranges):
            return start
        result = dict(adopted)
        for each in self._limited(ranges, infos, records_max):
            before = adopted.get(each.place)
            is_moved = before is not None and (each.start, each.log) != (before.offset, before.log)
            if each.count > 0 or is_moved:
                result[each.place] = offsets.position_at(infos[each.place], each.end)
        result = offsets.numbered(result, adopted)
        if result == adopted:
            return start
        self._advanced_at = self._monotonic()
        return result

    def plan(self, start: Positions, end: Positions) -> list[Range]:
        """Cut what lies between two positions into ranges; works from these alone, as after a restart."""
        # A node whose records were planned is waited for: nothing else could be read in their place.
        needed = {place.node for place, last in end.items() if start.get(place) != last}
        survey = self._survey_all(self._options.subscription.topics, needed=None if "" in needed else needed)
        start, end = self._adopted(start, survey), self._adopted(end, survey)
        # A node of which there is nothing to read may be away.
        due = {place: last for place, last in end.items() if place.node in survey.nodes or start.get(place) != last}
        return self._split(self._ranges(start, due, offsets.places_of(survey.topics)), survey)

    def plan_batch(self) -> list[Range]:
        """Cut what a batch read asks for into ranges."""
        survey = self._survey_all()
        infos = offsets.places_of(survey.topics)
        start = self._bound(self._options.starting, survey)
        end = offsets.numbered(self._bound(self._options.ending, survey), {})
        ranges = []
        for place, position in end.items():
            info = infos[place]
            if position.offset > info.end:
                report_loss(f"{place} ends at offset {info.end}, before {position.offset}", self._options)
            begin = max(start[place].offset, info.start)
            if begin > start[place].offset:
                report_loss(f"{place} starts at offset {begin}, not {start[place].offset}", self._options)
            stop = max(begin, min(position.offset, info.end))
            ranges.append(Range(place, begin, stop, position.epoch, info.number, position.shown))
        return self._split(ranges, survey)

    # --- Who is there -------------------------------------------------------------------------------------------------

    def _poll(self, start: Positions) -> Survey:
        """Ask again, when that is due."""
        wait = self._poll_due - self._monotonic()
        if wait > 0:
            self._sleep(wait)
        began = self._monotonic()
        survey = self._survey_present(start)
        pause = _POLL_SHARE * (self._monotonic() - began)
        self._poll_due = began + min(max(pause, _POLL_INTERVAL_SECONDS), _POLL_INTERVAL_SECONDS_MAX)
        return survey

    def _survey_present(self, start: Positions) -> Survey:
        """Ask everybody who is there; in an AvailableNow run, wait for all whose records are part of it."""
        known = {place.topic for place in start}
        if self._target is not None and not self._nodes.one:
            behind = {place.node for place, last in self._target.items() if start.get(place) is None or start[place].offset < last.offset}
            return self._survey_all(optional=known, needed=behind)
        return self._nodes.survey(known)

    def _survey_all(self, optional: Container[str] = (), *, needed: Collection[str] | None = None) -> Survey:
        """Ask until everybody has answered, or at least those nodes that are `needed`; as long as a broker that is away is tried.

        Raises: ConnectFailed when somebody who may be one of them does not answer. Needed nodes that nobody has heard of are
                not waited for if everybody else has answered and is known by address: they are gone.
        """
        survey = self._nodes.survey(optional)
        if self._nodes.one:
            return survey
        deadline = self._monotonic() + self._options.retry_seconds
        while not self._is_complete(survey, needed):
            if self._monotonic() >= deadline:
                if survey.away:
                    raise ConnectFailed(f"after {self._options.retry_seconds:g} s: {survey.describe_away()}")
                return survey
            self._sleep(_WAIT_SECONDS)
            survey = self._nodes.survey(optional, now=True)
        return survey

    def _is_complete(self, survey: Survey, needed: Collection[str] | None) -> bool:
        """Tell whether all have answered who are waited for."""
        if needed is None:
            return not survey.away and bool(survey.nodes)
        if set(needed) <= survey.nodes.keys():
            return True
        # Directories forget a node while it restarts; a list of addresses does not.
        return not survey.away and not self._options.lookupds

    def _left_out(self, start: Positions, survey: Survey) -> set[str]:
        """Tell which nodes are away: the micro-batch is without them, and their positions stay.

        One that has been away for longer than a broker is tried fails the query, unless losses are to be passed over: then
        the query goes on without it. One that is not away but gone is not among them: its records are lost.
        """
        if self._nodes.one:
            return set()
        now = self._monotonic()
        missing = {place.node for place in start} - survey.nodes.keys()
        self._missing_since = {name: self._missing_since.get(name, now) for name in missing}
        left_out = set()
        for name in sorted(missing):
            is_over = now - self._missing_since[name] >= self._options.retry_seconds
            may_be_away = bool(survey.away or survey.silent)
            if may_be_away and is_over:
                text = f"node {name} has been away for {self._options.retry_seconds:g} s: {survey.describe_away()}"
                if self._options.fail_on_data_loss:
                    raise ConnectFailed(text)
                warnings.warn(f"{text}; the query goes on without it", RuntimeWarning, stacklevel=2)
            if may_be_away or (self._options.lookupds and not is_over):
                left_out.add(name)
        return left_out

    def _adopted(self, positions: Positions, survey: Survey) -> Positions:
        """Give positions that were written for one `server` to the first of several: so a query goes on when nodes join it."""
        if self._nodes.one or all(place.node for place in positions):
            return positions
        first = next((name for name, address in survey.nodes.items() if address == next(iter(self._options.servers), "")), "")
        if not first:
            text = "the checkpoint was written for one server: name that one first in servers"
            raise ConfigError([f"{text}; it does not answer" if self._options.servers else text])
        return {
            place if place.node else replace(place, node=first): position if place.node else replace(position, shown=place.partition)
            for place, position in positions.items()
        }

    # --- Ranges -------------------------------------------------------------------------------------------------------

    def _split(self, ranges: list[Range], survey: Survey) -> list[Range]:
        options = self._options
        found = offsets.split(ranges, parts_min=options.partitions_min, records_max=options.records_per_partition_max)
        return [replace(each, address=survey.nodes[each.place.node]) for each in found] if not self._nodes.one else found

    def _ranges(self, start: Positions, end: Positions, infos: dict[Place, PartitionInfo]) -> list[Range]:
        """Pair positions into ranges, with what was lost reported. A partition that is new is read from its start.

        A range ends where reading would go on behind `end`, however much more there is to read: the next micro-batch
        begins there, whether this one is planned for the first time or again after a restart.
        """
        ranges = []
        for place, last in sorted(end.items()):
            info = infos.get(place)
            if info is None:
                report_loss(f"{place} is no longer there, or no longer subscribed to", self._options)
                continue
            first = start.get(place)
            begin, loss = (info.start, None) if first is None else offsets.resume(place, first, info)
            stop, gone = offsets.resume(place, last, info)
            for text in (loss, gone):
                if text is not None:
                    report_loss(text, self._options)
            epoch = offsets.position_at(info, stop).epoch
            ranges.append(Range(place, begin, max(begin, stop), epoch, info.number, last.shown))
        return ranges

    def _limited(self, ranges: list[Range], infos: dict[Place, PartitionInfo], records_max: int | None) -> list[Range]:
        """Shorten ranges to what a micro-batch may have."""
        bytes_max = self._options.bytes_per_trigger_max
        if bytes_max is not None:
            counts = {place: max(1, info.end - info.start) for place, info in infos.items()}
            total_bytes = sum(each.count * infos[each.place].size_bytes // counts[each.place] for each in ranges)
            if total_bytes > bytes_max:
                count = sum(each.count for each in ranges)
                fitting = max(1, count * bytes_max // total_bytes)
                records_max = fitting if records_max is None else min(records_max, fitting)
        return ranges if records_max is None else offsets.limit(ranges, records_max)

    def _is_too_little(self, ranges: list[Range]) -> bool:
        """Tell whether to wait for more records; not in an AvailableNow run, and not before the first micro-batch."""
        least = self._options.records_per_trigger_min
        if least is None or self._target is not None or self._advanced_at is None:
            return False
        if self._monotonic() - self._advanced_at >= self._options.trigger_delay_seconds:
            return False
        return sum(each.count for each in ranges) < least

    def _bound(self, bound: Bound, survey: Survey) -> Positions:
        """Turn an option into positions."""
        infos = offsets.places_of(survey.topics)
        for name, unknown in ((bound.name, bound.unknown(infos)), ("assign", self._options.subscription.unknown(infos))):
            if unknown:
                raise ConfigError([f"{name} speaks of {', '.join(unknown)}, which the broker does not have"])
        result: dict[Place, Position] = {}
        for place, info in infos.items():
            value, is_time = bound.of(place)
            if is_time:
                value = self._offset_at(bound, survey, place, value)
            result[place] = offsets.position_at(info, {LATEST: info.readable, EARLIEST: info.start}.get(value, value))
        return result

    def _offset_at(self, bound: Bound, survey: Survey, place: Place, time_ms: int) -> int:
        """Find the first record of a time or later. Behind the newest one there is none to start from; to end there means all."""
        info = offsets.places_of(survey.topics)[place]
        found = max(self._nodes.offset_at(survey, place, time_ms * _NS_PER_MS), info.start)
        if found < info.readable:
            return found
        is_start_behind_all = bound is self._options.starting and info.start < info.readable
        if is_start_behind_all and not self._options.late_start_is_latest:
            text = f"{bound.name}: {place} has no record of {time_ms} ms since 1970 or later"
            raise ConfigError([f"{text}; startingOffsetsByTimestampStrategy latest starts at its end"])
        return LATEST
