"""The client's side of PHPMQ: what a server sends, from bytes to messages, and what a client sends, as bytes.

Knows no socket: `FrameReader` is fed whatever came, the functions return whole messages. Read next: `clients/phpmq.py`, which
awaits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.errors import LocalProtocolError
from polymq.phpmq_limits import HEAD_SIZE_BYTES, ID_SIZE_BYTES_MAX, MESSAGE_HEAD_SIZE_BYTES, NUMBER_SIZE_BYTES_MAX, QUEUE_SIZE_BYTES_MAX
from polymq.protocols.phpmq.codes import PACKETS, VERSION, MessageType, PacketType

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "CONTENT_SIZE_BYTES_MAX",
    "FrameReader",
    "Violation",
    "WireMessage",
    "acknowledge",
    "consume",
    "dead_letter",
    "requeue",
    "send",
]

# The largest content of any server that we would talk to.
CONTENT_SIZE_BYTES_MAX: Final = 64 * 1024 * 1024
_MOST: Final = {
    PacketType.QUEUE: QUEUE_SIZE_BYTES_MAX,
    PacketType.CONTENT: CONTENT_SIZE_BYTES_MAX,
    PacketType.ID: ID_SIZE_BYTES_MAX,
    PacketType.COUNT: NUMBER_SIZE_BYTES_MAX,
    PacketType.TTL: NUMBER_SIZE_BYTES_MAX,
}


@dataclass(slots=True)
class WireMessage:
    """One dispatched message. `ttl_s`: what is left of it; 0: it never ends; None: the server's dialect has none."""

    queue: bytes
    content: bytes
    id: bytes
    ttl_s: int | None


@dataclass(frozen=True, slots=True)
class Violation:
    """What came is no message that a server sends. Always the last: the reader swallows everything behind it."""

    reason: str


