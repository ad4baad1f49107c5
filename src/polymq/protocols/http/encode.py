"""Answers into bytes, as Go's server writes them: the order and spelling of headers is what nsqd's clients see.

An answer's own headers come first, sorted, then `Date`, `Content-Length`, a guessed `Content-Type`, `Connection`
and `Transfer-Encoding`. A body that fits Go's buffer has a length; a larger one goes in chunks, or ends the
connection when the peer speaks HTTP/1.0. Read next: `decode.py`, the other direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from polymq.protocols.http.decode import Violation
    from polymq.wire.exchange import Request, Response

__all__ = ["CONTINUE", "LAST_CHUNK", "SIZED_BODY_BYTES_MAX", "Framing", "chunk", "encode", "encode_violation", "framing", "head"]

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK: Final = b"0\r\n\r\n"
# net/http buffers this much of an answer before it decides on chunks.
SIZED_BODY_BYTES_MAX: Final = 2048
_NS_PER_SECOND: Final = 1_000_000_000
# Where Python's phrases differ from Go's or changed between versions.
_PHRASES: Final = {
    413: "Request Entity Too Large",
    416: "Requested Range Not Satisfiable",
    **{status.value: status.phrase for status in HTTPStatus if status.value not in (413, 416)},
}


@dataclass(frozen=True, slots=True)
class Framing:
    """How an answer's body is delimited, and whether the connection outlives it."""

    chunked: bool
    keep_alive: bool
    has_body: bool
    size_bytes: int | None


def framing(request: Request, response: Response, size_bytes: int | None) -> Framing:
    """Decide how to send a body of `size_bytes` (None: not known before it is sent)."""
    is_sized = size_bytes is not None and size_bytes <= SIZED_BODY_BYTES_MAX
    chunked = not is_sized and request.version_minor > 0
    return Framing(
        chunked=chunked,
        keep_alive=request.keep_alive and not response.close and (is_sized or chunked),
        has_body=request.method != "HEAD",
        size_bytes=size_bytes if is_sized else None,
    )


@lru_cache(maxsize=2)
def _date(seconds: int) -> bytes:
    return formatdate(seconds, usegmt=True).encode("ascii")


@lru_cache(maxsize=256)
def _fixed(status: int, version_minor: int, headers: tuple[tuple[str, str], ...]) -> tuple[bytes, bool, bool]:
    """Write what does not vary, up to `Date: `; also whether there is a type, and a Connection header, already."""
    own = sorted((_canonical(name), value) for name, value in headers)
    lines = [f"HTTP/1.{min(version_minor, 1)} {status} {_PHRASES.get(status, '')}", *(f"{name}: {value}" for name, value in own), "Date: "]
    names = [name for name, _ in own]
    return "\r\n".join(lines).encode("utf-8"), "Content-Type" in names, "Connection" in names


def head(request: Request, response: Response, how: Framing, *, wall_ns: int) -> bytes:
    """Write the status line and the headers."""
    fixed, has_type, has_connection = _fixed(response.status, request.version_minor, response.headers)
    parts = [fixed, _date(wall_ns // _NS_PER_SECOND)]
    if how.size_bytes is not None:
        parts.append(b"\r\nContent-Length: %d" % how.size_bytes)
    if how.size_bytes != 0 and not has_type:
        parts.append(b"\r\nContent-Type: text/plain; charset=utf-8")
    if not how.keep_alive and request.version_minor > 0 and not has_connection:
        parts.append(b"\r\nConnection: close")
    if how.keep_alive and request.version_minor == 0:
        parts.append(b"\r\nConnection: keep-alive")
    if how.chunked:
        parts.append(b"\r\nTransfer-Encoding: chunked")
    parts.append(b"\r\n\r\n")
    return b"".join(parts)


def encode(request: Request, response: Response, body: bytes, *, wall_ns: int) -> tuple[bytes, bool]:
    """Write a whole answer; give it and whether the connection outlives it."""
    how = framing(request, response, len(body))
    parts = [head(request, response, how, wall_ns=wall_ns)]
    if how.has_body:
        parts += [chunk(body), LAST_CHUNK] if how.chunked else [body]
    return b"".join(parts), how.keep_alive


def chunk(data: bytes) -> bytes:
    """Write one chunk; `data` is not empty, since an empty chunk ends a body."""
    assert data
    return b"%x\r\n%b\r\n" % (len(data), data)


def encode_violation(violation: Violation) -> bytes:
    """Write the answer to input that makes no sense, as Go's server does: no date, no length, then the end."""
    line = f"HTTP/1.1 {violation.line}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"
    return (line + violation.text).encode("utf-8")


def _canonical(name: str) -> str:
    """Spell a header name as Go does: `X-NSQ-Content-Type` becomes `X-Nsq-Content-Type`."""
    return "-".join(part.capitalize() for part in name.split("-"))
