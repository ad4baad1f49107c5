"""The two shapes in which messages travel through the hot path: never as a list of objects.

`MessageBatch` is what a decoder hands inwards: one buffer, and where each body lies in it. `Slice` is what the log
hands outwards: a stretch of encoded records. Read next: `records.py`, which turns the one into the other.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["MessageBatch", "Slice"]

_BYTES_PER_INTEGER: Final = 8


class MessageBatch:
    """Bodies that are published together, as positions in one buffer.

    `positions[first + i]` and `sizes[first + i]` (both int64 memoryviews, format "q") give body i in `view`, for
    i < `count`; `size_bytes` is the sum of the sizes. The buffer and the arrays belong to the decoder and are only
    valid until the call that handed them over returns: who keeps a body copies it.
    """

    __slots__ = ("count", "first", "positions", "size_bytes", "sizes", "view")

    def __init__(
        self,
        view: memoryview,
        positions: memoryview,
        sizes: memoryview,
        *,
        first: int,
        count: int,
        size_bytes: int,
    ) -> None:
        self.view = view
        self.positions = positions
        self.sizes = sizes
        self.first = first
        self.count = count
        self.size_bytes = size_bytes

    @classmethod
    def of(cls, bodies: Sequence[bytes]) -> MessageBatch:
        """Make a batch of separate bodies: one copy; for the paths that are not hot."""
        positions = array("q", bytes(_BYTES_PER_INTEGER * len(bodies)))
        sizes = array("q", map(len, bodies))
        at = 0
        for index, body in enumerate(bodies):
            positions[index] = at
            at += len(body)
        return cls(
            memoryview(b"".join(bodies)),
            memoryview(positions),
            memoryview(sizes),
            first=0,
            count=len(bodies),
            size_bytes=at,
        )

    def bodies(self) -> list[bytes]:
        """Copy every body out: for tests and for the paths that are not hot."""
        span = range(self.first, self.first + self.count)
        return [bytes(self.view[self.positions[i] : self.positions[i] + self.sizes[i]]) for i in span]


class Slice:
    """A run of consecutive records as they lie in one segment, possibly across several batches.

    `view` holds encoded batches. Record `offset` starts at byte `position`, inside a batch of which `batch_left`
    records remain from there and whose base time is `base_time_ns`; `count` records belong to the slice, the last
    of which ends at byte `end`. When `batch_left` runs out, the next bytes are another batch header. `partition` is
    the partition's number. Valid until the call that handed it over returns.
    """

    __slots__ = ("base_time_ns", "batch_left", "count", "end", "offset", "partition", "position", "view")

    def __init__(
        self,
        view: memoryview,
        *,
        partition: int,
        position: int,
        end: int,
        offset: int,
        count: int,
        batch_left: int,
        base_time_ns: int,
    ) -> None:
        self.view = view
        self.partition = partition
        self.position = position
        self.end = end
        self.offset = offset
        self.count = count
        self.batch_left = batch_left
        self.base_time_ns = base_time_ns
