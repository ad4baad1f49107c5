"""Buffers of output: a pool of those that nobody uses, and what several connections send from one."""

from __future__ import annotations

from typing import Final

__all__ = ["BufferPool", "Lent"]

# Sizes of buffers, and how many of each are kept when nobody uses them: in a turn that serves thousands of connections each
# has a small one, and one read in large pieces that goes to many has a few large ones. Fresh memory costs a fault for
# each page beside being cleared: 64 KiB take 30 us to make, which is more than all else that is done for a connection.
_CLASSES: Final = (
    (2 * 1024, 2048),
    (4 * 1024, 256),
    (8 * 1024, 128),
    (16 * 1024, 128),
    (32 * 1024, 128),
    (64 * 1024, 32),
    (96 * 1024, 8),
    (128 * 1024, 8),
    (192 * 1024, 8),
    (256 * 1024, 8),
    # What a piece of input comes to in protocols whose frames are a little longer on their way out.
    (320 * 1024, 8),
    (384 * 1024, 8),
    (512 * 1024, 4),
    (768 * 1024, 4),
    (1024 * 1024, 4),
    # And one read in bulk.
    (1280 * 1024, 6),
    (1536 * 1024, 6),
    (2560 * 1024, 2),
)


class BufferPool:
    """Buffers that no connection uses at the moment, the most recently used first. Memory: 56 MiB at most, what was in use at one time at most."""

    __slots__ = ("_free",)

    def __init__(self) -> None:
        self._free: dict[int, tuple[list[bytearray], int]] = {size: ([], kept) for size, kept in _CLASSES}

    def take(self, size: int) -> bytearray:
        """Hand out a buffer of at least `size` bytes, less than twice as many if it is above 1 KiB or so; what it contains is meaningless."""
        for room, (free, _) in self._free.items():
            if size <= room:
                return free.pop() if free else bytearray(room)
        return bytearray(size)

    def give(self, buffer: bytearray) -> None:
        """Take a buffer back that nobody refers to any more; others than the pool's are let go."""
        found = self._free.get(len(buffer))
        if found is not None and len(found[0]) < found[1]:
            found[0].append(buffer)


class Lent:
    """Bytes `at … end` of a buffer that several outboxes send from; it goes back to the pool when the last of them has no use for it.

    Whoever calls `Outbox.lend` holds it as well, until `release`. Nobody writes to a buffer that is lent.
    """

    __slots__ = ("_holders", "_pool", "at", "data", "end")

    def __init__(self, pool: BufferPool, data: bytearray, at: int, end: int) -> None:
        self.data = data
        self.at = at
        self.end = end
        self._pool = pool
        self._holders = 0

    @property
    def is_dense(self) -> bool:
        """Whether it is most of its buffer, so that who keeps it waiting keeps little else."""
        return 2 * (self.end - self.at) >= len(self.data)

    def hold(self) -> None:
        """Count one more who uses the buffer."""
        self._holders += 1

    def release(self) -> None:
        """Count one less."""
        self._holders -= 1
        if not self._holders:
            self._pool.give(self.data)
