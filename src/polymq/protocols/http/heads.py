"""The head of a request: request line and headers, read once they are whole.

h11 is the judge of what a head means. It takes 150 µs for one, though, and nearly all heads are of the plainest kind;
those are read here directly, by a pattern so narrow that there is only one way to read what it matches. Whatever is
unusual (folded lines, bare line feeds, chunks, two lengths, bytes beyond ASCII) goes to h11, and a test compares the
two on everything that the pattern takes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

import h11

from polymq import limits
from polymq.protocols.http.target import parse_query, split_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["BAD_REQUEST", "Head", "HeadProblem", "Target", "read_head", "read_plain", "read_target", "tokens"]

_TOKEN: Final = rb"[-!#$%&'*+.^_`|~0-9A-Za-z]+"
_PLAIN: Final = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/1\.([0-9])\r\n((?:" + _TOKEN + rb":[\t\x20-\x7e]*\r\n)*)\r\n")
_NOT_ASCII: Final = re.compile(rb"[\x80-\xff]")
_HOST_LINE: Final = re.compile(rb"\nhost:", re.IGNORECASE)
_EMPTY_LENGTH: Final = re.compile(rb"\ncontent-length:[ \t]*\r?\n", re.IGNORECASE)
_SPACED_NAME: Final = re.compile(rb"\n" + _TOKEN + rb"(?: +" + _TOKEN + rb")* *:")
_HOST_VALUE: Final = re.compile(rb"[-A-Za-z0-9!$%&'()*+,./:;=\[\]_~]*")
_LENGTH_DIGITS_MAX: Final = 18
_CODING_STATUS: Final = 501
# Targets are looked up, if they are this short: a publisher's is always the same.
_TARGET_SIZE_BYTES_KEPT: Final = 256
_TARGETS_KEPT: Final = 1024
# So are whole heads: who publishes messages of one size, or polls, sends the same head every time. What may hold a
# secret is not kept beyond its request: passwords and keys in headers, the token of a stream in the target.
_HEAD_SIZE_BYTES_KEPT: Final = 512
_HEADS_KEPT: Final = 512
_SECRETS: Final = (b"authorization", b"cookie", b"stream=", b"secret=")

Headers = tuple[tuple[bytes, bytes], ...]
Value = TypeVar("Value")

BAD_REQUEST: Final = "400 Bad Request"
_HOST_MISSING: Final = "400 Bad Request: missing required Host header"
_NAME_INVALID: Final = "400 Bad Request: invalid header name"
_HOST_MALFORMED: Final = "400 Bad Request: malformed Host header"


class Target(NamedTuple):
    """What a request asks for. `arguments` is None if the query cannot be decoded."""

    origin: str
    path: str
    query: str
    arguments: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class HeadProblem:
    """A head that makes no sense: the status line and the body that Go's server answers with."""

    line: str
    text: str


class Head(NamedTuple):
    """One head. `content_length` is None if the body comes in chunks; then `reader` is the h11 object to go on with."""

    method: str
    target: Target
    headers: Headers
    version_minor: int
    keep_alive: bool
    content_length: int | None
    expect: bytes
    reader: h11.Connection | None


class _Kept(Generic[Value]):
    """What `make` says of the latest inputs, as far as they are short and hold no secrets."""

    def __init__(self, make: Callable[[bytes], Value | None], *, count_max: int, size_bytes_max: int) -> None:
        self._make = make
        self._count_max = count_max
        self._size_bytes_max = size_bytes_max
        self._values: dict[bytes, Value] = {}

    def read(self, data: bytes) -> Value | None:
        """Give what `make` says, or said."""
        found = self._values.get(data)
        if found is None:
            found = self._make(data)
            if found is not None and len(data) <= self._size_bytes_max and not _may_hold_secrets(data):
                if len(self._values) >= self._count_max:
                    del self._values[next(iter(self._values))]
                self._values[data] = found
        return found


def _may_hold_secrets(data: bytes) -> bool:
    data = data.lower()
    return any(word in data for word in _SECRETS)


def read_head(data: bytes) -> Head | HeadProblem:
    """Read a whole head, blank line included."""
    plain = _plain_heads.read(data)
    if plain is not None:
        return plain
    if not data.isascii():
        data = _with_ascii_line(data)
    # No length is as good as none for Go's server; for h11 it is malformed.
    data = _EMPTY_LENGTH.sub(b"\n", data)
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.HTTP_HEAD_SIZE_BYTES_MAX)
    reader.receive_data(data)
    try:
        event = reader.next_event()
    except h11.RemoteProtocolError as error:
        if error.error_status_hint == _CODING_STATUS:
            return HeadProblem("501 Not Implemented", "Unsupported transfer encoding")
        line = _refusal(data)
        return HeadProblem(line, line)
    assert isinstance(event, h11.Request)
    headers = tuple((bytes(name), bytes(value)) for name, value in event.headers)
    return _head(event.method, event.target, int(event.http_version[2:]), headers, reader)


