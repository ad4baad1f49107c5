"""The client's half of NATS: commands to bytes, and what a server sends to frames. For clients; nothing of the server uses it.

    INFO {…}␍␊    MSG subject sid [reply] size␍␊payload␍␊    HMSG subject sid [reply] header-size size␍␊headers payload␍␊
    PING␍␊  PONG␍␊  +OK␍␊  -ERR 'text'␍␊

Verbs in any case, words between blanks and tabs. Source: docs.nats.io, "NATS Protocol".
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from polymq.errors import LocalProtocolError, RemoteProtocolError
from polymq.protocols.nats.subjects import is_valid_literal, is_valid_subscription

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "PING",
    "PONG",
    "Delivered",
    "FrameReader",
    "ServerError",
    "ServerInfo",
    "ServerPing",
    "ServerPong",
    "connect",
    "publish",
    "subscribe",
]

PING: Final = b"PING\r\n"
PONG: Final = b"PONG\r\n"

_HEADERS_BEGIN: Final = "NATS/1.0"
# INFO names every server of its cluster; 1 MiB is some ten thousand of them.
_LINE_SIZE_BYTES_MAX: Final = 1024 * 1024
# The largest max_payload that a nats-server can be given.
_PAYLOAD_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
_DIGITS_MAX: Final = 9
# What a name of a header is made of: printable, no blank, no colon.
_HEADER_NAME: Final = re.compile(r"[!-9;-~]+")
_BREAKS: Final = re.compile(r"[\r\n]")


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """INFO: what the server is like."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Delivered:
    """MSG or HMSG; of a header that is there several times, the values stand between commas."""

    subject: str
    sid: str
    reply: str
    body: bytes = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServerPing:
    """PING: a PONG is owed."""


@dataclass(frozen=True, slots=True)
class ServerPong:
    """PONG: everything before the PING has been acted on."""


@dataclass(frozen=True, slots=True)
class ServerError:
    """-ERR; most of them are followed by the end of the connection."""

    text: str


Frame = Delivered | ServerError | ServerInfo | ServerPing | ServerPong


