"""Sinks into other brokers, at least once: every task publishes its rows, and again what nobody has confirmed.

A task that is retried, a batch that is repeated publish rows once more. Where messages have headers each row has an id that
is the same then: that of the column `idColumn`, else made of what the row says, of the query and of the batch; so whoever
reads can drop what it has had. What the four protocols have in common is here; `nsq.py` and the others say what theirs is.
"""

from __future__ import annotations

import contextlib
import hashlib
import struct
import time
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from polymq.clients.broker_address import parse_address
from polymq.clients.broker_sync import Broker, Outgoing
from polymq.errors import ConfigError, LocalProtocolError, PolyMQError, TransportError
from polymq.spark.option_values import OptionReader
from polymq.spark.sinks.columns import check_columns, table_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from polymq.spark.sinks.columns import Taken

__all__ = ["SERVER", "Kind", "PublishedMessage", "Reach", "checked_url", "make_stream_writer", "make_writer", "server_of"]

SERVER: Final = "host:port of the server"
_COMMON: Final = {
    "topic": "where rows go that have no column topic",
    "retryTimeoutMs": "how long a broker that cannot be reached is tried (60000)",
    "checkpointLocation": "Spark's",
    "path": "Spark's",
}
_ID_OPTION: Final = {"idColumn": "the column that names a row for ever; without it, an id is made of its content"}
_RETRY_MS: Final = 60_000
_MS_PER_SECOND: Final = 1000
_NS_PER_SECOND: Final = 1_000_000_000
# What goes out together: a retry sends so much twice at most, and a task holds so much in objects.
_RUN_MESSAGES_MAX: Final = 5000
_RUN_SIZE_BYTES_MAX: Final = 4 * 1024 * 1024
_PAUSE_SECONDS_FIRST: Final = 0.1
_PAUSE_SECONDS_MAX: Final = 2.0
_U32: Final = struct.Struct("<I")


@dataclass(frozen=True)
class Reach:
    """How the servers are reached: an address as `connect` takes it, and the client's options. Secrets are in the latter only."""

    url: str
    options: Any = field(repr=False)


@dataclass(frozen=True)
class Kind:
    """What is particular to a protocol. `id_header`: what carries a row's id; "" where messages have no headers, for the reason `no_id`."""

    columns: tuple[str, ...]
    options: Mapping[str, str]
    reach: Callable[[OptionReader], Reach]
    id_header: str = ""
    no_id: str = ""


@dataclass(frozen=True)
class _Job:
    """What a task has to know; pickled to the executors. `job` names a batch write, to whose ids it belongs; "": a stream."""

    reach: Reach
    taken: Taken
    topic: str
    id_header: str
    retry_seconds: float
    job: str = ""

    def __repr__(self) -> str:
        return f"<write to {self.reach.url}>"


class PublishedMessage(WriterCommitMessage):
    """How many rows a task has published."""

    def __init__(self, rows: int) -> None:
        self.rows = rows


