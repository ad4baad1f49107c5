"""What a stored message is to NATS clients, whoever has published it.

What came by NATS (`protocols/nats/stored.py`) leaves byte by byte. Of others' messages the key becomes a line `KEYS`, headers become
lines, and the header `reply-to` says where answers go; keys, names and values that NATS cannot say are left out, and counted.
docs/CONVERSIONS.md has the whole table.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from polymq.limits import MESSAGE_SIZE_BYTES_MAX, NAME_SIZE_BYTES_MAX
from polymq.protocols.nats.stored import BLOCK, ORIGIN_NATS, REPLY, REPLY_TO, encode_records
from polymq.protocols.nats.subjects import is_valid_reply
from polymq.protocols.nats.unfold import unfold, unfolded_room
from polymq.wire.left_out import HEADER, KEY, LARGE, left_out
from polymq.wire.live import LiveMessage

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Sequence

    from polymq.wire.batch import Message
    from polymq.wire.live import LiveBatch

__all__ = ["NatsCodec", "header_block"]

_VERSION: Final = b"NATS/1.0"
_KEYS: Final = b"KEYS"
# Printable ASCII without blanks and colons: what every client reads back. One of them that is not makes some clients lose all headers.
_NAME: Final = re.compile(rb"[!-9;-~]+")


def header_block(headers: Iterable[tuple[bytes, bytes]], status: bytes = b"") -> bytes:
    """Write a block of headers; nothing if there are none, and no status. What NATS cannot say is left out."""
    lines = [b"%b: %b\r\n" % (name, value) for name, value in headers if _NAME.fullmatch(name) and _is_line(value)]
    if not lines and not status:
        return b""
    return b"".join((_VERSION, b" " + status if status else b"", b"\r\n", *lines, b"\r\n"))


def _is_line(value: bytes) -> bool:
    return b"\r" not in value and b"\n" not in value


class NatsCodec:
    """The core's `LiveCodec`. `left_out` counts what could not be said."""

    origin = ORIGIN_NATS
    # The rest is asked for one by one, from `live`.
    room = staticmethod(unfolded_room)
    unfold = staticmethod(unfold)

    def __init__(self, counts: array[int] | None = None) -> None:
        self.left_out = left_out() if counts is None else counts

    def encode(self, batch: LiveBatch, indexes: memoryview, first: int, count: int) -> memoryview:
        """Write records of messages, headers and replies included; raises Refusal."""
        return encode_records(batch, indexes, first, count)

    def live(self, name: bytes, message: Message) -> LiveMessage | None:
        """Make a live message of a stored one; None, and counted, if it would be larger than any that NATS clients may publish here."""
        found = self.whole(name, message)
        if len(found.payload) > MESSAGE_SIZE_BYTES_MAX:
            self.left_out[LARGE] += 1
            return None
        return found

    def whole(self, name: bytes, message: Message) -> LiveMessage:
        """Do the same, however large it is."""
        reply, block = b"", None
        for origin, data in message.extras:
            if origin == ORIGIN_NATS and data[:1] == REPLY:
                reply = data[1:]
            elif origin == ORIGIN_NATS and data[:1] == BLOCK:
                block = data[1:]
        if block is None:
            headers: Sequence[tuple[bytes, bytes]] = message.headers
            if reply:
                headers = _without_last(headers, reply)
            else:
                reply, headers = _part_reply(headers)
            block = self._block(message.key, headers)
        return LiveMessage(name, block + message.body, reply, header_size=len(block))

    def _block(self, key: bytes | None, headers: Sequence[tuple[bytes, bytes]]) -> bytes:
        """Write key and headers as a block, and count what cannot be said."""
        said: list[tuple[bytes, bytes]] = []
        if key is not None:
            if _is_line(key):
                said.append((_KEYS, key))
            else:
                self.left_out[KEY] += 1
        for name, value in headers:
            if _NAME.fullmatch(name) and _is_line(value) and not (key is not None and name == _KEYS):
                said.append((name, value))
            else:
                self.left_out[HEADER] += 1
        return header_block(said)


def _without_last(headers: Sequence[tuple[bytes, bytes]], reply: bytes) -> Sequence[tuple[bytes, bytes]]:
    """Take away the header that was made of the reply when the message came."""
    for index in range(len(headers) - 1, -1, -1):
        if headers[index] == (REPLY_TO, reply):
            return (*headers[:index], *headers[index + 1 :])
    return headers


def _part_reply(headers: Sequence[tuple[bytes, bytes]]) -> tuple[bytes, Sequence[tuple[bytes, bytes]]]:
    """Find where answers go: the last header that says so, if NATS can say that. Otherwise it stays a line as all others."""
    for index in range(len(headers) - 1, -1, -1):
        name, value = headers[index]
        if name == REPLY_TO:
            if len(value) <= NAME_SIZE_BYTES_MAX and is_valid_reply(value):
                return value, (*headers[:index], *headers[index + 1 :])
            break
    return b"", headers
