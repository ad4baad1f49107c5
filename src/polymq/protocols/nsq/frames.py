"""The client's side of NSQ: what a server sends, from bytes to frames, and what a client sends, as bytes.

Knows no socket: `FrameReader` is fed whatever came, the functions return whole commands. Consecutive messages are
one `MessageRun`, which finds its messages only when asked for them. Read next: `clients/nsq.py`, which awaits.
"""

from __future__ import annotations

import itertools
import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.errors import LocalProtocolError
from polymq.protocols.nsq.commands import MESSAGE_ID_SIZE_BYTES
from polymq.protocols.nsq.names import is_valid_name
from polymq.protocols.nsq.settings import MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "CLS",
    "FRAME_SIZE_BYTES_MAX",
    "HEARTBEAT",
    "MAGIC",
    "NON_FATAL",
    "NOP",
    "Error",
    "Frame",
    "FrameReader",
    "MessageRun",
    "Response",
    "Violation",
    "WireMessage",
    "auth",
    "deferred_publish",
    "finish",
    "first_frame_size",
    "identify",
    "multi_publish",
    "publish",
    "ready",
    "requeue",
    "subscribe",
    "touch",
]

NOP: Final = b"NOP\n"
CLS: Final = b"CLS\n"
HEARTBEAT: Final = b"_heartbeat_"
# After these errors the server keeps the connection open.
NON_FATAL: Final = (b"E_FIN_FAILED", b"E_REQ_FAILED", b"E_TOUCH_FAILED")
# The largest message of any server that we would talk to, with room for its header.
FRAME_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024

_RESPONSE: Final = 0
_ERROR: Final = 1
_MESSAGE: Final = 2
_FRAME_HEADER: Final = struct.Struct(">iI")
_MESSAGE_HEADER: Final = struct.Struct(">iIqH16s")
_TYPE_SIZE_BYTES: Final = 4
_MESSAGE_FRAME_SIZE_MIN: Final = 30


@dataclass(frozen=True, slots=True)
class Response:
    """The answer to a command, or a heartbeat."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Error:
    """A refusal: a code, and usually words behind it."""

    text: bytes

    @property
    def is_fatal(self) -> bool:
        """Whether the server closes the connection behind this frame."""
        return self.text.split(b" ", 1)[0] not in NON_FATAL


@dataclass(slots=True)
class WireMessage:
    """One delivered message. Not frozen: a consumer makes one for each message, and that is the larger part of its time."""

    id: bytes
    body: bytes
    attempts: int
    time_ns: int


class MessageRun:
    """Consecutive message frames: `count` of them in `data`, of which this run is the only owner."""

    __slots__ = ("count", "data")

    def __init__(self, data: bytes, count: int) -> None:
        self.data = data
        self.count = count

    def fields(self) -> Iterator[tuple[bytes, bytes, int, int]]:
        """Give id, body, attempts and time of each message, in the order of `WireMessage`."""
        data = self.data
        at = 0
        unpack = _MESSAGE_HEADER.unpack_from
        for _ in range(self.count):
            size, _, time_ns, attempts, message_id = unpack(data, at)
            end = at + 4 + size
            yield message_id, data[at + 34 : end], attempts, time_ns
            at = end

    def ids(self) -> Iterator[bytes]:
        """Give the id of each message, without touching the bodies."""
        data = self.data
        at = 0
        for _ in range(self.count):
            yield data[at + 18 : at + 34]
            at += 4 + int.from_bytes(data[at : at + 4], "big")

    def messages(self) -> Iterator[WireMessage]:
        """Make an object of each message."""
        return itertools.starmap(WireMessage, self.fields())


@dataclass(frozen=True, slots=True)
class Violation:
    """What came is no frame. Always the last: the reader swallows everything behind it."""

    reason: str


Frame = Response | Error | MessageRun | Violation


class FrameReader:
    """Cuts what a server sends into frames. Feed it; it keeps what is not whole yet.

    A size or a type that no frame has ends the stream with a `Violation`, behind the frames before it.
    Cost:    one copy of what is fed, and one of the messages; each byte is looked at once, because the start of an
             unfinished frame is remembered together with what it takes to finish it.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._need = _FRAME_HEADER.size
        self._broken = False

    def feed(self, data: bytes | bytearray | memoryview) -> list[Frame]:
        """Add what came and return the frames that are whole now."""
        rest = self._rest
        frames: list[Frame] = []
        if self._broken:
            return frames
        rest += data
        end = len(rest)
        if end < self._need:
            return frames
        at = run_at = run_count = 0
        self._need = _FRAME_HEADER.size
        while end - at >= _FRAME_HEADER.size:
            size, kind = _FRAME_HEADER.unpack_from(rest, at)
            # Most are messages: those are judged here, without a call for each.
            if (kind != _MESSAGE or not _MESSAGE_FRAME_SIZE_MIN <= size <= FRAME_SIZE_BYTES_MAX) and not _is_frame(size, kind):
                self._broken = True
                break
            after = at + 4 + size
            if after > end:
                self._need = 4 + size
                break
            if kind == _MESSAGE:
                run_count += 1
            else:
                if run_count:
                    frames.append(MessageRun(bytes(rest[run_at:at]), run_count))
                    run_count = 0
                payload = bytes(rest[at + 8 : after])
                frames.append(Response(payload) if kind == _RESPONSE else Error(payload))
                run_at = after
            at = after
        if run_count:
            frames.append(MessageRun(bytes(rest[run_at:at]), run_count))
        if self._broken:
            frames.append(Violation(f"no frame has size {size} and type {kind}"))
        del rest[:at]
        return frames


