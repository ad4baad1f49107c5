"""Room for the rows of a run of sends and for their extras, shared by all decoders: they live as long as what was read. Hot."""

from __future__ import annotations

from array import array
from typing import Final

import cython

from polymq.protocols.rocketmq.events import COLUMNS

if not cython.compiled:
    from polymq.wire.inline import copy

__all__ = ["EXTRAS_KEPT_SIZE_BYTES_MAX", "ROWS", "Rows"]

_CAPACITY_FIRST: Final = 256
_EXTRAS_FIRST_SIZE_BYTES: Final = 64 * 1024
# What is kept between feeds: a read of 256 KiB has no more in it. Rows are bounded by SENDS_PER_FEED_MAX.
EXTRAS_KEPT_SIZE_BYTES_MAX: Final = 1024 * 1024


@cython.final
@cython.cclass
class Rows:
    """`numbers` has `capacity` rows of COLUMNS numbers, `extras` has `room` bytes; the views are the same, for events."""

    def __init__(self) -> None:
        self.capacity = self.room = 0
        self.numbers_view = memoryview(array("i", [0]))
        self.extras_view = memoryview(bytearray(1))
        self.numbers, self.extras = self.numbers_view, self.extras_view
        self.reserve_rows(0)
        self.reserve_extras(0, 1)

    @cython.ccall
    def reserve_rows(self, used: cython.Py_ssize_t) -> object:
        """Make room for one more row than `used`; what was handed out keeps the old one."""
        i: cython.Py_ssize_t
        if used < self.capacity:
            return None
        capacity = max(_CAPACITY_FIRST, 2 * self.capacity)
        view = memoryview(array("i", bytes(4 * COLUMNS * capacity)))
        fresh: cython.int[::1] = view
        if used:
            for i in range(used * COLUMNS):
                fresh[i] = self.numbers[i]
        self.numbers = fresh
        self.numbers_view = view
        self.capacity = capacity
        return None

    @cython.ccall
    def reserve_extras(self, used: cython.Py_ssize_t, size: cython.Py_ssize_t) -> object:
        """Make room for `size` bytes behind `used`; what was handed out keeps the old one."""
        if size <= self.room - used:
            return None
        room = max(_EXTRAS_FIRST_SIZE_BYTES, 2 * self.room, used + size)
        view = memoryview(bytearray(room))
        fresh: cython.uchar[::1] = view
        if used:
            copy(fresh, 0, self.extras, 0, used)
        self.extras = fresh
        self.extras_view = view
        self.room = room
        return None

    @cython.ccall
    def start(self) -> object:
        """Begin a feed: a single huge one must not keep its room for ever."""
        if self.room > EXTRAS_KEPT_SIZE_BYTES_MAX:
            self.room = 0
            self.reserve_extras(0, 1)
        return None


ROWS: Final = Rows()
