"""The pipeline's pure functions: bodies of all kinds, repeats, aggregates."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from polymq.spark.columns import COLUMNS, spark_schema
from polymq.spark.pipeline import bronze, gold, shapes, silver
from polymq.spark.pipeline.source import with_all_columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

BEGIN = datetime(2026, 5, 1, 12, tzinfo=UTC)
SCHEMA = spark_schema(tuple(COLUMNS))


@pytest.fixture(autouse=True)
def settings(spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.caseSensitive", "true")
    yield
    spark.conf.unset("spark.sql.caseSensitive")


def messages(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Make messages: of topic a, at offsets from 0 on, a second apart, unless a row says otherwise."""
    full = [
        {"value": b"{}", "topic": "a", "partition": 0, "offset": number, "timestamp": BEGIN + timedelta(seconds=number), "headers": []}
        | row
        for number, row in enumerate(rows)
    ]
    return spark.createDataFrame([tuple(row.get(name) for name in COLUMNS) for row in full], SCHEMA)


def test_bronze_keeps_all_and_adds_size_and_date(spark: SparkSession) -> None:
    frame = bronze.archived(
        messages(spark, {"value": b"\xff\x00"}, {"value": None, "timestamp": None}, {"timestamp": BEGIN.replace(hour=23, minute=59)})
    )
    assert [each.split()[0] for each in bronze.SCHEMA.replace("<key: string, value: binary>", "").split(", ")] == frame.columns
    first, second, third = frame.orderBy("offset").collect()
    assert (bytes(first.value), first["size"], first.date) == (b"\xff\x00", 2, "2026-05-01")
    assert (second["size"], second.date, third.date) == (0, f"{second.archived_at:%Y-%m-%d}", "2026-05-01")


def test_a_name_too_long_for_a_folder_is_cut_and_kept(spark: SparkSession) -> None:
    long, odd, fine = "a" * 400, "/" * 100, "b" * 200
    found = bronze.archived(messages(spark, {"topic": long}, {"topic": odd}, {"topic": fine})).orderBy("offset").collect()
    assert [len(row.topic) < 120 for row in found] == [True, True, False]
    assert [[(each.key, bytes(each.value).decode()) for each in row.headers] for row in found] == [
        [("polymq-topic", long)],
        [("polymq-topic", odd)],
        [],
    ]
    assert found[0].topic != found[1].topic


def test_what_a_source_leaves_out_is_null(spark: SparkSession) -> None:
    frame = with_all_columns(messages(spark, {"value": b"x"}).select("topic", "offset", "value"))
    assert frame.columns == list(COLUMNS)
    row = frame.first()
    assert row is not None
    assert (bytes(row.value), row.key, row.offset) == (b"x", None, 0)


def decode(spark: SparkSession, *bodies: bytes | None, seen: str = "") -> tuple[str, dict[int, Any], dict[int, tuple[str, str | None]]]:
    """Decode bodies by the schema that they have together, or by another; gives it, what fits, and what does not by its reason."""
    frame = silver.identified(bronze.archived(messages(spark, *({"value": body} for body in bodies))))
    row = silver.shape(frame).first()
    assert row is not None
    schema = shapes.spelt(shapes.grown(None, shapes.parse(seen or row["shape"])).shape)
    decoded = silver.decoded(frame, schema, 1)
    fits = {row.offset: row.body.asDict(recursive=True) for row in silver.fitting(decoded).collect()}
    return schema, fits, {row.offset: (row.reason, row.detail) for row in silver.misfits(decoded).collect()}


def test_bodies_are_decoded_and_every_other_one_has_its_reason(spark: SparkSession) -> None:
    schema, fits, misfits = decode(
        spark,
        b'{"id": 1, "who": {"name": "x"}, "items": ["a", "b"], "at": "2026-05-01"}',
        b'{"id": 2, "price": 1.5, "id2": null}',
        b"\xff\xfe",
        b"no JSON",
        b"[1, 2]",
        b'"text"',
        b"",
        None,
        b'{"id": 1, "id": 2}',
        b'{"id": 3',
        b'{"a b": true, "": 1, "`": 2, "A B": 3, "x:y": {"z<": 1}}',
        b"{}",
    )
    assert schema.startswith("struct<")
    assert "items: array<string>" in schema
    assert "who: struct<name: string>" in schema
    assert set(fits) == {0, 1, 10, 11}
    assert (fits[0]["id"], fits[0]["who"], fits[0]["items"], fits[0]["price"]) == (1, {"name": "x"}, ["a", "b"], None)
    assert (fits[1]["price"], fits[10]["x:y"], fits[10]["`"]) == (1.5, {"z<": 1}, 2)
    reasons = {offset: reason for offset, (reason, _) in misfits.items()}
    assert reasons == {
        2: "not UTF-8",
        3: "not JSON",
        4: "not a JSON object",
        5: "not a JSON object",
        6: "not JSON",
        7: "no body",
        8: "not JSON",
        9: "not JSON",
    }


