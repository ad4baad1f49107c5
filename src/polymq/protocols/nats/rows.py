"""Room for the rows of a live batch, shared by all decoders: they are as short-lived as the buffer that is read into. Hot.

With room of its own each busy connection would keep a megabyte, and pages that are touched for the first time cost more
than decoding does.
"""

from __future__ import annotations

from array import array
from typing import Final

import cython

from polymq.wire.live import COLUMNS

__all__ = ["CAPACITY_KEPT_MAX", "ROWS", "Rows"]

# Rows: at first, and what is kept between feeds. A read of 256 KiB has at most 23,832 messages.
_CAPACITY_FIRST: Final = 256
CAPACITY_KEPT_MAX: Final = 32 * 1024
_BYTES_PER_NUMBER: Final = 4


@cython.cclass
class Rows:
    """`numbers` has `capacity` rows of `live.COLUMNS` numbers; `view` is the same, for batches."""

    def __init__(self) -> None:
        self.allocate(_CAPACITY_FIRST)

    @cython.ccall
    def allocate(self, capacity: cython.Py_ssize_t) -> object:
        """Make new room: what was handed out keeps the old one."""
        self.view = memoryview(array("i", bytes(_BYTES_PER_NUMBER * COLUMNS * capacity)))
        self.numbers = self.view
        self.capacity = capacity
        return None

    @cython.ccall
    def grow(self, used: cython.Py_ssize_t) -> object:
        """Double the room, with a copy of the rows before `used`: batches already made keep the old one."""
        i: cython.Py_ssize_t
        old: cython.int[::1] = self.numbers
        self.allocate(2 * self.capacity)
        for i in range(used * COLUMNS):
            self.numbers[i] = old[i]
        return None

    def start(self) -> None:
        """Begin a feed: a single huge one must not keep its room for ever."""
        if self.capacity > CAPACITY_KEPT_MAX:
            self.allocate(_CAPACITY_FIRST)


ROWS: Final = Rows()
