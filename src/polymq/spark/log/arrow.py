"""Records as Arrow record batches, by wrapping the buffers of `polymq.wire.records.columns` without a copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from array import array

    from polymq.wire.records import Columns

__all__ = ["ARROW_SCHEMA", "SCHEMA", "record_batch"]

# Spark's form of the schema. Spark wants the Arrow schema to be exactly the one that it derives from this.
SCHEMA: Final = "topic string, partition int, offset bigint, timestamp timestamp, key binary, headers array<struct<key: string, value: binary>>, body binary"

_HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS_FIELD: Final = pa.field("element", _HEADER_TYPE)
ARROW_SCHEMA: Final = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("key", pa.binary()),
        pa.field("headers", pa.list_(_HEADERS_FIELD)),
        pa.field("body", pa.binary()),
    ]
)


def record_batch(topic: str, partition: int, columns: Columns) -> pa.RecordBatch:
    """Wrap the columns of one partition.

    A record without key has a null, one without headers an empty array. A header's name that is not UTF-8 has its
    wrong bytes replaced, since Spark's strings are UTF-8.
    """
    count = columns.count
    arrays = [
        pa.repeat(pa.scalar(topic, pa.string()), count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offsets)]),
        pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), count, [None, pa.py_buffer(columns.times_us)]),
        _keys(columns),
        _headers(columns),
        _binary(count, columns.body_ends, columns.bodies),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ARROW_SCHEMA)


def _binary(count: int, ends: array[int], data: bytearray, valid: Any = None) -> pa.Array:
    """Wrap values that lie one behind the other."""
    return pa.Array.from_buffers(pa.binary(), count, [valid, pa.py_buffer(ends), pa.py_buffer(data)])


def _keys(columns: Columns) -> pa.Array:
    """Wrap the keys; most logs have none."""
    if not columns.key_count:
        return pa.nulls(columns.count, pa.binary())
    return _binary(columns.count, columns.key_ends, columns.keys, pa.py_buffer(columns.key_valid))


def _headers(columns: Columns) -> pa.Array:
    """Wrap the headers as lists of structures."""
    names = _binary(columns.header_count, columns.name_ends, columns.names)
    if columns.header_count:
        try:
            names = names.cast(pa.string())
        except pa.ArrowInvalid:
            names = pa.array([name.decode("utf-8", "replace") for name in names.to_pylist()], pa.string())
    else:
        names = pa.array([], pa.string())
    values = _binary(columns.header_count, columns.value_ends, columns.values)
    structures = pa.StructArray.from_arrays([names, values], fields=list(_HEADER_TYPE))
    return pa.Array.from_buffers(pa.list_(_HEADERS_FIELD), columns.count, [None, pa.py_buffer(columns.header_ends)], children=[structures])
