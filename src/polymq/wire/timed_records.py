"""Records that are older than the batch that they are put into: bodies with a time of their own each.

For taking over what another server has stored. Like `records.py`, which has the layout: hot, and the same compiled and
interpreted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import cython

if not cython.compiled:
    from polymq.wire.inline import copy, store_i64, store_u32

if TYPE_CHECKING:
    from array import array

    from typing_extensions import Buffer

__all__ = ["TIMED_RECORD_OVERHEAD_BYTES", "encode_timed"]

# The two words of every record, and the time.
TIMED_RECORD_OVERHEAD_BYTES: Final = 16
_C_OVERHEAD = cython.declare(cython.Py_ssize_t, 16)
# Flag 0x01 (a time follows), and where the body begins.
_C_WORD = cython.declare(cython.uint, 0x01000010)


def encode_timed(
    target: bytearray, at: int, source: Buffer, columns: tuple[array[int], array[int], array[int]], count: int, base_time_ns: int
) -> int:
    """Write one record for each of `count` bodies in `source`; return where the next one would start.

    `columns` are the bodies' positions, sizes and times ("q" arrays); `base_time_ns` is the time of the batch.
    Limits: `target` has TIMED_RECORD_OVERHEAD_BYTES and the body's size for each from `at` on (asserted).
    Cost:   one copy of the bodies. No object per message.
    """
    positions, sizes, times = columns
    end: int = _encode_timed(target, at, source, positions, sizes, times, count, base_time_ns)
    return end


@cython.cfunc
@cython.exceptval(-1)
def _encode_timed(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    source: cython.const[cython.uchar][::1],
    positions: cython.longlong[::1],
    sizes: cython.longlong[::1],
    times: cython.longlong[::1],
    count: cython.Py_ssize_t,
    base_time_ns: cython.longlong,
) -> cython.Py_ssize_t:
    """Do the work of `encode_timed` on typed views."""
    room: cython.Py_ssize_t = len(target)
    available: cython.Py_ssize_t = len(source)
    index: cython.Py_ssize_t
    size: cython.Py_ssize_t
    position: cython.Py_ssize_t
    assert at >= 0
    assert base_time_ns >= 0
    assert 0 <= count <= len(positions)
    assert count <= len(sizes)
    assert count <= len(times)
    for index in range(count):
        size = sizes[index]
        position = positions[index]
        assert size >= 0
        assert 0 <= position <= available - size
        assert size <= room - at - _C_OVERHEAD
        assert times[index] >= 0
        store_u32(target, at, _C_OVERHEAD + size)
        store_u32(target, at + 4, _C_WORD)
        store_i64(target, at + 8, times[index] - base_time_ns)
        at += _C_OVERHEAD
        copy(target, at, source, position, size)
        at += size
    return at
