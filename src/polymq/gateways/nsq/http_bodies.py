"""Where the messages lie in the body of an HTTP `/mpub`: compiled where possible.

A body of the largest size can hold a million messages, and the broker's turn must not be held by it: nothing is made
per message, only entries in two arrays. Both formats end in a `MessageBatch` over the body itself. Read next:
`http_publishing.py`, which publishes it.
"""

from __future__ import annotations

from array import array
from typing import Final

import cython

from polymq.wire.slices import MessageBatch

if not cython.compiled:
    from polymq.wire.inline import load_u32_be

__all__ = ["BAD_BODY", "BAD_MESSAGE", "MESSAGE_TOO_LARGE", "split_binary", "split_lines"]

# What nsqd answers.
BAD_BODY: Final = "BAD_BODY"
BAD_MESSAGE: Final = "BAD_MESSAGE"
MESSAGE_TOO_LARGE: Final = "MSG_TOO_BIG"

_NEWLINE = cython.declare(cython.uchar, 0x0A)
_SIZE_FIELD = cython.declare(cython.Py_ssize_t, 4)
_SIGN_BIT = cython.declare(cython.longlong, 0x80000000)


def split_lines(view: memoryview, *, size_bytes_max: int) -> MessageBatch | str:
    """Find the lines of a text body; empty ones are no messages. Gives the batch (maybe of 0), or the problem.

    Cost: two walks over the body, about 1 ns a byte each when compiled.
    """
    capacity = _count_lines(view)
    positions, sizes = _arrays(capacity)
    count = _fill_lines(view, positions, sizes, size_bytes_max)
    if count < 0:
        return MESSAGE_TOO_LARGE
    return _batch(view, positions, sizes, count)


def split_binary(view: memoryview, *, size_bytes_max: int, count_max: int) -> MessageBatch | str:
    """Find the messages of a binary body; what lies behind the last is ignored. Gives the batch, or the problem.

     0            4           8           n
    +------------+-----------+-----------+-----
    | count      | size      | body      | …      all big-endian i32
    +------------+-----------+-----------+-----

    Source: nsqd/http.go doMPUB and nsqd/protocol_v2.go readMPUB, NSQ 1.3.0.
    Cost:   about 2 ns a message when compiled.
    """
    count = _count_of(view)
    if count <= 0 or count > count_max:
        return BAD_BODY
    # Each message takes five bytes at least: a count that cannot be true gets no arrays of its size.
    if count > len(view) // 5:
        return BAD_MESSAGE
    positions, sizes = _arrays(count)
    if not _fill_binary(view, positions, sizes, count, size_bytes_max):
        return BAD_MESSAGE
    return _batch(view, positions, sizes, count)


def _arrays(capacity: int) -> tuple[array[int], array[int]]:
    zeros = bytes(8 * capacity)
    return array("q", zeros), array("q", zeros)


def _batch(view: memoryview, positions: array[int], sizes: array[int], count: int) -> MessageBatch:
    size_bytes: int = _total(sizes, count)
    return MessageBatch(view, memoryview(positions), memoryview(sizes), first=0, count=count, size_bytes=size_bytes)


@cython.cfunc
@cython.exceptval(-1)
def _total(sizes: cython.longlong[::1], count: cython.Py_ssize_t) -> cython.longlong:
    index: cython.Py_ssize_t
    total: cython.longlong = 0
    for index in range(count):
        total += sizes[index]
    return total


@cython.cfunc
@cython.exceptval(-1)
def _count_lines(source: cython.const[cython.uchar][::1]) -> cython.Py_ssize_t:
    """Count lines, empty ones included: as much room as their entries can take."""
    index: cython.Py_ssize_t
    count: cython.Py_ssize_t = 1
    for index in range(len(source)):
        if source[index] == _NEWLINE:
            count += 1
    return count


@cython.cfunc
@cython.exceptval(-2)
def _fill_lines(
    source: cython.const[cython.uchar][::1],
    positions: cython.longlong[::1],
    sizes: cython.longlong[::1],
    size_bytes_max: cython.longlong,
) -> cython.Py_ssize_t:
    """Note every line that is not empty; give how many there are, or -1 if one is too large."""
    end: cython.Py_ssize_t = len(source)
    index: cython.Py_ssize_t
    start: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = 0
    for index in range(end + 1):
        if index < end and source[index] != _NEWLINE:
            continue
        if index > start:
            if index - start > size_bytes_max:
                return -1
            positions[count] = start
            sizes[count] = index - start
            count += 1
        start = index + 1
    return count


@cython.cfunc
@cython.exceptval(-2)
def _count_of(source: cython.const[cython.uchar][::1]) -> cython.longlong:
    """Read the count at the start; -1 if there is none, or if it is negative."""
    if len(source) < _SIZE_FIELD:
        return -1
    value: cython.longlong = load_u32_be(source, 0)
    return -1 if value >= _SIGN_BIT else value


@cython.cfunc
@cython.exceptval(-1)
def _fill_binary(
    source: cython.const[cython.uchar][::1],
    positions: cython.longlong[::1],
    sizes: cython.longlong[::1],
    count: cython.Py_ssize_t,
    size_bytes_max: cython.longlong,
) -> cython.int:
    """Note every message; 0 if one is cut off, empty or too large (a negative size is too large), else 1."""
    end: cython.Py_ssize_t = len(source)
    at: cython.Py_ssize_t = _SIZE_FIELD
    size: cython.longlong
    index: cython.Py_ssize_t
    for index in range(count):
        if end - at < _SIZE_FIELD:
            return 0
        size = load_u32_be(source, at)
        at += _SIZE_FIELD
        if size == 0 or size > size_bytes_max or size > end - at:
            return 0
        positions[index] = at
        sizes[index] = size
        at += cython.cast(cython.Py_ssize_t, size)
    return 1
