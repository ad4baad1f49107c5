"""A client of the log's HTTP door, for those who read the log rather than consume a group: Spark, tools, tests.

Synchronous and of the standard library alone, because it runs in Spark's executors. One connection, kept open and
opened again when it is lost: every request only reads, so repeating one is always right. A client belongs to one
thread. What comes back is checked here, so that no caller meets bytes that are not whole and valid batches.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import quote, urlencode

from polymq import limits
from polymq.errors import ConnectFailed, ConnectionLost, DeadlineExceeded, Refusal, RefusalCode, RemoteProtocolError, TransportError
from polymq.wire.records import HEADER_SIZE_BYTES, BatchHeader, check, parse_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["Chunk", "Family", "LogClient", "OffsetOutOfRange", "PartitionInfo", "TopicInfo", "parse_address"]

# Pauses between attempts double from the first to the largest: a broker that restarts is found again within a second.
_PAUSE_SECONDS_FIRST: Final = 0.05
_PAUSE_SECONDS_MAX: Final = 1.0
# What an answer in JSON may amount to: some thousand topics with their partitions.
_JSON_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
_BATCHES_TYPE: Final = "application/vnd.polymq.batches"

_T = TypeVar("_T")


class OffsetOutOfRange(Refusal):
    """The offset that was asked for cannot be read: those from `start` (inclusive) to `readable` (exclusive) can."""

    def __init__(self, text: str, *, start: int, readable: int) -> None:
        super().__init__(RefusalCode.OFFSET_OUT_OF_RANGE, text)
        self.start = start
        self.readable = readable


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """What the log knows about one partition.

    `number` names the log for ever: a topic that is deleted and created again has other numbers. `epochs` are (epoch,
    first offset) pairs, oldest first: offsets from an epoch's first on may have been given to other records before.
    Records from `readable` on and before `end` are there, but may not be read yet. `size_bytes` is what they all take up.
    """

    partition: int
    number: int
    epoch: int
    epochs: tuple[tuple[int, int], ...]
    start: int
    end: int
    readable: int
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic and its partitions, ordered by index. `node` is what the log is called, wherever it is; empty if it does not say."""

    namespace: str
    name: str
    partitions: tuple[PartitionInfo, ...]
    node: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """Numbers of one meaning: (labels, value) for everything that has one."""

    name: str
    kind: str
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole record batches as they lie in the log, what the log held when they were read, its number and its node."""

    data: bytes
    epoch: int
    start: int
    readable: int
    number: int
    node: str = ""

    def batches(self) -> Iterator[tuple[int, int, BatchHeader]]:
        """Give (start, end, header) of every batch in `data`."""
        at = 0
        while at < len(self.data):
            header = parse_header(self.data, at)
            yield at, at + header.size, header
            at += header.size


def parse_address(address: str) -> tuple[str, int]:
    """Take `host:port` apart; raises ValueError when it is none."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or set(host) & set(",/ ") or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ValueError(f"not a host:port address: {address!r}")
    return host.removeprefix("[").removesuffix("]"), int(port)


