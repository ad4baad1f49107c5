"""Requests out of bytes: HTTP/1.0 and 1.1, server side, without I/O.

h11 reads heads and chunks; what is ours is when to look (a head is only parsed once it is whole, so that it does not
matter how the input is cut), the limits, bodies of known size (they are handed on where they lie, uncopied), and the
answers that Go's server gives to nonsense, since nsqd's clients see those.

The decoder gives one event at a time and knows nothing of answers: whoever drives it decides when to go on with the
next request, which is what keeps pipelined answers in order. Read next: `encode.py`, the other direction.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import h11

from polymq import limits
from polymq.protocols.http.target import parse_query, split_target
from polymq.wire.exchange import BodyState, Request

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BodyRule", "Continue", "Event", "RequestDecoder", "Violation"]

_LINE_END: Final = re.compile(rb"\n")
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_REQUEST_LINE: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+ [^\x00-\x20\x7f]+ HTTP/([0-9])\.[0-9]\r?\n")
_NOT_ASCII: Final = re.compile(rb"[\x80-\xff]")
_HOST_LINE: Final = re.compile(rb"\nhost:", re.IGNORECASE)
_HOST_VALUE: Final = re.compile(rb"[-A-Za-z0-9!$%&'()*+,./:;=\[\]_~]*")
# Below "!": a control character or a space. No request starts like this; a TLS handshake does.
_FIRST_BYTE_MIN: Final = 0x21
# h11 is given chunked bodies in pieces, so that its own limit on unfinished lines is met the same way for any cut.
_CHUNKED_PIECE_SIZE_BYTES: Final = 64 * 1024
_SERVER: Final = h11.SERVER


@dataclass(frozen=True, slots=True)
class BodyRule:
    """What an endpoint does with bodies: how large one may be, and whether it reads them at all.

    A body that is not read is still taken off the connection, up to the size, but not handed on.
    """

    size_bytes_max: int
    reads: bool


@dataclass(frozen=True, slots=True)
class Continue:
    """The peer waits to be told to send its body: answer `100 Continue`, then go on decoding."""


@dataclass(frozen=True, slots=True)
class Violation:
    """The input makes no sense from here on: answer `line` with the body `text` and close."""

    line: str
    text: str


Event = Request | Continue | Violation

_BAD_REQUEST: Final = "400 Bad Request"
_BAD_VERSION: Final = "505 HTTP Version Not Supported: unsupported protocol version"
_HEAD_TOO_LARGE: Final = "431 Request Header Fields Too Large"
_HOST_MISSING: Final = "400 Bad Request: missing required Host header"
_HOST_MALFORMED: Final = "400 Bad Request: malformed Host header"
_CODING_LINE: Final = "501 Not Implemented"
_CODING_TEXT: Final = "Unsupported transfer encoding"
_CODING_STATUS: Final = 501


class _State(enum.Enum):
    HEAD = "head"
    SIZED = "body of known size"
    CHUNKED = "body in chunks"
    ENDED = "ended"


class RequestDecoder:
    """One connection's input. `rule` says what the endpoint for (method, path) does with bodies.

    `need` is how many bytes from the returned position on must be there before `next` can do more than it did.
    Limits: `limits.HTTP_HEAD_SIZE_BYTES_MAX` for a head, the rule's size for a body.
    Cost: a head is copied once; a body of known size is not copied, one in chunks three times.
    """

    def __init__(self, rule: Callable[[str, str], BodyRule]) -> None:
        self.need = 1
        self._rule = rule
        self._state = _State.HEAD
        self._searched = 0
        self._line_checked = False
        self._request: Request | None = None
        self._body_rule = BodyRule(size_bytes_max=0, reads=False)
        self._reader: h11.Connection | None = None
        self._body = bytearray()

    @property
    def ended(self) -> bool:
        """Whether there is nothing more to decode: the rest of the input means nothing."""
        return self._state is _State.ENDED

    @property
    def in_request(self) -> bool:
        """Whether the head of a request has been taken, but not yet its body."""
        return self._state in (_State.SIZED, _State.CHUNKED)

    def end(self) -> None:
        """Decode nothing from here on."""
        self._state = _State.ENDED
        self.need = 1

    def next(self, view: memoryview, at: int) -> tuple[Event | None, int]:
        """Decode one event from `view`, starting at `at`; give it and where the next one starts.

        None: more input is needed, and what lies behind the returned position has to come again. A request's body
        is a part of `view`.
        """
        if self._state is _State.HEAD:
            return self._head(view, at)
        if self._state is _State.SIZED:
            return self._sized(view, at)
        if self._state is _State.CHUNKED:
            return self._chunked(view, at)
        return None, at

    def cut(self) -> Event | None:
        """Say what the end of the input has broken off: a head, a body, or nothing."""
        state, request = self._state, self._request
        started = self._searched > 0
        self.end()
        if request is not None:
            return replace(request, body_state=BodyState.BROKEN, keep_alive=False)
        return Violation(_BAD_REQUEST, _BAD_REQUEST) if state is _State.HEAD and started else None

    def _violation(self, line: str, text: str, at: int) -> tuple[Event, int]:
        self.end()
        return Violation(line, text), at

    def _head(self, view: memoryview, at: int) -> tuple[Event | None, int]:
        size_bytes = len(view) - at
        if size_bytes == 0:
            self.need = 1
            return None, at
        if not self._line_checked:
            problem = self._line_problem(view, at)
            if problem:
                return self._violation(problem, problem, at)
        # The end may be "\n\r\n": its first two bytes may have been there before.
        found = _HEAD_END.search(view, at + max(0, self._searched - 2))
        end = found.end() if found else len(view)
        if end - at > limits.HTTP_HEAD_SIZE_BYTES_MAX:
            return self._violation(_HEAD_TOO_LARGE, _HEAD_TOO_LARGE, at)
        if found is None:
            self._searched = size_bytes
            self.need = size_bytes + 1
            return None, at
        self._searched = 0
        self._line_checked = False
        return self._parsed_head(bytes(view[at:end]), view, end)

    def _line_problem(self, view: memoryview, at: int) -> str:
        """Look at the first line as soon as it is there: nonsense is answered without waiting for its end."""
        if view[at] < _FIRST_BYTE_MIN:
            return _BAD_REQUEST
        line_end = _LINE_END.search(view, at, at + limits.HTTP_HEAD_SIZE_BYTES_MAX)
        if line_end is None:
            return ""
        self._line_checked = True
        line = _REQUEST_LINE.fullmatch(view, at, line_end.end())
        if line is None:
            return _BAD_REQUEST
        return "" if line[1] == b"1" else _BAD_VERSION

    def _parsed_head(self, head: bytes, view: memoryview, at: int) -> tuple[Event | None, int]:
        if not head.isascii():
            head = _with_ascii_line(head)
        reader = h11.Connection(_SERVER, max_incomplete_event_size=limits.HTTP_HEAD_SIZE_BYTES_MAX)
        reader.receive_data(head)
        try:
            event = reader.next_event()
        except h11.RemoteProtocolError as error:
            if error.error_status_hint == _CODING_STATUS:
                return self._violation(_CODING_LINE, _CODING_TEXT, at)
            line = _HOST_MISSING if _lacks_only_host(head) else _BAD_REQUEST
            return self._violation(line, line, at)
        assert isinstance(event, h11.Request)
        target = split_target(event.target) if event.method != b"CONNECT" else ("", "", "")
        if target is None:
            return self._violation(_BAD_REQUEST, _BAD_REQUEST, at)
        headers = tuple((bytes(name), bytes(value)) for name, value in event.headers)
        fields = dict(headers)
        if not _HOST_VALUE.fullmatch(fields.get(b"host", b"")):
            return self._violation(_HOST_MALFORMED, _HOST_MALFORMED, at)
        origin, path, query = target
        version_minor = int(event.http_version[2:])
        chunked = b"transfer-encoding" in fields
        request = Request(
            method=event.method.decode("ascii"),
            path=path,
            query=query,
            headers=headers,
            content_length=None if chunked else int(fields.get(b"content-length", b"0")),
            arguments=parse_query(query),
            origin=origin,
            version_minor=version_minor,
            keep_alive=_keeps_alive(headers, version_minor),
        )
        self._reader = reader if chunked else None
        return self._started_body(request, fields.get(b"expect", b""), view, at)

    def _started_body(self, request: Request, expect: bytes, view: memoryview, at: int) -> tuple[Event | None, int]:
        """Decide what happens to the body, now that the whole head is known."""
        self._body_rule = self._rule(request.method, request.path)
        declared = request.content_length
        expects_continue = b"100-continue" in _tokens(expect) and request.version_minor > 0
        if expect and not expects_continue and request.version_minor > 0:
            return self._spoiled(request, BodyState.EXPECTATION, at)
        if declared is not None and declared > self._body_rule.size_bytes_max:
            return self._spoiled(request, BodyState.TOO_LARGE, at)
        if expects_continue and declared != 0 and not self._body_rule.reads:
            return self._spoiled(request, BodyState.UNREAD, at)
        self._request = request
        self._state = _State.SIZED if declared is not None else _State.CHUNKED
        if expects_continue and declared != 0:
            self.need = declared or 1
            return Continue(), at
        return self.next(view, at)

    def _spoiled(self, request: Request, state: BodyState, at: int) -> tuple[Event, int]:
        """Hand on a request whose body will not be had: behind it nothing can be decoded any more."""
        self.end()
        return replace(request, body_state=state, keep_alive=False), at

    def _finished(self, body_view: memoryview) -> Request:
        request = self._request
        assert request is not None
        self._request = None
        self._state = _State.HEAD
        self.need = 1
        return replace(request, body_view=body_view) if self._body_rule.reads and len(body_view) else request

    def _sized(self, view: memoryview, at: int) -> tuple[Event | None, int]:
        assert self._request is not None
        size_bytes = self._request.content_length or 0
        if len(view) - at < size_bytes:
            self.need = size_bytes
            return None, at
        return self._finished(view[at : at + size_bytes]), at + size_bytes

    def _chunked(self, view: memoryview, at: int) -> tuple[Event | None, int]:
        reader, request = self._reader, self._request
        assert reader is not None
        assert request is not None
        while at < len(view):
            piece = bytes(view[at : at + _CHUNKED_PIECE_SIZE_BYTES])
            at += len(piece)
            try:
                ended = self._read_chunks(reader, piece)
            except h11.RemoteProtocolError:
                return self._spoiled(request, BodyState.BROKEN, at)
            if len(self._body) > self._body_rule.size_bytes_max:
                return self._spoiled(request, BodyState.TOO_LARGE, at)
            if ended:
                body, self._body = self._body, bytearray()
                return self._finished(memoryview(body)), at - len(reader.trailing_data[0])
        self.need = 1
        return None, at

    def _read_chunks(self, reader: h11.Connection, piece: bytes) -> bool:
        """Take a piece of a chunked body; whether that was the last of it. Stops reading above the limit."""
        reader.receive_data(piece)
        while len(self._body) <= self._body_rule.size_bytes_max:
            event = reader.next_event()
            if event is h11.NEED_DATA:
                return False
            if isinstance(event, h11.EndOfMessage):
                return True
            assert isinstance(event, h11.Data)
            self._body += event.data
        return False


def _with_ascii_line(head: bytes) -> bytes:
    """Escape what is not ASCII in the request line: Go takes a raw path, h11 does not."""
    line, newline, rest = head.partition(b"\n")
    return _NOT_ASCII.sub(lambda found: b"%%%02X" % found[0][0], line) + newline + rest


def _tokens(value: bytes) -> set[bytes]:
    return {token.strip() for token in value.lower().split(b",")}


def _keeps_alive(headers: tuple[tuple[bytes, bytes], ...], version_minor: int) -> bool:
    tokens: set[bytes] = set()
    for name, value in headers:
        if name == b"connection":
            tokens |= _tokens(value)
    return b"close" not in tokens and (version_minor > 0 or b"keep-alive" in tokens)


def _lacks_only_host(head: bytes) -> bool:
    """Whether a head that was refused would be accepted with a Host header."""
    if _HOST_LINE.search(head):
        return False
    reader = h11.Connection(_SERVER, max_incomplete_event_size=2 * limits.HTTP_HEAD_SIZE_BYTES_MAX)
    line_end = head.index(b"\n") + 1
    reader.receive_data(head[:line_end] + b"Host: x\r\n" + head[line_end:])
    try:
        reader.next_event()
    except h11.RemoteProtocolError:
        return False
    return True
