"""What a connection's pulls and batches say again and again: found by the bytes of their headers, without an object for any field. Hot; compiled if possible.

A consumer pulls a queue thousands of times a second, and each time only the place where it goes on is another one; a producer of batches says
each time who it is, and only the time is another one. Whoever has answered such a request leaves what it found out about it in `lanes`, under the request's `key`; the next one like it is then not read as a request, but
comes as `Again` with that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from polymq.rocketmq_limits import REPEATED_SIZE_BYTES_MAX

if not cython.compiled:
    from polymq.protocols.rocketmq.fields import Fields  # noqa: TC001  # compiled it is a type of C
    from polymq.wire.inline import bytes_at, copy, equal_bytes, store_u32

if TYPE_CHECKING:
    from typing import Any

__all__ = ["Repeats"]

_PLACES = cython.declare(cython.Py_ssize_t, 5)
_BORN = cython.declare(cython.int, 103)  # g
_SIZE_MAX = cython.declare(cython.Py_ssize_t, REPEATED_SIZE_BYTES_MAX)
_DIGITS_MAX = cython.declare(cython.Py_ssize_t, 18)


@cython.final
@cython.cclass
class Repeats:
    """The requests of one connection that may come again.

    `find` tells of the last request: its `key` (empty if it is none that can be repeated), and its numbers that are others each time: of a pull
    where it begins (`number`), and what it commits (`commit_offset`; -1: nothing); of a batch when it was born (`number`).
    """

    def __init__(self) -> None:
        self.lanes: dict[bytes, Any] = {}
        self.key = b""
        self.number = self.commit_offset = -1
        self._room = memoryview(bytearray(REPEATED_SIZE_BYTES_MAX))

    @cython.ccall
    def find(self, fields: Fields, data: cython.const[cython.uchar][::1], binary: cython.bint, batch: cython.bint) -> object:
        """Give what was left for requests like the one whose header has been scanned from `data`; None if there is nothing.

        `batch`: it is a batch of messages, whose fields are called by letters; else it is a pull.
        """
        i: cython.Py_ssize_t
        end: cython.Py_ssize_t = 1
        size: cython.Py_ssize_t
        value_size: cython.Py_ssize_t
        places: cython.int[::1] = fields.places
        room: cython.uchar[::1] = self._room
        self.key = b""
        self.number = self.commit_offset = -1
        room[0] = binary + 2 * batch
        for i in range(0, _PLACES * fields.count, _PLACES):
            size, value_size = places[i + 1], places[i + 3]
            if (size == 1 and data[places[i]] == _BORN) if batch else (size == 11 and equal_bytes(b"queueOffset", data, places[i], 11)):
                self.number = _whole(data, places[i + 2], value_size)
            elif not batch and size == 12 and equal_bytes(b"commitOffset", data, places[i], 12):
                self.commit_offset = _whole(data, places[i + 2], value_size)
                if self.commit_offset < 0:
                    return None
            elif size + value_size + 8 > _SIZE_MAX - end:
                return None
            else:
                store_u32(room, end, cython.cast(cython.uint, size))
                store_u32(room, end + 4, cython.cast(cython.uint, value_size))
                copy(room, end + 8, data, places[i], size)
                copy(room, end + 8 + size, data, places[i + 2], value_size)
                end += 8 + size + value_size
        if self.number < 0:
            return None
        self.key = bytes_at(room, 0, end)
        return self.lanes.get(self.key)


@cython.cfunc
@cython.exceptval(check=False)
def _whole(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.longlong:
    """Read a whole number, 0 or more; -1 if it is none."""
    value: cython.longlong = 0
    end: cython.Py_ssize_t = at + size
    if size < 1 or size > _DIGITS_MAX:
        return -1
    while at < end:
        if data[at] < 48 or data[at] > 57:
            return -1
        value = 10 * value + data[at] - 48
        at += 1
    return value
