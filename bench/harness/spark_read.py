"""How fast Spark reads: a topic's log into Parquet, and beside it the same rows from Parquet into Parquet.

Usage: spark_read.py HOST:PORT TOPIC COUNT FOLDER. One task at a time (`local[1]`), the whole of Spark (the JVM and its
Python worker) on one core, so that the figures are per core; the broker has the other cores. Prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from polymq.spark.log.source import PolyMQDataSource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# What a reader of all protocols needs at least; more columns cost more, beside Parquet as well.
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")


def timed_write(frame: DataFrame, target: Path) -> float:
    """Write a frame as Parquet; returns the seconds."""
    began = time.perf_counter()
    frame.write.mode("overwrite").parquet(str(target))
    return time.perf_counter() - began


def main() -> None:
    """Warm up with a part, then measure both."""
    server, topic, count, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
    # The last core: the first one takes most interrupts.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").config("spark.driver.memory", "2g")
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    spark.dataSource.register(PolyMQDataSource)
    source = spark.read.format("polymq").option("server", server).option("subscribe", topic).option("columns", ",".join(COLUMNS))
    part = source.option("endingOffsets", json.dumps({topic: {"0": count // 10}})).load()
    timed_write(part, folder / "warm")
    source = spark.read.format("polymq").option("server", server).option("subscribe", topic).option("columns", ",".join(COLUMNS))
    from_log = timed_write(source.load(), folder / "log")
    rows = spark.read.parquet(str(folder / "log"))
    timed_write(spark.read.parquet(str(folder / "warm")), folder / "warm-again")
    from_parquet = timed_write(rows.select(*COLUMNS), folder / "parquet")
    found = rows.count()
    spark.stop()
    print(json.dumps({"rows": found, "log_seconds": from_log, "parquet_seconds": from_parquet}))


main()
