"""What is killed: a program that streams topics into Parquet, and begins its query again when it ends: `python -m tests.crash.spark_archive`.

Its first line on standard output is `started`, as soon as the first query was asked to start. With --once it ends when all is there that
was there at its start.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["main"]

_PAUSE_S: Final = 0.5
# Many batches to be killed in; fewer where the rest is to be brought.
_RECORDS_PER_BATCH: Final = 5_000
_RECORDS_PER_BATCH_ONCE: Final = 50_000
_CHECKPOINTS: Final = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
_SETTINGS: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
    "spark.driver.memory": "1g",
    # It is started again and again: what compiles and collects least is up first.
    "spark.driver.extraJavaOptions": "-Xss4m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.memory": "512m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # Else a query whose first start was killed at the wrong moment never starts again.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.spark_archive", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--server", required=True)
    parser.add_argument("--subscribe", required=True)
    parser.add_argument("--folder", required=True, help="where table and checkpoint are")
    parser.add_argument("--once", action="store_true")
    options = parser.parse_args(arguments)
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(options.master).appName("crash").config("spark.sql.warehouse.dir", f"{options.folder}/warehouse")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    while True:
        query = _start(spark, options)
        print("started", flush=True)
        try:
            query.awaitTermination()
        except StreamingQueryException as error:
            print(f"begun again after: {str(error)[:2000]}", flush=True)
            time.sleep(_PAUSE_S)
        else:
            spark.stop()
            return 0


def _start(spark: SparkSession, options: argparse.Namespace) -> StreamingQuery:
    rows = (
        spark.readStream.format("polymq")
        .option("server", options.server)
        .option("subscribe", options.subscribe)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", _RECORDS_PER_BATCH_ONCE if options.once else _RECORDS_PER_BATCH)
        .option("minPartitions", 4)
        .load()
    )
    writer = rows.writeStream.format("parquet").option("path", f"{options.folder}/table")
    writer = writer.option("checkpointLocation", f"{options.folder}/checkpoint")
    return (writer.trigger(availableNow=True) if options.once else writer).start()


if __name__ == "__main__":
    sys.exit(main())
