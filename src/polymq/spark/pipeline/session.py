"""The Spark session of a pipeline, with the settings that its tables and its speed need."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from polymq.spark.pipeline.config import PipelineConfig

__all__ = ["NEEDED", "error_output_to", "settings", "start"]

# Without these the tables would not be what they are documented to be.
NEEDED: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Names of fields that differ in case are told apart where bodies are decoded.
    "spark.sql.caseSensitive": "true",
    # A number that does not fit into a column of the user's SQL is null; it does not end the pipeline.
    "spark.sql.ansi.enabled": "false",
}
_USEFUL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    # For bodies of many levels, and for long plans.
    "spark.driver.extraJavaOptions": "-Xss4m",
    "spark.executor.extraJavaOptions": "-Xss4m",
    "spark.sql.shuffle.partitions": "4",
    # The default forks a process for each file of a checkpoint on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # A kill before the first batch leaves a file that would forbid the next start.
    "spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false",
    # The names of files are known: nobody has to look for them by a job.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
}


def settings(config: PipelineConfig) -> dict[str, str]:
    """Give all settings: ours, the user's over them, and those that must be."""
    own = {"spark.driver.memory": config.memory, "spark.sql.warehouse.dir": str((config.storage / "_warehouse").absolute())}
    return _USEFUL | own | dict(config.spark_settings) | NEEDED


def start(config: PipelineConfig) -> SparkSession:
    """Start Spark in this process; what Java says goes to `spark.log` in the storage folder."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if config.master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    here = str(Path(__file__).resolve().parents[3])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")]))
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(config.master).appName(f"polymq pipeline {config.name}")
    for name, value in settings(config).items():
        builder = builder.config(name, value)
    config.storage.mkdir(parents=True, exist_ok=True)
    with error_output_to(config.storage / "spark.log"):
        return builder.getOrCreate()


@contextlib.contextmanager
def error_output_to(path: Path) -> Iterator[None]:
    """Let processes that are started meanwhile write their errors to a file, as long as they live."""
    sys.stderr.flush()
    before = os.dup(2)
    with path.open("ab") as words:
        os.dup2(words.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(before, 2)
        os.close(before)
