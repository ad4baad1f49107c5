"""A client of the door for prepared batches, for who writes whole tables: Spark's tasks and drivers.

Synchronous and of the standard library alone, like the log's client, because it runs in Spark's executors. One
connection, opened again when it is lost. Every request may be repeated: requests of a part have numbers, and a batch
that was committed stays so. A client belongs to one thread.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import struct
import time
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from polymq.clients.log import parse_address
from polymq.errors import ConnectFailed, ConnectionLost, DeadlineExceeded, Refusal, RefusalCode, RemoteProtocolError, TransportError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["EXPIRES", "LATER", "Frame", "PreparedClient"]

# What is said of a frame: its records' own times are when they are due; some of its records end at a time.
LATER: Final = 1
EXPIRES: Final = 2

# (topic, partition or -1, flags, the batch)
Frame = tuple[str, int, int, "bytes | bytearray | memoryview"]

_PAUSE_SECONDS_FIRST: Final = 0.05
_PAUSE_SECONDS_MAX: Final = 1.0
_ANSWER_SIZE_BYTES_MAX: Final = 4 * 1024 * 1024
_U32: Final = struct.Struct("<I")
# What goes by when there is room again, or another process serves.
_PASSING: Final = (RefusalCode.STORE_FULL, RefusalCode.SHUTTING_DOWN, RefusalCode.STORE_FAILED)


class PreparedClient:
    """Prepare and commit at one broker.

    `retry_seconds` is how long a request is repeated while the broker cannot be reached, or has no room.
    Raises: ConnectFailed, ConnectionLost, DeadlineExceeded; Refusal; RemoteProtocolError.
    """

    def __init__(
        self,
        address: str,
        *,
        secret: str = "",
        timeout_seconds: float = 60.0,
        retry_seconds: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host, self._port = parse_address(address)
        self._headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        self._timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds
        self._sleep = sleep
        self._monotonic = monotonic
        self._connection: http.client.HTTPConnection | None = None

    def __repr__(self) -> str:
        return f"<PreparedClient {self._host}:{self._port}>"

    def partitions(self, topics: Sequence[str]) -> dict[str, int]:
        """Say how many partitions topics have; those that are not there are made."""
        counts = self._json("/v1/prepared/topics", {"topics": list(topics)}).get("topics")
        if not isinstance(counts, dict) or not all(isinstance(counts.get(topic), int) for topic in topics):
            raise RemoteProtocolError("the broker does not say how many partitions topics have")
        return counts

    def prepare(self, sink: str, part: str, request: int, frames: Sequence[Frame]) -> None:
        """Store frames, invisible; they are on the disk when this returns. Requests of a part count from 0."""
        head = json.dumps({"frames": [frame[:3] for frame in frames]}).encode()
        body = b"".join((_U32.pack(len(head)), head, *(frame[3] for frame in frames)))
        self._request(f"/v1/prepared/{quote(sink, safe='')}/parts/{quote(part, safe='')}?request={request}", body)

    def commit(self, sink: str, batch: int, parts: Sequence[tuple[str, int, int]], *, once: bool = False) -> None:
        """Make parts (name, requests, records) visible; they are on the disk when this returns. A batch is committed once."""
        path = f"/v1/prepared/{quote(sink, safe='')}/commit"
        while self._json(path, {"batch": batch, "parts": [list(part) for part in parts], "once": once}).get("state") != "committed":
            pass  # it has waited for half a minute already

    def abort(self, sink: str, parts: Sequence[str]) -> None:
        """Drop parts that will not be committed."""
        self._json(f"/v1/prepared/{quote(sink, safe='')}/abort", {"parts": list(parts)})

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _json(self, path: str, value: dict[str, Any]) -> dict[str, Any]:
        answer = json.loads(self._request(path, json.dumps(value).encode()))
        if not isinstance(answer, dict):
            raise RemoteProtocolError("an answer that is no JSON object")
        return answer

    def _request(self, path: str, body: bytes) -> bytes:
        """Send one request, again and again until it is answered or the time for that is over."""
        deadline = self._monotonic() + self._retry_seconds
        pause = _PAUSE_SECONDS_FIRST
        while True:
            try:
                return self._request_once(path, body)
            except (TransportError, Refusal) as error:
                if isinstance(error, Refusal) and error.code not in _PASSING:
                    raise
                if self._monotonic() + pause > deadline:
                    raise
            self._sleep(pause)
            pause = min(pause * 2, _PAUSE_SECONDS_MAX)

    def _request_once(self, path: str, body: bytes) -> bytes:
        if self._connection is None or self._connection.sock is None:
            self._connection = self._connect()
        try:
            self._connection.request("POST", path, body, self._headers)
            response = self._connection.getresponse()
            answer = response.read(_ANSWER_SIZE_BYTES_MAX)
        except TimeoutError as error:
            self.close()
            raise DeadlineExceeded(f"no answer from {self._host}:{self._port} within {self._timeout_seconds:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ConnectionLost(f"the connection to {self._host}:{self._port} ended: {error!r}") from error
        if response.status not in {http.client.OK, http.client.ACCEPTED}:
            raise _refusal(response.status, answer)
        return answer

    def _connect(self) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_seconds)
        try:
            connection.connect()
        except OSError as error:
            with contextlib.suppress(OSError):
                connection.close()
            raise ConnectFailed(f"no connection to {self._host}:{self._port}: {error}") from error
        return connection


def _refusal(status: int, body: bytes) -> Exception:
    """Turn an answer that is not 200 into the exception that it is."""
    try:
        answer = json.loads(body)
        return Refusal(RefusalCode[str(answer["error"])], str(answer.get("message", "")))
    except (ValueError, KeyError, TypeError):
        return RemoteProtocolError(f"status {status}: {body[:200]!r}")
