"""Disk queues as nsqd writes them, made by hand: the record's layout is that of nsqd/message.go, NSQ 1.3.0."""

from __future__ import annotations

import struct
from dataclasses import dataclass

__all__ = ["Stored", "record", "records"]


@dataclass(frozen=True, slots=True)
class Stored:
    """A message in a queue."""

    id: int
    time_ns: int
    body: bytes
    attempts: int = 0


def record(message: Stored) -> bytes:
    """One record of a data file."""
    return struct.pack(">iqH", 26 + len(message.body), message.time_ns, message.attempts) + b"%016x" % message.id + message.body


def records(messages: list[Stored]) -> bytes:
    """Records back to back."""
    return b"".join(map(record, messages))
