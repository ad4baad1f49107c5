from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType, TimestampType

from polymq.errors import ConfigError
from polymq.spark.sinks.columns import COLUMNS, Taken, check_columns, rows_of, table_of
from polymq.wire.batch import HEADER_SIZE_BYTES, BatchHeader, Message, read_messages, seal
from polymq.wire.rows import encode_rows

NOW_NS = 1_800_000_000_000_000_000
HEADERS = pa.list_(pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])))


def schema_of(**kinds: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in kinds.items()])


def taken(**kinds: Any) -> Taken:
    return check_columns(schema_of(**kinds), tuple(COLUMNS), topic="t")


def messages(batch: pa.RecordBatch, *names: str) -> list[Message]:
    rows = rows_of(table_of(batch, Taken(names), "t", NOW_NS))
    room = bytearray(4096)
    end, row = encode_rows(room, HEADER_SIZE_BYTES, rows, 0, 1 << 20)
    assert row == batch.num_rows
    seal(room, 0, end, BatchHeader(count=row))
    return read_messages(room, 0, 0, 0, row, end)


def test_columns_are_checked_by_name_and_type() -> None:
    assert taken(value=StringType(), key=BinaryType()) == Taken(("value", "key"))
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"key": BinaryType()}, "no column value"),
        ({"value": IntegerType()}, "column value must be binary or string, not int"),
        ({"value": StringType(), "valeu": StringType()}, r"unknown column valeu. Known columns: value \(binary or string: the body\)"),
        ({"value": StringType(), "deliver_at": TimestampType(), "delay_ms": IntegerType()}, "exclude each other"),
    ]
    for kinds, said in wrong:
        with pytest.raises(ConfigError, match=said):
            taken(**kinds)
    with pytest.raises(ConfigError, match="neither a column topic nor the option topic"):
        check_columns(schema_of(value=StringType()), ("value",), topic="")
    with pytest.raises(ConfigError, match="no column id, which idColumn names"):
        check_columns(schema_of(value=StringType()), ("value",), topic="t", id_column="id")


def test_rows_are_messages_also_of_a_part_of_a_table() -> None:
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array(["left out", "a", "", "c"]),
            "key": pa.array([b"x", b"k", None, b""], pa.binary()),
            "tags": pa.array([None, "T", None, "U"]),
            "headers": pa.array(
                [[{"key": "n", "value": b"0"}], [{"key": "h", "value": b"1"}, {"key": "h", "value": None}], None, []], HEADERS
            ),
            "ttl_seconds": pa.array([1, None, 60, None], pa.int32()),
            "delay_ms": pa.array([0, 5, None, 0], pa.int64()),
        }
    )
    assert messages(batch.slice(1), *batch.schema.names) == [
        Message(b"a", b"k", ((b"TAGS", b"T"), (b"h", b"1"), (b"h", b"")), time_ns=NOW_NS + 5_000_000),
        Message(b"", expiry_ns=NOW_NS + 60 * 10**9),
        Message(b"c", b"", ((b"TAGS", b"U"),)),
    ]


def test_a_time_is_when_it_is_delivered_if_it_is_to_come() -> None:
    now = dt.datetime.fromtimestamp(NOW_NS / 10**9, dt.UTC)
    times = [now + dt.timedelta(seconds=1), now - dt.timedelta(seconds=1), None]
    batch = pa.RecordBatch.from_pydict({"value": ["a", "b", "c"], "deliver_at": pa.array(times, pa.timestamp("us", tz="UTC"))})
    assert [message.time_ns for message in messages(batch, "value", "deliver_at")] == [NOW_NS + 10**9, 0, 0]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"value": pa.array([None], pa.string())}, "null"),
        ({"value": ["a"], "delay_ms": [-1]}, "negative"),
        ({"value": ["a"], "delay_ms": [1 << 60]}, "beyond a hundred years"),
        ({"value": ["a"], "deliver_at": pa.array([9_000_000_000_000_000], pa.timestamp("us"))}, "beyond a hundred years"),
        ({"value": ["a"], "ttl_seconds": [1 << 40]}, "beyond a hundred years"),
    ],
)
def test_rows_that_nobody_can_take_are_refused(columns: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        table_of(pa.RecordBatch.from_pydict(columns), Taken(tuple(columns)), "t", NOW_NS)


def test_a_topic_that_is_null_is_the_options_topic() -> None:
    batch = pa.RecordBatch.from_pydict({"value": ["a", "b"], "topic": ["u", None]})
    assert table_of(batch, Taken(("value", "topic")), "t", NOW_NS)["topic"].to_pylist() == ["u", "t"]
    with pytest.raises(ValueError, match="no option topic"):
        table_of(batch, Taken(("value", "topic")), "", NOW_NS)
