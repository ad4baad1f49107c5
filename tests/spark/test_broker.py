"""The data source over real brokers: what is published is what Spark reads, also after a kill -9, and from several nodes."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

import pytest

from polymq.spark import LagListener
from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "one") as broker:
        yield broker


def test_what_nsq_publishes_is_what_spark_reads(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    def options(name: str) -> dict[str, str]:
        return {"server": broker.http, "subscribe": "orders", name: "65536" if name == "maxFetchBytes" else "1500"}

    bodies = [b"%d " % n + os.urandom(n % 200) for n in range(5000)]
    broker.publish("orders", bodies[:3000])
    before = time.time()
    rows = spark.read.format("polymq").options(**options("maxFetchBytes")).load().orderBy("offset").collect()
    assert [bytes(row.value) for row in rows] == bodies[:3000]
    assert [row.offset for row in rows] == list(range(3000))
    assert all(before - 60 < row.timestamp.timestamp() < before + 60 for row in rows)
    assert {row.protocol for row in rows} == {"nsq"}

    frame = spark.readStream.format("polymq").options(startingOffsets="earliest", **options("maxOffsetsPerTrigger")).load()
    writer = (
        frame.writeStream.format("parquet").option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    query = writer.start()
    try:
        query.processAllAvailable()
        broker.kill()
        broker.start()
        broker.publish("orders", bodies[3000:])
        query.processAllAvailable()
    finally:
        query.stop()
    archived = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect()
    assert [(row.offset, bytes(row.value)) for row in archived] == list(enumerate(bodies))


def test_nodes_come_and_go_and_every_row_has_its_name(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    """One server first, then two of which one is away for a while; the lag is told. Row by row nothing is missing or there twice."""
    told: list[Any] = []
    listener = LagListener(told.append)
    spark.streams.addListener(listener)
    try:
        broker.publish("orders", [b"one-%d" % n for n in range(300)])
        archive(spark, tmp_path, server=broker.http)
        with Broker(tmp_path / "two") as second:
            second.publish("orders", [b"two-%d" % n for n in range(200)])
            servers = f"{broker.http},{second.http}"
            archive(spark, tmp_path, servers=servers)
            frame = spark.readStream.format("polymq").options(servers=servers, subscribe="orders").load()
            query = start(frame, tmp_path)
            try:
                query.processAllAvailable()
                second.kill()
                broker.publish("orders", [b"one-%d" % n for n in range(300, 400)])
                query.processAllAvailable()
                second.start()
                second.publish("orders", [b"two-%d" % n for n in range(200, 250)])
                wait_for_rows(spark, tmp_path, 650)
            finally:
                query.stop()
    finally:
        spark.streams.removeListener(listener)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    expected = [(0, n, b"one-%d" % n) for n in range(400)] + [(1, n, b"two-%d" % n) for n in range(250)]
    assert sorted((row.partition, row.offset, bytes(row.value)) for row in rows) == expected
    assert len({row.message_id for row in rows if row.partition == 0}) == 400
    assert told
    assert told[-1].records == {"orders": 0}


def test_directories_lead_to_the_log(spark: SparkSession, broker: Broker) -> None:
    broker.publish("orders", [b"%d" % n for n in range(10)])
    found = (
        spark.read.format("polymq").options(lookupd=broker.lookup_http, subscribePattern="or.*", columns="topic,partition,offset").load()
    )
    assert sorted(tuple(row) for row in found.collect()) == [("orders", 0, n) for n in range(10)]


def start(frame: Any, folder: Path, **trigger: bool) -> Any:
    writer = frame.writeStream.format("parquet").queryName("nodes").option("path", str(folder / "out"))
    return (writer.trigger(**trigger) if trigger else writer).option("checkpointLocation", str(folder / "checkpoint")).start()


def archive(spark: SparkSession, folder: Path, **where: str) -> None:
    frame = spark.readStream.format("polymq").options(subscribe="orders", startingOffsets="earliest", **where).load()
    assert start(frame, folder, availableNow=True).awaitTermination(60)


def wait_for_rows(spark: SparkSession, folder: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while spark.read.parquet(str(folder / "out")).count() < count:
        assert time.monotonic() < deadline
