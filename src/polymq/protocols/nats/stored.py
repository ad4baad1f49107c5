"""NATS messages as records of the log, encoded straight from the batch in which they came. Hot; compiled if possible.

    body      the payload behind the headers
    headers   each line of the block: name and value, without the blanks around the value; behind them `reply-to` and where answers go
    extras    of NATS's number, each with a letter in front: R and where answers go; H and the whole block of headers, if it is
              not what its lines make again (`NATS/1.0␍␊`, `name: value␍␊` for each, `␍␊`)

So what came by NATS can leave byte by byte, and everybody else sees its headers and where answers go. `wire/records.py` has the layout of records;
read next: `gateways/nats/records.py`, the other direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import cython

from polymq.errors import Refusal, RefusalCode
from polymq.wire import live
from polymq.wire.batch import BODY_AT_MASK, RECORD_OVERHEAD_BYTES

if not cython.compiled:
    from polymq.wire.inline import copy, equal_bytes, store_u32

if TYPE_CHECKING:
    from polymq.wire.live import LiveBatch

__all__ = ["BLOCK", "ORIGIN_NATS", "REPLY", "REPLY_TO", "encode_records"]

# The protocol's number in the log, and the letters of its extras.
ORIGIN_NATS: Final = 3
REPLY: Final = b"R"
BLOCK: Final = b"H"
# The header by which other protocols know where answers go.
REPLY_TO: Final = b"reply-to"
_REPLY_TO_SIZE = cython.declare(cython.Py_ssize_t, 8)
_REPL = cython.declare(cython.uint, 0x6C706572)
_Y_TO = cython.declare(cython.uint, 0x6F742D79)

_COLUMNS = cython.declare(cython.Py_ssize_t, live.COLUMNS)
_REPLY_AT = cython.declare(cython.Py_ssize_t, live.REPLY_AT)
_REPLY_SIZE = cython.declare(cython.Py_ssize_t, live.REPLY_SIZE)
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, live.HEADER_SIZE)
_PAYLOAD_AT = cython.declare(cython.Py_ssize_t, live.PAYLOAD_AT)
_PAYLOAD_SIZE = cython.declare(cython.Py_ssize_t, live.PAYLOAD_SIZE)
_C_OVERHEAD = cython.declare(cython.Py_ssize_t, 8)
_C_BODY_AT_MAX = cython.declare(cython.Py_ssize_t, 0xFFFFFF)
_C_ORIGIN = cython.declare(cython.uchar, 3)
_HEADERS = cython.declare(cython.uint, 0x08)
_EXTRAS = cython.declare(cython.uint, 0x10)
_CR = cython.declare(cython.int, 13)
_LF = cython.declare(cython.int, 10)
_COLON = cython.declare(cython.int, 58)
_BLANK = cython.declare(cython.int, 32)
_TAB = cython.declare(cython.int, 9)
_DELETE = cython.declare(cython.int, 127)
# The line that blocks begin with.
_FIRST_LINE: Final = b"NATS/1.0\r\n"
_FIRST_LINE_SIZE = cython.declare(cython.Py_ssize_t, 10)
# The words of a record and of its headers and extras, what goes before each extra, and the header for the reply but for its value.
_FIELDS = cython.declare(cython.Py_ssize_t, 48)
# A line of four bytes (a name of one, a colon, the line's end) becomes nine; and the block may be there as a whole, too.
_GROWTH = cython.declare(cython.Py_ssize_t, 4)

assert (RECORD_OVERHEAD_BYTES, BODY_AT_MASK, len(_FIRST_LINE)) == (_C_OVERHEAD, _C_BODY_AT_MAX, _FIRST_LINE_SIZE)
assert (ORIGIN_NATS, REPLY[0], BLOCK[0], len(REPLY_TO)) == (_C_ORIGIN, 82, 72, _REPLY_TO_SIZE)
assert (int.from_bytes(REPLY_TO[:4], "little"), int.from_bytes(REPLY_TO[4:], "little")) == (_REPL, _Y_TO)


def encode_records(batch: LiveBatch, indexes: memoryview, first: int, count: int) -> memoryview:
    """Write a record for each of the messages `indexes[first : first + count]` (int32), in that order.

    Raises: Refusal (BATCH_TOO_LARGE) when a message's headers and reply together reach 16 MiB; then nothing is written.
    Cost:   one copy of everything, about 20 ns each; headers are walked byte by byte.
    """
    target = bytearray(_room(batch.rows, indexes, first, count))
    end: cython.Py_ssize_t = _write(target, batch.view, batch.rows, indexes, first, count)
    if end < 0:
        raise Refusal(RefusalCode.BATCH_TOO_LARGE, "the headers of a message are too large")
    return memoryview(target)[:end]


@cython.cfunc
@cython.exceptval(-1)
def _room(rows: cython.int[::1], indexes: cython.int[::1], first: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Say how much the records take at most."""
    total: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    row: cython.Py_ssize_t
    assert 0 <= first
    assert 0 <= count <= len(indexes) - first
    for i in range(first, first + count):
        row = indexes[i] * _COLUMNS
        total += rows[row + _PAYLOAD_SIZE] + 2 * rows[row + _REPLY_SIZE] + _GROWTH * rows[row + _HEADER_SIZE] + _FIELDS
    return total