def test_what_does_not_fit_a_schema_says_what_it_looks_like(spark: SparkSession) -> None:
    _, fits, misfits = decode(
        spark, b'{"id": "x"}', b'{"id": 1.5}', b'{"id": {"a": 1}}', b'{"id": 7, "new": 1}', b'{"id": null}', seen="OBJECT<id: BIGINT>"
    )
    assert fits == {3: {"id": 7}, 4: {"id": None}}
    assert misfits[0] == ("does not fit version 1 of the schema", "OBJECT<id: STRING>")
    assert set(misfits) == {0, 1, 2}


def test_a_body_that_is_nested_without_end_harms_nobody(spark: SparkSession) -> None:
    deep = b'{"a":' * 900 + b"1" + b"}" * 900
    schema, fits, _ = decode(spark, b'{"id": 1}', deep, b"[" * 100_000)
    assert schema.count("struct") <= shapes.DEPTH_MAX + 1
    assert 0 in fits


def test_text_is_decoded_as_it_is(spark: SparkSession) -> None:
    frame = silver.identified(bronze.archived(messages(spark, {"value": "ä".encode()}, {"value": b"\xff"}, {"value": None})))
    decoded = silver.decoded(frame, "string", 0, "text")
    assert [row.body for row in silver.fitting(decoded).collect()] == ["ä"]
    assert sorted(row.reason for row in silver.misfits(decoded).collect()) == ["no body", "not UTF-8"]


def kept(frame: DataFrame) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())


def test_repeats_within_the_window_are_left_out(spark: SparkSession) -> None:
    hour = timedelta(hours=1)
    frame = silver.identified(
        messages(
            spark,
            {"message_id": "x"},
            {"message_id": "y"},
            {"message_id": "x", "attempts": 2},
            {},
            {"offset": 3},  # the same place once more
            {"message_id": "x", "timestamp": BEGIN + 3 * hour, "offset": 5},
            {"message_id": "x", "topic": "b", "offset": 6},
        )
    )
    assert kept(silver.without_repeats(frame, None, 3600)) == [0, 1, 3, 5, 6]
    known = spark.createDataFrame([("y", BEGIN + hour), ("0:3", BEGIN - 3 * hour), ("z", BEGIN)], "id string, timestamp timestamp")
    assert kept(silver.without_repeats(frame, known, 3700)) == [0, 3, 5, 6]


def test_traffic_counts_per_topic_protocol_and_minute(spark: SparkSession) -> None:
    frame = bronze.archived(
        messages(
            spark,
            {"value": b"123", "protocol": "nsq", "attempts": 3},
            {"value": b"1", "protocol": "nsq", "attempts": 1},
            {"protocol": "nats", "timestamp": datetime(2096, 1, 1, tzinfo=UTC)},
            {"topic": "b", "timestamp": BEGIN + timedelta(minutes=5)},
        )
    )
    rows = {(row.topic, row.protocol): row for row in gold.traffic(frame).collect()}
    first = rows["a", "nsq"]
    assert (first.messages, first.bytes, first.redelivered, first.redeliveries, first.date) == (2, 4, 1, 2, "2026-05-01")
    assert first.latency_ms_p50 <= first.latency_ms_p99 <= first.latency_ms_max
    assert rows["a", "nats"].latency_ms_max == 0  # a clock that is ahead of ours
    assert (rows["b", None].minute, rows["b", None].redeliveries) == (datetime(2026, 5, 1, 12, 5), 0)  # noqa: DTZ001 - as Spark gives it
    assert [each.split()[0] for each in gold.TRAFFIC_SCHEMA.split(", ")] == gold.traffic(frame).columns


def test_groups_are_increases_of_counters_and_levels(spark: SparkSession) -> None:
    def at(
        minute: float, settled: float | None, depth: float, *, started: float = 1.0, requeues: float = 0.0, p99: float | None = None
    ) -> tuple[Any, ...]:
        counters = (settled, settled, requeues, 1.0, 0.0, 0.0, 0.0)
        moment = BEGIN + timedelta(minutes=minute)
        return (moment, started, "", "a", "g", *counters, depth, 0.0, 0.0, 1.0, None, None, p99, "2026-05-01")

    frame = spark.createDataFrame(
        [
            at(0, 100.0, 5.0),
            at(0.5, 110.0, 9.0, p99=0.25),
            at(1, 130.0, 2.0, requeues=4.0),
            at(1.5, 7.0, 0.0, started=2.0),
            at(2, None, 0.0),
        ],
        gold.STATISTICS_SCHEMA,
    )
    rows = gold.groups(frame).orderBy("minute").collect()
    assert [row.settled for row in rows] == [10, 20 + 7, None]
    assert [row.depth_max for row in rows] == [9, 2, 0]
    assert rows[1].redeliveries == 4 + 0 + 0 + 1  # what came back after the start counts from 0
    assert (rows[0].latency_ms_p99, rows[0].latency_ms_p50) == (250, None)
    assert [each.split()[0] for each in gold.GROUPS_SCHEMA.split(", ")] == gold.groups(frame).columns
