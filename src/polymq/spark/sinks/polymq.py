"""The sink into polymq, exactly once: tasks prepare what nobody sees, the driver's commit makes one attempt of each visible.

The classes that Spark calls. Nothing is opened when they are made: Spark makes them in several processes and pickles
them. What a task has prepared travels to the driver in its message; the commit is by Spark's own id of the query,
which lives in its checkpoint, and the batch's number, so a batch that Spark repeats is not there twice.
"""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from polymq.clients.log import parse_address
from polymq.clients.prepared import PreparedClient
from polymq.errors import ConfigError, PolyMQError
from polymq.spark.option_values import OptionReader
from polymq.spark.sinks.columns import COLUMNS, check_columns, table_of
from polymq.spark.sinks.framing import Framing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from concurrent.futures import Future

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from polymq.clients.prepared import Frame
    from polymq.spark.sinks.columns import Taken

__all__ = ["OPTIONS", "PreparedMessage", "SinkOptions", "stream_writer", "writer"]

OPTIONS: Final[dict[str, str]] = {
    "server": "host:port of the broker's HTTP door",
    "secret": "what the broker wants to be shown, if it does; better one of the next two",
    "secretFile": "the file that has the secret",
    "secretEnv": "the environment variable that has the secret",
    "topic": "where rows go that have no column topic",
    "sinkId": "stable name of the query in place of the id that Spark keeps in its checkpoint",
    "batchId": "number of the batch, for a batch write with sinkId",
    "retryTimeoutMs": "how long a broker that cannot be reached is tried (60000)",
    # Spark's own.
    "checkpointLocation": "Spark's",
    "path": "Spark's",
}

_RETRY_MS: Final = 60_000
_BATCH_MAX: Final = (1 << 63) - 1
_NAME_SIZE_MAX: Final = 200
_QUERY_ID: Final = "sql.streaming.queryId"


@dataclass(frozen=True)
class SinkOptions:
    """What the options say. `batch` None: Spark says it."""

    server: str
    topic: str
    sink: str
    batch: int | None
    retry_seconds: float
    once: bool = False
    secret: str = field(default="", repr=False)

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
        """Read the options; raises ConfigError with all that is wrong with them."""
        reader = OptionReader(given, OPTIONS)
        reader.refuse_unknown(("batchId",) if streaming else (), "a stream")
        server = reader.text("server") or ""
        try:
            parse_address(server)
        except ValueError:
            reader.problems.append(f"server must be host:port, not {server!r}")
        sink = reader.text("sinkId") or ""
        if len(sink.encode()) > _NAME_SIZE_MAX:
            reader.problems.append(f"sinkId has more than {_NAME_SIZE_MAX} bytes")
        batch = reader.whole("batchId", None, 0, _BATCH_MAX)
        if not streaming and (not sink) != (batch is None):
            reader.problems.append("a batch write has both sinkId and batchId, and is then done once, or neither")
        retry_seconds = (reader.whole("retryTimeoutMs", _RETRY_MS, 0, 2**31) or 0) / 1000
        secret = reader.secret("secret")
        reader.finish()
        return cls(server, reader.text("topic") or "", sink, batch, retry_seconds, secret=secret)

    def client(self) -> PreparedClient:
        """Make a client; it opens nothing yet."""
        return PreparedClient(self.server, secret=self.secret, retry_seconds=self.retry_seconds)


class PreparedMessage(WriterCommitMessage):
    """What one attempt has prepared; nothing if it had no rows."""

    def __init__(self, sink: str, part: str, requests: int, rows: int) -> None:
        self.sink = sink
        self.part = part
        self.requests = requests
        self.rows = rows


