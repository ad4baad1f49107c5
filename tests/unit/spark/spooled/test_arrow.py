"""Records with notes as Arrow."""

from __future__ import annotations

import datetime as dt
import random

import pytest

from polymq.errors import CorruptRecord
from polymq.spark import columns as shared
from polymq.spark.spooled.arrow import record_batch
from polymq.spool.notes import encode_note
from polymq.wire.records import HEADER_SIZE_BYTES, BatchHeader, Columns, Message, columns, encode_message, seal

NOW_NS = 1_700_000_000_000_000_000
NOW = dt.datetime.fromtimestamp(NOW_NS / 10**9, dt.UTC)


def stored(messages: list[Message]) -> Columns:
    data = bytearray(HEADER_SIZE_BYTES)
    for message in messages:
        data += encode_message(message, NOW_NS)
    seal(data, 0, len(data), BatchHeader(count=len(messages), base_offset=7, base_time_ns=NOW_NS))
    return columns(data, 0, len(data), 0, 1 << 60)


def test_every_column_is_what_the_note_says() -> None:
    found = stored(
        [
            Message(b"one", encode_note(b"t", b"0123456789abcdef", attempts=2)),
            Message(b"", encode_note(b"a.b.c", reply_to=b"_INBOX.1"), ((b"n", b"v"), (b"\xff", b""))),
            Message(b"three", encode_note(b"q\xff", b"id", expires_at_us=NOW_NS // 1000 + 5_000_000)),
        ]
    )
    batch = record_batch(tuple(shared.COLUMNS), "nsq", found)
    assert batch.schema == shared.arrow_schema(tuple(shared.COLUMNS))
    rows = batch.to_pylist()
    assert [row["value"] for row in rows] == [b"one", b"", b"three"]
    assert [row["topic"] for row in rows] == ["t", "a.b.c", "q\ufffd"]
    assert [row["message_id"] for row in rows] == ["0123456789abcdef", None, "id"]
    assert [row["attempts"] for row in rows] == [2, None, None]
    assert [row["reply_to"] for row in rows] == [None, "_INBOX.1", None]
    assert [row["expires_at"] for row in rows] == [None, None, NOW + dt.timedelta(seconds=5)]
    assert [row["offset"] for row in rows] == [7, 8, 9]
    assert {(row["timestamp"], row["partition"], row["protocol"], row["key"], row["tags"]) for row in rows} == {(NOW, 0, "nsq", None, None)}
    assert [row["headers"] for row in rows] == [[], [{"key": "n", "value": b"v"}, {"key": "\ufffd", "value": b""}], []]


def test_any_mixture_of_sizes_and_any_choice_of_columns() -> None:
    draw = random.Random(6)
    for _ in range(30):
        notes = [
            (b"x" * draw.randrange(3), b"i" * draw.randrange(20), b"r" * draw.randrange(4), draw.choice([None, 5]))
            for _ in range(draw.randrange(1, 40))
        ]
        found = stored([Message(b"", encode_note(topic, each, reply_to=reply, expires_at_us=at)) for topic, each, reply, at in notes])
        names = tuple(name for name in shared.COLUMNS if draw.random() < 0.5) or ("topic",)
        batch = record_batch(names, "nats", found)
        assert batch.schema == shared.arrow_schema(names)
        rows = batch.to_pylist()
        for row, (topic, each, reply, at) in zip(rows, notes, strict=True):
            assert row.get("topic", topic.decode()) == topic.decode()
            assert row.get("message_id", each.decode() or None) == (each.decode() or None)
            assert row.get("reply_to", reply.decode() or None) == (reply.decode() or None)
            assert "expires_at" not in row or (row["expires_at"] is None) == (at is None)


@pytest.mark.parametrize("note", [None, b"", b"short", b"\0\0\5\0\0\0\0\0topi", b"\0\0\1\0\0\0\0\0tmore"])
def test_what_is_no_note_is_refused(note: bytes | None) -> None:
    found = stored([Message(b"", encode_note(b"t")), Message(b"", note)])
    with pytest.raises(CorruptRecord):
        record_batch(("topic",), "nsq", found)
