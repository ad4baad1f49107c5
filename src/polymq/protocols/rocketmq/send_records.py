"""A run of plain sends as records of the log, straight from the decoder's rows. Hot; compiled if possible.

    record    u32 size | u32 flags, where the body begins | key and headers, if there are any (`generic`)
              u32 size of the extras, u8 2, u32 size, native extra (`extras`) | body

Most sends have only the system's properties: their records have nothing but extra and body. Read next: `stored`, the other direction.
"""

from __future__ import annotations

import cython

from polymq.protocols.rocketmq import events
from polymq.protocols.rocketmq.extras import FIXED_SIZE_BYTES
from polymq.protocols.rocketmq.generic import GENERIC
from polymq.protocols.rocketmq.messages import ORIGIN_ROCKETMQ
from polymq.protocols.rocketmq.sends import ORDERS
from polymq.rocketmq_limits import PROPERTIES_SIZE_BYTES_MAX
from polymq.wire.batch import BODY_AT_MASK, RECORD_OVERHEAD_BYTES

if not cython.compiled:
    from polymq.protocols.rocketmq.generic import Generic
    from polymq.protocols.rocketmq.sends import Orders, Sends
    from polymq.wire.inline import copy, store_u32

__all__ = ["encode_records"]

_COLUMNS = cython.declare(cython.Py_ssize_t, events.COLUMNS)
_BODY_AT = cython.declare(cython.Py_ssize_t, events.BODY_AT)
_BODY_SIZE = cython.declare(cython.Py_ssize_t, events.BODY_SIZE)
_EXTRA_AT = cython.declare(cython.Py_ssize_t, events.EXTRA_AT)
_EXTRA_SIZE = cython.declare(cython.Py_ssize_t, events.EXTRA_SIZE)
_GENERIC_SIZE = cython.declare(cython.Py_ssize_t, events.GENERIC_SIZE)

_C_OVERHEAD = cython.declare(cython.Py_ssize_t, 8)
_EXTRAS = cython.declare(cython.uint, 0x10)
# A record's words, those of its extras, and number and size of the one.
_BEFORE_EXTRA = cython.declare(cython.Py_ssize_t, 17)
_C_ORIGIN = cython.declare(cython.uchar, 2)
_FIXED_SIZE = cython.declare(cython.Py_ssize_t, 48)

assert (RECORD_OVERHEAD_BYTES, ORIGIN_ROCKETMQ, FIXED_SIZE_BYTES) == (_C_OVERHEAD, _C_ORIGIN, _FIXED_SIZE)
# So nothing of a send can be too large for its record: a property of four bytes is a header of ten.
assert 4 * PROPERTIES_SIZE_BYTES_MAX + 1024 < BODY_AT_MASK


def encode_records(sends: Sends, order: memoryview, first: int, count: int) -> memoryview:
    """Write a record for each of the sends `order[first : first + count]`, in that order, for `Session.publish_records`.

    Cost: one copy of everything, about 20 ns each.
    """
    assert 0 <= first <= first + count <= min(len(order), sends.count)
    orders: Orders = ORDERS
    numbers: cython.int[::1] = orders.numbers_of(order)
    target = bytearray(_records_size(sends.numbers, numbers, first, count))
    _write_records(target, sends.data, sends.extra_bytes, sends.numbers, numbers, first, count)
    return memoryview(target)


@cython.cfunc
@cython.exceptval(-1)
def _records_size(rows: cython.int[::1], order: cython.int[::1], first: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.Py_ssize_t:
    total: cython.Py_ssize_t = count * _BEFORE_EXTRA
    i: cython.Py_ssize_t
    row: cython.Py_ssize_t
    for i in range(first, first + count):
        row = order[i] * _COLUMNS
        total += rows[row + _BODY_SIZE] + rows[row + _EXTRA_SIZE] + rows[row + _GENERIC_SIZE]
    return total


@cython.cfunc
@cython.exceptval(check=False)
def _write_records(
    target: cython.uchar[::1],
    source: cython.const[cython.uchar][::1],
    extras: cython.const[cython.uchar][::1],
    rows: cython.int[::1],
    order: cython.int[::1],
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    generic: Generic = GENERIC
    at: cython.Py_ssize_t = 0
    start: cython.Py_ssize_t
    i: cython.Py_ssize_t
    row: cython.Py_ssize_t
    extra: cython.Py_ssize_t
    extra_size: cython.Py_ssize_t
    body_size: cython.Py_ssize_t
    flags: cython.uint
    for i in range(first, first + count):
        row = order[i] * _COLUMNS
        extra = rows[row + _EXTRA_AT]
        extra_size = rows[row + _EXTRA_SIZE]
        body_size = rows[row + _BODY_SIZE]
        start = at
        at += _C_OVERHEAD
        flags = _EXTRAS
        if rows[row + _GENERIC_SIZE]:
            flags |= generic.write(target, at, extras, extra + _FIXED_SIZE - 4 + extras[extra + 1], extra + extra_size)
            at += rows[row + _GENERIC_SIZE]
        store_u32(target, at, cython.cast(cython.uint, extra_size + 5))
        target[at + 4] = _C_ORIGIN
        store_u32(target, at + 5, cython.cast(cython.uint, extra_size))
        copy(target, at + 9, extras, extra, extra_size)
        at += 9 + extra_size
        store_u32(target, start, cython.cast(cython.uint, at - start + body_size))
        store_u32(target, start + 4, flags << 24 | cython.cast(cython.uint, at - start))
        copy(target, at, source, rows[row + _BODY_AT], body_size)
        at += body_size
    return at