class _Preparing:
    """One attempt of a task: frames go out while the next ones are made, one request under way at most."""

    def __init__(self, client: PreparedClient, sink: str, part: str) -> None:
        self.requests = 0
        self._client = client
        self._sink = sink
        self._part = part
        self._thread = ThreadPoolExecutor(1)
        self._under_way: Future[None] | None = None

    def send(self, frames: Sequence[Frame]) -> None:
        """Send one request, when the one before has been answered."""
        self.wait()
        self._under_way = self._thread.submit(self._client.prepare, self._sink, self._part, self.requests, frames)
        self.requests += 1

    def wait(self) -> None:
        """Let everything be answered; raises what was wrong with it."""
        if self._under_way is not None:
            under_way, self._under_way = self._under_way, None
            under_way.result()

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown()
        self._client.close()


def prepare(options: SinkOptions, taken: Taken, batches: Iterator[pa.RecordBatch]) -> PreparedMessage:
    """Do one attempt of a task."""
    context = TaskContext.get()
    assert context is not None
    sink = options.sink or context.getLocalProperty(_QUERY_ID) or ""
    if not sink:
        raise ConfigError(["this version of Spark does not say which query this is: the option sinkId is needed, a stable name of it"])
    part = f"{context.partitionId()}-{context.attemptNumber()}-{uuid.uuid4().hex}"
    now_ns = time.time_ns()
    preparing = _Preparing(options.client(), sink, part)
    asking = options.client()
    framing = Framing(asking.partitions, preparing.send)
    try:
        for batch in batches:
            if batch.num_rows:
                framing.add(table_of(batch, taken, options.topic, now_ns))
        framing.finish()
        preparing.wait()
    except BaseException:
        _abort(replace(options, retry_seconds=0), sink, [part])
        raise
    finally:
        preparing.close()
        asking.close()
    return PreparedMessage(sink, part, preparing.requests, framing.rows)


def _commit(options: SinkOptions, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
    found = [message for message in messages if isinstance(message, PreparedMessage) and message.requests]
    if not found:
        return
    client = options.client()
    try:
        client.commit(found[0].sink, batch, [(each.part, each.requests, each.rows) for each in found], once=options.once)
    finally:
        client.close()


def _abort(options: SinkOptions, sink: str, parts: list[str]) -> None:
    """Drop parts, if the broker is there; else they go by themselves."""
    client = options.client()
    try:
        client.abort(sink, parts)
    except PolyMQError:
        pass
    finally:
        client.close()


def _abort_all(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    found = [message for message in messages if isinstance(message, PreparedMessage) and message.requests]
    if found:
        _abort(options, found[0].sink, [message.part for message in found])


class PolyMQStreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query."""

    def __init__(self, options: SinkOptions, taken: Taken) -> None:
        self._options = options
        self._taken = taken

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Prepare the rows of one task."""
        return prepare(self._options, self._taken, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Make the batch visible, once."""
        _commit(self._options, messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Drop what was prepared."""
        _abort_all(self._options, messages)


class PolyMQWriter(DataSourceArrowWriter):
    """Writes one table: all of it becomes visible, or nothing."""

    def __init__(self, options: SinkOptions, taken: Taken) -> None:
        self._options = options
        self._taken = taken

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Prepare the rows of one task."""
        return prepare(self._options, self._taken, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Make the table visible."""
        _commit(self._options, messages, self._options.batch or 0)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Drop what was prepared."""
        _abort_all(self._options, messages)


def writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> PolyMQWriter:
    """Make the writer of a table; raises ConfigError."""
    if overwrite:
        raise ConfigError(["messages that are there cannot be overwritten: the mode is append"])
    found = SinkOptions.parse(options, streaming=False)
    if not found.sink:
        found = replace(found, sink=f"job-{uuid.uuid4().hex}", once=True)
    return PolyMQWriter(found, check_columns(schema, tuple(COLUMNS), topic=found.topic))


def stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> PolyMQStreamWriter:
    """Make the writer of a stream; raises ConfigError."""
    if overwrite:
        raise ConfigError(["messages that are there cannot be overwritten: the output mode is append"])
    found = SinkOptions.parse(options, streaming=True)
    return PolyMQStreamWriter(found, check_columns(schema, tuple(COLUMNS), topic=found.topic))
