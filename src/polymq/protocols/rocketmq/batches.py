"""The body of SEND_BATCH_MESSAGE: several messages for one queue in one request.

Each: i32 size of all | i32 0 | i32 0 | i32 flag | i32 size, body | i16 size, properties; big-endian.
Source: RocketMQ 4.9.8, MessageDecoder.encodeMessage and decodeMessage.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BatchPart", "join_batch", "split_batch"]


@dataclass(frozen=True, slots=True)
class BatchPart:
    """One message of a batch."""

    body: bytes
    properties: bytes = b""
    flag: int = 0


def split_batch(body: bytes) -> list[BatchPart]:
    """Take a batch apart. Raises RemoteProtocolError (not fatal) when sizes do not fit, or there are more than MESSAGE_COUNT_PER_BATCH_MAX."""
    raise NotImplementedError


def join_batch(parts: list[BatchPart]) -> bytes:
    """Put a batch together. Raises LocalProtocolError when properties are too large."""
    raise NotImplementedError
