"""Columns as Arrow has them."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from polymq.protocols.rocketmq.unfold import unfold
from polymq.spark.columns import COLUMNS, arrow_schema
from polymq.spark.rocketmq.rows import rows
from tests.unit.protocols.rocketmq.test_unfold import run_of, stored

NAMES = tuple(COLUMNS)
RUN = run_of(
    stored(
        4, b"\xff\0", properties=b"KEYS\x01a b\x02TAGS\x01TagA\x02UNIQ_KEY\x01FD\x02reply-to\x01inbox\x02colour\x01blue\x02colour\x01red"
    ),
    stored(6, b"", reconsume_times=2),
    stored(7, b"x", properties=b"TAGS\x01\xff\x02\xfe\x01v\x02", reconsume_times=2**31 - 1),
)


def test_every_column() -> None:
    batch = rows(NAMES, "orders", 9, unfold(RUN, 0, 99))
    assert batch.schema == arrow_schema(NAMES)
    batch.validate(full=True)
    first, second, third = batch.to_pylist()
    moment = dt.datetime.fromtimestamp(1_795_212_447, dt.UTC).replace(microsecond=778_000)
    assert first == {
        "key": b"a b",
        "value": b"\xff\0",
        "topic": "orders",
        "partition": 9,
        "offset": 4,
        "timestamp": moment,
        "headers": [
            {"key": "TAGS", "value": b"TagA"},
            {"key": "reply-to", "value": b"inbox"},
            {"key": "colour", "value": b"blue"},
            {"key": "colour", "value": b"red"},
        ],
        "protocol": "rocketmq",
        "message_id": "FD",
        "attempts": 1,
        "tags": "TagA",
        "reply_to": "inbox",
        "expires_at": None,
    }
    assert (second["key"], second["value"], second["tags"], second["reply_to"], second["headers"]) == (None, b"", None, None, [])
    assert (second["message_id"], second["attempts"]) == ("7F00000100000000" + f"{1006:016X}", 3)
    assert (third["tags"], third["attempts"]) == ("\ufffd", 2**31 - 1)
    assert third["headers"] == [{"key": "TAGS", "value": b"\xff"}, {"key": "\ufffd", "value": b"v"}]


@pytest.mark.parametrize("names", [("value",), ("offset", "tags"), ("headers",)])
def test_only_the_columns_that_are_wanted(names: tuple[str, ...]) -> None:
    batch = rows(names, "orders", 9, unfold(RUN, 0, 99))
    assert batch.schema == arrow_schema(names)
    assert batch.num_rows == 3


def test_messages_with_other_tags_of_the_same_hash_are_left_out() -> None:
    run = run_of(stored(1, properties=b"TAGS\x01Aa"), stored(2, properties=b"TAGS\x01BB"), stored(3))
    batch = rows(("offset", "value"), "orders", 0, unfold(run, 0, 9), ("BB",))
    assert batch["offset"].to_pylist() == [2]
    assert batch.schema == arrow_schema(("offset", "value"))


def test_no_messages_make_an_empty_batch() -> None:
    batch = rows(NAMES, "orders", 0, unfold(b"", 0, 9), ("A",))
    assert (batch.num_rows, batch.schema) == (0, arrow_schema(NAMES))
    assert isinstance(batch, pa.RecordBatch)