class LogClient:
    """Read topics and record batches of one broker.

    `secret` is for a broker that wants one (`access.http`); ValueError if it cannot stand in a header.
    `retry_seconds` is how long a request is repeated while the broker cannot be reached; 0 tries once (and once more
    when a connection that was open turns out to be dead).
    Raises: ConnectFailed, ConnectionLost, DeadlineExceeded; Refusal for what the broker refuses (OffsetOutOfRange when
            records were trimmed); RemoteProtocolError when an answer is not what the door promises.
    """

    def __init__(
        self,
        address: str,
        *,
        secret: str = "",
        timeout_seconds: float = 30.0,
        retry_seconds: float = 0.0,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host, self._port = parse_address(address)
        if not (secret.isascii() and secret.isprintable()):
            raise ValueError("a secret of other than printable ASCII cannot be sent over HTTP")
        self._headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self._timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds
        self._sleep = sleep
        self._monotonic = monotonic
        self._connection: http.client.HTTPConnection | None = None

    def __repr__(self) -> str:
        return f"<LogClient {self._host}:{self._port} {'connected' if self._connection else 'idle'}>"

    def topics(self) -> tuple[TopicInfo, ...]:
        """List all topics."""
        return self._json("/v1/topics", lambda answer: tuple(_topic(topic) for topic in answer["topics"]))

    def topic(self, name: str) -> TopicInfo:
        """Describe one topic; raises Refusal (TOPIC_NOT_FOUND)."""
        return self._json(f"/v1/topics/{quote(name, safe='')}", _topic)

    def node(self) -> str:
        """Ask what the log is called; raises RemoteProtocolError where the broker is too old to say."""
        return self._json("/v1/node", lambda answer: str(answer["node"]))

    def json(self, path: str) -> Any:
        """Fetch any answer in JSON: what else is at this address, such as a directory of nodes."""
        return self._json(path, lambda answer: answer)

    def statistics(self) -> tuple[Family, ...]:
        """Fetch every number that the broker keeps."""
        return self._json("/v1/stats", lambda answer: tuple(_family(family) for family in answer["families"]))

    def offset_at(self, topic: str, partition: int, time_ns: int) -> int:
        """Tell the first offset of a partition with a time at or after `time_ns`."""
        path = f"/v1/topics/{quote(topic, safe='')}/{partition}/offset?time_ns={time_ns}"
        return self._json(path, lambda answer: int(answer["offset"]))

    def records(self, topic: str, partition: int, offset: int, *, end: int, size_bytes_max: int, wait_ms: int = 0) -> Chunk:
        """Fetch the batches from the one that holds `offset` on, before `end`, of about `size_bytes_max` bytes.

        At least one batch when there is any; none at the end of the log, after waiting up to `wait_ms` for one. The
        first batch may begin before `offset` and the last may go on beyond `end`.
        """
        query = urlencode({"offset": offset, "end": end, "max_bytes": size_bytes_max, "wait_ms": wait_ms})
        path = f"/v1/topics/{quote(topic, safe='')}/{partition}/records?{query}"
        # The batch that takes the answer over the wanted size may be as large as batches get.
        status, headers, body = self._get(path, size_bytes_max + limits.BATCH_SIZE_BYTES_MAX, wait_ms / 1000)
        if status != http.client.OK:
            raise _refusal(status, body)
        if headers.get_content_type() != _BATCHES_TYPE:
            raise RemoteProtocolError(f"records came as {headers.get_content_type()}, not as {_BATCHES_TYPE}")
        _check_batches(body)
        try:
            epoch, start, readable, number = (int(headers[f"Polymq-{name}"]) for name in ("Epoch", "Start", "Readable", "Number"))
        except (TypeError, ValueError) as error:
            raise RemoteProtocolError("records came without the headers Polymq-Epoch, -Start, -Readable and -Number") from error
        return Chunk(body, epoch, start, readable, number, headers.get("Polymq-Node", ""))

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _json(self, path: str, read: Callable[[Any], _T]) -> _T:
        """Get a JSON answer and take from it what `read` says."""
        status, _, body = self._get(path, _JSON_SIZE_BYTES_MAX)
        if status != http.client.OK:
            raise _refusal(status, body)
        try:
            return read(json.loads(body))
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise RemoteProtocolError(f"the answer to {path.partition('?')[0]} is not what it should be") from error

    def _get(self, path: str, size_bytes_max: int, wait_seconds: float = 0.0) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Send one GET, again and again until it is answered or the time for that is over."""
        deadline = self._monotonic() + self._retry_seconds
        pause = _PAUSE_SECONDS_FIRST
        was_open = self._connection is not None
        while True:
            try:
                return self._get_once(path, size_bytes_max, self._timeout_seconds + wait_seconds)
            except TransportError:
                # A connection that was kept open may have died long ago: that says nothing about the broker.
                if was_open:
                    was_open = False
                    continue
                if self._monotonic() + pause > deadline:
                    raise
            self._sleep(pause)
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)

    def _get_once(self, path: str, size_bytes_max: int, timeout_seconds: float) -> tuple[int, http.client.HTTPMessage, bytes]:
        """Send one GET and read its whole answer; the connection is closed on any failure."""
        # A connection that the broker has ended in order has no socket any more.
        if self._connection is None or self._connection.sock is None:
            self._connection = self._connect()
        try:
            self._connection.sock.settimeout(timeout_seconds)
            self._connection.request("GET", path, headers=self._headers)
            response = self._connection.getresponse()
            body = response.read(size_bytes_max + 1)
        except TimeoutError as error:
            self.close()
            raise DeadlineExceeded(f"no answer from {self._host}:{self._port} within {timeout_seconds:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ConnectionLost(f"the connection to {self._host}:{self._port} ended: {error!r}") from error
        if len(body) > size_bytes_max:
            self.close()
            raise RemoteProtocolError(f"an answer of more than {size_bytes_max} bytes")
        expected = response.headers.get("Content-Length")
        if expected is not None and expected.isdecimal() and int(expected) != len(body):
            self.close()
            raise ConnectionLost(f"the connection to {self._host}:{self._port} ended within an answer")
        if response.status == http.client.SERVICE_UNAVAILABLE and b'"SHUTTING_DOWN"' in body:
            # It will be gone in a moment, and perhaps back in another: the same as not reaching it.
            self.close()
            raise ConnectionLost(f"the broker at {self._host}:{self._port} is shutting down")
        return response.status, response.headers, body

    def _connect(self) -> http.client.HTTPConnection:
        """Open the connection."""
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_seconds)
        try:
            connection.connect()
        except OSError as error:
            with contextlib.suppress(OSError):
                connection.close()
            raise ConnectFailed(f"no connection to {self._host}:{self._port}: {error}") from error
        return connection


def _topic(answer: Any) -> TopicInfo:
    """Read a topic out of JSON."""
    partitions = [
        PartitionInfo(
            int(partition["partition"]),
            int(partition["number"]),
            int(partition["epoch"]),
            tuple((int(epoch), int(first)) for epoch, first in partition["epochs"]),
            int(partition["start"]),
            int(partition["end"]),
            int(partition["readable"]),
            int(partition.get("size_bytes", 0)),
        )
        for partition in answer["partitions"]
    ]
    partitions.sort(key=lambda info: info.partition)
    return TopicInfo(str(answer["namespace"]), str(answer["name"]), tuple(partitions), str(answer.get("node", "")))


def _family(answer: Any) -> Family:
    """Read one family of numbers out of JSON."""
    samples = tuple((dict(sample["labels"]), sample["value"]) for sample in answer["samples"])
    return Family(str(answer["name"]), str(answer["kind"]), str(answer["help"]), samples)


def _refusal(status: int, body: bytes) -> Exception:
    """Turn an answer that is not 200 into the exception that it is."""
    try:
        answer = json.loads(body)
        code, text = str(answer["error"]), str(answer.get("message", ""))
        if code == RefusalCode.OFFSET_OUT_OF_RANGE.name:
            return OffsetOutOfRange(text, start=int(answer["start"]), readable=int(answer["readable"]))
        return Refusal(RefusalCode[code], text)
    except (ValueError, KeyError, TypeError, AttributeError):
        return RemoteProtocolError(f"status {status} with no reason that this version knows")


def _check_batches(data: bytes) -> None:
    """Prove that `data` is whole and valid batches back to back, each continuing the one before."""
    at = 0
    expected_offset: int | None = None
    while at < len(data):
        wrong = check(data, at, len(data))
        if wrong is not None:
            raise RemoteProtocolError(f"no valid batch at byte {at} of {len(data)}: {wrong}")
        header = parse_header(data, at)
        if expected_offset is not None and header.base_offset != expected_offset:
            raise RemoteProtocolError(f"a batch starts at offset {header.base_offset} where {expected_offset} was due")
        expected_offset = header.base_offset + header.count
        at += header.size
        assert header.size > HEADER_SIZE_BYTES
