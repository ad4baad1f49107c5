"""Requests out of bytes: HTTP/1.0 and 1.1, server side, without I/O.

h11 reads chunks, and heads unless they are plain (`heads.py`); what is ours is when to look (a head is only parsed once it is whole, so that it does not
matter how the input is cut), the limits, bodies of known size (they are handed on where they lie, uncopied), and the
answers that Go's server gives to nonsense, since nsqd's clients see those.

The decoder gives one event at a time and knows nothing of answers: whoever drives it decides when to go on with the
next request, which is what keeps pipelined answers in order. Read next: `encode.py`, the other direction.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import h11

from polymq import limits
from polymq.protocols.http.heads import BAD_REQUEST, Head, HeadProblem, read_head, tokens
from polymq.wire.exchange import BodyState, Request

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BodyRule", "Continue", "Event", "RequestDecoder", "Violation"]

_LINE_END: Final = re.compile(rb"\n")
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_REQUEST_LINE: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+ [^\x00-\x20\x7f]+ HTTP/([0-9])\.[0-9]\r?\n")
# Below "!": a control character or a space. No request starts like this; a TLS handshake does.
_FIRST_BYTE_MIN: Final = 0x21
_EMPTY: Final = memoryview(b"")
_NO_PARAMETERS: Final = MappingProxyType[str, str]({})
# h11 is given chunked bodies in pieces, so that its own limit on unfinished lines is met the same way for any cut.
_CHUNKED_PIECE_SIZE_BYTES: Final = 64 * 1024


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

_BAD_VERSION: Final = "505 HTTP Version Not Supported: unsupported protocol version"
_HEAD_TOO_LARGE: Final = "431 Request Header Fields Too Large"


class _State(enum.Enum):
    HEAD = "head"
    SIZED = "body of known size"
    CHUNKED = "body in chunks"
    ENDED = "ended"


class RequestDecoder:
    """One connection's input. `rule` says what the endpoint for (method, path) does with bodies.

    `connection` is handed on in every request.

    `need` is how many bytes from the returned position on must be there before `next` can do more than it did.
    Limits: `limits.HTTP_HEAD_SIZE_BYTES_MAX` for a head, the rule's size for a body.
    Cost: a head is copied once; a body of known size is not copied, one in chunks three times.
    """

    def __init__(self, rule: Callable[[str, str], BodyRule], connection: object = None) -> None:
        self.need = 1
        self._connection = connection
        self._rule = rule
        self._state = _State.HEAD
        self._searched = 0
        self._line_checked = False
        self._head_read: Head | None = None
        self._body_rule = BodyRule(size_bytes_max=0, reads=False)
        self._body = bytearray()
        self._chunks_left = limits.HTTP_CHUNKS_PER_TURN_MAX
        self._ahead = 0  # bytes behind the returned position that h11 has already

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
        self._head_read = None
        self.need = 1

    def begin_turn(self) -> None:
        """Read as many chunks again as one turn has time for."""
        self._chunks_left = limits.HTTP_CHUNKS_PER_TURN_MAX

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
        if self.in_request:
            return self._spoiled(BodyState.BROKEN, 0)[0]
        started = self._state is _State.HEAD and self._searched > 0
        self.end()
        return Violation(BAD_REQUEST, BAD_REQUEST) if started else None

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
        head = read_head(bytes(view[at:end]))
        if isinstance(head, HeadProblem):
            return self._violation(head.line, head.text, end)
        return self._started_body(head, view, end)

    def _line_problem(self, view: memoryview, at: int) -> str:
        """Look at the first line as soon as it is there: nonsense is answered without waiting for its end."""
        if view[at] < _FIRST_BYTE_MIN:
            return BAD_REQUEST
        line_end = _LINE_END.search(view, at, at + limits.HTTP_HEAD_SIZE_BYTES_MAX)
        if line_end is None:
            return ""
        self._line_checked = True
        line = _REQUEST_LINE.fullmatch(view, at, line_end.end())
        if line is None:
            return BAD_REQUEST
        return "" if line[1] == b"1" else _BAD_VERSION

    def _started_body(self, head: Head, view: memoryview, at: int) -> tuple[Event | None, int]:
        """Decide what happens to the body, now that the whole head is known."""
        self._head_read = head
        self._body_rule = self._rule(head.method, head.target.path)
        declared = head.content_length
        expects_continue = False
        if head.expect and head.version_minor > 0:
            if b"100-continue" not in tokens(head.expect):
                return self._spoiled(BodyState.EXPECTATION, at)
            expects_continue = declared != 0
        if declared is not None and declared > self._body_rule.size_bytes_max:
            return self._spoiled(BodyState.TOO_LARGE, at)
        if expects_continue and not self._body_rule.reads:
            return self._spoiled(BodyState.UNREAD, at)
        self._state = _State.SIZED if declared is not None else _State.CHUNKED
        if expects_continue:
            self.need = declared or 1
            return Continue(), at
        return self.next(view, at)

    def _spoiled(self, state: BodyState, at: int) -> tuple[Event, int]:
        """Hand on a request whose body will not be had: behind it nothing can be decoded any more."""
        request = self._made(_EMPTY, state, keep_alive=False)
        self.end()
        return request, at

    def _finished(self, body_view: memoryview) -> Request:
        assert self._head_read is not None
        body_view = body_view if self._body_rule.reads else _EMPTY
        request = self._made(body_view, BodyState.WHOLE, keep_alive=self._head_read.keep_alive)
        self._head_read = None
        self._state = _State.HEAD
        self.need = 1
        return request

    def _made(self, body_view: memoryview, state: BodyState, *, keep_alive: bool) -> Request:
        head = self._head_read
        assert head is not None
        target = head.target
        return Request(
            head.method,
            target.path,
            target.query,
            head.headers,
            body_view,
            state,
            head.content_length,
            target.arguments,
            _NO_PARAMETERS,
            target.origin,
            head.version_minor,
            keep_alive,
            self._connection,
        )

    def _sized(self, view: memoryview, at: int) -> tuple[Event | None, int]:
        assert self._head_read is not None
        size_bytes = self._head_read.content_length or 0
        if len(view) - at < size_bytes:
            self.need = size_bytes
            return None, at
        return self._finished(view[at : at + size_bytes]), at + size_bytes

    def _chunked(self, view: memoryview, at: int) -> tuple[Event | None, int]:
        assert self._head_read is not None
        reader = self._head_read.reader
        assert reader is not None
        at, self._ahead = at + self._ahead, 0
        piece = b""
        while True:
            try:
                ended = self._read_chunks(reader, piece)
            except h11.RemoteProtocolError:
                return self._spoiled(BodyState.BROKEN, at)
            if len(self._body) > self._body_rule.size_bytes_max:
                return self._spoiled(BodyState.TOO_LARGE, at)
            if ended:
                body, self._body = self._body, bytearray()
                return self._finished(memoryview(body)), at - len(reader.trailing_data[0])
            if not self._chunks_left:
                # What h11 has and has not read comes again, so that there is something to go on with.
                self._ahead = len(reader.trailing_data[0])
                break
            if at == len(view):
                break
            piece = bytes(view[at : at + _CHUNKED_PIECE_SIZE_BYTES])
            at += len(piece)
        self.need = 1
        return None, at - self._ahead

    def _read_chunks(self, reader: h11.Connection, piece: bytes) -> bool:
        """Take a piece of a chunked body; whether that was the last of it. Stops above the limit, and at the turn's end."""
        if piece:
            reader.receive_data(piece)
        while self._chunks_left and len(self._body) <= self._body_rule.size_bytes_max:
            event = reader.next_event()
            if event is h11.NEED_DATA:
                return False
            if isinstance(event, h11.EndOfMessage):
                return True
            assert isinstance(event, h11.Data)
            self._chunks_left -= 1
            self._body += event.data
        return False