def read_plain(data: bytes) -> tuple[bytes, bytes, int, Headers] | None:
    """Read method, target, version and headers of a head of the plainest kind; None if it is any other."""
    found = _PLAIN.fullmatch(data)
    if found is None:
        return None
    method, target, version, lines = found.groups()
    headers = []
    seen = set()
    for line in lines.split(b"\r\n")[:-1]:
        name, _, value = line.partition(b":")
        name, value = name.lower(), value.strip(b" \t")
        if name in (b"host", b"content-length", b"transfer-encoding"):
            if name in seen or name == b"transfer-encoding":
                return None
            if name == b"content-length" and not (value.isdigit() and len(value) <= _LENGTH_DIGITS_MAX):
                return None
            seen.add(name)
        headers.append((name, value))
    return (method, target, int(version), tuple(headers)) if b"host" in seen else None


def _plain_head(data: bytes) -> Head | HeadProblem | None:
    plain = read_plain(data)
    return None if plain is None else _head(*plain, None)


_plain_heads: _Kept[Head | HeadProblem] = _Kept(_plain_head, count_max=_HEADS_KEPT, size_bytes_max=_HEAD_SIZE_BYTES_KEPT)


def read_target(target: bytes) -> Target | None:
    """Take a request's target apart; None if it is malformed."""
    return _targets.read(target)


def _fresh_target(target: bytes) -> Target | None:
    parts = split_target(target)
    if parts is None:
        return None
    arguments = parse_query(parts[2])
    return Target(*parts, None if arguments is None else MappingProxyType(arguments))


_targets: _Kept[Target] = _Kept(_fresh_target, count_max=_TARGETS_KEPT, size_bytes_max=_TARGET_SIZE_BYTES_KEPT)
# Go reads a length into 64 bits; observed on nsqd 1.3.0.
_LENGTH_MAX: Final = (1 << 63) - 1
_NO_TARGET: Final = Target("", "", "", MappingProxyType({}))


def _head(method: bytes, target: bytes, version_minor: int, headers: Headers, reader: h11.Connection | None) -> Head | HeadProblem:
    parts = _NO_TARGET if method == b"CONNECT" else read_target(target)
    if parts is None:
        return HeadProblem(BAD_REQUEST, BAD_REQUEST)
    fields = dict(headers)
    if not _HOST_VALUE.fullmatch(fields.get(b"host", b"")):
        return HeadProblem(_HOST_MALFORMED, _HOST_MALFORMED)
    chunked = b"transfer-encoding" in fields
    length = None if chunked else int(fields.get(b"content-length", b"0"))
    if length is not None and length > _LENGTH_MAX:
        return HeadProblem(BAD_REQUEST, BAD_REQUEST)
    return Head(
        method.decode("ascii"),
        parts,
        headers,
        version_minor,
        _keeps_alive(headers, version_minor) if b"connection" in fields else version_minor > 0,
        length,
        fields.get(b"expect", b""),
        reader if chunked else None,
    )


def _keeps_alive(headers: Headers, version_minor: int) -> bool:
    words: set[bytes] = set()
    for name, value in headers:
        if name == b"connection":
            words |= tokens(value)
    return b"close" not in words and (version_minor > 0 or b"keep-alive" in words)


def tokens(value: bytes) -> set[bytes]:
    """Give the words of a header that is a list, in lower case."""
    return {word.strip() for word in value.lower().split(b",")}


def _with_ascii_line(head: bytes) -> bytes:
    """Escape what is not ASCII in the request line: Go takes a raw path, h11 does not."""
    line, newline, rest = head.partition(b"\n")
    return _NOT_ASCII.sub(lambda found: b"%%%02X" % found[0][0], line) + newline + rest


def _refusal(head: bytes) -> str:
    """Say what is wrong with a head that was refused, as far as Go's server says it: what would make it acceptable."""
    if not _HOST_LINE.search(head):
        line_end = head.index(b"\n") + 1
        if _is_accepted(head[:line_end] + b"Host: x\r\n" + head[line_end:]):
            return _HOST_MISSING
    repaired = _SPACED_NAME.sub(lambda found: found[0].replace(b" ", b""), head)
    return _NAME_INVALID if repaired != head and _is_accepted(repaired) else BAD_REQUEST


def _is_accepted(head: bytes) -> bool:
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=2 * limits.HTTP_HEAD_SIZE_BYTES_MAX)
    reader.receive_data(head)
    try:
        reader.next_event()
    except h11.RemoteProtocolError:
        return False
    return True
