from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from polymq import limits
from polymq.gateways.nsq.http_messages import hex_id
from polymq.gateways.nsq.http_publishing import ORIGIN_NSQ
from polymq.gateways.nsq.http_streaming import message_id
from polymq.protocols.nats.stored import ORIGIN_NATS
from polymq.protocols.rocketmq.messages import ORIGIN_ROCKETMQ
from polymq.spark.columns import COLUMNS
from polymq.spark.log.arrow import PROTOCOLS, record_batch
from polymq.wire import records
from polymq.wire.records import Message
from tests.unit.wire import batches

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

ALL = tuple(COLUMNS)
MOMENT = dt.datetime(2017, 7, 14, 2, 40, 0, 1, tzinfo=dt.UTC)
MOMENT_NS = 1_500_000_000_000_001_999


def wrapped(messages: list[Message], names: Sequence[str] = ALL, *, origin: int = 1, number: int = 6) -> pa.RecordBatch:
    data = bytearray(batches.batch(messages, base_offset=5))
    data[13] = origin
    result = record_batch(names, "orders", 3, number, data, records.columns(data, 0, len(data), 0, 100))
    result.validate(full=True)
    return result


def column(name: str, messages: list[Message], origin: int = 1) -> list[object]:
    found: list[object] = wrapped(messages, [name], origin=origin)[name].to_pylist()
    return found


def test_the_schema_is_the_one_that_spark_derives() -> None:
    """Spark compares the schemas for equality, and only once data flows."""
    kinds = {"binary": "binary", "string": "string", "int": "integer", "bigint": "long", "timestamp": "timestamp"}
    element = {"type": "struct", "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": "binary"}]}
    fields = [
        {"name": name, "type": kinds.get(kind) or {"type": "array", "elementType": element, "containsNull": True}}
        for name, (kind, _) in COLUMNS.items()
    ]
    for field in [*fields, *element["fields"]]:
        field |= {"nullable": True, "metadata": {}}  # type: ignore[operator]
    derived = to_arrow_schema(StructType.fromJson({"type": "struct", "fields": fields}), timezone="UTC")
    assert wrapped([Message(b"x")]).schema.equals(derived)


def test_every_field_arrives() -> None:
    rows = wrapped([Message(b"a", b"k", ((b"n", b"v"), (b"", b"w")), time_ns=MOMENT_NS), Message(b""), Message(b"c", b"")]).to_pylist()
    assert [(row["topic"], row["partition"], row["offset"], row["key"], row["value"], row["attempts"]) for row in rows] == [
        ("orders", 3, 5, b"k", b"a", None),
        ("orders", 3, 6, None, b"", None),
        ("orders", 3, 7, b"", b"c", None),
    ]
    assert rows[0]["timestamp"] == MOMENT
    assert [row["headers"] for row in rows] == [[{"key": "n", "value": b"v"}, {"key": "", "value": b"w"}], [], []]


def test_columns_that_nobody_wants_are_not_there() -> None:
    assert wrapped([Message(b"a", b"k")], ["value", "offset"]).to_pylist() == [{"value": b"a", "offset": 5}]


def test_protocols_are_named_as_they_are_numbered() -> None:
    assert (PROTOCOLS[ORIGIN_NSQ], PROTOCOLS[ORIGIN_ROCKETMQ], PROTOCOLS[ORIGIN_NATS]) == ("nsq", "rocketmq", "nats")
    assert [column("protocol", [Message(b"a")], origin)[0] for origin in range(6)] == [None, "nsq", "rocketmq", "nats", "phpmq", None]
    mixed = [Message(b"a", extras=((origin, b""),)) for origin in (3, 0, 250, 2)]
    assert column("protocol", mixed, 0) == ["nats", None, None, "rocketmq"]


def test_ends_of_lifetimes() -> None:
    assert column("expires_at", [Message(b"a"), Message(b"b", expiry_ns=MOMENT_NS)]) == [None, MOMENT]
    assert column("expires_at", [Message(b"a")]) == [None]


@given(st.integers(0, limits.PARTITION_NUMBER_MAX), st.lists(st.integers(0, limits.OFFSET_MAX), min_size=1, max_size=4, unique=True))
def test_a_message_has_the_id_that_nsq_shows(number: int, firsts: list[int]) -> None:
    for first in sorted(firsts):
        data = batches.batch([Message(b"x")], base_offset=first)
        found = record_batch(["message_id"], "t", 0, number, data, records.columns(data, 0, len(data), first, first + 1))
        found.validate(full=True)
        assert found["message_id"].to_pylist() == [hex_id(message_id(number, first))]


def test_tags_and_reply_subjects_are_headers_of_their_own() -> None:
    messages = [
        Message(b"a", headers=((b"TAGS", b"red"), (b"reply-to", b"inbox.1"))),
        Message(b"b"),
        Message(b"c", headers=((b"tags", b"no"), (b"TAGS", b"old"), (b"x", b"y"), (b"TAGS", b"new"))),
        Message(b"d", headers=((b"TAGS", b"\xffz"),)),
    ]
    assert column("tags", messages) == ["red", None, "new", "\ufffdz"]
    assert column("reply_to", messages) == ["inbox.1", None, None, None]
    assert column("tags", messages[1:2]) == [None]
    assert column("reply_to", messages[2:3]) == [None]
    assert [len(row["headers"]) for row in wrapped(messages).to_pylist()] == [2, 0, 4, 1]


def test_a_name_that_is_not_utf_8_is_replaced_in_place() -> None:
    rows = wrapped([Message(b"a", headers=((b"good", b"1"), (b"\xff\xfe", b"2")))]).to_pylist()
    assert [header["key"] for header in rows[0]["headers"]] == ["good", "\ufffd\ufffd"]


def test_no_records_are_an_empty_batch() -> None:
    empty = record_batch(ALL, "orders", 3, 1, b"", records.columns(b"", 0, 0, 0, 1))
    empty.validate(full=True)
    assert empty.num_rows == 0
