"""Looking at single messages without a place in the log: for lists, for peeking. Bounded, and never waits for the disk.

Whoever asks gets None while the disk is read, and asks again with the same arguments after the store's next poll.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.wire.records import HEADER_SIZE_BYTES, parse_header, read_messages, skip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.core.ports import Log
    from polymq.wire.records import Message

__all__ = ["messages_at"]

_EVERYTHING: Final = 1 << 62


def messages_at(log: Log, offsets: Sequence[int]) -> list[tuple[int, Message]] | None:
    """Give (offset, message) for ascending offsets, at least the first that is there; what is not there is left out.

    Stops after `limits.PEEK_SIZE_BYTES_MAX`, and where going on would mean to wait for the disk. None: the disk is
    being read for the first. Cost: a few microseconds per message, and about 2 ns per record in between.
    """
    found: list[tuple[int, Message]] = []
    index, size_bytes = bisect_left(offsets, log.start), 0
    while index < len(offsets) and size_bytes < limits.PEEK_SIZE_BYTES_MAX:
        view = log.batches(offsets[index], limits.PEEK_READ_SIZE_BYTES)
        if view is None:
            return found or None
        if not view:
            break
        index, size_bytes = _look_through(view, offsets, index, size_bytes, found)
    return found


def _look_through(
    view: memoryview, offsets: Sequence[int], index: int, size_bytes: int, found: list[tuple[int, Message]]
) -> tuple[int, int]:
    """Take what is wanted from a run of whole batches; gives the first index and the size so far behind it."""
    at = 0
    while at < len(view) and index < len(offsets):
        header = parse_header(view, at)
        place = (at + HEADER_SIZE_BYTES, header.count, header.base_time_ns)
        offset, end = header.base_offset, header.base_offset + header.count
        while index < len(offsets) and offsets[index] < end:
            if offsets[index] >= offset:
                position, left, time_ns = place
                if offsets[index] > offset:
                    _count, position, left, time_ns = skip(
                        view, position, left, time_ns, offsets[index] - offset, _EVERYTHING, at + header.size
                    )
                found += [(offsets[index], message) for message in read_messages(view, position, left, time_ns, 1, at + header.size)]
                size_bytes += len(found[-1][1].body)
                _count, position, left, time_ns = skip(view, position, left, time_ns, 1, _EVERYTHING, at + header.size)
                place, offset = (position, left, time_ns), offsets[index] + 1
                if size_bytes >= limits.PEEK_SIZE_BYTES_MAX:
                    return index + 1, size_bytes
            index += 1
        at += header.size
    return index, size_bytes
