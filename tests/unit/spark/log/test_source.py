"""The classes that Spark calls, called without Spark; tests/spark has Spark call them."""

from __future__ import annotations

import inspect
import json
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

from polymq.errors import ConfigError
from polymq.spark.log import reading
from polymq.spark.log.source import PolyMQDataSource, PolyMQStreamReader, RangePartition
from polymq.wire.records import Message
from pyspark_polymq import DefaultSource
from tests.unit.clients.fake_log import FakeLog

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def log() -> Iterator[FakeLog]:
    fake = FakeLog()
    (partition,) = fake.create("orders")
    partition.append([Message(b"%d" % n) for n in range(10)])
    yield fake
    for client in reading._clients.values():
        client.close()
    reading._clients.clear()
    fake.close()


def source(log: FakeLog, **options: Any) -> PolyMQDataSource:
    return PolyMQDataSource({"server": log.address, "subscribe": "orders", "startingOffsets": "earliest"} | options)


def stream(log: FakeLog, **options: Any) -> PolyMQStreamReader:
    reader = source(log, **options).streamReader(StructType())
    assert isinstance(reader, PolyMQStreamReader)
    return reader


def read(reader: DataSourceReader | DataSourceStreamReader, partitions: Any) -> list[int]:
    batches: list[Any] = [batch for partition in partitions for batch in reader.read(partition)]
    return [offset for batch in batches for offset in batch["offset"].to_pylist()]


def test_spark_finds_the_source_by_its_package() -> None:
    assert DefaultSource is PolyMQDataSource
    assert DefaultSource.name() == "polymq"


@pytest.mark.parametrize("method", ["reader", "streamReader"])
def test_parameters_have_the_names_that_spark_uses(method: str) -> None:
    assert (
        inspect.signature(getattr(PolyMQDataSource, method)).parameters.keys()
        == inspect.signature(getattr(DataSource, method)).parameters.keys()
    )


def test_a_batch_reader_plans_and_reads(log: FakeLog) -> None:
    reader = source(log, maxRecordsPerPartition="4").reader(StructType())
    partitions = reader.partitions()
    assert len(partitions) == 3
    assert read(pickle.loads(pickle.dumps(reader)), pickle.loads(pickle.dumps(partitions))) == list(range(10))
    assert read(reader, [InputPartition(None)]) == []


def test_nothing_is_opened_before_it_is_needed(log: FakeLog) -> None:
    pickle.dumps(stream(log))
    assert log.requests == []


def test_a_stream_goes_step_by_step(log: FakeLog) -> None:
    reader = stream(log, maxOffsetsPerTrigger="7")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(7)
    start = reader.initialOffset()
    middle = reader.latestOffset(start, limit)
    end = reader.latestOffset(middle, limit)
    assert read(reader, reader.partitions(start, middle)) == list(range(7))
    assert read(reader, reader.partitions(middle, end)) == [7, 8, 9]
    assert end == reader.reportLatestOffset()
    # Spark compares the text.
    assert json.dumps(reader.latestOffset(json.loads(json.dumps(end)), limit)) == json.dumps(end)
    reader.commit(end)
    reader.stop()


def test_a_stream_without_a_limit_takes_all(log: FakeLog) -> None:
    reader = stream(log)
    assert reader.getDefaultReadLimit() == ReadAllAvailable()
    reader.prepareForTriggerAvailableNow()
    log.topics["orders"][0].append([Message(b"late")])
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable())["orders"]["0"]["offset"] == 10


def test_a_restarted_stream_is_asked_for_partitions_first(log: FakeLog) -> None:
    before = stream(log)
    start = before.initialOffset()
    end = before.latestOffset(start, ReadAllAvailable())
    partitions = stream(log).partitions(start, end)
    assert all(isinstance(partition, RangePartition) for partition in partitions)
    assert read(before, partitions) == list(range(10))


def test_what_people_see_has_no_secret(log: FakeLog) -> None:
    made = source(log, secret="planted", columns="value,offset")
    assert made.schema() == "value binary, offset bigint"
    shown = [repr(made), repr(made.reader(StructType())), repr(made.streamReader(StructType()))]
    assert shown[0] == f"<PolyMQDataSource server={log.address} subscribe=orders>"
    assert shown[1:] == [f"<PolyMQ{kind} {log.address} subscribe=orders>" for kind in ("Reader", "StreamReader")]


def test_a_column_that_there_is_not_is_refused_at_once(log: FakeLog) -> None:
    with pytest.raises(ConfigError, match="columns names body"):
        source(log, columns="body").schema()


def test_columns_are_those_that_were_asked_for(log: FakeLog) -> None:
    reader = source(log, columns="offset,message_id").reader(StructType())
    found: list[Any] = list(reader.read(reader.partitions()[0]))
    assert [batch.schema.names for batch in found] == [["offset", "message_id"]]
