"""What a record of the spool keeps of a message beside body, time and headers: the note, which lies where a key would.

     0          2            4         6              8
    +----------+------------+---------+--------------+-------+----+----------+------------------+
    | attempts | topic size | id size | reply size   | topic | id | reply to | expires at, µs   |
    | u16      | u16        | u16     | u16          |       |    |          | i64, or nothing  |
    +----------+------------+---------+--------------+-------+----+----------+------------------+

All little-endian. None of the three protocols has keys, and keys are what `wire.records.columns` turns into an array as
they are: so executors take notes apart with arithmetic on arrays (`spark/spooled/arrow.py`), for any number of records.
Attempts 0: the protocol does not say.
"""

from __future__ import annotations

import struct
from typing import Final

from polymq.errors import RemoteProtocolError

__all__ = ["NOTE_SIZE_BYTES_MIN", "Note", "encode_note", "read_note"]

_HEAD: Final = struct.Struct("<HHHH")
_EXPIRY: Final = struct.Struct("<q")
NOTE_SIZE_BYTES_MIN: Final = 8
_FIELD_MAX: Final = 0xFFFF

assert _HEAD.size == NOTE_SIZE_BYTES_MIN

# attempts, topic, id, reply to, expires at (µs since 1970)
Note = tuple[int, bytes, bytes, bytes, int | None]


def encode_note(
    topic: bytes, message_id: bytes = b"", *, attempts: int = 0, reply_to: bytes = b"", expires_at_us: int | None = None
) -> bytes:
    """Write a note; raises RemoteProtocolError for a name of more than 64 KiB, which no server has."""
    if max(len(topic), len(message_id), len(reply_to)) > _FIELD_MAX:
        raise RemoteProtocolError("a topic, an id or a reply subject has more than 65,535 bytes")
    head = _HEAD.pack(min(attempts, _FIELD_MAX), len(topic), len(message_id), len(reply_to))
    return head + topic + message_id + reply_to + (b"" if expires_at_us is None else _EXPIRY.pack(expires_at_us))


def read_note(note: bytes) -> Note:
    """Read a note, for tools and tests; what is none has an empty topic."""
    if len(note) < NOTE_SIZE_BYTES_MIN:
        return 0, b"", b"", b"", None
    attempts, topic_size, id_size, reply_size = _HEAD.unpack_from(note)
    id_at = NOTE_SIZE_BYTES_MIN + topic_size
    reply_at = id_at + id_size
    end = reply_at + reply_size
    expires_at_us = _EXPIRY.unpack_from(note, end)[0] if len(note) >= end + _EXPIRY.size else None
    return attempts, note[NOTE_SIZE_BYTES_MIN:id_at], note[id_at:reply_at], note[reply_at:end], expires_at_us
