"""The classes that Spark calls, called without Spark; tests/spark has Spark call them."""

from __future__ import annotations

import inspect
import pickle
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from polymq.errors import ConfigError
from polymq.spark.columns import COLUMNS, spark_schema
from polymq.spark.rocketmq import patience
from polymq.spark.rocketmq.source import RangePartition, RocketMQDataSource, RocketMQStreamReader
from pyspark_polymq_rocketmq import DefaultSource
from tests.unit.clients.fake_queues import FakeQueues

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def queues() -> Iterator[FakeQueues]:
    fake = FakeQueues()
    fake.create("orders")
    fake.put("orders", 10)
    yield fake
    for client in patience._clients.values():
        client.close()
    patience._clients.clear()
    fake.close()


def source(queues: FakeQueues, **options: Any) -> RocketMQDataSource:
    return RocketMQDataSource({"namesrvAddr": queues.address, "subscribe": "orders", "startingOffsets": "earliest"} | options)


def stream(queues: FakeQueues, **options: Any) -> RocketMQStreamReader:
    reader = source(queues, **options).streamReader(StructType())
    assert isinstance(reader, RocketMQStreamReader)
    return reader


def read(reader: DataSourceReader | DataSourceStreamReader, partitions: Any) -> list[int]:
    batches: list[Any] = [batch for partition in partitions for batch in reader.read(partition)]
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def test_spark_finds_the_source_by_its_package() -> None:
    assert DefaultSource is RocketMQDataSource
    assert DefaultSource.name() == "rocketmq"


@pytest.mark.parametrize("method", ["reader", "streamReader", "writer", "streamWriter"])
def test_parameters_have_the_names_that_spark_uses(method: str) -> None:
    ours, theirs = (inspect.signature(getattr(each, method)).parameters.keys() for each in (RocketMQDataSource, DataSource))
    assert ours == theirs


def test_the_schema_has_the_columns_that_are_wanted(queues: FakeQueues) -> None:
    assert source(queues).schema() == spark_schema(tuple(COLUMNS))
    assert source(queues, columns="offset, value").schema() == "value binary, offset bigint"


def test_a_batch_reader_plans_and_reads(queues: FakeQueues) -> None:
    reader = source(queues, maxRecordsPerPartition="4").reader(StructType())
    partitions = reader.partitions()
    assert len(partitions) == 3
    assert read(pickle.loads(pickle.dumps(reader)), pickle.loads(pickle.dumps(partitions))) == list(range(10))
    assert read(reader, [InputPartition(None)]) == []


def test_nothing_is_opened_before_it_is_needed(queues: FakeQueues) -> None:
    pickle.dumps(stream(queues))
    assert queues.asked == []


def test_a_stream_goes_step_by_step(queues: FakeQueues) -> None:
    reader = stream(queues, maxOffsetsPerTrigger="7")
    limit = reader.getDefaultReadLimit()
    assert isinstance(limit, ReadMaxRows)
    start = reader.initialOffset()
    assert start == {"orders": {"broker-a": {"0": {"offset": 0, "partition": 0}}}}
    first = reader.latestOffset(start, limit)
    second = reader.latestOffset(first, limit)
    assert [each["orders"]["broker-a"]["0"]["offset"] for each in (first, second)] == [7, 10]
    assert reader.latestOffset(second, limit) is second
    assert reader.reportLatestOffset() == second
    again = stream(queues)
    assert read(again, again.partitions(first, second)) == [7, 8, 9]
    assert all(isinstance(each, RangePartition) for each in again.partitions(start, first))
    assert isinstance(again.getDefaultReadLimit(), ReadAllAvailable)
    reader.stop()


def test_an_available_now_run_leaves_what_comes_later(queues: FakeQueues) -> None:
    reader = stream(queues)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    queues.put("orders", 5)
    assert reader.latestOffset(start, ReadAllAvailable())["orders"]["broker-a"]["0"]["offset"] == 10


def test_positions_are_shown_at_brokers_if_that_is_wanted(queues: FakeQueues) -> None:
    end = {"orders": {"broker-a": {"0": {"offset": 7, "partition": 0}}}}
    stream(queues).commit(end)
    assert queues.committed == {}
    stream(queues, commitGroupOffsets="true").commit(end)
    assert queues.committed == {("orders", "broker-a", "0"): 7}
    queues.scripts[15] = lambda _: (1, "no", {}, b"")
    with pytest.warns(RuntimeWarning, match="not shown at the brokers"):
        stream(queues, commitGroupOffsets="true").commit(end)


def test_bad_options_are_refused_when_a_reader_is_made(queues: FakeQueues) -> None:
    with pytest.raises(ConfigError, match="did you mean subscribe"):
        source(queues, subscribed="orders").reader(StructType())


def test_writers_are_made_by_the_sink(queues: FakeQueues, monkeypatch: pytest.MonkeyPatch) -> None:
    sink: Any = ModuleType("polymq.spark.sinks.rocketmq")
    sink.writer = lambda options, schema, overwrite: ("batch", options["namesrvAddr"], overwrite)
    sink.stream_writer = lambda options, schema, overwrite: ("stream", options["namesrvAddr"], overwrite)
    monkeypatch.setitem(sys.modules, "polymq.spark.sinks", ModuleType("polymq.spark.sinks"))
    monkeypatch.setitem(sys.modules, "polymq.spark.sinks.rocketmq", sink)
    made: Any = source(queues)
    assert made.writer(StructType(), False) == ("batch", queues.address, False)
    assert made.streamWriter(StructType(), True) == ("stream", queues.address, True)
