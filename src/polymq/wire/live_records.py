"""Walking over those batches of the log that came in live: whoever listens has had them. Hot module: see docs/adr/0001.

Every size is compared with what is really there, as in `records.py`, which explains the layout.
"""

from __future__ import annotations

import cython

from polymq.wire.batch import ATTRIBUTES_PASSED_OVER, HEADER_SIZE_BYTES, MAGIC, RECORD_OVERHEAD_BYTES

if not cython.compiled:
    from polymq.wire.inline import load_u32

__all__ = ["skip_origin"]

_C_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 80)
_C_OVERHEAD = cython.declare(cython.Py_ssize_t, 8)
_C_MAGIC = cython.declare(cython.uint, 0x514D5950)
_PASSED_OVER = cython.declare(cython.uint, 0x03)
# How many batches are passed over at once: each costs a look at memory that is in no cache.
_BATCHES_MAX = cython.declare(cython.Py_ssize_t, 10_000)

assert (HEADER_SIZE_BYTES, RECORD_OVERHEAD_BYTES, MAGIC) == (_C_HEADER_SIZE, _C_OVERHEAD, _C_MAGIC)
assert ATTRIBUTES_PASSED_OVER == _PASSED_OVER


def skip_origin(
    view: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    passed: cython.int,
    count_max: cython.Py_ssize_t,
) -> tuple[int, int]:
    """Walk from header to header over the whole batches of an origin, and those that all pass over, up to `count_max` records.

    `position` is a batch's header. Gives how many records have been passed, and the position behind them. Stops before a batch that
    is of another origin, larger than what is left, or not sound. Cost: 5 ns a batch, whatever is in it; at most 10,000 batches.
    """
    passed_count: cython.Py_ssize_t = 0
    batch_count: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    count: cython.Py_ssize_t
    assert 0 <= position <= end <= len(view)
    while batch_count < _BATCHES_MAX and end - position >= _C_HEADER_SIZE and load_u32(view, position + 4) == _C_MAGIC:
        size, count = load_u32(view, position + 8), load_u32(view, position + 28)
        if count == 0 or count > count_max - passed_count or size < _C_HEADER_SIZE + count * _C_OVERHEAD or size > end - position:
            break
        if view[position + 13] != passed and not view[position + 14] & _PASSED_OVER:
            break
        position += size
        passed_count += count
        batch_count += 1
    return passed_count, position
