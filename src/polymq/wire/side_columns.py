"""By which protocol records were published, and when their lifetimes end: the columns beside those of `records.columns`.

A walk of its own, since few readers ask for them. It keeps exactly the records that `columns` has kept, and relies on
what that has found sound. Hot module: see docs/adr/0001.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import cython

from polymq.wire.batch import HEADER_SIZE_BYTES, ORIGIN_NONE, RECORD_OVERHEAD_BYTES, SideColumns

if not cython.compiled:
    from polymq.wire.inline import load_i64, load_u32

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from polymq.wire.batch import Columns

__all__ = ["SideColumns", "side_columns"]

_C_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 80)
_C_OVERHEAD = cython.declare(cython.Py_ssize_t, 8)
_C_ORIGIN_NONE = cython.declare(cython.uint, 0)
_TIME = cython.declare(cython.uint, 0x01)
_EXPIRY = cython.declare(cython.uint, 0x02)
_KEY = cython.declare(cython.uint, 0x04)
_HEADERS = cython.declare(cython.uint, 0x08)
_EXTRAS = cython.declare(cython.uint, 0x10)

assert (HEADER_SIZE_BYTES, RECORD_OVERHEAD_BYTES, ORIGIN_NONE) == (_C_HEADER_SIZE, _C_OVERHEAD, _C_ORIGIN_NONE)


def side_columns(view: Buffer, start: int, end: int, columns: Columns) -> SideColumns:
    """Make the side columns of what `records.columns` has made of the same `view[start:end]`.

    Cost: one more walk, about 2 ns per record when compiled, and for each lifetime or extra a little more. No object per record.
    """
    count = columns.count
    origins, valid, expires_us = bytearray(count), bytearray((count + 7) >> 3), array("q", bytes(8 * count))
    expiry_count: int = _fill(view, start, end, columns.offsets, origins, valid, expires_us)
    return SideColumns(origins, expiry_count, valid, expires_us)


@cython.cfunc
@cython.exceptval(-1)
def _fill(
    view: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    offsets: cython.longlong[::1],
    origins: cython.uchar[::1],
    expiry_valid: cython.uchar[::1],
    expires_us: cython.longlong[::1],
) -> cython.Py_ssize_t:
    """Walk over the batches; a record whose offset is the next row's is that row. Tells how many lifetimes there are."""
    at: cython.Py_ssize_t = start
    batch_end: cython.Py_ssize_t
    row: cython.Py_ssize_t = 0
    rows: cython.Py_ssize_t = len(offsets)
    expiry_count: cython.Py_ssize_t = 0
    offset: cython.longlong
    expiry_ns: cython.longlong
    flags: cython.uint
    origin: cython.uint
    assert len(origins) == rows
    assert len(expires_us) == rows
    assert start >= 0
    assert end <= len(view)
    while row < rows and at < end:
        batch_end = at + load_u32(view, at + 8)
        offset = load_i64(view, at + 32)
        if offset + load_u32(view, at + 28) <= offsets[row]:
            at = batch_end
            continue
        origin = view[at + 13]
        at += _C_HEADER_SIZE
        while at < batch_end and row < rows:
            if offset == offsets[row]:
                flags = load_u32(view, at + 4) >> 24
                origins[row] = origin if origin or not flags & _EXTRAS else _origin_of_extras(view, at, flags)
                if flags & _EXPIRY:
                    expiry_ns = load_i64(view, at + _C_OVERHEAD + (8 if flags & _TIME else 0))
                    expires_us[row] = expiry_ns // 1000 if expiry_ns > 0 else 0
                    expiry_valid[row >> 3] |= 1 << (row & 7)
                    expiry_count += 1
                row += 1
            at += load_u32(view, at)
            offset += 1
        at = batch_end
    assert row == rows
    return expiry_count


@cython.cfunc
@cython.exceptval(check=False)
def _origin_of_extras(view: cython.const[cython.uchar][::1], record_at: cython.Py_ssize_t, flags: cython.uint) -> cython.uint:
    """Tell the protocol of the first extra that has one."""
    at: cython.Py_ssize_t = record_at + _C_OVERHEAD + (8 if flags & _TIME else 0) + (8 if flags & _EXPIRY else 0)
    stop: cython.Py_ssize_t
    if flags & _KEY:
        at += 4 + load_u32(view, at)
    if flags & _HEADERS:
        at += 4 + load_u32(view, at)
    stop = at + 4 + load_u32(view, at)
    at += 4
    while at < stop:
        if view[at] != _C_ORIGIN_NONE:
            return view[at]
        at += 5 + load_u32(view, at + 1)
    return _C_ORIGIN_NONE
