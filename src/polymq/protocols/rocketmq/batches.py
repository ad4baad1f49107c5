"""The body of SEND_BATCH_MESSAGE: several messages for one queue in one request.

Each: i32 size of all | i32 0 | i32 0 | i32 flag | i32 size, body | i16 size, properties; big-endian.
Source: RocketMQ 4.9.8, MessageDecoder.encodeMessage and decodeMessage.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.errors import LocalProtocolError, RemoteProtocolError
from polymq.rocketmq_limits import MESSAGE_COUNT_PER_BATCH_MAX, PROPERTIES_SIZE_BYTES_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["BatchPart", "join_batch", "split_batch"]

_HEAD: Final = struct.Struct(">iiiii")
_I16: Final = struct.Struct(">h")
_FIXED_SIZE_BYTES: Final = _HEAD.size + _I16.size


@dataclass(slots=True)
class BatchPart:
    """One message of a batch. `properties` are as they travel. Not frozen: making a frozen object takes three times as long."""

    body: bytes
    properties: bytes = b""
    flag: int = 0


def split_batch(body: bytes) -> list[BatchPart]:
    """Take a batch apart. Raises RemoteProtocolError (not fatal) when sizes do not fit, or there are more than MESSAGE_COUNT_PER_BATCH_MAX."""
    parts: list[BatchPart] = []
    at = 0
    end = len(body)
    while at < end:
        if len(parts) == MESSAGE_COUNT_PER_BATCH_MAX:
            raise RemoteProtocolError("too many messages in a batch", fatal=False)
        if end - at < _FIXED_SIZE_BYTES:
            raise RemoteProtocolError("a message of a batch is cut off", fatal=False)
        size, _, _, flag, body_size = _HEAD.unpack_from(body, at)
        start = at + _HEAD.size
        if not _FIXED_SIZE_BYTES <= size <= end - at or not 0 <= body_size <= size - _FIXED_SIZE_BYTES:
            raise RemoteProtocolError("a size in a batch does not fit", fatal=False)
        stop = start + body_size
        (properties_size,) = _I16.unpack_from(body, stop)
        at += size
        if not 0 <= properties_size <= at - stop - _I16.size:
            raise RemoteProtocolError("a size in a batch does not fit", fatal=False)
        stop += _I16.size
        parts.append(BatchPart(body[start : stop - _I16.size], body[stop : stop + properties_size], flag))
    return parts


def join_batch(parts: Sequence[BatchPart]) -> bytes:
    """Put a batch together. Raises LocalProtocolError when properties are too large."""
    pieces: list[bytes] = []
    for part in parts:
        if len(part.properties) > PROPERTIES_SIZE_BYTES_MAX:
            raise LocalProtocolError("the properties of a message are too large")
        size = _FIXED_SIZE_BYTES + len(part.body) + len(part.properties)
        pieces += (_HEAD.pack(size, 0, 0, part.flag, len(part.body)), part.body, _I16.pack(len(part.properties)), part.properties)
    return b"".join(pieces)
