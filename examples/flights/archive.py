"""The archive: a streaming query that copies the topic into Parquet, partitioned by month, for as long as it runs."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polymq
from polymq.spark.pipeline.session import error_output_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["Archive", "archived_offset", "flights_of", "start_spark"]

# As JSON has them; time_hour stays text, since it is part of what names a flight.
FLIGHT_SCHEMA: Final = (
    "year bigint, month bigint, day bigint, dep_time bigint, sched_dep_time bigint, dep_delay bigint, arr_time bigint, "
    "sched_arr_time bigint, arr_delay bigint, carrier string, flight bigint, tailnum string, origin string, dest string, "
    "air_time bigint, distance bigint, hour bigint, minute bigint, time_hour string"
)
_RESTARTS_MAX: Final = 3
# Small enough that there is something to see while it runs, large enough that Parquet files are worth their name.
_RECORDS_PER_BATCH: Final = 40_000


def start_spark(folder: Path) -> SparkSession:
    """Start Spark in this process, with what makes it quick and quiet on one machine.

    Java's words go to `spark.log`: some of them come before any setting of Spark is read.
    """
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    source = str(Path(polymq.__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    from pyspark.sql import SparkSession

    manager = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": "-Xss4m",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.streaming.checkpointFileManagerClass": manager,
        "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
        "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    }
    builder = SparkSession.builder.master("local[2]").appName("polymq flights")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with error_output_to(folder / "spark.log"):
        return builder.getOrCreate()


def flights_of(records: DataFrame) -> DataFrame:
    """Take the flights out of the records of the topic, beside where and when each was stored."""
    from pyspark.sql import functions as f

    parsed = f.from_json(f.col("value").cast("string"), FLIGHT_SCHEMA)
    return records.select("partition", "offset", f.col("timestamp").alias("stored_at"), parsed.alias("flight_of")).select(
        "partition", "offset", "stored_at", "flight_of.*"
    )


def archived_offset(progress: dict[str, Any] | None) -> int:
    """Tell from a query's progress how many offsets lie behind it."""
    if progress is None:
        return 0
    total = 0
    for source in progress["sources"]:
        end = source["endOffset"]
        offsets = json.loads(end) if isinstance(end, str) else end
        total += sum(position["offset"] for partitions in (offsets or {}).values() for position in partitions.values())
    return total


class Archive:
    """Keeps the query running: what ends it is an error, after which it goes on from its checkpoint."""

    def __init__(self, spark: SparkSession, folder: Path, *, server: str, topic: str) -> None:
        self.spark = spark
        self.path = folder / "archive"
        self.restarts = 0
        self._checkpoint = folder / "checkpoint"
        self._server = server
        self._topic = topic
        self._query: StreamingQuery | None = None

    def start(self) -> None:
        """Start the query, at the beginning of the topic or where its checkpoint is."""
        records = (
            self.spark.readStream.format("polymq")
            .option("server", self._server)
            .option("subscribe", self._topic)
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", _RECORDS_PER_BATCH)
            .option("columns", "value,partition,offset,timestamp")
            .load()
        )
        self._query = (
            flights_of(records)
            .writeStream.format("parquet")
            .partitionBy("month")
            .option("path", str(self.path))
            .option("checkpointLocation", str(self._checkpoint))
            .start()
        )

    def offset(self) -> int:
        """Tell how far the archive is; starts the query again if it has failed."""
        assert self._query is not None
        error = self._query.exception()
        if error is not None or not self._query.isActive:
            if self.restarts == _RESTARTS_MAX:
                raise SystemExit(f"The archive's query keeps failing: {error}")
            self.restarts += 1
            self.start()
        progress = self._query.lastProgress
        return archived_offset(json.loads(progress.json) if progress is not None else None)

    def stop(self) -> None:
        """End the query, and write down what each of its batches took."""
        if self._query is None:
            return
        progress = [each.json for each in self._query.recentProgress]
        self._query.stop()
        self.path.with_name("progress.jsonl").write_text("\n".join(progress) + "\n", encoding="utf-8")
