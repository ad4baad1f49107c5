"""What a sink makes of a table's columns: which there may be, of which types, and the buffers that they lie in.

Names and types are those of Kafka's sink where it has the like. Everything is done to whole columns: no function here
makes an object for a row.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa
import pyarrow.compute as pc

from polymq.errors import ConfigError
from polymq.wire.rows import NO_TIME, Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import StructType

__all__ = ["COLUMNS", "Taken", "check_columns", "key_buffers", "rows_of", "table_of", "view_of"]

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_BYTES: Final = ("binary", "string")
_WHOLE: Final = ("tinyint", "smallint", "int", "bigint")
_HEADERS: Final = ("array<struct<key:string,value:binary>>",)

# Name: Spark's types that it may have, what it is for.
COLUMNS: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "value": (_BYTES, "the body"),
    "key": (_BYTES, "rows of the same key stay in order, in one partition"),
    "topic": (("string",), "where the row goes; without it, the option topic"),
    "partition": (_WHOLE, "which partition of the topic, in place of the key's"),
    "headers": (_HEADERS, "names and values"),
    "tags": (("string",), "RocketMQ's tag; a header TAGS elsewhere"),
    "deliver_at": (("timestamp", "timestamp_ntz"), "when it is delivered"),
    "delay_ms": (_WHOLE, "how long after the write it is delivered"),
    "ttl_seconds": (_WHOLE, "how long after the write it is delivered no more"),
}

_TO_ARROW: Final[dict[str, pa.DataType]] = {
    "value": pa.binary(),
    "key": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "headers": pa.list_(pa.field("element", _HEADER)),
    "tags": pa.string(),
    "deliver_at": pa.int64(),
    "delay_ms": pa.int64(),
    "ttl_seconds": pa.int64(),
}
_NS_PER_US: Final = 1000
_NS_PER_MS: Final = 1_000_000
_NS_PER_SECOND: Final = 1_000_000_000
# A hundred years: sums with the present time have a number.
_SECONDS_MAX: Final = 100 * 366 * 86400


@dataclass(frozen=True)
class Taken:
    """The columns of a table that a sink takes: those that `known` names, and the one that names a row (`idColumn`)."""

    known: tuple[str, ...]
    id_column: str = ""


def check_columns(schema: StructType, known: Sequence[str], *, topic: str, id_column: str = "") -> Taken:
    """Say which columns of a table are taken; raises ConfigError with all that is wrong with them."""
    problems: list[str] = []
    names = {field.name: field.dataType.simpleString() for field in schema.fields}
    listed = ", ".join(f"{name} ({' or '.join(COLUMNS[name][0])}: {COLUMNS[name][1]})" for name in known)
    for name, kind in names.items():
        if name not in known and name != id_column:
            problems.append(f"unknown column {name}. Known columns: {listed}")
        elif name in known and kind not in COLUMNS[name][0]:
            problems.append(f"column {name} must be {' or '.join(COLUMNS[name][0])}, not {kind}")
    if "value" not in names:
        problems.append(f"there is no column value. Known columns: {listed}")
    if "topic" not in names and not topic:
        problems.append("there is neither a column topic nor the option topic")
    if "deliver_at" in names and "delay_ms" in names:
        problems.append("deliver_at and delay_ms exclude each other")
    if id_column and id_column not in names:
        problems.append(f"there is no column {id_column}, which idColumn names")
    if problems:
        raise ConfigError(problems)
    return Taken(tuple(name for name in known if name in names), id_column)


def table_of(batch: pa.RecordBatch, taken: Taken, topic: str, now_ns: int) -> dict[str, pa.Array]:
    """Give the columns as all that follows wants them; raises ValueError for rows that nobody can take.

    `deliver_at` and `expires_at` come out in ns since 1970, null where there is none; `topic` is there for every row.
    """
    columns = {name: _as(batch.column(name), name) for name in taken.known}
    if columns["value"].null_count:
        raise ValueError("column value has rows that are null: a message has a body, which may be empty")
    if "topic" not in columns:
        columns["topic"] = pa.repeat(pa.scalar(topic, pa.string()), batch.num_rows)
    elif columns["topic"].null_count:
        if not topic:
            raise ValueError("column topic has rows that are null, and there is no option topic for them")
        columns["topic"] = pc.fill_null(columns["topic"], topic)
    if "deliver_at" in columns:
        columns["deliver_at"] = pc.multiply_checked(columns["deliver_at"], _NS_PER_US)
    if "delay_ms" in columns:
        columns["deliver_at"] = _after(columns.pop("delay_ms"), _NS_PER_MS, now_ns, "delay_ms")
    if "deliver_at" in columns:
        # What is due already goes at once.
        late = pc.less_equal(columns["deliver_at"], now_ns)
        columns["deliver_at"] = pc.if_else(late, pa.scalar(None, pa.int64()), columns["deliver_at"])
        _refuse_beyond(columns["deliver_at"], now_ns + _SECONDS_MAX * _NS_PER_SECOND, "deliver_at")
    if "ttl_seconds" in columns:
        columns["expires_at"] = _after(columns.pop("ttl_seconds"), _NS_PER_SECOND, now_ns, "ttl_seconds")
    if taken.id_column:
        columns["id"] = pc.cast(batch.column(taken.id_column), pa.string())
    return columns


def _as(column: pa.Array, name: str) -> pa.Array:
    """Cast a column to the type that is worked with."""
    if name == "deliver_at":
        return pc.cast(pc.cast(column, pa.timestamp("us", column.type.tz)), pa.int64())
    if name == "headers":
        return column if column.type.equals(_TO_ARROW[name]) else column.cast(_TO_ARROW[name])
    return pc.cast(column, _TO_ARROW[name])


def _after(column: pa.Array, unit_ns: int, now_ns: int, name: str) -> pa.Array:
    """Make points in time of lengths of time."""
    _refuse_beyond(column, _SECONDS_MAX * _NS_PER_SECOND // unit_ns, name)
    if column.null_count < len(column) and pc.min(column).as_py() < 0:
        raise ValueError(f"column {name} has negative rows")
    return pc.add(pc.multiply(column, unit_ns), now_ns)


def _refuse_beyond(column: pa.Array, most: int, name: str) -> None:
    if column.null_count < len(column) and pc.max(column).as_py() > most:
        raise ValueError(f"column {name} has rows beyond a hundred years")


# -- buffers -----------------------------------------------------------------------------------------------------------


def view_of(column: pa.Array, code: Literal["i", "q"], index: int, extra: int = 0) -> memoryview:
    """Give one buffer of a column as numbers, from its first row on; `extra` more than there are rows."""
    buffer = column.buffers()[index]
    if buffer is None or not buffer.size:
        return memoryview(array(code, bytes(array(code).itemsize * (len(column) + extra))))
    numbers: memoryview = memoryview(buffer).cast("B").cast(code)
    return numbers[column.offset : column.offset + len(column) + extra]


def _bytes_of(column: pa.Array) -> tuple[memoryview, memoryview]:
    """Give where the values of a column end ("i", one more than there are), and the bytes that they lie in."""
    data = column.buffers()[2]
    return view_of(column, "i", 1, 1), memoryview(data).cast("B") if data is not None else memoryview(b"")


def key_buffers(column: pa.Array | None) -> tuple[memoryview, memoryview, memoryview] | None:
    """Give a byte for each row that says whether it has a value, and what `_bytes_of` does; None if no row has one."""
    if column is None or column.null_count == len(column):
        return None
    valid = memoryview(pc.cast(column.is_valid(), pa.uint8()).buffers()[1]).cast("B")[: len(column)]
    return valid, *_bytes_of(column)


def _times(column: pa.Array | None) -> memoryview | None:
    if column is None or column.null_count == len(column):
        return None
    return view_of(pc.fill_null(column, NO_TIME), "q", 1)


def rows_of(columns: dict[str, pa.Array]) -> Rows:
    """Give the buffers of columns to `encode_rows`."""
    value_ends, values = _bytes_of(columns["value"])
    found: dict[str, Any] = {}
    keys = key_buffers(columns.get("key"))
    if keys is not None:
        found["key_valid"], found["key_ends"], found["keys"] = keys
    tags = key_buffers(columns.get("tags"))
    if tags is not None:
        found["tag_valid"], found["tag_ends"], found["tags"] = tags
    for column, name in (("deliver_at", "times"), ("expires_at", "expiries")):
        times = _times(columns.get(column))
        if times is not None:
            found[name] = times
    headers = columns.get("headers")
    if headers is not None and len(headers.values):
        # A list that is null may have bytes behind it all the same.
        headers = headers if headers.null_count == 0 else pc.fill_null(headers, pa.scalar([], headers.type))
        names, contents = pc.fill_null(headers.values.field(0), ""), pc.fill_null(headers.values.field(1), b"")
        found["header_ends"] = view_of(headers, "i", 1, 1)
        found["name_ends"], found["names"] = _bytes_of(names)
        found["content_ends"], found["contents"] = _bytes_of(contents)
    return Rows(len(columns["value"]), value_ends, values, **found)
