"""Spark's sinks into real brokers: every row arrives, with what its columns say, and with its id where there is room for one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as sql

from polymq.clients.broker_sync import Message, connect
from tests.interop.matrix_spark import session
from tests.interop.nats_servers import nats_server
from tests.interop.phpmq_servers import PhpmqServer
from tests.interop.rocketmq_servers import rocketmq_server
from tests.interop.servers import running

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)
ROWS = 5000


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with session(tmp_path_factory.mktemp("warehouse")) as spark:
        yield spark


def rows(spark: SparkSession) -> DataFrame:
    return spark.range(ROWS).repartition(2).select(sql.concat(sql.lit("row "), sql.col("id")).alias("value"), "id")


def wanted() -> set[bytes]:
    return {b"row %d" % row for row in range(ROWS)}


def gathered(subscription: Any, count: int = ROWS) -> list[Message]:
    found: list[Message] = []
    for message in subscription.messages(timeout_seconds=10):
        message.done()
        found.append(message)
        if len({each.body for each in found}) == count:
            break
    return found


def test_nsq(spark: SparkSession, tmp_path: Path) -> None:
    with running("nsqd", tmp_path) as server, connect(f"nsq://{server.tcp}") as broker:
        subscription = broker.subscribe("rows", group="test")
        frame = rows(spark).withColumn("delay_ms", sql.when(sql.col("id") == 7, 1500)).drop("id")
        began = time.monotonic()
        frame.write.format("nsq").mode("append").options(server=server.tcp, topic="rows").save()
        found = gathered(subscription)
        assert {each.body for each in found} == wanted()
        assert found[-1].body == b"row 7"
        assert time.monotonic() - began >= 1.5


def test_nats(spark: SparkSession, tmp_path: Path) -> None:
    header = sql.array(sql.struct(sql.lit("h").alias("key"), sql.lit("v").cast("binary").alias("value")))
    with nats_server("nats-server", tmp_path) as server, connect(f"nats://{server.address}") as broker:
        subscription = broker.subscribe("rows.>", window=ROWS)
        frame = rows(spark).withColumn("headers", header).withColumn("topic", sql.concat(sql.lit("rows."), sql.col("id") % 3)).drop("id")
        frame.write.format("nats").mode("append").options(server=server.address).save()
        found = gathered(subscription)
    assert {each.body for each in found} == wanted()
    assert len({each.headers["Nats-Msg-Id"] for each in found}) == ROWS
    assert {each.headers["h"] for each in found} == {"v"}


def test_rocketmq(spark: SparkSession, tmp_path: Path) -> None:
    with rocketmq_server("rocketmq-4.9", tmp_path) as server, connect(f"rocketmq://{server.name_server}") as broker:
        broker.publish("Rows", b"first")
        subscription = broker.subscribe("Rows", group="test", begin="first")
        frame = rows(spark).withColumn("key", sql.concat(sql.lit("k"), sql.col("id") % 7)).withColumn("tags", sql.lit("T"))
        options = {"namesrvAddr": server.name_server, "topic": "Rows", "idColumn": "id"}
        frame.write.format("rocketmq").mode("append").options(**options).save()
        found = [each for each in gathered(subscription, ROWS + 1) if each.body != b"first"]
    assert {each.body for each in found} == wanted()
    assert {(each.body, each.headers["polymq-id"], each.key, each.tags) for each in found} == {
        (b"row %d" % row, str(row), f"k{row % 7}", "T") for row in range(ROWS)
    }


def test_phpmq(spark: SparkSession, tmp_path: Path) -> None:
    server = PhpmqServer(tmp_path)
    server.start()
    try:
        with connect(f"phpmq://{server.address}") as broker:
            frame = rows(spark).withColumn("ttl_seconds", sql.lit(600)).drop("id")
            frame.write.format("phpmq").mode("append").options(server=server.address, topic="rows").save()
            found = gathered(broker.subscribe("rows"))
            assert {each.body for each in found} == wanted()
            assert all(each.ttl and each.ttl <= 600 for each in found)
    finally:
        server.stop()
