"""The classes that Spark calls, without a Spark; with one they are run by tests/spark/test_spooled.py."""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import StructType

import pyspark_polymq_nats
import pyspark_polymq_nsq
import pyspark_polymq_phpmq
from polymq.errors import ConfigError
from polymq.spark.losses import DataLoss
from polymq.spark.spooled.source import NatsDataSource, NsqDataSource, SpoolReader, SpoolStreamReader
from polymq.spool import folder
from tests.unit.spool.spools import filled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_the_packages_give_the_sources() -> None:
    found = [each.DefaultSource.name() for each in (pyspark_polymq_nsq, pyspark_polymq_nats, pyspark_polymq_phpmq)]
    assert found == ["nsq", "nats", "phpmq"]


def stream(path: Path, **options: str) -> SpoolStreamReader:
    made = NsqDataSource({"spoolLocation": str(path), "receiver": "process", "columns": "value"} | options).streamReader(StructType())
    assert isinstance(made, SpoolStreamReader)
    return made


def test_a_stream_plans_from_the_files_and_reads_after_a_pickle(tmp_path: Path) -> None:
    filled(tmp_path, [[b"%d" % n] for n in range(10)])
    reader = stream(tmp_path)
    start = reader.initialOffset()
    assert reader.initialOffset() == start
    assert isinstance(reader.getDefaultReadLimit(), ReadAllAvailable)
    assert stream(tmp_path, maxOffsetsPerTrigger="4").getDefaultReadLimit() == ReadMaxRows(4)
    middle = reader.latestOffset(start, ReadMaxRows(4))
    (partition,) = stream(tmp_path).partitions(start, middle)
    copied = pickle.loads(pickle.dumps((reader, partition)))
    rows = [row for batch in copied[0].read(copied[1]) for row in batch.to_pylist()]
    assert rows == [{"value": b"%d" % n} for n in range(4)]
    assert list(reader.read(InputPartition(None))) == []
    reader.prepareForTriggerAvailableNow()
    filled(tmp_path, [[b"more"]])
    end = reader.latestOffset(middle, ReadAllAvailable())
    assert end["spool"]["0"]["offset"] == 10
    assert reader.latestOffset(end, ReadAllAvailable()) is end
    assert (reader.reportLatestOffset() or {})["spool"]["0"]["offset"] == 11
    reader.commit(end)
    assert folder.committed(tmp_path) == 10
    reader.stop()


@contextmanager
def receiving_stream(path: Path) -> Iterator[SpoolStreamReader]:
    """A stream that receives by itself, from a server that is not there."""
    given = {"servers": "127.0.0.1:1", "subscribe": "t", "channel": "c", "spoolLocation": str(path), "columns": "value"}
    made = NsqDataSource(given).streamReader(StructType())
    assert isinstance(made, SpoolStreamReader)
    try:
        yield made
    finally:
        if made._receiving is not None:
            made._receiving._stop()


def values(reader: SpoolStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    found = [row for each in reader.partitions(start, end) for batch in reader.read(each) for row in batch.to_pylist()]
    return [row["value"] for row in found]


@pytest.mark.parametrize("left", ["old", "none"])
def test_a_planned_batch_is_read_after_a_power_loss(tmp_path: Path, left: str) -> None:
    filled(tmp_path, [[b"0"]])
    old = (tmp_path / folder.POSITION).read_bytes()
    filled(tmp_path, [[b"1"], [b"2"]])
    reader = stream(tmp_path)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    # The position is not synced: the disk may have kept an older one, or none. The records are there.
    (tmp_path / folder.POSITION).unlink()
    if left == "old":
        (tmp_path / folder.POSITION).write_bytes(old)
    with receiving_stream(tmp_path) as again:
        assert values(again, start, end) == [b"0", b"1", b"2"]
        assert again._receiving is not None
    with receiving_stream(tmp_path) as later:
        assert values(later, start, end) == [b"0", b"1", b"2"]
        assert later._receiving is None


def test_a_query_goes_on_where_it_was_after_a_power_loss(tmp_path: Path) -> None:
    filled(tmp_path, [[b"0"]])
    old = (tmp_path / folder.POSITION).read_bytes()
    filled(tmp_path, [[b"1"]])
    reader = stream(tmp_path)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    (tmp_path / folder.POSITION).write_bytes(old)
    with receiving_stream(tmp_path) as again:
        assert again.latestOffset(end, ReadAllAvailable()) is end


def test_what_a_recovered_spool_does_not_have_is_lost(tmp_path: Path) -> None:
    filled(tmp_path, [[b"0"]])
    start = stream(tmp_path).initialOffset()
    end = {"spool": {"0": start["spool"]["0"] | {"offset": 5}}}
    with receiving_stream(tmp_path) as again, pytest.raises(DataLoss, match="ends before record 5"):
        again.partitions(start, end)


def test_executors_are_not_told_secrets(tmp_path: Path) -> None:
    given = {"server": "h:4222", "subscribe": "a", "spoolLocation": str(tmp_path), "token": "very-hidden"}
    made: Any = NatsDataSource(given).streamReader(StructType())
    assert b"very-hidden" not in pickle.dumps(made)
    assert "very-hidden" not in repr(made._options)


def test_a_batch_reads_what_is_there(tmp_path: Path) -> None:
    filled(tmp_path, [[b"%d" % n] for n in range(10)])
    reader = NsqDataSource({"spoolLocation": str(tmp_path), "maxRecordsPerPartition": "5"}).reader(StructType())
    assert isinstance(reader, SpoolReader)
    partitions = list(reader.partitions())
    assert len(partitions) == 2
    assert sum(batch.num_rows for each in partitions for batch in reader.read(each)) == 10


def test_schemas_and_options_are_checked(tmp_path: Path) -> None:
    assert NsqDataSource({"columns": "offset,value"}).schema() == "value binary, offset bigint"
    with pytest.raises(ConfigError, match="there are key, value"):
        NsqDataSource({"columns": "colour"}).schema()
    with pytest.raises(ConfigError, match="unknown option colour"):
        NsqDataSource({"colour": "x"}).reader(StructType())
