"""Just enough of HTTP/1.1 and of the log's record batches for simulated operators and readers.

Written independently of `protocols/http` and `wire`, from the specification and from the table in `docs/INTERNALS.md`,
so that a mistake there is not repeated by what should find it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlencode

from polymq.testing.log_book import ReadBatch

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Answer", "AnswerReader", "BrokenBatchesError", "request", "take_batches"]

_HEADER_SIZE_BYTES: Final = 80
_MAGIC: Final = b"PYMQ"


class Answer(NamedTuple):
    """One response."""

    status: int
    headers: dict[str, str]
    body: bytes


class BrokenBatchesError(AssertionError):
    """Bytes that should have been whole record batches are not."""


def request(method: str, path: str, arguments: Mapping[str, object]) -> bytes:
    """Encode a request without a body."""
    query = f"?{urlencode({name: str(value) for name, value in arguments.items()})}" if arguments else ""
    length = "Content-Length: 0\r\n" if method == "POST" else ""
    return f"{method} {path}{query} HTTP/1.1\r\nHost: simulated\r\n{length}\r\n".encode()


@dataclass(slots=True)
class AnswerReader:
    """Cuts a stream of bytes into responses; what has no end yet stays."""

    _data: bytes = b""

    def feed(self, data: bytes) -> list[Answer]:
        """Add bytes and take out the responses that are whole."""
        self._data += data
        answers: list[Answer] = []
        while (found := self._take()) is not None:
            answers.append(found)
        return answers

    def _take(self) -> Answer | None:
        head, separator, rest = self._data.partition(b"\r\n\r\n")
        if not separator:
            return None
        lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
        if headers.get("transfer-encoding", "").lower() == "chunked":
            body = _take_chunks(rest)
        else:
            size = int(headers.get("content-length", "0"))
            body = (rest[:size], rest[size:]) if len(rest) >= size else None
        if body is None:
            return None
        self._data = body[1]
        return Answer(int(lines[0].split(" ")[1]), headers, body[0])


def _take_chunks(data: bytes) -> tuple[bytes, bytes] | None:
    """Put a chunked body together: (body, what follows); None if it is not whole."""
    body = b""
    while True:
        line, separator, data = data.partition(b"\r\n")
        if not separator:
            return None
        size = int(line, 16)
        if len(data) < size + 2:
            return None
        body += data[:size]
        data = data[size + 2 :]
        if size == 0:
            return body, data


def take_batches(data: bytes) -> list[ReadBatch]:
    """Take record batches apart; raises BrokenBatchesError unless all of it is whole batches."""
    batches: list[ReadBatch] = []
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 8 : at + 12], "little")
        if data[at + 4 : at + 8] != _MAGIC:
            raise BrokenBatchesError(f"no batch begins at byte {at} of {len(data)}")
        if size < _HEADER_SIZE_BYTES or at + size > len(data):
            raise BrokenBatchesError(f"the batch at byte {at} has {size} bytes, {len(data) - at} came")
        batches.append(_batch(data[at : at + size]))
        at += size
    return batches


def _batch(data: bytes) -> ReadBatch:
    epoch = int.from_bytes(data[24:28], "little")
    count = int.from_bytes(data[28:32], "little")
    base_offset = int.from_bytes(data[32:40], "little", signed=True)
    bodies: list[bytes] = []
    at = _HEADER_SIZE_BYTES
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "little")
        body_at = int.from_bytes(data[at + 4 : at + 8], "little") & 0xFFFFFF
        if not 8 <= body_at <= size <= len(data) - at:
            raise BrokenBatchesError(f"the record at byte {at} of a batch of {len(data)} has {size} bytes")
        bodies.append(data[at + body_at : at + size])
        at += size
    if len(bodies) != count:
        raise BrokenBatchesError(f"a batch says that it has {count} records, and has {len(bodies)}")
    return ReadBatch(epoch, base_offset, bodies)
