"""Puts a range of the archive back into a topic, by any of the four protocols: in order within each partition, at least once, resumable.

Bronze is read slice by slice of offsets, which bounds memory and gives each partition in its order whatever files it lies in. The cursor
says how far each partition of each topic has been acknowledged; a replay that is started again goes on behind it.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from polymq.clients.bridge_ends import Carried
from polymq.clients.bridge_fields import fitted
from polymq.errors import ConfigError, Refusal, StoreFailed
from polymq.spark.pipeline.catalog import BRONZE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Protocol

    from polymq.clients.broker_messages import Outgoing
    from polymq.errors import PolyMQError
    from polymq.spark.pipeline.catalog import Catalog, Entry

    class Publisher(Protocol):
        """Who publishes: `polymq.clients.broker_sync.Broker`."""

        def publish_each(self, messages: Sequence[Outgoing]) -> list[PolyMQError | None]:
            """Publish messages together, and say of each what went wrong."""


__all__ = ["Cursor", "Done", "Range", "replay", "slices"]

# So many rows are in memory at a time.
ROWS_PER_SLICE: Final = 50_000
# So many messages are on their way at a time, and are sent again when a replay was killed.
FLIGHT_COUNT: Final = 1000
_COLUMNS: Final = ("key", "value", "partition", "offset", "timestamp", "headers", "tags")


@dataclass(frozen=True, slots=True)
class Range:
    """What is put back: topics (all without any), a time [begin, end) in microseconds, offsets [first, last], partitions."""

    topics: tuple[str, ...] = ()
    begin_us: int | None = None
    end_us: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    partitions: tuple[int, ...] = ()

    def may_be_in(self, entry: Entry) -> bool:
        """Tell by what is known of a file whether it can have something of this range."""
        return (
            (not self.topics or entry.topic in self.topics)
            and (self.begin_us is None or entry.last_us is None or entry.last_us >= self.begin_us)
            and (self.end_us is None or entry.first_us is None or entry.first_us < self.end_us)
            and (self.first_offset is None or entry.last_offset is None or entry.last_offset >= self.first_offset)
            and (self.last_offset is None or entry.first_offset is None or entry.first_offset <= self.last_offset)
        )


@dataclass(slots=True)
class Done:
    """What has been done: messages put back, left out because they were before, refused; and fields that the target cannot say."""

    sent: int = 0
    before: int = 0
    refused: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    is_complete: bool = False


class Cursor:
    """How far a replay is, in a file; it belongs to one range and one target. Without a path nothing is kept."""

    def __init__(self, path: Path | None, what: str) -> None:
        self._path = path
        self._what = what
        self._offsets: dict[str, dict[str, int]] = {}
        if path is None or not path.exists():
            return
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            offsets, kept = found["offsets"], found["what"]
            self._offsets = {str(topic): {str(number): int(offset) for number, offset in parts.items()} for topic, parts in offsets.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise StoreFailed(f"the cursor {path} cannot be read: {error}") from error
        if kept != what:
            raise ConfigError([f"the cursor {path} is of another replay: {kept}"])

    def kept(self) -> dict[tuple[str, int], int]:
        """Give the last offset that the target has of each topic and partition, as it is now."""
        return {(topic, int(number)): offset for topic, parts in self._offsets.items() for number, offset in parts.items()}

    def advance(self, topic: str, partition: int, offset: int) -> None:
        """Note that the target has everything up to an offset."""
        self._offsets.setdefault(topic, {})[str(partition)] = offset

    def write(self) -> None:
        """Keep it."""
        if self._path is None:
            return
        beside = self._path.with_name(f"{self._path.name}.new")
        with beside.open("w", encoding="utf-8") as file:
            json.dump({"what": self._what, "offsets": self._offsets}, file)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self._path)


def slices(entries: Sequence[Entry], rows_max: int = ROWS_PER_SLICE) -> Iterator[tuple[int, int, list[Entry]]]:
    """Cut a topic's files into ranges of offsets [first, last] of about `rows_max` rows each, with the files that may have some of them.

    Where the files of a stretch have more rows for their offsets, its ranges are shorter.
    """
    spans = sorted(((each.first_offset or 0, (each.last_offset or 0) + 1, each) for each in entries), key=lambda span: span[:2])
    edges = sorted({edge for first, end, _ in spans for edge in (first, end)})
    inside: list[tuple[int, int, Entry]] = []
    taken = 0
    members: list[Entry] = []
    begin, rows = 0, 0.0
    for first, end in pairwise(edges):
        inside = [span for span in inside if span[1] > first]
        while taken < len(spans) and spans[taken][0] <= first:
            inside.append(spans[taken])
            taken += 1
        here = sum(each.rows * (end - first) / (high - low) for low, high, each in inside)
        if members and rows + here > rows_max:
            yield begin, first - 1, members
            members, rows = [], 0.0
        if here > rows_max:
            width = max(1, int((end - first) * rows_max / here))
            yield from ((at, min(at + width, end) - 1, [each for *_, each in inside]) for at in range(first, end, width))
        elif inside:
            begin = begin if members else first
            members = list(dict.fromkeys([*members, *(each for *_, each in inside)]))
            rows += here
    if members:
        yield begin, edges[-1] - 1, members


def count(catalog: Catalog, wanted: Range) -> int:
    """Say how many messages there are at most: all of the files that may have some."""
    return sum(each.rows for each in catalog.files(BRONZE) if wanted.may_be_in(each))


def replay(
    catalog: Catalog,
    wanted: Range,
    publisher: Publisher,
    *,
    protocol: str,
    target: str,
    cursor: Cursor,
    rate: float = 0.0,
    skip_refused: bool = False,
    tick: Callable[[Done], bool] = lambda _: True,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    now_ns: Callable[[], int] = time.time_ns,
) -> Done:
    """Put a range back; `target` is a topic, in which {topic} stands for the message's own. `tick` says whether to go on.

    `rate`: so many messages a second at most; 0 for as fast as it goes.
    Raises:  Refusal of the target unless `skip_refused`; TransportError. What was acknowledged is in the cursor then.
    """
    done = Done()
    begun = monotonic()
    before = cursor.kept()
    by_topic: dict[str, list[Entry]] = {}
    for each in catalog.files(BRONZE):
        if wanted.may_be_in(each):
            by_topic.setdefault(each.topic, []).append(each)
    for topic, entries in sorted(by_topic.items()):
        name = target.replace("{topic}", topic)
        for first, last, members in slices(entries):
            rows = _rows(catalog, wanted, members, first, last)
            for flight in _flights(rows, topic, before, done, FLIGHT_COUNT if not rate else max(1, min(FLIGHT_COUNT, int(rate / 10)))):
                outgoing = []
                for message, _, _ in flight:
                    made, dropped = fitted(message, protocol, name, now_ns())
                    done.dropped.update(dropped)
                    outgoing.append(made)
                _settle(publisher.publish_each(outgoing), flight, topic, cursor, done, skip_refused=skip_refused)
                if not tick(done):
                    return done
                if rate:
                    sleep(max(0.0, begun + done.sent / rate - monotonic()))
    done.is_complete = True
    return done


def _settle(
    outcomes: Sequence[PolyMQError | None],
    flight: Sequence[tuple[Carried, int, int]],
    topic: str,
    cursor: Cursor,
    done: Done,
    *,
    skip_refused: bool,
) -> None:
    """Note what the target has; raises the first of what went wrong, with everything before it in the cursor.

    Where several messages have one offset, the target has it when it has all of them.
    """
    behind: list[tuple[int, int] | None] = [*((partition, offset) for _, partition, offset in flight[1:]), None]
    for outcome, (_, partition, offset), after in zip(outcomes, flight, behind, strict=True):
        if outcome is not None:
            if not (skip_refused and isinstance(outcome, Refusal)):
                cursor.write()
                raise outcome
            done.refused += 1
        else:
            done.sent += 1
        if after != (partition, offset):
            cursor.advance(topic, partition, offset)
    cursor.write()


def _rows(catalog: Catalog, wanted: Range, entries: Sequence[Entry], first: int, last: int) -> pa.Table:
    """Read the rows of a range of offsets, in the order of partition and offset."""
    low = first if wanted.first_offset is None else max(first, wanted.first_offset)
    high = last if wanted.last_offset is None else min(last, wanted.last_offset)
    keep = (pc.field("offset") >= low) & (pc.field("offset") <= high)
    if wanted.partitions:
        keep &= pc.field("partition").isin(list(wanted.partitions))
    for bound, is_begin in ((wanted.begin_us, True), (wanted.end_us, False)):
        if bound is not None:
            moment = pa.scalar(bound, pa.timestamp("us", tz="UTC"))
            keep &= pc.field("timestamp") >= moment if is_begin else pc.field("timestamp") < moment
    tables = [
        pq.read_table(catalog.storage / each.path, columns=list(_COLUMNS), filters=keep, partitioning=None)
        for each in entries
        if each.first_offset is None or each.last_offset is None or (each.first_offset <= high and each.last_offset >= low)
    ]
    if not tables:
        return pa.table({name: [] for name in _COLUMNS})
    rows = pa.concat_tables(tables, promote_options="default")
    return rows.sort_by([("offset", "ascending"), ("partition", "ascending")])


def _flights(
    rows: pa.Table, topic: str, before: Mapping[tuple[str, int], int], done: Done, count_max: int
) -> Iterator[list[tuple[Carried, int, int]]]:
    """Make messages of rows, so many at a time, without those that the target had `before`.

    An archive may have an offset twice, of a topic that was made anew: all of an offset are in one flight, which is longer then.
    """
    flight: list[tuple[Carried, int, int]] = []
    for batch in rows.to_batches(max_chunksize=count_max):
        for row in batch.to_pylist():
            partition, offset = row["partition"] or 0, row["offset"]
            if offset <= before.get((topic, partition), -1):
                done.before += 1
                continue
            if len(flight) >= count_max and flight[-1][1:] != (partition, offset):
                yield flight
                flight = []
            flight.append((_carried(row, partition), partition, offset))
    if flight:
        yield flight


def _carried(row: dict[str, Any], partition: int) -> Carried:
    """Make a message of a row. Its lifetime and whom to answer were of that time, and are left out."""
    headers = [(each["key"].encode(), each["value"] or b"") for each in row["headers"] or []]
    if row["tags"] and all(name != b"TAGS" for name, _ in headers):
        headers.append((b"TAGS", row["tags"].encode()))
    return Carried(row["value"] or b"", row["key"], headers, order=partition)
