"""Where a query is in the log, and what to read next: pure arithmetic, without Spark and without a network.

A position is an offset together with the epoch in which the record before it was written and the number of its log.
After a power loss the broker may give offsets a second time; it then counts up its epoch and remembers from which
offset on. So a position whose epoch was followed by another one that starts below it has read records that are gone,
and the same offsets now name other records. `resume` is where that is noticed, as well as trimmed logs and topics that
were created anew.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from polymq.clients.log import PartitionInfo, TopicInfo

__all__ = [
    "Place",
    "Position",
    "Positions",
    "Range",
    "decode",
    "encode",
    "limit",
    "newest",
    "numbered",
    "oldest",
    "places_of",
    "position_at",
    "resume",
    "split",
]


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """One partition of one topic; of several nodes also which node's."""

    topic: str
    partition: int
    node: str = ""

    def __str__(self) -> str:
        """Name it for people."""
        return f"{self.topic}/{self.partition}" + (f" of node {self.node}" if self.node else "")


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read, the epoch of the record before it, and the number of the log.

    `shown` is what the column `partition` says where there are several nodes; −1: the index of the partition, as with one node.
    """

    offset: int
    epoch: int
    log: int
    shown: int = -1


Positions = dict[Place, Position]


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets `start` (inclusive) to `end` (exclusive) of the log with a number, none of them written after `epoch`.

    `shown` is as in `Position`; `address` is where the node was when this was planned, empty with one node.
    """

    place: Place
    start: int
    end: int
    epoch: int
    log: int
    shown: int = -1
    address: str = ""

    @property
    def partition(self) -> int:
        """What the column `partition` says."""
        return self.place.partition if self.shown < 0 else self.shown

    @property
    def count(self) -> int:
        """How many offsets."""
        return self.end - self.start


def encode(positions: Mapping[Place, Position]) -> dict[str, dict[str, dict[str, int]]]:
    """Give the JSON form that goes into a query's checkpoint: {topic: {partition: {offset, epoch, log}}}, sorted.

    With several nodes it is {topic: {"node/partition": {offset, epoch, log, partition}}}: the last is what is shown.
    Spark compares offsets as text, so equal positions must give equal text.
    """
    result: dict[str, dict[str, dict[str, int]]] = {}
    for place in sorted(positions):
        position = positions[place]
        fields = {"offset": position.offset, "epoch": position.epoch, "log": position.log}
        if position.shown >= 0:
            fields["partition"] = position.shown
        key = f"{place.node}/{place.partition}" if place.node else str(place.partition)
        result.setdefault(place.topic, {})[key] = fields
    return result


def decode(offsets: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Positions:
    """Read what `encode` has written."""
    result = {}
    for topic, partitions in offsets.items():
        for key, fields in partitions.items():
            node, _, partition = key.rpartition("/")
            shown = int(fields.get("partition", -1))
            result[Place(topic, int(partition), node)] = Position(int(fields["offset"]), int(fields["epoch"]), int(fields["log"]), shown)
    return result


def numbered(positions: Mapping[Place, Position], before: Mapping[Place, Position]) -> Positions:
    """Give every partition of several nodes the number that the column `partition` shows: once, and then for ever.

    (topic, partition, offset) is to name a row, and two nodes have the same partitions of a topic. Numbers go up in each
    topic in the order of node and partition; those that are new get the next ones. `before` has those that are given.
    """
    result = dict(positions)
    next_by_topic: dict[str, int] = {}
    for place, position in before.items():
        next_by_topic[place.topic] = max(next_by_topic.get(place.topic, 0), position.shown + 1)
    for place in sorted(positions, key=lambda each: (each.topic, each.node, each.partition)):
        if not place.node:
            continue
        shown = before[place].shown if place in before else -1
        if shown < 0:
            shown = next_by_topic.get(place.topic, 0)
            next_by_topic[place.topic] = shown + 1
        result[place] = replace(positions[place], shown=shown)
    return result


def position_at(info: PartitionInfo, offset: int) -> Position:
    """Make the position before `offset`: its epoch is the one in which the record before it was written."""
    epoch = info.epochs[0][0] if info.epochs else info.epoch
    for candidate, first in info.epochs:
        if first < offset:
            epoch = candidate
    return Position(offset, epoch, info.number)


def places_of(topics: Iterable[TopicInfo]) -> dict[Place, PartitionInfo]:
    """Give what is known of every partition."""
    return {Place(topic.name, info.partition, topic.node): info for topic in topics for info in topic.partitions}


def newest(topics: Iterable[TopicInfo]) -> Positions:
    """Give the positions behind everything that may be read."""
    return {place: position_at(info, info.readable) for place, info in places_of(topics).items()}


def oldest(topics: Iterable[TopicInfo]) -> Positions:
    """Give the positions before everything that is still there."""
    return {place: position_at(info, info.start) for place, info in places_of(topics).items()}


def resume(place: Place, position: Position, info: PartitionInfo) -> tuple[int, str | None]:
    """Tell from which offset on reading goes on behind `position`, and what was lost, for people, if anything was.

    A position between `readable` and `end` has lost nothing: after a start on another boot, records of a durable log
    may not be read before they are synced again, and that takes a moment.
    """
    name = str(place)
    if position.log != info.number:
        return info.start, f"{name} was deleted and created again since offset {position.offset} was read"
    replaced = min((first for epoch, first in info.epochs if epoch > position.epoch), default=position.offset)
    if replaced < position.offset:
        text = f"{name} lost its records from offset {replaced} on when the broker's machine failed; {position.offset - replaced} of"
        return max(
            replaced, info.start
        ), f"{text} these offsets had been read in epoch {position.epoch} and name other records in later ones"
    if position.offset > info.end:
        return info.end, f"{name} ends at offset {info.end}, but offset {position.offset} had been reached"
    if position.offset < info.start:
        return (
            info.start,
            f"{name} starts at offset {info.start}: {info.start - position.offset} records were removed before they were read",
        )
    return position.offset, None


def limit(ranges: Sequence[Range], records_max: int) -> list[Range]:
    """Shorten ranges so that together they hold at most `records_max` offsets, each in proportion to its length.

    What integer division leaves over goes to the ranges in order, so something is always read.
    """
    assert records_max > 0
    total = sum(each.count for each in ranges)
    if total <= records_max:
        return list(ranges)
    shares = [each.count * records_max // total for each in ranges]
    left = records_max - sum(shares)
    for index, each in enumerate(ranges):
        if left > 0 and shares[index] < each.count:
            shares[index] += 1
            left -= 1
    return [replace(each, end=each.start + share) for each, share in zip(ranges, shares, strict=True)]


def split(ranges: Iterable[Range], *, parts_min: int, records_max: int) -> list[Range]:
    """Cut ranges so that there are about `parts_min` of them or more, and none has over `records_max` offsets."""
    assert records_max > 0
    filled = [each for each in ranges if each.count > 0]
    total = sum(each.count for each in filled)
    result: list[Range] = []
    for each in filled:
        wanted = max(-(-each.count // records_max), round(each.count * parts_min / total))
        parts = max(1, min(wanted, each.count))
        edges = [each.start + each.count * index // parts for index in range(parts + 1)]
        result += [replace(each, start=start, end=end) for start, end in itertools.pairwise(edges)]
    return result
