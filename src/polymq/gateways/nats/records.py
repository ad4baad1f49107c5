"""What a stored message is to NATS clients, whoever has published it.

What came by NATS (`protocols/nats/stored.py`) leaves byte by byte. Of others' headers, names and values that NATS cannot say
are left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.protocols.nats.stored import BLOCK, ORIGIN_NATS, REPLY, encode_records
from polymq.protocols.nats.unfold import unfold, unfolded_room
from polymq.wire.live import LiveMessage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polymq.wire.batch import Message
    from polymq.wire.live import LiveBatch

__all__ = ["NatsCodec", "header_block"]

_VERSION: Final = b"NATS/1.0"


def header_block(headers: Iterable[tuple[bytes, bytes]], status: bytes = b"") -> bytes:
    """Write a block of headers; nothing if there are none, and no status. What NATS cannot say is left out."""
    lines = [b"%b: %b\r\n" % (name, value) for name, value in headers if name and _is_text(value) and _is_text(name) and b":" not in name]
    if not lines and not status:
        return b""
    return b"".join((_VERSION, b" " + status if status else b"", b"\r\n", *lines, b"\r\n"))


def _is_text(value: bytes) -> bool:
    return b"\r" not in value and b"\n" not in value


class NatsCodec:
    """The core's `LiveCodec`."""

    origin = ORIGIN_NATS
    # The rest is asked for one by one, from `live`.
    room = staticmethod(unfolded_room)
    unfold = staticmethod(unfold)

    def encode(self, batch: LiveBatch, indexes: memoryview, first: int, count: int) -> memoryview:
        """Write records of messages, headers and replies included; raises Refusal."""
        return encode_records(batch, indexes, first, count)

    def live(self, name: bytes, message: Message) -> LiveMessage:
        """Make a live message of a stored one."""
        reply, block = b"", None
        for origin, data in message.extras:
            if origin == ORIGIN_NATS and data[:1] == REPLY:
                reply = data[1:]
            elif origin == ORIGIN_NATS and data[:1] == BLOCK:
                block = data[1:]
        if block is None:
            block = header_block(message.headers)
        return LiveMessage(name, block + message.body, reply, header_size=len(block))