def first_frame_size(data: bytes | bytearray) -> int:
    """How many bytes the first frame has, if it is there whole, else 0. What is no frame counts to the end."""
    if len(data) < _FRAME_HEADER.size:
        return 0
    size, kind = _FRAME_HEADER.unpack_from(data)
    if not _is_frame(size, kind):
        return len(data)
    return 4 + size if 4 + size <= len(data) else 0


def _is_frame(size: int, kind: int) -> bool:
    size_min = _MESSAGE_FRAME_SIZE_MIN if kind == _MESSAGE else _TYPE_SIZE_BYTES
    return kind in {_RESPONSE, _ERROR, _MESSAGE} and size_min <= size <= FRAME_SIZE_BYTES_MAX


def _name(name: str | bytes, what: str) -> bytes:
    raw = name.encode() if isinstance(name, str) else name
    if not is_valid_name(raw):
        raise LocalProtocolError(f"{what} name {raw!r} is not valid: 1 to 64 of . a-z A-Z 0-9 _ -, #ephemeral may follow")
    return raw


def _sized(body: bytes) -> bytes:
    if not body:
        raise LocalProtocolError("a body must not be empty")
    return len(body).to_bytes(4, "big") + body


def identify(wishes: Mapping[str, object]) -> bytes:
    """Say who the client is and what it would like; `protocols.nsq.identify.Wishes` lists the keys."""
    return b"IDENTIFY\n" + _sized(json.dumps(wishes, separators=(",", ":")).encode())


def auth(secret: str) -> bytes:
    """Say who the client is to a server that wants to know."""
    return b"AUTH\n" + _sized(secret.encode())


def subscribe(topic: str | bytes, channel: str | bytes) -> bytes:
    """Become a consumer of a channel."""
    return b"SUB %b %b\n" % (_name(topic, "topic"), _name(channel, "channel"))


def ready(count: int) -> bytes:
    """Allow that many messages in flight."""
    if count < 0:
        raise LocalProtocolError(f"RDY {count}: a count is not negative")
    return b"RDY %d\n" % count


def _id(message_id: bytes) -> bytes:
    if len(message_id) != MESSAGE_ID_SIZE_BYTES or b" " in message_id or b"\n" in message_id:
        raise LocalProtocolError(f"{message_id!r} is no message id")
    return message_id


def finish(ids: Sequence[bytes]) -> bytes:
    """Settle messages: one FIN for each, as one piece."""
    return b"".join([b"FIN %b\n" % _id(message_id) for message_id in ids])


def requeue(message_id: bytes, delay_ms: int) -> bytes:
    """Give a message back, to be delivered again after a delay."""
    if delay_ms < 0:
        raise LocalProtocolError(f"REQ with a delay of {delay_ms} ms: a delay is not negative")
    return b"REQ %b %d\n" % (_id(message_id), delay_ms)


def touch(message_id: bytes) -> bytes:
    """Ask for more time for a message."""
    return b"TOUCH %b\n" % _id(message_id)


def publish(topic: str | bytes, body: bytes) -> bytes:
    """Publish one message."""
    return b"PUB %b\n%b" % (_name(topic, "topic"), _sized(body))


def deferred_publish(topic: str | bytes, body: bytes, delay_ms: int) -> bytes:
    """Publish one message that is not delivered before a delay has passed."""
    if delay_ms < 0:
        raise LocalProtocolError(f"DPUB with a delay of {delay_ms} ms: a delay is not negative")
    return b"DPUB %b %d\n%b" % (_name(topic, "topic"), delay_ms, _sized(body))


def multi_publish(topic: str | bytes, bodies: Sequence[bytes]) -> bytes:
    """Publish several messages, all or none of them."""
    if not bodies:
        raise LocalProtocolError("MPUB needs at least one message")
    inner = len(bodies).to_bytes(4, "big") + b"".join(map(_sized, bodies))
    return b"MPUB %b\n%b" % (_name(topic, "topic"), _sized(inner))