class _StreamWriter(DataSourceStreamArrowWriter):
    """Writes the micro-batches of a query."""

    def __init__(self, job: _Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of one task."""
        return _publish(self._job, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Do nothing: everything is there."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  Spark's name
        """Do nothing: what was published stays, and comes again with the next attempt."""


class _Writer(DataSourceArrowWriter):
    """Writes one table."""

    def __init__(self, job: _Job) -> None:
        self._job = job

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Publish the rows of one task."""
        return _publish(self._job, iterator)


def server_of(reader: OptionReader, protocol: str, *, name: str = "server") -> str:
    """Read where the server is; gives an address as `connect` takes it."""
    text = (reader.text(name) or "").strip()
    if not text:
        reader.problems.append(f"{name} must be {SERVER}")
        return ""
    return checked_url(reader, protocol, text, name)


def checked_url(reader: OptionReader, protocol: str, text: str, name: str) -> str:
    """Make the address that `connect` takes of that of a server, or of several; what is wrong is noted, without a secret in it."""
    if "@" in text or "/" in text:
        reader.problems.append(f"{name} must be host:port and nothing else: who logs in, and with what, is said by other options")
        return ""
    url = f"{protocol}://{text}"
    try:
        parse_address(url)
    except LocalProtocolError as error:
        reader.problems.append(f"{name}: {error}")
    return url


def make_writer(kind: Kind, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceArrowWriter:
    """Make the writer of a table; raises ConfigError."""
    return _Writer(replace(_job(kind, options, schema, overwrite=overwrite), job=uuid.uuid4().hex))


def make_stream_writer(kind: Kind, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> DataSourceStreamArrowWriter:
    """Make the writer of a stream; raises ConfigError."""
    return _StreamWriter(_job(kind, options, schema, overwrite=overwrite))


def _job(kind: Kind, given: Mapping[str, str], schema: StructType, *, overwrite: bool) -> _Job:
    if overwrite:
        raise ConfigError(["messages that are there cannot be overwritten: the mode is append"])
    reader = OptionReader(given, {**kind.options, **_COMMON, **(_ID_OPTION if kind.id_header else {})})
    if not kind.id_header and reader.given.pop("idcolumn", None) is not None:
        reader.problems.append(kind.no_id)
    reader.refuse_unknown()
    reach = kind.reach(reader)
    retry_seconds = (reader.whole("retryTimeoutMs", _RETRY_MS, 0, 2**31) or 0) / _MS_PER_SECOND
    topic, id_column = reader.text("topic") or "", reader.text("idColumn") or "" if kind.id_header else ""
    reader.finish()
    taken = check_columns(schema, kind.columns, topic=topic, id_column=id_column)
    return _Job(reach, taken, topic, kind.id_header, retry_seconds)


# -- in a task ---------------------------------------------------------------------------------------------------------


def _publish(job: _Job, batches: Iterator[pa.RecordBatch]) -> PublishedMessage:
    context = TaskContext.get()
    assert context is not None
    query = job.job or f"{context.getLocalProperty('sql.streaming.queryId')}/{context.getLocalProperty('streaming.sql.batchId')}"
    rows = 0
    now_ns = time.time_ns()
    publisher = _Publisher(job)
    try:
        for batch in batches:
            if batch.num_rows:
                for run in _runs(messages_of(job, table_of(batch, job.taken, job.topic, now_ns), query, now_ns)):
                    publisher.publish(run)
                rows += batch.num_rows
    finally:
        publisher.close()
    return PublishedMessage(rows)


def _runs(messages: Iterator[Outgoing]) -> Iterator[list[Outgoing]]:
    """Cut what goes out into pieces."""
    run: list[Outgoing] = []
    size_bytes = 0
    for message in messages:
        run.append(message)
        size_bytes += len(message.body)
        if len(run) >= _RUN_MESSAGES_MAX or size_bytes >= _RUN_SIZE_BYTES_MAX:
            yield run
            run, size_bytes = [], 0
    if run:
        yield run


def messages_of(job: _Job, columns: dict[str, pa.Array], query: str, now_ns: int) -> Iterator[Outgoing]:
    """Make messages of rows; raises ValueError for what is no text and has to be."""
    count = len(columns["value"])
    lists = {name: column.to_pylist() for name, column in columns.items()}
    nothing = [None] * count
    names = ("value", "topic", "key", "headers", "tags", "partition", "deliver_at", "expires_at", "id")
    for value, topic, key, headers, tags, partition, due_ns, expires_ns, given in zip(
        *(lists.get(name, nothing) for name in names), strict=True
    ):
        found = {} if not headers else {each["key"] or "": _text(each["value"] or b"", "header") for each in headers}
        if job.id_header:
            found[job.id_header] = given if given is not None else _id_of(query, topic, key, value)
        text = "" if key is None else _text(key, "key")
        yield Outgoing(
            topic,
            value,
            key=text,
            headers=found,
            tags=tags or "",
            delay=0.0 if due_ns is None else max(0.0, (due_ns - now_ns) / _NS_PER_SECOND),
            ttl=0.0 if expires_ns is None else (expires_ns - now_ns) / _NS_PER_SECOND,
            order=partition if partition is not None else text or None,
        )


def _text(value: bytes, what: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"a row has a {what} that is not UTF-8, which this protocol wants") from error


def _id_of(query: str, topic: str, key: bytes | None, value: bytes) -> str:
    """Make an id of what a row says: the same whenever its batch is written again, in whatever order."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (query.encode(), topic.encode(), b"" if key is None else key, value):
        digest.update(_U32.pack(len(part)))
        digest.update(part)
    return digest.hexdigest()


class _Publisher:
    """Publishes runs over one connection, and over another when that is lost."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._broker: Broker | None = None

    def publish(self, messages: Sequence[Outgoing]) -> None:
        """Return when the server has all of them; raises PolyMQError."""
        deadline = time.monotonic() + self._job.retry_seconds
        pause = _PAUSE_SECONDS_FIRST
        left = list(messages)
        while left:
            error, left = self._publish_once(left)
            if error is None:
                continue
            self.close()
            if time.monotonic() + pause > deadline:
                raise error
            time.sleep(pause)
            pause = min(2 * pause, _PAUSE_SECONDS_MAX)

    def _publish_once(self, messages: list[Outgoing]) -> tuple[PolyMQError | None, list[Outgoing]]:
        """Give what is left to be sent again, and why; raises what another attempt would not mend."""
        try:
            if self._broker is None:
                self._broker = Broker(self._job.reach.url, self._job.reach.options)
            outcomes = self._broker.publish_each(messages)
        except TransportError as error:
            return error, messages
        for outcome in outcomes:
            if outcome is not None and not isinstance(outcome, TransportError):
                raise outcome
        left = [message for message, outcome in zip(messages, outcomes, strict=True) if outcome is not None]
        return next((outcome for outcome in outcomes if outcome is not None), None), left

    def close(self) -> None:
        """Disconnect."""
        broker, self._broker = self._broker, None
        if broker is not None:
            with contextlib.suppress(PolyMQError):  # everything was confirmed, or is sent again
                broker.close()
