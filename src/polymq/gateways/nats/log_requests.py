"""What is asked of the log by NATS messages, and how it is answered: subjects, JSON and headers, without the doing.

    $POLYMQ.LOG.TOPICS              the topics that may be read
    $POLYMQ.LOG.INFO.<topic>        where its partitions begin and end
    $POLYMQ.LOG.READ.<topic>        a range of its messages, then one that says how it ended
    $POLYMQ.LOG.FOLLOW.<topic>      its messages from an offset on, until nobody listens or it is cancelled
    $POLYMQ.LOG.CANCEL              ends that

Requests are JSON objects or nothing at all. A message of the log is one with the header `Polymq-Offset`; everything else is an answer. Answers have a status in their headers as NATS's own have (`NATS/1.0 404 …`), and
JSON, which says the same to those who do not read headers. Read next: `log_door.py`.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from polymq import limits
from polymq.errors import PolyMQError, Refusal, RefusalCode, StoreError
from polymq.gateways.nats.records import header_block
from polymq.wire.live import LiveMessage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.wire.batch import Message

__all__ = ["PATTERN", "PREFIX", "BadRequest", "LogRequest", "OutOfRange", "answer", "error_answer", "parse_request", "replayed"]

PREFIX: Final = b"$POLYMQ.LOG."
PATTERN: Final = PREFIX + b">"

# Verbs, and whether a topic follows.
_VERBS: Final = {b"TOPICS": False, b"INFO": True, b"READ": True, b"FOLLOW": True, b"CANCEL": False}
_FIELDS: Final = {
    b"READ": frozenset({"partition", "offset", "time", "time_ns", "count", "size"}),
    b"FOLLOW": frozenset({"partition", "offset", "time", "time_ns", "to"}),
    b"CANCEL": frozenset({"follow"}),
    b"TOPICS": frozenset({"after"}),
}
_COUNT_DEFAULT: Final = 100
_ANY_NUMBER: Final = (1 << 63) - 1
_NS_PER_S: Final = 1_000_000_000

_STATUS: Final = {
    "INVALID_ARGUMENT": b"400 Bad Request",
    RefusalCode.UNAUTHENTICATED.name: b"401 Unauthorized",
    RefusalCode.LOGIN_EXPIRED.name: b"401 Unauthorized",
    RefusalCode.FORBIDDEN.name: b"403 Forbidden",
    RefusalCode.TOPIC_NOT_FOUND.name: b"404 Topic Not Found",
    RefusalCode.OFFSET_OUT_OF_RANGE.name: b"416 Offset Out Of Range",
    RefusalCode.LIMIT_REACHED.name: b"429 Too Many Requests",
}
_OTHER_STATUS: Final = b"500 Server Error"

# A block of headers: its beginning and end, a value, a line that all clients read alike, and what is none.
_VERSION: Final = b"NATS/1.0"
_FIRST_LINE: Final = _VERSION + b"\r\n"
_END: Final = b"\r\n\r\n"
_VALUE: Final = re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")
_LINE: Final = re.compile(rb"[!-9;-~]+:" + _VALUE.pattern)
_ODD_LINE: Final = re.compile(rb"(?i)\r\n(?:polymq-|status:|(?!" + _LINE.pattern + rb"(?:\r\n|\Z)))")


class BadRequest(PolyMQError):
    """What was asked cannot be understood; the text says what was expected."""


class OutOfRange(Refusal):
    """An offset that is not there: where the log begins and ends."""

    def __init__(self, start: int, readable: int, offset: int) -> None:
        text = f"there is no offset {offset}: the log has the offsets from {start} to {readable}"
        super().__init__(RefusalCode.OFFSET_OUT_OF_RANGE, text)
        self.start = start
        self.readable = readable


@dataclass(frozen=True, slots=True)
class LogRequest:
    """One request. `offset` and `time_ns` None: from the beginning (READ), or from now on (FOLLOW)."""

    verb: bytes
    topic: str = ""
    partition: int = 0
    offset: int | None = None
    time_ns: int | None = None
    count: int = _COUNT_DEFAULT
    size_bytes: int = _ANY_NUMBER
    to: bytes = b""
    follow: str = ""
    after: str = ""


def parse_request(message: LiveMessage) -> LogRequest:
    """Read a request; raises BadRequest."""
    verb, dot, rest = message.subject.removeprefix(PREFIX).partition(b".")
    has_topic = _VERBS.get(verb)
    if has_topic is None or has_topic != bool(dot):
        known = ", ".join(f"{name.decode()}.<topic>" if topic else name.decode() for name, topic in _VERBS.items())
        raise BadRequest(f"no such request; there are {known}, each behind {PREFIX.decode()}")
    try:
        topic = rest.decode()
    except UnicodeDecodeError:
        raise BadRequest("the topic's name is not UTF-8") from None
    fields = _fields(message.payload[message.header_size :])
    unknown = set(fields) - _FIELDS.get(verb, frozenset())
    if unknown:
        raise BadRequest(f"{verb.decode()} has no {min(unknown)}")
    if verb == b"CANCEL":
        return LogRequest(verb, follow=_text(fields, "follow"))
    if len({"offset", "time", "time_ns"} & set(fields)) > 1:
        raise BadRequest("offset, time and time_ns: at most one of them")
    return LogRequest(
        verb,
        topic,
        partition=_number(fields, "partition", limits.PARTITIONS_PER_TOPIC_MAX) or 0,
        offset=_number(fields, "offset", limits.OFFSET_MAX),
        time_ns=_time(_text(fields, "time")) if "time" in fields else _number(fields, "time_ns", _ANY_NUMBER),
        count=_or(_number(fields, "count", _ANY_NUMBER), _COUNT_DEFAULT),
        size_bytes=_or(_number(fields, "size", _ANY_NUMBER), _ANY_NUMBER),
        to=_text(fields, "to").encode(),
        after=_text(fields, "after"),
    )


def _fields(payload: bytes) -> dict[str, Any]:
    if not payload:
        return {}
    if len(payload) > limits.LOG_REQUEST_SIZE_BYTES_MAX:
        raise BadRequest(f"a request may have {limits.LOG_REQUEST_SIZE_BYTES_MAX} bytes")
    try:
        fields = json.loads(payload)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        raise BadRequest("expected a JSON object, or nothing")
    return fields


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _number(fields: Mapping[str, Any], name: str, most: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise BadRequest(f"{name}: expected a whole number from 0 to {most}")
    return value


def _text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name, "")
    try:
        if isinstance(value, str) and value.encode() is not None:
            return value
    except UnicodeEncodeError:
        pass
    raise BadRequest(f"{name}: expected a text")


def _time(text: str) -> int:
    """Turn a time such as 2026-11-21T13:00:00Z into nanoseconds since 1970; without a zone it is UTC."""
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest("time: expected a time such as 2026-11-21T13:00:00Z") from None
    when = when.replace(tzinfo=UTC) if when.tzinfo is None else when
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return min(max(0, (since.days * 86_400 + since.seconds) * _NS_PER_S + since.microseconds * 1000), _ANY_NUMBER)


def answer(to: bytes, fields: Mapping[str, Any], status: bytes = b"") -> LiveMessage:
    """Write an answer in JSON."""
    block = header_block((), status)
    return LiveMessage(to, block + json.dumps(fields, separators=(",", ":")).encode(), header_size=len(block))


def error_answer(to: bytes, error: PolyMQError) -> LiveMessage:
    """Say why something is not done: the same codes as the log's HTTP door has."""
    refused = RefusalCode.STORE_FAILED if isinstance(error, StoreError) else getattr(error, "code", None)
    code = "INVALID_ARGUMENT" if refused is None else refused.name
    fields: dict[str, object] = {"error": code, "message": str(error)}
    if isinstance(error, OutOfRange):
        fields |= {"start": error.start, "readable": error.readable}
    return answer(to, fields, _STATUS.get(code, _OTHER_STATUS))


