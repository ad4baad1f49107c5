"""The columns that every source gives: Kafka's where Kafka has the like, and behind them what the protocols have of their own.

A source fills those that it knows and leaves the others null. Spark does not tell a Python source which columns a query
needs, and each one costs time on its way to the JVM; so every source has an option `columns`, which says which to give.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polymq.spark.option_values import OptionReader

__all__ = ["COLUMNS", "HEADERS_FIELD", "HEADER_TYPE", "arrow_schema", "chosen", "record_batch", "spark_schema"]

HEADER_TYPE: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_FIELD: Final = pa.field("element", HEADER_TYPE)

# Name, Spark's type, Arrow's type. Spark wants the Arrow schema to be exactly the one that it derives from its own.
COLUMNS: Final[dict[str, tuple[str, pa.DataType]]] = {
    # Null where a message has none.
    "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()),
    # Topic, subject or queue, as the protocol spells it.
    "topic": ("string", pa.string()),
    # Queue number of RocketMQ; 0 where a protocol has none.
    "partition": ("int", pa.int32()),
    # In the log, the queue or the spool; without gaps in none but the log.
    "offset": ("bigint", pa.int64()),
    # When the broker stored it; of NATS and PHPMQ, which do not say: when it was received.
    "timestamp": ("timestamp", pa.timestamp("us", tz="UTC")),
    # In order, with repeats; empty where a message has none.
    "headers": ("array<struct<key: string, value: binary>>", pa.list_(HEADERS_FIELD)),
    # The source's protocol: nsq, rocketmq, nats, phpmq; of the log, by what a message was published, null where the log does not know.
    "protocol": ("string", pa.string()),
    # What the protocol calls a message by, where it does.
    "message_id": ("string", pa.string()),
    # How often it was delivered, counting this time; null for readers of a log.
    "attempts": ("int", pa.int32()),
    # RocketMQ's tag.
    "tags": ("string", pa.string()),
    "reply_to": ("string", pa.string()),
    # When its lifetime ends; null: never.
    "expires_at": ("timestamp", pa.timestamp("us", tz="UTC")),
}


def chosen(reader: OptionReader) -> tuple[str, ...]:
    """Read the option `columns`: names separated by commas, all columns without it. They come in the order of COLUMNS."""
    asked = reader.listed("columns")
    unknown = [name for name in asked if name not in COLUMNS]
    if unknown:
        reader.problems.append(f"columns names {', '.join(unknown)}; there are {', '.join(COLUMNS)}")
    return tuple(name for name in COLUMNS if name in asked) or tuple(COLUMNS)


def spark_schema(names: Sequence[str]) -> str:
    """Give the schema of these columns as Spark reads it."""
    return ", ".join(f"{name} {COLUMNS[name][0]}" for name in names)


def arrow_schema(names: Sequence[str]) -> pa.Schema:
    """Give the schema of these columns as Arrow has it."""
    return pa.schema([pa.field(name, COLUMNS[name][1]) for name in names])


def record_batch(names: Sequence[str], count: int, arrays: Mapping[str, pa.Array | Any]) -> pa.RecordBatch:
    """Make a batch of `count` rows. What `arrays` does not have is null, and an empty array for headers; what is no array is in every row."""
    return pa.RecordBatch.from_arrays([_column(name, count, arrays.get(name)) for name in names], schema=arrow_schema(names))


def _column(name: str, count: int, found: pa.Array | Any) -> pa.Array:
    kind = COLUMNS[name][1]
    if isinstance(found, pa.Array):
        return found
    if found is not None:
        return pa.repeat(pa.scalar(found, kind), count)
    if name == "headers":
        # Out of buffers: `pa.repeat` makes an array for each row of a kind like this.
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(bytes(4 * (count + 1)))], children=[pa.array([], HEADER_TYPE)])
    return pa.nulls(count, kind)