@cython.cfunc
@cython.exceptval(-2)
def _write(
    target: cython.uchar[::1],
    source: cython.const[cython.uchar][::1],
    rows: cython.int[::1],
    indexes: cython.int[::1],
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write the records; gives where they end, -1 if one cannot be written."""
    at: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    row: cython.Py_ssize_t
    start: cython.Py_ssize_t
    payload_at: cython.Py_ssize_t
    header_size: cython.Py_ssize_t
    size: cython.Py_ssize_t
    flags: cython.uint
    exact: cython.bint
    for i in range(first, first + count):
        row = indexes[i] * _COLUMNS
        payload_at = rows[row + _PAYLOAD_AT]
        header_size = rows[row + _HEADER_SIZE]
        size = rows[row + _PAYLOAD_SIZE] - header_size
        flags = 0
        exact = True
        start = at
        at += _C_OVERHEAD
        if header_size:
            exact = _is_exact(source, payload_at, payload_at + header_size)
        if header_size or rows[row + _REPLY_SIZE]:
            at = _write_headers(target, at, source, payload_at, payload_at + header_size, rows[row + _REPLY_AT], rows[row + _REPLY_SIZE])
            if at > start + _C_OVERHEAD:
                flags |= _HEADERS
        if rows[row + _REPLY_SIZE] or not exact:
            flags |= _EXTRAS
            at = _write_extras(
                target,
                at,
                source,
                rows[row + _REPLY_AT],
                rows[row + _REPLY_SIZE],
                payload_at,
                0 if exact else header_size,
            )
        if at - start > _C_BODY_AT_MAX:
            return -1
        store_u32(target, start, cython.cast(cython.uint, at - start + size))
        store_u32(target, start + 4, flags << 24 | cython.cast(cython.uint, at - start))
        copy(target, at, source, payload_at + header_size, size)
        at += size
    return at


@cython.cfunc
@cython.exceptval(check=False)
def _write_extras(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    source: cython.const[cython.uchar][::1],
    reply_at: cython.Py_ssize_t,
    reply_size: cython.Py_ssize_t,
    block_at: cython.Py_ssize_t,
    block_size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write reply and block, each if there is one."""
    start: cython.Py_ssize_t = at
    at += 4
    if reply_size:
        at = _write_extra(target, at, 82, source, reply_at, reply_size)
    if block_size:
        at = _write_extra(target, at, 72, source, block_at, block_size)
    store_u32(target, start, cython.cast(cython.uint, at - start - 4))
    return at


@cython.cfunc
@cython.exceptval(check=False)
def _write_extra(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    letter: cython.uchar,
    source: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    target[at] = _C_ORIGIN
    store_u32(target, at + 1, cython.cast(cython.uint, size + 1))
    target[at + 5] = letter
    copy(target, at + 6, source, start, size)
    return at + 6 + size


@cython.cfunc
@cython.exceptval(check=False)
def _line_end(source: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Find where a line ends, before its ␍␊ or at the end."""
    while at < end:
        if source[at] == _CR and at + 1 < end and source[at + 1] == _LF:
            return at
        at += 1
    return end


@cython.cfunc
@cython.exceptval(check=False)
def _colon(source: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Find the colon of a line; its end if there is none behind at least one byte."""
    start: cython.Py_ssize_t = at
    while at < end and source[at] != _COLON:
        at += 1
    return end if at == start else at


@cython.cfunc
@cython.exceptval(check=False)
def _write_headers(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    source: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    reply_at: cython.Py_ssize_t,
    reply_size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write the lines of a block, as far as they are any, but for the first, and the reply; nothing at all if there are none."""
    start: cython.Py_ssize_t = at
    stop: cython.Py_ssize_t
    colon: cython.Py_ssize_t
    value: cython.Py_ssize_t
    last: cython.Py_ssize_t
    at += 4
    if position < end:
        position = _line_end(source, position, end) + 2
    while position < end:
        stop = _line_end(source, position, end)
        colon = _colon(source, position, stop)
        if colon < stop:
            value = colon + 1
            last = stop
            while value < last and (source[value] == _BLANK or source[value] == _TAB):
                value += 1
            while value < last and (source[last - 1] == _BLANK or source[last - 1] == _TAB):
                last -= 1
            store_u32(target, at, cython.cast(cython.uint, colon - position))
            copy(target, at + 4, source, position, colon - position)
            at += 4 + colon - position
            store_u32(target, at, cython.cast(cython.uint, last - value))
            copy(target, at + 4, source, value, last - value)
            at += 4 + last - value
        position = stop + 2
    if reply_size:
        store_u32(target, at, 8)
        store_u32(target, at + 4, _REPL)
        store_u32(target, at + 8, _Y_TO)
        store_u32(target, at + 12, cython.cast(cython.uint, reply_size))
        copy(target, at + 16, source, reply_at, reply_size)
        at += 16 + reply_size
    if at == start + 4:
        return start
    store_u32(target, start, cython.cast(cython.uint, at - start - 4))
    return at


@cython.cfunc
@cython.exceptval(check=False)
def _is_exact(source: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
    """Say whether a block is what is made of its lines again: none of them is strange, or looks like what is made of a reply."""
    stop: cython.Py_ssize_t
    colon: cython.Py_ssize_t
    i: cython.Py_ssize_t
    # The first line, one line at least, and the empty one.
    if end - position < _FIRST_LINE_SIZE + 7 or source[end - 1] != _LF or source[end - 2] != _CR:
        return False
    if not _has_version(source, position):
        return False
    position += _FIRST_LINE_SIZE
    while position < end - 2:
        stop = _line_end(source, position, end)
        colon = _colon(source, position, stop)
        if stop - colon < 2 or stop >= end - 2 or source[colon + 1] != _BLANK:
            return False
        if stop - colon > 2 and not _is_trimmed(source, colon + 2, stop):
            return False
        for i in range(position, colon):
            if source[i] <= _BLANK or source[i] >= _DELETE:
                return False
        if colon - position == _REPLY_TO_SIZE and equal_bytes(REPLY_TO, source, position, _REPLY_TO_SIZE):
            return False
        for i in range(colon, stop):
            if source[i] == _CR or source[i] == _LF:
                return False
        position = stop + 2
    return position == end - 2


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _has_version(source: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.bint:
    """Say whether the first line is there: no status behind the version."""
    # NATS
    if source[at] != 78 or source[at + 1] != 65 or source[at + 2] != 84 or source[at + 3] != 83:
        return False
    # /1.0
    if source[at + 4] != 47 or source[at + 5] != 49 or source[at + 6] != 46 or source[at + 7] != 48:
        return False
    return source[at + 8] == _CR and source[at + 9] == _LF


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_trimmed(source: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
    """Say whether a value has no blanks around it."""
    first: cython.int = source[start]
    last: cython.int = source[stop - 1]
    return first != _BLANK and first != _TAB and last != _BLANK and last != _TAB
