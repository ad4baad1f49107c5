"""Where a query is in the queues, and what to read next: pure arithmetic, without Spark and without a network.

A queue is known by topic, broker and number. Rows have one number for it, `partition`, which together with topic and offset
names a message: queues of a topic are numbered over its brokers in the order in which the query has seen them first, and the
number is kept beside the offset. At one broker it is the queue's own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from polymq.clients.rocketmq_queues import Extent, MessageQueue
from polymq.clients.rocketmq_routes import queue_order
from polymq.spark import shares

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

__all__ = ["Position", "Positions", "Range", "decode", "encode", "limit", "name_of", "numbered", "resume", "split"]


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read, and the number of the queue in rows."""

    offset: int
    partition: int


Positions = dict[MessageQueue, Position]


@dataclass(frozen=True, slots=True)
class Range:
    """Offsets `start` (inclusive) to `end` (exclusive) of a queue."""

    queue: MessageQueue
    partition: int
    start: int
    end: int

    @property
    def count(self) -> int:
        """How many offsets."""
        return self.end - self.start


def name_of(queue: MessageQueue) -> str:
    """Name a queue for people."""
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


def encode(positions: Mapping[MessageQueue, Position]) -> dict[str, Any]:
    """Give the JSON form that goes into a query's checkpoint: {topic: {broker: {queue: {offset, partition}}}}, sorted.

    Spark compares offsets as text, so equal positions must give equal text.
    """
    result: dict[str, dict[str, dict[str, dict[str, int]]]] = {}
    for queue in sorted(positions, key=queue_order):
        position = positions[queue]
        brokers = result.setdefault(queue.topic, {})
        fields = {"offset": position.offset, "partition": position.partition}
        brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = fields
    return result


def decode(offsets: Mapping[str, Mapping[str, Mapping[str, Mapping[str, Any]]]]) -> Positions:
    """Read what `encode` has written."""
    return {
        MessageQueue(topic, broker, int(number)): Position(int(fields["offset"]), int(fields["partition"]))
        for topic, brokers in offsets.items()
        for broker, queues in brokers.items()
        for number, fields in queues.items()
    }


def numbered(known: Mapping[MessageQueue, int], queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
    """Number queues: those that are known as they were, the others of each topic behind them, by broker and number."""
    result = dict(known)
    following: dict[str, int] = {}
    for queue, number in known.items():
        following[queue.topic] = max(following.get(queue.topic, 0), number + 1)
    for queue in sorted(queues, key=queue_order):
        if queue not in result:
            result[queue] = following.setdefault(queue.topic, 0)
            following[queue.topic] += 1
    return result


def resume(queue: MessageQueue, offset: int, extent: Extent) -> tuple[int, str | None]:
    """Tell from which offset on reading goes on, and what was lost, for people, if anything was."""
    if offset < extent.first:
        return extent.first, f"{name_of(queue)} starts at offset {extent.first}: what was there from {offset} on has been removed"
    if offset > extent.end:
        return extent.end, f"{name_of(queue)} ends at offset {extent.end}, but offset {offset} had been reached"
    return offset, None


def limit(ranges: Sequence[Range], records_max: int) -> list[Range]:
    """Shorten ranges so that together they hold at most `records_max` offsets, each in proportion to its length."""
    counts = shares.limited([each.count for each in ranges], records_max)
    return [replace(each, end=each.start + count) for each, count in zip(ranges, counts, strict=True)]


def split(ranges: Iterable[Range], *, parts_min: int, records_max: int) -> list[Range]:
    """Cut ranges so that there are about `parts_min` of them or more, and none has over `records_max` offsets."""
    filled = [each for each in ranges if each.count > 0]
    total = sum(each.count for each in filled)
    return [
        replace(each, start=start, end=end)
        for each in filled
        for start, end in shares.edges(each.start, each.end, total=total, parts_min=parts_min, size_max=records_max)
    ]
