"""The data sources `nsq`, `nats` and `phpmq`: `spark.read` and `spark.readStream` over a spool.

The classes that Spark calls. They keep to its rules (documented in docs/spark.md): nothing is opened when they are made,
since Spark makes them in several processes and pickles them; `partitions` works from the files alone, as it is called first
after a restart (and has them looked at when they say too little); nothing hangs on `commit` or `stop`, which come late or never. What is received is acknowledged when the spool
is durable, whatever Spark does.
"""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from polymq.spark.columns import chosen, spark_schema
from polymq.spark.option_values import OptionReader
from polymq.spark.spooled.options import Options, known_options
from polymq.spark.spooled.planning import Planner, decode, encode
from polymq.spark.spooled.reading import read_pieces

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType

    from polymq.spark.spooled.planning import Offset
    from polymq.spark.spooled.receiving import Receiving
    from polymq.spool.reading import Piece

__all__ = ["NatsDataSource", "NsqDataSource", "PhpmqDataSource", "PiecesPartition", "SpoolReader", "SpoolStreamReader", "register"]


class PiecesPartition(InputPartition):
    """Pieces of segments for one task."""

    def __init__(self, pieces: Sequence[Piece]) -> None:
        super().__init__(None)
        self.pieces = pieces


class SpoolReader(DataSourceReader):
    """A batch read of what is in the spool; nothing is received."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Plan the pieces."""
        return [PiecesPartition(pieces) for pieces in Planner(self._options).plan_batch()]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read pieces in an executor."""
        return _read(partition, self._options)


class SpoolStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming read, which receives as well unless a spooler elsewhere does."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._planner: Planner | None = None
        self._receiving: Receiving | None = None
        self._initial: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Go to executors without threads, and without secrets."""
        return {"_options": replace(self._options, feed=None), "_planner": None, "_receiving": None, "_initial": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Say where a query without a checkpoint starts; the same when it is asked again."""
        if self._initial is None:
            self._receive()
            self._initial = self._planned().starting()
        return encode(self._initial)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  Spark's name
        """Say how much a micro-batch takes."""
        most = self._options.records_per_trigger_max
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  Spark's name
        """Say where the next micro-batch ends: never behind what is durable; `start` when there is nothing to read."""
        self._receive()
        begin = decode(start)
        end = self._planned().advance(begin, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        return start if end == begin else encode(end)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  Spark's name
        """Receive what the broker has for us now, and fix the end of this run there."""
        receiving = self._receive()
        if receiving is not None:
            receiving.drain()
        self._planned().freeze()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802  Spark's name
        """Say how far the spool goes: `latestOffset` in the query's progress, from which the lag follows."""
        return encode(self._planned().newest())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Plan the pieces of a micro-batch, from the files alone; after a power loss they say enough once the receiver has looked."""
        until = decode(end)
        if not self._planned().reaches(until):
            self._receive()
        return [PiecesPartition(pieces) for pieces in self._planned().plan(decode(start), until)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read pieces in an executor."""
        return _read(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Let the spooler know how far what it keeps has been read."""
        self._planned().commit(decode(end))

    def stop(self) -> None:
        """Do nothing: Spark does not call it when a query is stopped, so nothing may depend on it."""

    def _planned(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner

    def _receive(self) -> Receiving | None:
        if self._options.feed is None:
            return None
        if self._receiving is None:
            from polymq.spark.spooled.receiving import Receiving

            self._receiving = Receiving(self._options)
        self._receiving.ensure()
        return self._receiving


class SpooledDataSource(DataSource):
    """What the three sources have in common; see docs/SPOOL.md for their options."""

    protocol: ClassVar[str] = ""

    @classmethod
    def name(cls) -> str:
        """Give the name for `format()`."""
        return cls.protocol

    def schema(self) -> str:
        """Give the columns that are wanted."""
        reader = OptionReader(dict(self.options), known_options(self.protocol))
        names = chosen(reader)
        reader.finish()
        return spark_schema(names)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make the reader of a batch."""
        return SpoolReader(Options.parse(self.protocol, dict(self.options), streaming=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  Spark's names
        """Make the reader of a stream."""
        return SpoolStreamReader(Options.parse(self.protocol, dict(self.options), streaming=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make the writer of a batch."""
        made: DataSourceWriter = self._sink("writer")(dict(self.options), schema, overwrite)
        return made

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802  Spark's names
        """Make the writer of a stream."""
        made: DataSourceStreamWriter = self._sink("stream_writer")(dict(self.options), schema, overwrite)
        return made

    def _sink(self, name: str) -> Any:
        return getattr(importlib.import_module(f"polymq.spark.sinks.{self.protocol}"), name)


class NsqDataSource(SpooledDataSource):
    """Messages of channels of NSQ.

    >>> spark.readStream.format("nsq").options(servers="127.0.0.1:4150", subscribe="orders", channel="spark", spoolLocation="/var/spool/orders").load()
    """

    protocol = "nsq"


class NatsDataSource(SpooledDataSource):
    """Messages of subjects of NATS: at most once up to the spool.

    >>> spark.readStream.format("nats").options(server="127.0.0.1:4222", subscribe="orders.*", spoolLocation="/var/spool/orders").load()
    """

    protocol = "nats"


class PhpmqDataSource(SpooledDataSource):
    """Messages of queues of PHPMQ.

    >>> spark.readStream.format("phpmq").options(server="127.0.0.1:9100", subscribe="mails", spoolLocation="/var/spool/mails").load()
    """

    protocol = "phpmq"


def register(spark: SparkSession) -> None:
    """Make the three formats known where the packages `pyspark_polymq_…` are not found by themselves."""
    for each in (NsqDataSource, NatsDataSource, PhpmqDataSource):
        spark.dataSource.register(each)


def _read(partition: InputPartition, options: Options) -> Iterator[pa.RecordBatch]:
    """Read the pieces of one task; Spark makes one task without any when there is nothing to read."""
    if not isinstance(partition, PiecesPartition):
        return iter(())
    return read_pieces(partition.pieces, options)
