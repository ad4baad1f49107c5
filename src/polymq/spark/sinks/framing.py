"""Rows become record batches, one behind the other for each partition of each topic, and those become requests.

The rows of a table are put in the order of where they go by one stable sort of one column, so what goes to one
partition keeps its order; then whole stretches are encoded (`wire/rows.py`).
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from polymq import limits
from polymq.clients.prepared import EXPIRES, LATER
from polymq.spark.sinks.columns import key_buffers, rows_of
from polymq.wire.batch import HEADER_SIZE_BYTES, BatchHeader, seal
from polymq.wire.rows import encode_rows, place_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from polymq.clients.prepared import Frame

__all__ = ["Framing"]

# A request: large enough that a sync each does not matter, small enough that two are nothing to an executor.
_REQUEST_SIZE_BYTES: Final = 4 * 1024 * 1024
_ROOM_FIRST: Final = 2 * limits.BATCH_SIZE_BYTES_TARGET
# A record of the largest body, key and headers.
_ROOM_MAX: Final = limits.BATCH_SIZE_BYTES_MAX
# Batches that are being filled; more targets than that and all go out as they are.
_OPEN_MAX: Final = 512
_PARTITIONS_END: Final = limits.PARTITIONS_PER_TOPIC_MAX + 1

# (topic, partition or -1, for later)
_Target = tuple[str, int, bool]


class _Open:
    """A batch that is being filled."""

    __slots__ = ("count", "data", "expires")

    def __init__(self) -> None:
        self.data = bytearray(HEADER_SIZE_BYTES)
        self.count = 0
        self.expires = False


class Framing:
    """Takes tables, gives requests to `send`. `partitions_of` says how many partitions topics have."""

    def __init__(self, partitions_of: Callable[[Sequence[str]], Mapping[str, int]], send: Callable[[Sequence[Frame]], None]) -> None:
        self.rows = 0
        self._partitions_of = partitions_of
        self._send = send
        self._counts: dict[str, int] = {}
        self._open: dict[_Target, _Open] = {}
        self._ready: list[Frame] = []
        self._ready_size = 0
        self._room = bytearray(_ROOM_FIRST)

    def add(self, columns: dict[str, pa.Array]) -> None:
        """Take the rows of a table, as `columns.table_of` gives it; raises ValueError for rows that cannot be taken."""
        count = len(columns["value"])
        largest = pc.max(pc.binary_length(columns["value"])).as_py()
        if largest > limits.MESSAGE_SIZE_BYTES_MAX:
            raise ValueError(f"a row has a value of {largest} bytes; a message has {limits.MESSAGE_SIZE_BYTES_MAX} at most")
        codes, topics = self._codes(columns, count)
        if pc.min_max(codes)["min"] == pc.min_max(codes)["max"]:
            self._encode(_decode(codes[0].as_py(), topics), columns)
        else:
            order = pc.array_sort_indices(codes)
            columns = {name: column.take(order) for name, column in columns.items() if name not in {"topic", "partition"}}
            runs = pc.run_end_encode(codes.take(order))
            begin = 0
            for code, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
                self._encode(_decode(code, topics), {name: column[begin:end] for name, column in columns.items()})
                begin = end
        self.rows += count

    def finish(self) -> None:
        """Send what is left."""
        self._close_all()
        self._flush()

    def _codes(self, columns: dict[str, pa.Array], count: int) -> tuple[pa.Array, list[str]]:
        """Give a number for each row that says where it goes, and the topics that the numbers speak of."""
        topics = pc.dictionary_encode(columns["topic"])
        names = topics.dictionary.to_pylist()
        if "" in names:
            raise ValueError("a row has an empty topic")
        places = self._places(columns, topics.indices, names, count)
        codes = pc.add(pc.multiply(pc.cast(topics.indices, pa.int64()), _PARTITIONS_END), pc.add(places, 1))
        due = columns.get("deliver_at")
        later = pa.repeat(pa.scalar(0, pa.int64()), count) if due is None else pc.cast(due.is_valid(), pa.int64())
        return pc.add(pc.multiply(codes, 2), later), names

    def _places(self, columns: dict[str, pa.Array], indices: pa.Array, names: list[str], count: int) -> pa.Array:
        """Give the partition of each row, -1 where any will do."""
        asked = columns.get("partition")
        keys = key_buffers(columns.get("key"))
        if (asked is None or asked.null_count == count) and keys is None:
            return pa.repeat(pa.scalar(-1, pa.int64()), count)
        unknown = [name for name in names if name not in self._counts]
        if unknown:
            self._counts.update(self._partitions_of(unknown))
        places = pa.repeat(pa.scalar(-1, pa.int64()), count)
        if keys is not None:
            for partitions in {self._counts[name] for name in names}:
                target = array("i", bytes(4 * count))
                place_keys(target, *keys, count, partitions)
                placed = pc.cast(pa.Array.from_buffers(pa.int32(), count, [None, pa.py_buffer(target)]), pa.int64())
                these = pa.array([index for index, name in enumerate(names) if self._counts[name] == partitions], indices.type)
                places = pc.if_else(pc.is_in(indices, value_set=these), placed, places)
        if asked is not None:
            counts = pa.array([self._counts[name] for name in names], pa.int32()).take(indices)
            wrong = pc.or_(pc.less(asked, 0), pc.greater_equal(asked, counts))
            if pc.any(wrong).as_py():
                raise ValueError("a row has a partition that its topic has not")
            places = pc.coalesce(pc.cast(asked, pa.int64()), places)
        return places

    def _encode(self, target: _Target, columns: dict[str, pa.Array]) -> None:
        """Write rows of one target into its batch, and as many more as it takes."""
        rows = rows_of(columns)
        first = 0
        while first < rows.count:
            found = self._open.get(target)
            if found is None:
                if len(self._open) >= _OPEN_MAX:
                    self._close_all()
                found = self._open[target] = _Open()
            end, row = encode_rows(self._room, 0, rows, first, max(1, limits.BATCH_SIZE_BYTES_TARGET - len(found.data)))
            if row == first:
                if len(self._room) >= _ROOM_MAX:
                    raise ValueError("a row's key, tags and headers are too large for a message")
                self._room = bytearray(min(_ROOM_MAX, 2 * len(self._room)))
                continue
            found.data += memoryview(self._room)[:end]
            found.count += row - first
            found.expires = found.expires or len(rows.expiries) > 0
            first = row
            if len(found.data) >= limits.BATCH_SIZE_BYTES_TARGET:
                self._close(target)

    def _close(self, target: _Target) -> None:
        """Seal a batch; it goes out with others."""
        found = self._open.pop(target)
        topic, partition, later = target
        seal(found.data, 0, len(found.data), BatchHeader(count=found.count))
        if self._ready_size + len(found.data) > limits.PREPARED_REQUEST_SIZE_BYTES_MAX - limits.PREPARED_HEAD_SIZE_BYTES_MAX:
            self._flush()
        self._ready.append((topic, partition, LATER * later | EXPIRES * found.expires, found.data))
        self._ready_size += len(found.data)
        if self._ready_size >= _REQUEST_SIZE_BYTES or len(self._ready) >= limits.PREPARED_FRAMES_PER_REQUEST_MAX:
            self._flush()

    def _close_all(self) -> None:
        for target in list(self._open):
            self._close(target)

    def _flush(self) -> None:
        if self._ready:
            ready, self._ready, self._ready_size = self._ready, [], 0
            self._send(ready)


def _decode(code: int, topics: list[str]) -> _Target:
    rest, later = divmod(code, 2)
    topic, place = divmod(rest, _PARTITIONS_END)
    return topics[topic], place - 1, bool(later)
