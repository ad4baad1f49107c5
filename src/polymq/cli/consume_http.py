"""`polymq consume --http`: the same over HTTP, by `GET /sub` and `POST /fin` (docs/NSQ_HTTP.md).

Lines come over one connection and are answered over another. What was written is settled by one request for all that
came together. With a number of messages to stop after, no more are ever out than are still wanted, so nothing has to
be given back. Read next: `nsq_http.py`.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from polymq import limits
from polymq.cli.manage import bytes_of
from polymq.cli.nsq_http import NsqHttpRefusal
from polymq.cli.publish import Lines
from polymq.cli.render import Form, Shown, render
from polymq.errors import ConfigError, ConnectionLost, DeadlineExceeded, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from polymq.cli.nsq_http import NsqHttp, Stream

__all__ = ["pour"]

_NS_PER_S: Final = 10**9
# The broker says something every 30 s.
_SILENCE_SECONDS_MAX: Final = 2.5 * limits.HTTP_STREAM_BEAT_NS / _NS_PER_S
# A socket that waits for no time at all says that there is nothing even if there is.
_WAIT_SECONDS_MIN: Final = 0.001
# The largest message, of which JSON can make six times as much, with its key and headers.
_LINE_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
# So many ids, of 16 digits and a line end each, are taken at once.
_IDS_MAX: Final = limits.HTTP_SETTLE_SIZE_BYTES_MAX // 17

Row = dict[str, Any]


class _Rows:
    """Reads lines of JSON out of a stream, all that have come together."""

    def __init__(self, stream: Stream, clock: Callable[[], float]) -> None:
        self._stream = stream
        self._clock = clock
        self._lines = Lines(_LINE_SIZE_BYTES_MAX)

    def read(self, idle_seconds: float | None) -> list[Row]:
        """Wait for lines; none if nothing has come for `idle_seconds`. Raises TransportError, RemoteProtocolError."""
        until = None if idle_seconds is None else self._clock() + idle_seconds
        while True:
            left = _SILENCE_SECONDS_MAX if until is None else min(_SILENCE_SECONDS_MAX, until - self._clock())
            try:
                piece = self._stream.read(max(_WAIT_SECONDS_MIN, left))
            except TimeoutError as error:
                if until is not None and left < _SILENCE_SECONDS_MAX:
                    return []
                raise DeadlineExceeded(f"the broker has said nothing for {_SILENCE_SECONDS_MAX:g} s") from error
            if not piece:
                raise ConnectionLost("the broker has ended the stream: it stops, or the topic or the channel was deleted")
            if rows := self._rows(piece):
                return rows
            if until is not None and self._clock() >= until:
                return []

    def _rows(self, piece: bytes) -> list[Row]:
        try:
            return [_object(line) for line in self._lines.feed(piece)]
        except (ConfigError, TypeError, ValueError, RecursionError) as error:
            raise RemoteProtocolError("what comes is not what /sub answers with") from error


def _object(line: bytes) -> Row:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise TypeError("no object")
    return row


def _shown(row: Mapping[str, Any], names: Mapping[str, str]) -> Shown:
    """Describe a message as over TCP, with its key and headers."""
    place = row["id"] if row["attempts"] == 1 else f"{row['id']} ×{row['attempts']}"
    facts = {name: row[name] for name in ("id", "attempts", "headers") if name in row}
    body = bytes_of(row, "body")
    if body is None or not isinstance(row["id"], str):
        raise ValueError("a message without a body or an id")
    return Shown(row["timestamp"], place, body, bytes_of(row, "key"), {**names, **facts})


def _printed(rows: list[Row], names: Mapping[str, str], form: Form) -> bytes:
    try:
        return b"".join([render(_shown(row, names), form) for row in rows])
    except (KeyError, TypeError, ValueError, OverflowError, OSError) as error:
        raise RemoteProtocolError(f"what comes is not what /sub answers with: {error!r}") from error


def _finish(broker: NsqHttp, token: str, rows: list[Row]) -> None:
    """Settle what was written. What took too long has been given to somebody else by then."""
    for part in _parts([row["id"] for row in rows]):
        try:
            broker.send("/fin", "\n".join(part).encode(), stream=token)
        except NsqHttpRefusal as refusal:
            if refusal.code != "FIN_FAILED":
                raise
            print("polymq: writing took longer than the message timeout: some messages come again", file=sys.stderr)


def _parts(ids: list[str]) -> Iterator[list[str]]:
    for at in range(0, len(ids), _IDS_MAX):
        yield ids[at : at + _IDS_MAX]


def pour(
    broker: NsqHttp,
    names: tuple[str, str],
    form: Form,
    target: BinaryIO,
    *,
    count: int | None,
    idle_seconds: float | None,
    in_flight: int,
    clock: Callable[[], float] = time.monotonic,
) -> int:
    """Write messages until `count` are written or none has come for `idle_seconds`; returns how many.

    Raises:  ConfigError when the broker refuses, TransportError when the stream ends or falls silent.
    """
    called = dict(zip(("topic", "channel"), names, strict=True))
    allowed = in_flight if count is None else min(in_flight, count)
    written = 0
    with closing(broker.stream("/sub", **called, max_in_flight=allowed)) as stream:
        lines = _Rows(stream, clock)
        opening, *rows = lines.read(None)
        token = opening.get("stream")
        if not isinstance(token, str):
            raise RemoteProtocolError("what comes is not what /sub answers with")
        while count is None or written < count:
            rows = rows or lines.read(idle_seconds)
            if not rows:
                break
            target.write(_printed(rows, called, form))
            target.flush()
            written += len(rows)
            if count is not None and count - written < allowed:
                # First of all: what is finished makes room for more.
                allowed = max(0, count - written)
                broker.post("/rdy", stream=token, count=allowed)
            _finish(broker, token, rows)
            rows = []
    return written
