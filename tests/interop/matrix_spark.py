"""The fifth column of the matrix: a topic as Spark has it, read in one batch."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from tests.interop.matrix_readers import Reader
from tests.interop.matrix_table import Shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from polymq.testing.server import PolymqServer

__all__ = ["read_by_spark", "session"]

NS_PER_US = 1_000


@contextlib.contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    """A Spark of two threads; starting it takes some seconds."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    values = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-Xss4m",
        "spark.sql.warehouse.dir": str(folder),
    }
    builder = SparkSession.builder.master("local[2]").appName("matrix")
    for name, value in values.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    try:
        yield made
    finally:
        made.stop()


def read_by_spark(spark: SparkSession, server: PolymqServer, topic: str, numbers: Mapping[bytes, int]) -> Reader:
    """Read all of a topic."""
    reader = Reader(server, topic, numbers)
    frame = spark.read.format("polymq").option("server", server.http).option("subscribe", topic).load()
    for row in frame.toArrow().to_pylist():
        assert row["topic"] == topic
        headers = tuple((each["key"], each["value"].decode()) for each in row["headers"])
        shown = Shown(key=(row["key"] or b"").decode(), headers=headers)
        reader.note(row["value"], shown, time_ns=round(row["timestamp"].timestamp() * 1e6) * NS_PER_US)
    return reader
