"""The data source `polymq`: `spark.read` and `spark.readStream` over the log of a broker.

The classes that Spark calls. They keep to its rules (documented in docs/spark.md): nothing is opened when they are
made, since Spark makes them in several processes and pickles them; `partitions` works from the checkpoint alone;
nothing hangs on `commit` or `stop`, which may never come. The work is in `planning.py` (driver) and `reading.py`
(executors).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from polymq.spark import columns
from polymq.spark.log import offsets
from polymq.spark.log.options import Options, wanted_columns
from polymq.spark.log.planning import Planner
from polymq.spark.log.reading import client_of, read_range
from polymq.spark.option_values import OptionReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from polymq.spark.log.offsets import Range

__all__ = ["PolyMQDataSource", "PolyMQReader", "PolyMQStreamReader", "RangePartition", "register"]


_SHOWN: Final = ("server", "servers", "lookupd", "subscribe", "subscribePattern", "assign")


class RangePartition(InputPartition):
    """One range of offsets for one task."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class PolyMQReader(DataSourceReader):
    """A batch read."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def __repr__(self) -> str:
        return f"<PolyMQReader {self._options}>"

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the ranges."""
        return [RangePartition(each) for each in _planner(self._options).plan_batch()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range in an executor."""
        return _read(partition, self._options)


class PolyMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._opened: Planner | None = None

    def __repr__(self) -> str:
        return f"<PolyMQStreamReader {self._options}>"

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
        """Say how far the log goes: `latestOffset` in the query's progress, from which the lag follows."""
        return offsets.encode(self._planner().newest())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the ranges of a micro-batch."""
        return [RangePartition(each) for each in self._planner().plan(offsets.decode(start), offsets.decode(end))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one range in an executor."""
        return _read(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: positions live in the checkpoint, and the log is kept by retention."""

    def stop(self) -> None:
        """Do nothing: Spark does not call it when a query is stopped, so nothing may depend on it."""

    def _planner(self) -> Planner:
        if self._opened is None:
            self._opened = _planner(self._options)
        return self._opened


class PolyMQDataSource(DataSource):
    """The records of topics, with the columns of `polymq.spark.columns.COLUMNS`.

    >>> spark.readStream.format("polymq").option("server", "127.0.0.1:4171").option("subscribe", "orders").load()
    """

    @classmethod
    def name(cls) -> str:
        """Give the name for `format()`."""
        return "polymq"

    def __repr__(self) -> str:
        # Of the options only what says where and what: there may be a secret among them.
        shown = [f"{name}={self.options[name]}" for name in _SHOWN if name in self.options]
        return f"<{' '.join([type(self).__name__, *shown])}>"

    def schema(self) -> str:
        """Give the columns that are wanted; whatever else is wrong with the options is said when something is read."""
        reader = OptionReader(dict(self.options), {})
        names = wanted_columns(reader)
        reader.finish()
        return columns.spark_schema(names)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a batch."""
        return PolyMQReader(Options.parse(dict(self.options), streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's names
        """Make the reader of a stream."""
        return PolyMQStreamReader(Options.parse(dict(self.options), streaming=True))


def register(spark: SparkSession) -> None:
    """Make `format("polymq")` known where the package `pyspark_polymq` is not found by itself."""
    spark.dataSource.register(PolyMQDataSource)


def _read(partition: InputPartition, options: Options) -> Iterator[pa.RecordBatch]:
    """Read the range of one task; Spark makes one task without a range when there is nothing to read."""
    if not isinstance(partition, RangePartition):
        return iter(())
    return read_range(client_of(options, partition.wanted.address or options.server), partition.wanted, options)


def _planner(options: Options) -> Planner:
    return Planner(options, partial(client_of, options, planning=True))
