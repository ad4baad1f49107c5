"""Carrying records from one log to another as they are: what a schedule does when messages fall due.

A record keeps its body, key, headers, extras, expiry and its own time; only where its time is counted from changes. Hot
module: see docs/adr/0001. Nothing here makes an object per message. Every size is compared with what is really
there, as in `records.py`, which explains the layout.
"""

from __future__ import annotations

from typing import Final

import cython

from polymq.errors import CorruptRecord
from polymq.wire.batch import HEADER_SIZE_BYTES, MAGIC, RECORD_OVERHEAD_BYTES

if not cython.compiled:
    from polymq.wire.inline import copy, load_i64, load_u32, store_i64, store_u32

__all__ = ["RECORD_GROWTH_BYTES", "copy_wanted", "runs_of", "stretch_end"]

# A record that had no time of its own gets one.
RECORD_GROWTH_BYTES: Final = 8

_C_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 80)
_C_OVERHEAD = cython.declare(cython.Py_ssize_t, 8)
_C_MAGIC = cython.declare(cython.uint, 0x514D5950)
_C_BODY_AT_MAX = cython.declare(cython.uint, 0xFFFFFF)
_TIME = cython.declare(cython.uint, 0x01)

assert (HEADER_SIZE_BYTES, RECORD_OVERHEAD_BYTES, MAGIC) == (_C_HEADER_SIZE, _C_OVERHEAD, _C_MAGIC)


def copy_wanted(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    view: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    batch_left: cython.Py_ssize_t,
    base_time_ns: cython.longlong,
    end: cython.Py_ssize_t,
    offset: cython.longlong,
    wanted: cython.longlong[::1],
    index: cython.Py_ssize_t,
    new_base_time_ns: cython.longlong,
) -> tuple[int, int]:
    """Copy the records `wanted[index]`, `wanted[index + 1]` … of a slice, whose first record is `offset`, to `target[at:]`.

    `wanted` ascends as far as the slice goes, and begins at or behind its first record (asserted). Gives where the
    next record would go, and the index of the first that is not in the slice. The records are for a batch of the time
    `new_base_time_ns`.
    Limits: `target` has room for the slice and RECORD_GROWTH_BYTES for each record that is copied (asserted).
    Raises: CorruptRecord when something in the slice does not fit.
    Cost:   one copy; about 2 ns for a record that is not wanted.
    """
    count: cython.Py_ssize_t = len(wanted)
    size: cython.Py_ssize_t
    assert at >= 0
    assert position >= 0
    assert end <= len(view)
    assert 0 <= index
    assert index < count
    assert wanted[index] >= offset
    while index < count and position < end:
        if batch_left == 0:
            if end - position < _C_HEADER_SIZE or load_u32(view, position + 4) != _C_MAGIC or load_u32(view, position + 28) == 0:
                raise CorruptRecord("record batch", position=position, expected="a batch header", found="something else")
            batch_left = load_u32(view, position + 28)
            base_time_ns = load_i64(view, position + 40)
            position += _C_HEADER_SIZE
        if end - position < _C_OVERHEAD:
            raise CorruptRecord("record batch", position=position, expected="a sound record", found="the end")
        size = load_u32(view, position)
        if size < _C_OVERHEAD or size > end - position:
            raise CorruptRecord("record batch", position=position, expected="a sound record", found="a size that does not fit")
        if offset == wanted[index]:
            at = _copy_record(target, at, view, position, size, base_time_ns - new_base_time_ns)
            if at < 0:
                raise CorruptRecord("record batch", position=position, expected="a sound record", found="fields that do not fit")
            index += 1
            if index < count and wanted[index] <= offset:
                # The order turns back: that is for another slice.
                break
        offset += 1
        position += size
        batch_left -= 1
    return at, index


@cython.cfunc
@cython.exceptval(-2)
def _copy_record(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    view: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    shift_ns: cython.longlong,
) -> cython.Py_ssize_t:
    """Copy one record whose size fits; give where the next goes, -1 if its fields do not fit."""
    word: cython.uint = load_u32(view, position + 4)
    body_at: cython.Py_ssize_t = word & _C_BODY_AT_MAX
    assert len(target) - at >= size + 8
    if body_at < _C_OVERHEAD or body_at > size:
        return -1
    if (word >> 24) & _TIME:
        if body_at < _C_OVERHEAD + 8:
            return -1
        copy(target, at, view, position, size)
        store_i64(target, at + 8, load_i64(view, position + 8) + shift_ns)
        return at + size
    if body_at > _C_BODY_AT_MAX - 8:
        # No room in the field for eight bytes more: its time becomes that of the batch.
        copy(target, at, view, position, size)
        return at + size
    store_u32(target, at, size + 8)
    store_u32(target, at + 4, (word | (_TIME << 24)) + 8)
    store_i64(target, at + 8, shift_ns)
    copy(target, at + 16, view, position + 8, size - 8)
    return at + size + 8


def stretch_end(wanted: cython.longlong[::1], index: cython.Py_ssize_t, gap_max: cython.longlong) -> int:
    """Tell up to which index `wanted` ascends from `index` on, without a gap of more than `gap_max`."""
    count: cython.Py_ssize_t = len(wanted)
    assert 0 <= index
    assert index < count
    index += 1
    while index < count and wanted[index - 1] < wanted[index] and wanted[index] - wanted[index - 1] <= gap_max:
        index += 1
    return index


def runs_of(wanted: cython.longlong[::1], first: cython.Py_ssize_t, end: cython.Py_ssize_t) -> bytes:
    """Encode `wanted[first:end]` as (first i64, count i64) pairs of neighbouring numbers, in their order."""
    buffer = bytearray((end - first) * 16)
    view: cython.uchar[::1] = buffer
    at: cython.Py_ssize_t = 0
    i: cython.Py_ssize_t
    start: cython.longlong
    assert 0 <= first
    assert first < end
    assert end <= len(wanted)
    i = first
    while i < end:
        start = wanted[i]
        i += 1
        while i < end and wanted[i] == wanted[i - 1] + 1:
            i += 1
        store_i64(view, at, start)
        store_i64(view, at + 8, wanted[i - 1] - start + 1)
        at += 16
    return bytes(buffer[:at])
