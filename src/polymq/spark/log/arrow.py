"""Records as Arrow record batches: the buffers of `polymq.wire.records.columns` are wrapped without a copy.

What is made of them (message ids, tags, protocols) is made of whole columns, and only where a column is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from polymq import limits
from polymq.spark import columns as shared
from polymq.wire.batch import ORIGIN_NONE
from polymq.wire.side_columns import side_columns

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Sequence

    from typing_extensions import Buffer

    from polymq.wire.batch import Columns, SideColumns

__all__ = ["PROTOCOLS", "message_ids", "record_batch"]

# By the number of a protocol in batches and extras: `ORIGIN_…` of the protocols. A test compares them.
PROTOCOLS: Final = {1: "nsq", 2: "rocketmq", 3: "nats", 4: "phpmq"}
_BY_ORIGIN: Final = pa.array([PROTOCOLS.get(origin) for origin in range(max(PROTOCOLS) + 1)], pa.string())
# Headers that are columns of their own: RocketMQ's tag, NATS's reply subject (docs/CONVERSIONS.md).
_TAGS: Final = "TAGS"
_REPLY_TO: Final = "reply-to"
_ID_SIZE: Final = 16


def record_batch(names: Sequence[str], topic: str, partition: int, number: int, data: Buffer, columns: Columns) -> pa.RecordBatch:
    """Make the columns `names` of what `records.columns` has made of `data`; `number` is the log's, which its message ids have.

    A record without key has a null, one without headers an empty array. A header's name that is not UTF-8 has its wrong
    bytes replaced, since Spark's strings are UTF-8; so has a tag.
    """
    count = columns.count
    side = side_columns(data, 0, memoryview(data).nbytes, columns) if {"protocol", "expires_at"} & set(names) else None
    headers = _Headers(columns)
    makers: dict[str, Callable[[], Any]] = {
        "key": lambda: _keys(columns),
        "value": lambda: _binary(count, columns.body_ends, columns.bodies),
        "topic": lambda: topic,
        "partition": lambda: partition,
        "offset": lambda: pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offsets)]),
        "timestamp": lambda: _times(count, columns.times_us),
        "headers": headers.all,
        "protocol": lambda: _protocols(side),
        "message_id": lambda: message_ids(number, columns),
        "tags": lambda: headers.named(_TAGS),
        "reply_to": lambda: headers.named(_REPLY_TO),
        "expires_at": lambda: _ends(count, side),
    }
    return shared.record_batch(names, count, {name: makers[name]() for name in names if name in makers})


def message_ids(number: int, columns: Columns) -> pa.Array:
    """Write 16 hexadecimal digits for each record, as NSQ's consumers see them: the log's number, then the offset."""
    ids = np.frombuffer(columns.offsets, np.int64) | ((number & limits.PARTITION_NUMBER_MAX) << limits.OFFSET_BITS)
    digits = ids.astype(">i8").tobytes().hex().encode("ascii")
    ends = np.arange(0, len(digits) + 1, _ID_SIZE, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), columns.count, [None, pa.py_buffer(ends), pa.py_buffer(digits)])


def _binary(count: int, ends: array[int], data: bytearray, valid: Any = None) -> pa.Array:
    """Wrap values that lie one behind the other."""
    return pa.Array.from_buffers(pa.binary(), count, [valid, pa.py_buffer(ends), pa.py_buffer(data)])


def _times(count: int, times_us: array[int], valid: Any = None) -> pa.Array:
    return pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), count, [valid, pa.py_buffer(times_us)])


def _keys(columns: Columns) -> pa.Array | None:
    """Wrap the keys; most logs have none."""
    if not columns.key_count:
        return None
    return _binary(columns.count, columns.key_ends, columns.keys, pa.py_buffer(columns.key_valid))


def _protocols(side: SideColumns | None) -> pa.Array | str | None:
    """Name the protocols; mostly there is one."""
    assert side is not None
    origins = side.origins
    if not origins or origins.count(origins[0]) == len(origins):
        return PROTOCOLS.get(origins[0]) if origins else None
    numbers = np.frombuffer(origins, np.uint8)
    return _BY_ORIGIN.take(pa.array(np.where(numbers < len(_BY_ORIGIN), numbers, ORIGIN_NONE)))


def _ends(count: int, side: SideColumns | None) -> pa.Array | None:
    """Wrap the ends of lifetimes; most records have none."""
    assert side is not None
    return _times(count, side.expires_us, pa.py_buffer(side.expiry_valid)) if side.expiry_count else None


class _Headers:
    """The headers of a chunk: as lists of structures, or one of them as a column. Most logs have none."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._found: tuple[pa.Array, pa.Array] | None = None

    def all(self) -> pa.Array | None:
        """Wrap them as lists."""
        columns = self._columns
        if not columns.header_count:
            return None
        structures = pa.StructArray.from_arrays(list(self._names_and_values()), fields=list(shared.HEADER_TYPE))
        kind = pa.list_(shared.HEADERS_FIELD)
        return pa.Array.from_buffers(kind, columns.count, [None, pa.py_buffer(columns.header_ends)], children=[structures])

    def named(self, name: str) -> pa.Array | None:
        """Give the values of the header `name`, the last one where a record has several; null where it has none."""
        columns = self._columns
        if not columns.header_count:
            return None
        names, values = self._names_and_values()
        places = np.flatnonzero(pc.equal(names, name).to_numpy(zero_copy_only=False))
        if not places.size:
            return None
        ends = np.frombuffer(columns.header_ends, np.int32)
        rows = np.repeat(np.arange(columns.count), ends[1:] - ends[:-1])[places]
        chosen = np.full(columns.count, -1, np.int64)
        # Of several assignments to one row the last one stays.
        chosen[rows] = np.arange(places.size)
        return _text(values.take(pa.array(places))).take(pa.array(chosen, mask=chosen < 0))

    def _names_and_values(self) -> tuple[pa.Array, pa.Array]:
        if self._found is None:
            columns = self._columns
            names = _binary(columns.header_count, columns.name_ends, columns.names)
            self._found = _text(names), _binary(columns.header_count, columns.value_ends, columns.values)
        return self._found


def _text(values: pa.Array) -> pa.Array:
    """Take bytes for UTF-8, with what is none replaced."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in values.to_pylist()], pa.string())
