"""The data source `rocketmq`: `spark.read` and `spark.readStream` over queues of RocketMQ's brokers, and polymq's.

The classes that Spark calls. They keep to its rules (docs/spark.md): nothing is opened when they are made, since Spark makes
them in several processes and pickles them; `partitions` works from the checkpoint alone; nothing hangs on `commit` or `stop`,
which may never come. The work is in `planning.py` (driver) and `reading.py` (executors).
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from polymq.errors import PolyMQError
from polymq.spark import columns
from polymq.spark.option_values import OptionReader
from polymq.spark.rocketmq import offsets
from polymq.spark.rocketmq.options import Options
from polymq.spark.rocketmq.patience import client_of
from polymq.spark.rocketmq.planning import Planner
from polymq.spark.rocketmq.reading import RangeReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from polymq.spark.rocketmq.offsets import Range

__all__ = ["RangePartition", "RocketMQDataSource", "RocketMQReader", "RocketMQStreamReader", "register"]

_SINKS = "polymq.spark.sinks.rocketmq"


class RangePartition(InputPartition):
    """One range of offsets for one task."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class RocketMQReader(DataSourceReader):
    """A batch read."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the ranges."""
        return [RangePartition(each) for each in Planner(self._options, client_of(self._options)).plan_batch()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range in an executor."""
        return _read(partition, self._options)


class RocketMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._opened: Planner | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Say where a query without a checkpoint starts."""
        return offsets.encode(self._planner().starting())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Say how much a micro-batch takes."""
        most = self._options.records_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Say where the next micro-batch ends; `start` when there is nothing to read."""
        records_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begin = offsets.decode(start)
        end = self._planner().advance(begin, records_max)
        return start if end == begin else offsets.encode(end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Fix the end of this run."""
        self._planner().freeze()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  Spark's name
        """Say how far the queues go: `latestOffset` in the query's progress, from which the lag follows."""
        return offsets.encode(self._planner().newest())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the ranges of a micro-batch."""
        return [RangePartition(each) for each in self._planner().plan(offsets.decode(start), offsets.decode(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range in an executor."""
        return _read(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Tell brokers where the query is, if that is wanted: people look there; what counts is the checkpoint."""
        if not self._options.commits:
            return
        try:
            client_of(self._options).commit({queue: position.offset for queue, position in offsets.decode(end).items()})
        except PolyMQError as error:
            warnings.warn(f"the group's positions are not shown at the brokers: {error}", RuntimeWarning, stacklevel=2)

    def stop(self) -> None:
        """Do nothing: Spark does not call it when a query is stopped, so nothing may depend on it."""

    def _planner(self) -> Planner:
        if self._opened is None:
            self._opened = Planner(self._options, client_of(self._options))
        return self._opened


class RocketMQDataSource(DataSource):
    """The messages of topics, with the columns of `polymq.spark.columns`.

    >>> spark.readStream.format("rocketmq").option("namesrvAddr", "127.0.0.1:9876").option("subscribe", "orders").load()
    """

    @classmethod
    def name(cls) -> str:
        """Give the name for `format()`."""
        return "rocketmq"

    def schema(self) -> str:
        """Give the columns."""
        return columns.spark_schema(columns.chosen(OptionReader(dict(self.options), {})))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a batch."""
        return RocketMQReader(Options.parse(dict(self.options), streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's names
        """Make the reader of a stream."""
        return RocketMQStreamReader(Options.parse(dict(self.options), streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make the writer of a batch."""
        return cast("DataSourceWriter", importlib.import_module(_SINKS).writer(dict(self.options), schema, overwrite))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  Spark's names
        """Make the writer of a stream."""
        return cast("DataSourceStreamWriter", importlib.import_module(_SINKS).stream_writer(dict(self.options), schema, overwrite))


def register(spark: SparkSession) -> None:
    """Make `format("rocketmq")` known where the package `pyspark_polymq_rocketmq` is not found by itself."""
    spark.dataSource.register(RocketMQDataSource)


def _read(partition: InputPartition, options: Options) -> Iterator[pa.RecordBatch]:
    """Read the range of one task; Spark makes one task without a range when there is nothing to read."""
    if not isinstance(partition, RangePartition):
        return iter(())
    return RangeReader(client_of(options), partition.wanted, options).batches()
