"""The data source as Spark uses it: batch and stream, over the door of a log in memory."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest

from polymq.spark.columns import COLUMNS
from polymq.wire.records import Message
from tests.unit.clients.fake_log import BASE_TIME_NS, FakeLog

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


# The first test pays for the start of Spark and of its Python workers.
pytestmark = pytest.mark.timeout(300)


def fill(log: FakeLog, topic: str, counts: list[int], per_batch: int = 10) -> None:
    """Append `counts[i]` messages to partition i."""
    for index, count in enumerate(counts):
        partition = log.topics[topic][index]
        for first in range(partition.end, partition.end + count, per_batch):
            partition.append([Message(b"%d-%d" % (index, n)) for n in range(first, first + per_batch)])


def batch(spark: SparkSession, log: FakeLog, **options: object) -> DataFrame:
    reader = spark.read.format("polymq").option("server", log.address).option("retryTimeoutMs", 0)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def stream(spark: SparkSession, log: FakeLog, **options: object) -> DataFrame:
    reader = spark.readStream.format("polymq").option("server", log.address).option("retryTimeoutMs", 0)
    return reader.options(**{name: str(value) for name, value in options.items()}).load()


def archive(frame: DataFrame, folder: Path) -> list[dict[str, Any]]:
    """Run a query over what is there into Parquet; give the progress of its batches."""
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    return [json.loads(progress.json) for progress in query.recentProgress]


def uncommit(folder: Path) -> None:
    """Make the last batch one that is planned but not committed: Spark then asks for its partitions before anything else."""
    newest = max((folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)


def test_a_batch_read_gives_every_column(spark: SparkSession, log: FakeLog) -> None:
    (partition,) = log.create("orders")
    partition.append([Message(b"one", b"k\xff", ((b"n", b"v"), (b"\xff", b"")), time_ns=BASE_TIME_NS + 5_000_000), Message(b"")])
    rows = batch(spark, log, subscribe="orders").orderBy("offset").collect()
    assert rows[0].asDict().keys() == COLUMNS.keys()
    assert [(r.message_id, r.protocol, r.attempts, r.tags, r.reply_to, r.expires_at) for r in rows] == [
        ("0000020000000000", None, None, None, None, None),
        ("0000020000000001", None, None, None, None, None),
    ]
    assert [(r.topic, r.partition, r.offset, r.key, r.value) for r in rows] == [
        ("orders", 0, 0, bytearray(b"k\xff"), bytearray(b"one")),
        ("orders", 0, 1, None, bytearray(b"")),
    ]
    assert [(h.key, h.value) for h in rows[0].headers] == [("n", bytearray(b"v")), ("\ufffd", bytearray(b""))]
    assert rows[1].headers == []
    moment = dt.datetime.fromtimestamp(BASE_TIME_NS / 1e9, dt.UTC).replace(microsecond=5001)
    assert rows[0].timestamp.astimezone(dt.UTC) == moment


def test_offsets_bound_a_batch_read_and_ranges_are_split(spark: SparkSession, log: FakeLog) -> None:
    log.create("orders", 2)
    fill(log, "orders", [100, 40])
    bounds = {
        "startingOffsets": json.dumps({"orders": {"0": 33, "1": -2}}),
        "endingOffsets": json.dumps({"orders": {"0": 77, "1": -1}}),
    }
    frame = batch(spark, log, subscribe="orders", maxRecordsPerPartition=16, **bounds)
    rows = sorted((r.partition, r.offset, bytes(r.value)) for r in frame.collect())
    assert rows == [(0, n, b"0-%d" % n) for n in range(33, 77)] + [(1, n, b"1-%d" % n) for n in range(40)]
    assert frame.rdd.getNumPartitions() == 6
    assert batch(spark, log, subscribe="orders", startingOffsets="latest").count() == 0


def test_sql_finds_the_source_by_itself(spark: SparkSession, log: FakeLog) -> None:
    log.create("orders")
    fill(log, "orders", [10])
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW orders USING polymq OPTIONS (server '{log.address}', subscribe 'orders')")
    assert spark.sql("SELECT count(*) FROM orders WHERE offset >= 4").collect()[0][0] == 6


def test_unknown_options_are_refused_with_the_list(spark: SparkSession, log: FakeLog) -> None:
    with pytest.raises(Exception, match="did you mean startingOffsets") as caught:
        batch(spark, log, subscribe="orders", startingOfsets="earliest").count()
    assert "maxOffsetsPerTrigger" in str(caught.value)


def test_a_stream_takes_micro_batches_of_the_wanted_size_and_tells_its_lag(spark: SparkSession, log: FakeLog, tmp_path: Path) -> None:
    log.create("orders", 2)
    fill(log, "orders", [100, 50])
    frame = stream(spark, log, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=60)
    progress = archive(frame, tmp_path)
    assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [60, 60, 30]
    latest = progress[0]["sources"][0]["latestOffset"]
    assert latest["orders"]["0"]["offset"] == 100
    out = spark.read.parquet(str(tmp_path / "out"))
    assert sorted((r.partition, r.offset) for r in out.collect()) == [(0, n) for n in range(100)] + [(1, n) for n in range(50)]


def test_a_stream_goes_on_from_its_checkpoint_with_every_record_once(spark: SparkSession, log: FakeLog, tmp_path: Path) -> None:
    log.create("orders")
    fill(log, "orders", [30])
    frame = stream(spark, log, subscribe="orders", startingOffsets="earliest")
    archive(frame, tmp_path)
    fill(log, "orders", [20])
    archive(frame, tmp_path)
    uncommit(tmp_path)
    fill(log, "orders", [10])
    archive(frame, tmp_path)
    offsets = sorted(r.offset for r in spark.read.parquet(str(tmp_path / "out")).collect())
    assert offsets == list(range(60))


def test_a_batch_that_is_repeated_after_a_loss_takes_nothing_of_the_next(spark: SparkSession, log: FakeLog, tmp_path: Path) -> None:
    (partition,) = log.create("orders")
    fill(log, "orders", [30])
    archive(stream(spark, log, subscribe="orders", startingOffsets="earliest"), tmp_path)
    fill(log, "orders", [20])
    archive(stream(spark, log, subscribe="orders"), tmp_path)
    uncommit(tmp_path)
    fill(log, "orders", [10])
    partition.trim(55)
    progress = archive(stream(spark, log, subscribe="orders", failOnDataLoss="false"), tmp_path)
    assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [5]


@pytest.mark.parametrize("happens", ["trimmed", "replaced"])
def test_lost_records_fail_a_stream_unless_it_is_to_go_on(spark: SparkSession, log: FakeLog, tmp_path: Path, happens: str) -> None:
    """Other losses are in tests/unit/spark/log/test_planning.py, without Spark."""
    (partition,) = log.create("orders")
    fill(log, "orders", [30])
    archive(stream(spark, log, subscribe="orders", startingOffsets="earliest"), tmp_path)
    if happens == "trimmed":
        fill(log, "orders", [30])
        partition.trim(40)
        words, expected = "were removed", [*range(30), *range(40, 60)]
    else:
        partition.power_loss(20)
        fill(log, "orders", [30])
        words, expected = "name other records", [*range(30), *range(20, 50)]
    with pytest.raises(Exception, match=words):
        archive(stream(spark, log, subscribe="orders"), tmp_path)
    archive(stream(spark, log, subscribe="orders", failOnDataLoss="false"), tmp_path)
    offsets = sorted(r.offset for r in spark.read.parquet(str(tmp_path / "out")).collect())
    assert offsets == sorted(expected)


def test_a_running_stream_sees_what_is_appended(spark: SparkSession, log: FakeLog, tmp_path: Path) -> None:
    log.create("orders")
    fill(log, "orders", [10])
    frame = stream(spark, log, subscribe="orders", startingOffsets="latest")
    query = frame.writeStream.format("memory").queryName("live").option("checkpointLocation", str(tmp_path)).start()
    try:
        query.processAllAvailable()
        fill(log, "orders", [20])
        query.processAllAvailable()
        assert sorted(r.offset for r in spark.table("live").collect()) == list(range(10, 30))
    finally:
        query.stop()
