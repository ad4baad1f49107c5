"""A sink whose tasks fail, run twice and give their rows in another order, and whose commits wait for a test."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage

from polymq.spark.sinks import polymq

if TYPE_CHECKING:
    from collections.abc import Iterator

WAIT_SECONDS_MAX = 200


def await_file(path: Path) -> None:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} never came"
        time.sleep(0.005)


def reverted(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The same rows, the last one first."""
    return [batch.take(pa.array(range(batch.num_rows - 1, -1, -1))) for batch in reversed(batches)]


class FaultyWriter(DataSourceStreamArrowWriter):
    """`folder` has files that say what is to go wrong: fail, twice, wait-N for the commit of batch N."""

    def __init__(self, inner: DataSourceStreamArrowWriter, folder: Path) -> None:
        self._inner = inner
        self._folder = folder

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        batches = list(iterator)
        if (self._folder / "twice").exists():
            # An attempt that is done, and does not count.
            self._inner.write(iter(reverted(batches)))
        message = self._inner.write(iter(batches))
        if (self._folder / "fail").exists():
            raise RuntimeError("this attempt is lost behind its last row")
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        (self._folder / f"committing-{batchId}").touch()
        if (self._folder / f"wait-{batchId}").exists():
            await_file(self._folder / f"go-{batchId}")
        self._inner.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._inner.abort(messages, batchId)


class FaultySink(DataSource):
    @classmethod
    def name(cls) -> str:
        return "faulty_polymq"

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        options = dict(self.options)
        return FaultyWriter(polymq.stream_writer(options, schema, overwrite), Path(options["path"]))
