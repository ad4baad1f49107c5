"""How messages are named: where a broker has put them (offset ids), and what their producer called them (unique keys).

    offset id    32 hexadecimal digits, upper case: IPv4 address (4 bytes), port (4), physical offset (8)
    unique key   32: IPv4 address (4), process id (2), a hash (4), ms since the month began (4), counter (2)

An IPv6 address has 12 bytes more, so these ids have 56 digits. A physical offset of ours is `partition number << 31 |
lower bits of the offset`, below 2**53: JavaScript's numbers hold it, and a message is found by it.

Source: RocketMQ 4.9.8, MessageDecoder.createMessageId, MessageClientIDSetter.
"""

from __future__ import annotations

import struct
from datetime import UTC, datetime, timedelta
from typing import Final

from polymq.limits import OFFSET_MAX, PARTITION_NUMBER_MAX
from polymq.rocketmq_limits import PHYSICAL_OFFSET_BITS

__all__ = [
    "UniqueKeys",
    "offset_at",
    "offset_message_id",
    "parse_offset_message_id",
    "parse_physical_offset",
    "physical_offset",
    "unique_key_time_ms",
]

_LOW_MASK: Final = (1 << PHYSICAL_OFFSET_BITS) - 1
_V4: Final = struct.Struct(">4siq")
_V6: Final = struct.Struct(">16siq")
_KEY_TAIL: Final = struct.Struct(">HIIH")


def physical_offset(partition_number: int, offset: int) -> int:
    """Name a message by a number below 2**53."""
    assert 0 <= partition_number <= PARTITION_NUMBER_MAX
    assert 0 <= offset <= OFFSET_MAX
    return partition_number << PHYSICAL_OFFSET_BITS | offset & _LOW_MASK


def parse_physical_offset(physical: int) -> tuple[int, int] | None:
    """Give back the partition's number and the lower bits of the offset (see `offset_at`); None if it can be none of ours."""
    if not 0 <= physical < 1 << 53:
        return None
    return physical >> PHYSICAL_OFFSET_BITS, physical & _LOW_MASK


def offset_at(low: int, end: int) -> int | None:
    """Find the offset with these lower bits in a partition that ends at `end`: the last one before that; None if there is none."""
    offset = end - 1 - ((end - 1 - low) & _LOW_MASK)
    return offset if offset >= 0 else None


def offset_message_id(host: bytes, port: int, physical: int) -> str:
    """Make the id of a message of the broker at this address: 4 or 16 bytes."""
    assert len(host) in (4, 16)
    return (_V4 if len(host) == 4 else _V6).pack(host, port, physical).hex().upper()


def parse_offset_message_id(text: str) -> tuple[bytes, int, int] | None:
    """Give back address, port and physical offset; None if it is no such id."""
    try:
        data = bytes.fromhex(text) if text.isalnum() else b""
    except ValueError:
        return None
    if len(data) not in (16, 28):
        return None
    host, port, physical = (_V4 if len(data) == 16 else _V6).unpack(data)
    return host, port, physical


def _month_start_ms(time_ms: int) -> int:
    """Say when the month began that a time is in, in UTC (Java takes the zone it is in: a reader must take that into account)."""
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    return int(moment.replace(day=1, hour=0, minute=0, second=0, microsecond=0).timestamp() * 1000)


class UniqueKeys:
    """Makes the names that a producer gives its messages. One per process, so that names differ: the counter is shared."""

    def __init__(self, host: bytes, process_id: int, salt: int) -> None:
        assert len(host) in (4, 16)
        self._head = host
        self._process_id = process_id & 0xFFFF
        self._salt = salt & 0xFFFFFFFF
        self._counter = 0
        self._month: tuple[int, int] = (0, 0)

    def make(self, now_ms: int) -> str:
        """Name the next message."""
        start, end = self._month
        if not start <= now_ms < end:
            start = _month_start_ms(now_ms)
            self._month = start, _month_start_ms(start + 32 * 86_400_000)
        tail = _KEY_TAIL.pack(self._process_id, self._salt, now_ms - start & 0xFFFFFFFF, self._counter)
        self._counter = (self._counter + 1) & 0xFFFF
        return (self._head + tail).hex().upper()


def unique_key_time_ms(key: str, now_ms: int) -> int | None:
    """Say when a message with this unique key was made, to the month that it can be in; None if it is no such key."""
    try:
        data = bytes.fromhex(key) if key.isalnum() else b""
    except ValueError:
        return None
    if len(data) not in (16, 28):
        return None
    since_ms = int.from_bytes(data[-6:-2], "big")
    start = _month_start_ms(now_ms)
    if start + since_ms > now_ms + int(timedelta(days=1).total_seconds() * 1000):
        start = _month_start_ms(start - 1)
    return start + since_ms
