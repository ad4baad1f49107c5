"""Records that are not to be delivered any more after a time of their own: writing them, and finding those that are over.

Like `records.py`, which has the layout: hot, and the same compiled and interpreted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import cython

if not cython.compiled:
    from polymq.wire.inline import copy, load_i64, load_u32, store_i64, store_u32

if TYPE_CHECKING:
    from polymq.wire.slices import MessageBatch, Slice

__all__ = ["EXPIRING_RECORD_OVERHEAD_BYTES", "encode_expiring", "expiry_of", "leading"]

# The two words of every record, and the time at which it is over.
EXPIRING_RECORD_OVERHEAD_BYTES: Final = 16
_C_OVERHEAD = cython.declare(cython.Py_ssize_t, 16)
_C_PLAIN_OVERHEAD = cython.declare(cython.Py_ssize_t, 8)
# Flag 0x02 (a time at which it is over follows), and where the body begins.
_C_WORD = cython.declare(cython.uint, 0x02000010)
_C_PLAIN_WORD = cython.declare(cython.uint, 8)
_C_TIME_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 80)
_HEADER_COUNT_AT = cython.declare(cython.Py_ssize_t, 28)
_TIME = cython.declare(cython.uint, 0x01000000)
_EXPIRY = cython.declare(cython.uint, 0x02000000)


def encode_expiring(target: bytearray, at: int, batch: MessageBatch, lifetimes: memoryview, unit_ns: int, now_ns: int) -> int:
    """Write one record for each body of a batch, with the time at which it is over; return where the next one would start.

    `lifetimes` are how long each lasts from `now_ns` on, in units of `unit_ns` ("q"), at the places of the batch's sizes; 0: for ever.
    Limits: `target` has EXPIRING_RECORD_OVERHEAD_BYTES and the body's size for each from `at` on (asserted).
    Cost:   one copy of the bodies. No object per message.
    """
    end: int = _encode(target, at, batch.view, batch.positions, batch.sizes, lifetimes, batch.first, batch.count, unit_ns, now_ns)
    return end


@cython.cfunc
@cython.exceptval(-1)
def _encode(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    source: cython.const[cython.uchar][::1],
    positions: cython.longlong[::1],
    sizes: cython.longlong[::1],
    lifetimes: cython.longlong[::1],
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    unit_ns: cython.longlong,
    now_ns: cython.longlong,
) -> cython.Py_ssize_t:
    """Do the work of `encode_expiring` on typed views."""
    room: cython.Py_ssize_t = len(target)
    available: cython.Py_ssize_t = len(source)
    index: cython.Py_ssize_t
    size: cython.Py_ssize_t
    position: cython.Py_ssize_t
    most: cython.longlong
    assert at >= 0
    assert first >= 0
    assert count >= 0
    assert first + count <= len(positions)
    assert first + count <= len(sizes)
    assert first + count <= len(lifetimes)
    assert unit_ns > 0
    assert 0 <= now_ns <= _C_TIME_MAX
    most = (_C_TIME_MAX - now_ns) // unit_ns
    for index in range(first, first + count):
        size = sizes[index]
        position = positions[index]
        assert size >= 0
        assert 0 <= position <= available - size
        assert size <= room - at - _C_OVERHEAD
        assert 0 <= lifetimes[index] <= most
        if lifetimes[index]:
            store_u32(target, at, _C_OVERHEAD + size)
            store_u32(target, at + 4, _C_WORD)
            store_i64(target, at + 8, now_ns + lifetimes[index] * unit_ns)
            at += _C_OVERHEAD
        else:
            store_u32(target, at, _C_PLAIN_OVERHEAD + size)
            store_u32(target, at + 4, _C_PLAIN_WORD)
            at += _C_PLAIN_OVERHEAD
        copy(target, at, source, position, size)
        at += size
    return at


def leading(piece: Slice, now_ns: int) -> int:
    """Say how many records at the front of a slice are alike: n that are not over at `now_ns`, or -n that are.

    Cost: about 2 ns per record when compiled.
    """
    count: int = _leading(piece.view, piece.position, piece.batch_left, piece.count, now_ns)
    return count


@cython.cfunc
@cython.exceptval(check=False)
def _leading(
    view: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    batch_left: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    now_ns: cython.longlong,
) -> cython.Py_ssize_t:
    """Do the work of `leading` on a typed view."""
    seen: cython.Py_ssize_t = 0
    over: cython.bint
    first_over: cython.bint = False
    while seen < count:
        if batch_left == 0:
            batch_left = load_u32(view, position + _HEADER_COUNT_AT)
            position += _HEADER_SIZE
        over = _is_over(view, position, now_ns)
        if seen == 0:
            first_over = over
        elif over != first_over:
            break
        position += load_u32(view, position)
        batch_left -= 1
        seen += 1
    return -seen if first_over else seen


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_over(view: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, now_ns: cython.longlong) -> cython.bint:
    """Say whether the record at `position` is over."""
    word: cython.uint = load_u32(view, position + 4)
    if not word & _EXPIRY:
        return False
    return load_i64(view, position + (16 if word & _TIME else 8)) <= now_ns


def expiry_of(piece: Slice) -> int:
    """Say when the first record of a slice is over; 0: it never is."""
    at: int = piece.position if piece.batch_left else piece.position + 80
    return _expiry(piece.view, at)


@cython.cfunc
@cython.exceptval(check=False)
def _expiry(view: cython.const[cython.uchar][::1], position: cython.Py_ssize_t) -> cython.longlong:
    word: cython.uint = load_u32(view, position + 4)
    if not word & _EXPIRY:
        return 0
    return load_i64(view, position + (16 if word & _TIME else 8))
