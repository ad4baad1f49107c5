"""From records of the log to a live batch: what was published by whatever protocol, for those who listen.

Hot module: see docs/adr/0001. Records with nothing but a body make no object; of the others the caller makes messages. Every
size is compared with what is really there, as in `records.py`, which explains the layout. Read next: `live.py`.
"""

from __future__ import annotations

import cython

from polymq.errors import CorruptRecord
from polymq.wire import live
from polymq.wire.batch import HEADER_SIZE_BYTES, MAGIC, RECORD_OVERHEAD_BYTES

if not cython.compiled:
    from polymq.wire.inline import copy, load_i64, load_u32

__all__ = ["skip_origin", "unfold"]

_COLUMNS = cython.declare(cython.Py_ssize_t, live.COLUMNS)
_SUBJECT_SIZE = cython.declare(cython.Py_ssize_t, live.SUBJECT_SIZE)
_PAYLOAD_AT = cython.declare(cython.Py_ssize_t, live.PAYLOAD_AT)
_PAYLOAD_SIZE = cython.declare(cython.Py_ssize_t, live.PAYLOAD_SIZE)
_SPARE = cython.declare(cython.Py_ssize_t, live.SPARE)
_KEPT = cython.declare(cython.int, live.KEPT)
_C_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 80)
_C_OVERHEAD = cython.declare(cython.Py_ssize_t, 8)
_C_MAGIC = cython.declare(cython.uint, 0x514D5950)
# How many batches are passed over at once: each costs a look at memory that is in no cache.
_BATCHES_MAX = cython.declare(cython.Py_ssize_t, 10_000)
_TIME = cython.declare(cython.uint, 0x01)
_EXPIRY = cython.declare(cython.uint, 0x02)

assert (HEADER_SIZE_BYTES, RECORD_OVERHEAD_BYTES, MAGIC) == (_C_HEADER_SIZE, _C_OVERHEAD, _C_MAGIC)


def unfold(
    target: cython.uchar[::1],
    rows: cython.int[::1],
    view: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    batch_left: cython.Py_ssize_t,
    base_time_ns: cython.longlong,
    count: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    origin: cython.int,
    passed: cython.int,
    name_size: cython.Py_ssize_t,
) -> tuple[int, int, int, list[tuple[int, int, int]]]:
    """Make rows of `count` records, and copy their bodies behind the name that `target` begins with.

    `position`, `batch_left`, `base_time_ns` and `end` are as in a `Slice`; `origin` is that of the batch in the midst of which
    it begins. Records of batches of the origin `passed`, and of those that are not visible, get no row.
    Gives the number of rows, where the bodies end in `target`, the origin of the last batch, and for each record that has more
    than a body (row, where the record lies, the time of its batch): its row has no payload yet. Rows are marked KEPT.
    Limits: `target` has `end - position` bytes behind the name, `rows` is large enough for `count` (both asserted).
    Raises: CorruptRecord when something does not fit. Cost: one copy of the bodies; about 10 ns each.
    """
    at: cython.Py_ssize_t = name_size
    row_count: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    size: cython.Py_ssize_t
    body_at: cython.Py_ssize_t
    word: cython.uint
    rich: list[tuple[int, int, int]] = []
    assert 0 <= position <= end <= len(view)
    assert len(target) - name_size >= end - position
    assert len(rows) >= count * _COLUMNS
    while count > 0:
        if batch_left == 0:
            if end - position < _C_HEADER_SIZE or load_u32(view, position + 4) != _C_MAGIC or load_u32(view, position + 28) == 0:
                raise CorruptRecord("record batch", position=position, expected="a batch header", found="something else")
            origin = passed if view[position + 14] & 1 else view[position + 13]
            batch_left = load_u32(view, position + 28)
            base_time_ns = load_i64(view, position + 40)
            position += _C_HEADER_SIZE
        size = load_u32(view, position) if end - position >= _C_OVERHEAD else 0
        if size < _C_OVERHEAD or size > end - position:
            raise CorruptRecord("record batch", position=position, expected="a sound record", found="a size that does not fit")
        if origin != passed:
            row = row_count * _COLUMNS
            row_count += 1
            _clear_row(rows, row)
            rows[row + _SUBJECT_SIZE] = name_size
            rows[row + _SPARE] = _KEPT
            rows[row + _PAYLOAD_AT] = at
            word = load_u32(view, position + 4)
            body_at = word & 0xFFFFFF
            if body_at < _C_OVERHEAD or body_at > size:
                raise CorruptRecord("record batch", position=position, expected="a sound record", found="a body outside its record")
            if (word >> 24) & ~(_TIME | _EXPIRY):
                rich.append((row_count - 1, position, base_time_ns))
            else:
                rows[row + _PAYLOAD_SIZE] = size - body_at
                copy(target, at, view, position + body_at, size - body_at)
                at += size - body_at
        position += size
        batch_left -= 1
        count -= 1
    return row_count, at, origin, rich


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _clear_row(rows: cython.int[::1], row: cython.Py_ssize_t) -> cython.int:
    i: cython.Py_ssize_t
    for i in range(row, row + _COLUMNS):
        rows[i] = 0
    return 0


def skip_origin(
    view: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    passed: cython.int,
    count_max: cython.Py_ssize_t,
) -> tuple[int, int]:
    """Walk from header to header over the whole batches that `unfold` would make no rows of, up to `count_max` records.

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
        if view[position + 13] != passed and not view[position + 14] & 1:
            break
        position += size
        passed_count += count
        batch_count += 1
    return passed_count, position