class FrameReader:
    """Cuts what a server sends into messages. Feed it; it keeps what is not whole yet, and looks at it again when it may be."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._need = MESSAGE_HEAD_SIZE_BYTES
        self._broken = False

    def feed(self, data: bytes | bytearray | memoryview) -> list[WireMessage | Violation]:
        """Add what came and return the messages that are whole now."""
        found: list[WireMessage | Violation] = []
        if self._broken:
            return found
        self._rest += data
        at = 0
        while len(self._rest) - at >= self._need:
            message = self._read(at)
            if message is None:
                continue  # now it is known how much it needs
            if isinstance(message, Violation):
                found.append(message)
                self._broken = True
                self._rest.clear()
                return found
            found.append(message)
            at += self._need
            self._need = MESSAGE_HEAD_SIZE_BYTES
        del self._rest[:at]
        return found

    def _read(self, start: int) -> WireMessage | Violation | None:
        """Read the message at `start`, of `_need` bytes; None, with another `_need`, if it has more than was known."""
        rest = self._rest
        head = bytes(rest[start : start + MESSAGE_HEAD_SIZE_BYTES])
        if head[:1] != b"H" or not head[1:].isdigit():
            return Violation("a message does not begin with H and seven digits")
        version, kind, count = int(head[1:3]), int(head[3:6]), int(head[6:8])
        packets = PACKETS.get((kind, count), ())
        if version != VERSION or kind != MessageType.DISPATCH or not packets:
            return Violation(f"servers send no messages of version {version}, type {kind} and {count} packets")
        fields: dict[int, bytes] = {}
        at = start + MESSAGE_HEAD_SIZE_BYTES
        for _ in range(count):
            if at + HEAD_SIZE_BYTES > start + self._need:
                self._need = at + HEAD_SIZE_BYTES - start
                return None
            packet = _packet_head(bytes(rest[at : at + HEAD_SIZE_BYTES]))
            if isinstance(packet, Violation):
                return packet
            which, size = packet
            if which not in packets or which in fields:
                return Violation(f"a packet of type {which} too many")
            at += HEAD_SIZE_BYTES
            if at + size > start + self._need:
                self._need = at + size - start
                return None
            fields[which] = bytes(rest[at : at + size])
            at += size
        ttl = fields.get(PacketType.TTL)
        if ttl is not None and not ttl.isdigit():
            return Violation("a TTL is no number")
        return WireMessage(
            fields[PacketType.QUEUE], fields[PacketType.CONTENT], fields[PacketType.ID], int(ttl) if ttl is not None else None
        )


def _packet_head(head: bytes) -> tuple[PacketType, int] | Violation:
    if head[:1] != b"P" or not head[1:].isdigit():
        return Violation("a packet does not begin with P and 31 digits")
    kind, size = int(head[1:3]), int(head[3:])
    if kind not in _MOST:
        return Violation(f"there are no packets of type {kind}")
    packet = PacketType(kind)
    return (packet, size) if size <= _MOST[packet] else Violation(f"a packet of type {kind} has {size} bytes")


def _message(kind: MessageType, *packets: tuple[PacketType, bytes]) -> bytes:
    parts = [b"H%02d%03d%02d" % (VERSION, kind, len(packets))]
    for packet, content in packets:
        parts += (b"P%02d%029d" % (packet, len(content)), content)
    return b"".join(parts)


def _queue(name: str | bytes) -> tuple[PacketType, bytes]:
    raw = name.encode() if isinstance(name, str) else name
    if not 0 < len(raw) <= QUEUE_SIZE_BYTES_MAX:
        raise LocalProtocolError(f"a queue's name has 1 to {QUEUE_SIZE_BYTES_MAX} bytes, {raw[:32]!r} has {len(raw)}")
    return PacketType.QUEUE, raw


def _id(message_id: bytes) -> tuple[PacketType, bytes]:
    if not 0 < len(message_id) <= ID_SIZE_BYTES_MAX:
        raise LocalProtocolError(f"{message_id[:32]!r} is no message id")
    return PacketType.ID, message_id


def _number(packet: PacketType, number: int, what: str) -> tuple[PacketType, bytes]:
    if not 0 <= number < 1 << 63:
        raise LocalProtocolError(f"{what} is not negative and has 63 bits, {number} is not possible")
    return packet, b"%d" % number


def send(queue: str | bytes, content: bytes, *, ttl_s: int | None = 0) -> bytes:
    """Put a message into a queue. `ttl_s` None: in the older dialect, which has none."""
    if len(content) > CONTENT_SIZE_BYTES_MAX:
        raise LocalProtocolError(f"a message of {len(content)} bytes: {CONTENT_SIZE_BYTES_MAX} is the limit")
    packets = (_queue(queue), (PacketType.CONTENT, content))
    if ttl_s is None:
        return _message(MessageType.SEND, *packets)
    return _message(MessageType.SEND, *packets, _number(PacketType.TTL, ttl_s, "a TTL"))


def consume(queue: str | bytes, count: int) -> bytes:
    """Ask for messages of a queue, at most `count` of them at a time; in place of what was asked for before."""
    return _message(MessageType.CONSUME, _queue(queue), _number(PacketType.COUNT, count, "a count"))


def acknowledge(queue: str | bytes, ids: Sequence[bytes]) -> bytes:
    """Be done with messages: one message for each, as one piece."""
    return b"".join([_message(MessageType.ACKNOWLEDGE, _queue(queue), _id(message_id)) for message_id in ids])


def requeue(queue: str | bytes, message_id: bytes, *, ttl_s: int = 0) -> bytes:
    """Put a message at the end of its queue, with a TTL that begins then. Not in the older dialect."""
    return _message(MessageType.REQUEUE, _queue(queue), _id(message_id), _number(PacketType.TTL, ttl_s, "a TTL"))


def dead_letter(queue: str | bytes, message_id: bytes) -> bytes:
    """Have a message removed, whatever its TTL. Not in the older dialect."""
    return _message(MessageType.DEAD_LETTER, _queue(queue), _id(message_id))
