from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructType, TimestampType

from polymq.spark.log.arrow import ARROW_SCHEMA, SCHEMA, record_batch
from polymq.wire import records
from polymq.wire.records import Message
from tests.unit.wire import batches

if TYPE_CHECKING:
    import pyarrow as pa

HEADER = StructType().add("key", StringType()).add("value", BinaryType())
SPARK_SCHEMA = (
    StructType()
    .add("topic", StringType())
    .add("partition", IntegerType())
    .add("offset", LongType())
    .add("timestamp", TimestampType())
    .add("key", BinaryType())
    .add("headers", ArrayType(HEADER))
    .add("body", BinaryType())
)


def wrapped(messages: list[Message]) -> pa.RecordBatch:
    data = batches.batch(messages, base_offset=5)
    result = record_batch("orders", 3, records.columns(data, 0, len(data), 0, 100))
    result.validate(full=True)
    return result


def test_the_schema_is_the_one_that_spark_derives() -> None:
    """Spark compares the schemas for equality, and only once data flows."""
    derived = to_arrow_schema(SPARK_SCHEMA, timezone="UTC")
    assert SPARK_SCHEMA.simpleString() == f"struct<{SCHEMA.replace(': ', ':').replace(', ', ',').replace(' ', ':')}>"
    assert derived.equals(ARROW_SCHEMA)
    assert wrapped([Message(b"x")]).schema.equals(derived)


def test_every_field_arrives() -> None:
    rows = wrapped(
        [Message(b"a", b"k", ((b"n", b"v"), (b"", b"w")), time_ns=1_500_000_000_000_001_999), Message(b""), Message(b"c", b"")]
    ).to_pylist()
    assert [(row["topic"], row["partition"], row["offset"], row["key"], row["body"]) for row in rows] == [
        ("orders", 3, 5, b"k", b"a"),
        ("orders", 3, 6, None, b""),
        ("orders", 3, 7, b"", b"c"),
    ]
    assert rows[0]["timestamp"] == dt.datetime(2017, 7, 14, 2, 40, 0, 1, tzinfo=dt.UTC)
    assert [row["headers"] for row in rows] == [[{"key": "n", "value": b"v"}, {"key": "", "value": b"w"}], [], []]


def test_a_name_that_is_not_utf_8_is_replaced_in_place() -> None:
    rows = wrapped([Message(b"a", headers=((b"good", b"1"), (b"\xff\xfe", b"2")))]).to_pylist()
    assert [header["key"] for header in rows[0]["headers"]] == ["good", "\ufffd\ufffd"]


def test_no_records_are_an_empty_batch() -> None:
    empty = record_batch("orders", 3, records.columns(b"", 0, 0, 0, 1))
    empty.validate(full=True)
    assert empty.num_rows == 0
