"""Going over many small batches quickly: those known to be whole, or the usual ones; anything else is left to the caller.

A log of single messages has a batch for each, and to check one in Python takes 3 µs. This knows the commonest kind
only: whole, sound, the next one of the same segment's life and epoch, its records without optional fields. What is not of that kind stops it, and
`store/runs.py` looks at that batch as it looks at all where nothing is compiled. Hot module: see docs/adr/0001.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from polymq.wire.batch import ATTRIBUTES_PASSED_OVER, HEADER_SIZE_BYTES, MAGIC, RECORD_OVERHEAD_BYTES, VERSION
from polymq.wire.crc import crc32c

if not cython.compiled:
    from polymq.wire.inline import load_i64, load_u32

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["pass_plain", "pass_whole"]

_C_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 80)
_C_OVERHEAD = cython.declare(cython.Py_ssize_t, 8)
_C_MAGIC = cython.declare(cython.uint, 0x514D5950)
# The word at byte 12, with the origin left out: version 1, no attribute but those by which readers pass over it.
_C_VERSION = cython.declare(cython.uint, 1)
_C_NOT_PLAIN = cython.declare(cython.uint, 0xFFFC00FF)

assert (HEADER_SIZE_BYTES, RECORD_OVERHEAD_BYTES, MAGIC) == (_C_HEADER_SIZE, _C_OVERHEAD, _C_MAGIC)
assert (VERSION, ATTRIBUTES_PASSED_OVER << 16 | 0xFF00) == (_C_VERSION, 0xFFFFFFFF - _C_NOT_PLAIN)


def pass_plain(
    data: Buffer,
    at: cython.Py_ssize_t,
    stop_at: cython.Py_ssize_t,
    segment_id: cython.ulonglong,
    epoch: cython.uint,
    offset: cython.longlong,
    time_ns: cython.longlong,
    until: cython.longlong,
) -> tuple[int, int, int]:
    """Pass over plain batches from byte `at` on; returns (where it stopped, the offset that follows, the last batch's time).

    It stops before the first batch that begins at or behind `stop_at`, that has record `until` or a later one, or that
    is not known here to be a good one. Nothing outside the data is read.
    Cost: about 0.5 µs a batch when compiled, and the checksum.
    """
    view: cython.const[cython.uchar][::1] = data
    end: cython.Py_ssize_t = len(view)
    size: cython.Py_ssize_t
    count: cython.longlong
    batch_ns: cython.longlong
    assert at >= 0
    assert offset >= 0
    assert time_ns >= 0
    with memoryview(data) as whole:
        while at < stop_at and end - at >= _C_HEADER_SIZE:
            size = load_u32(view, at + 8)
            if load_u32(view, at + 4) != _C_MAGIC or size < _C_HEADER_SIZE + _C_OVERHEAD or size > end - at:
                break
            if load_u32(view, at + 12) & _C_NOT_PLAIN != _C_VERSION or load_u32(view, at + 24) != epoch:
                break
            if load_u32(view, at + 16) != segment_id & 0xFFFFFFFF or load_u32(view, at + 20) != segment_id >> 32:
                break
            count = load_u32(view, at + 28)
            batch_ns = load_i64(view, at + 40)
            if count < 1 or load_i64(view, at + 32) != offset or batch_ns < time_ns or count > until - offset:
                break
            if not _is_plain(view, at + _C_HEADER_SIZE, at + size, count):
                break
            with whole[at + 4 : at + size] as covered:
                if crc32c(covered) != load_u32(view, at):
                    break
            at += size
            offset += count
            time_ns = batch_ns
    return at, offset, time_ns


def pass_whole(
    data: Buffer,
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    before: cython.longlong,
    began_at: cython.Py_ssize_t,
    stop_at: cython.Py_ssize_t,
) -> tuple[int, int]:
    """Pass over whole batches that were checked already; returns (where it stopped, the offset that follows, 0 if it passed none).

    It stops before the first batch that begins at record `before` or a later one, that is not all there by byte `end`, or
    that does not end by byte `stop_at`; the last does not matter to one that lies at `began_at`. Cost: a few ns a batch when compiled.
    """
    view: cython.const[cython.uchar][::1] = data
    size: cython.Py_ssize_t
    base: cython.longlong
    next_offset: cython.longlong = 0
    assert 0 <= at
    assert end <= len(view)
    while end - at >= _C_HEADER_SIZE:
        size = load_u32(view, at + 8)
        base = load_i64(view, at + 32)
        if size < _C_HEADER_SIZE or size > end - at or base >= before or (at > began_at and at + size > stop_at):
            break
        at += size
        next_offset = base + load_u32(view, at - size + 28)
    return at, next_offset


@cython.cfunc
@cython.exceptval(check=False)
def _is_plain(view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, count: cython.longlong) -> cython.bint:
    """Tell whether exactly so many records without optional fields lie there."""
    size: cython.Py_ssize_t
    while count > 0:
        if end - at < _C_OVERHEAD or load_u32(view, at + 4) != 8:
            return False
        size = load_u32(view, at)
        if size < _C_OVERHEAD or size > end - at:
            return False
        at += size
        count -= 1
    return at == end