class FrameReader:
    """Reads frames from a stream in pieces of any size."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._searched = 0  # so far there is no end of a line
        self._line: tuple[list[bytes], int, int] | None = None  # of a message whose payload has not all come

    def feed(self, data: bytes) -> list[Frame]:
        """Give the frames that are whole now; raises RemoteProtocolError at what is none, also for those before it."""
        self._data += data
        found: list[Frame] = []
        at = 0
        while True:
            frame, end = self._next(at)
            if end == at:
                break
            at = end
            if frame is not None:
                found.append(frame)
        del self._data[:at]
        self._searched = max(0, self._searched - at)
        return found

    def _next(self, at: int) -> tuple[Frame | None, int]:
        """Read one line or one payload; where it ends is where it began if it is not whole."""
        if self._line is not None:
            return self._payload(at)
        end = self._data.find(b"\n", max(at, self._searched))
        if end < 0:
            self._searched = len(self._data)
            if len(self._data) - at > _LINE_SIZE_BYTES_MAX:
                raise RemoteProtocolError("a line that does not end")
            return None, at
        line = bytes(self._data[at:end]).strip(b"\r")
        verb, _, rest = line.replace(b"\t", b" ").partition(b" ")
        return self._frame(verb.upper(), rest.strip()), end + 1

    def _frame(self, verb: bytes, rest: bytes) -> Frame | None:
        """Read a line; of a message only the beginning."""
        match verb:
            case b"MSG" | b"HMSG":
                self._line = _message_line(rest.split(), has_headers=verb == b"HMSG")
                return None
            case b"INFO":
                return _info(rest)
            case b"PING":
                return ServerPing()
            case b"PONG":
                return ServerPong()
            case b"-ERR":
                return ServerError(rest.decode("utf-8", "replace").strip("'"))
            case b"+OK" | b"":
                return None
        raise RemoteProtocolError("a line that is no operation of NATS")

    def _payload(self, at: int) -> tuple[Frame | None, int]:
        assert self._line is not None
        words, header_size, size = self._line
        if len(self._data) < at + size + 2:
            return None, at
        if self._data[at + size : at + size + 2] != b"\r\n":
            raise RemoteProtocolError("a payload of another size than announced")
        self._line = None
        headers = read_headers(bytes(self._data[at : at + header_size])) if header_size else {}
        body = bytes(self._data[at + header_size : at + size])
        subject, sid, reply = (word.decode("utf-8", "replace") for word in (*words, b"")[:3])
        return Delivered(subject, sid, reply, body, headers), at + size + 2


def _message_line(words: list[bytes], *, has_headers: bool) -> tuple[list[bytes], int, int]:
    """Read what stands behind MSG and HMSG: the words before the sizes, the size of the headers, and that of all."""
    sizes = 2 if has_headers else 1
    if len(words) - sizes not in (2, 3):
        raise RemoteProtocolError("a message with the wrong number of words")
    numbers = words[-sizes:]
    if not all(each.isdigit() and len(each) <= _DIGITS_MAX for each in numbers):
        raise RemoteProtocolError("a message whose size is no number")
    size = int(numbers[-1])
    header_size = int(numbers[0]) if has_headers else 0
    if size > _PAYLOAD_SIZE_BYTES_MAX or header_size > size:
        raise RemoteProtocolError("a message whose size cannot be")
    return words[:-sizes], header_size, size


def _info(text: bytes) -> ServerInfo:
    try:
        values = json.loads(text)
    except ValueError as error:
        raise RemoteProtocolError("an INFO that is not JSON") from error
    if not isinstance(values, dict):
        raise RemoteProtocolError("an INFO that is no object")
    return ServerInfo(values)


def read_headers(block: bytes) -> dict[str, str]:
    """Read a block of headers; raises RemoteProtocolError when it is none."""
    first, *lines = block.decode("utf-8", "replace").split("\r\n")
    if not first.startswith(_HEADERS_BEGIN):
        raise RemoteProtocolError("headers that do not begin as headers do")
    found: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            value = value.strip()
            found[name] = f"{found[name]},{value}" if name in found else value
    return found


def connect(options: Mapping[str, object]) -> bytes:
    """Write CONNECT."""
    return b"CONNECT " + json.dumps(options, separators=(",", ":")).encode() + b"\r\n"


def publish(subject: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    """Write PUB, or HPUB if there are headers; raises LocalProtocolError for what no server takes."""
    name = subject.encode()
    if not is_valid_literal(name):
        raise LocalProtocolError(f"{subject!r} is not a subject to publish to: tokens between dots, without blanks and wildcards")
    if not headers:
        return b"PUB %s %d\r\n%s\r\n" % (name, len(body), body)
    for key, value in headers.items():
        if not _HEADER_NAME.fullmatch(key):
            raise LocalProtocolError(f"{key!r} is not the name of a header: printable characters without blanks and colons")
        if _BREAKS.search(value) or value != value.strip():
            raise LocalProtocolError(f"the value of {key} cannot be one: it has the end of a line in it, or blanks around it")
    lines = "".join(f"{key}: {value}\r\n" for key, value in headers.items())
    block = f"{_HEADERS_BEGIN}\r\n{lines}\r\n".encode()
    return b"HPUB %s %d %d\r\n%s%s\r\n" % (name, len(block), len(block) + len(body), block, body)


def subscribe(subject: str, sid: str, queue: str = "") -> bytes:
    """Write SUB; raises LocalProtocolError for names that no server takes."""
    if not is_valid_subscription(subject.encode()):
        raise LocalProtocolError(f"{subject!r} is not a subject to subscribe to")
    if queue and queue.split() != [queue]:
        raise LocalProtocolError("the name of a queue group has no blanks")
    return f"SUB {subject} {queue} {sid}\r\n".encode() if queue else f"SUB {subject} {sid}\r\n".encode()