def replayed(to: bytes, place: tuple[bytes, int, int], stored: LiveMessage, message: Message) -> LiveMessage:
    """Write a message of the log: from where it is, and behind that its own headers.

    `place` is (topic, partition, offset); `stored` is what it was when it was live. Whatever its publisher has written there, no client
    reads something else as its place, or as a status: see `_own_lines`.
    """
    topic, partition, offset = place
    block = b"NATS/1.0\r\nPolymq-Topic: %b\r\nPolymq-Partition: %d\r\nPolymq-Offset: %d\r\nPolymq-Time-Ns: %d\r\n" % (
        topic,
        partition,
        offset,
        message.time_ns,
    )
    if stored.reply:
        block += b"Polymq-Reply: %b\r\n" % stored.reply
    block += _own_lines(stored.payload[: stored.header_size]) + b"\r\n"
    return LiveMessage(to, block + message.body, header_size=len(block))


def _own_lines(block: bytes) -> bytes:
    """Give the lines of a message's own block, byte for byte, if every client reads them as what they are.

    Else those that are such, a status under a name of ours, and the whole block in base64: clients fold lines, trim names, take a header
    `Status` for a status, the last of several headers for the only one, or no header at all where a line has no colon.
    """
    if not block:
        return b""
    if block.startswith(_FIRST_LINE) and block.endswith(_END) and not _ODD_LINE.search(block, len(_FIRST_LINE) - 2, len(block) - len(_END)):
        return block[len(_FIRST_LINE) : -2]
    first, *lines = block.split(b"\r\n")
    statuses = [first.removeprefix(_VERSION)] if first.startswith(_VERSION) else []
    own = []
    for line in lines:
        name, _, value = line.partition(b":")
        if name.lower() == b"status":
            statuses.append(value)
        elif _LINE.fullmatch(line) and not name.lower().startswith(b"polymq-"):
            own.append(line + b"\r\n")
    said = b"".join(b"Polymq-Status: %b\r\n" % text for status in statuses if _VALUE.fullmatch(text := status.strip()) and text)
    return b"%bPolymq-Block: %b\r\n%b" % (said, base64.b64encode(block), b"".join(own))
