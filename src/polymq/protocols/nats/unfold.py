"""From records of the log to a live batch: what was published by whatever protocol, for who listens by NATS. Hot; compiled if possible.

    body      the payload, behind the block of headers
    key       the line `KEYS`, before all others
    headers   a line each, but for `reply-to`: that is where answers go

Records whose words are not plainly such as NATS can say, and those that have something of NATS's own (`stored.py`), make no row's payload here: the
caller makes messages of them (`gateways/nats/records.py`), where it says what becomes of the rest. `wire/records.py` has the layout of
records; every size is compared with what is really there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import cython

from polymq.errors import CorruptRecord
from polymq.limits import MESSAGE_SIZE_BYTES_MAX
from polymq.protocols.nats.stored import ORIGIN_NATS
from polymq.wire import live
from polymq.wire.batch import ATTRIBUTES_PASSED_OVER, HEADER_SIZE_BYTES, MAGIC, RECORD_OVERHEAD_BYTES

if not cython.compiled:
    from polymq.wire.inline import copy, equal_bytes, load_i64, load_u32, sized_end, store_u32

if TYPE_CHECKING:
    from polymq.wire.slices import Slice

__all__ = ["KEY_NAME", "REPLY_NAME", "unfold", "unfolded_room"]

# What the key is called among the headers, and the header that says where answers go.
KEY_NAME: Final = b"KEYS"
REPLY_NAME: Final = b"reply-to"

_COLUMNS = cython.declare(cython.Py_ssize_t, live.COLUMNS)
_SUBJECT_SIZE = cython.declare(cython.Py_ssize_t, live.SUBJECT_SIZE)
_REPLY_AT = cython.declare(cython.Py_ssize_t, live.REPLY_AT)
_REPLY_SIZE = cython.declare(cython.Py_ssize_t, live.REPLY_SIZE)
_BLOCK_SIZE = cython.declare(cython.Py_ssize_t, live.HEADER_SIZE)
_PAYLOAD_AT = cython.declare(cython.Py_ssize_t, live.PAYLOAD_AT)
_PAYLOAD_SIZE = cython.declare(cython.Py_ssize_t, live.PAYLOAD_SIZE)
_SPARE = cython.declare(cython.Py_ssize_t, live.SPARE)
_KEPT = cython.declare(cython.int, live.KEPT)
_C_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 80)
_C_OVERHEAD = cython.declare(cython.Py_ssize_t, 8)
_C_MAGIC = cython.declare(cython.uint, 0x514D5950)
_C_ORIGIN = cython.declare(cython.uchar, 3)
_PASSED = cython.declare(cython.int, 3)
_PASSED_OVER = cython.declare(cython.uint, 0x03)
_TIME = cython.declare(cython.uint, 0x01)
_EXPIRY = cython.declare(cython.uint, 0x02)
_KEY = cython.declare(cython.uint, 0x04)
_HEADERS = cython.declare(cython.uint, 0x08)
_EXTRAS = cython.declare(cython.uint, 0x10)
# NATS, /1.0 and KEYS as they are stored.
_FIRST_WORD = cython.declare(cython.uint, 0x5354414E)
_VERSION_WORD = cython.declare(cython.uint, 0x302E312F)
_KEY_WORD = cython.declare(cython.uint, 0x5359454B)
_FIRST_LINE_SIZE = cython.declare(cython.Py_ssize_t, 10)
_REPLY_NAME_SIZE = cython.declare(cython.Py_ssize_t, 8)
# A record's words outweigh what a block needs more than headers, but for those of a record that has a key and nothing else.
_MORE_THAN_A_RECORD = cython.declare(cython.Py_ssize_t, 8)
_CR = cython.declare(cython.int, 13)
_LF = cython.declare(cython.int, 10)
_BLANK = cython.declare(cython.int, 32)
_COLON = cython.declare(cython.int, 58)
_DOT = cython.declare(cython.int, 46)
_STAR = cython.declare(cython.int, 42)
_GREATER = cython.declare(cython.int, 62)
_DELETE = cython.declare(cython.int, 127)
_DOLLAR = cython.declare(cython.int, 36)
_UNDERSCORE = cython.declare(cython.int, 95)
_CAPITAL_I = cython.declare(cython.int, 73)
_SUBJECT_SIZE_MAX = cython.declare(cython.Py_ssize_t, 255)
_PAYLOAD_SIZE_MAX = cython.declare(cython.Py_ssize_t, MESSAGE_SIZE_BYTES_MAX)

assert (HEADER_SIZE_BYTES, RECORD_OVERHEAD_BYTES, MAGIC, ORIGIN_NATS) == (_C_HEADER_SIZE, _C_OVERHEAD, _C_MAGIC, _C_ORIGIN)
assert ATTRIBUTES_PASSED_OVER == _PASSED_OVER
assert int.from_bytes(KEY_NAME, "little") == _KEY_WORD
assert len(REPLY_NAME) == _REPLY_NAME_SIZE


def unfolded_room(slice_: Slice) -> int:
    """Say how much room the records of a slice take at most when they are unfolded."""
    size: cython.Py_ssize_t = slice_.end - slice_.position
    count: cython.Py_ssize_t = slice_.count
    return size + _MORE_THAN_A_RECORD * count


def unfold(
    target: cython.uchar[::1], rows: cython.int[::1], slice_: Slice, origin: cython.int, name_size: cython.Py_ssize_t
) -> tuple[int, int, int, list[tuple[int, int, int]]]:
    """Make rows of a slice's records, and write their payloads behind the name that `target` begins with.

    `origin` is that of the batch in the midst of which the slice begins. Records of NATS's own batches, and of those that
    all pass over, get no row.
    Gives the number of rows, where the payloads end in `target`, the origin of the last batch, and for each record that is left to
    the caller (row, where the record lies, the time of its batch): its row has no payload yet. Rows are marked KEPT.
    Limits: `target` has `unfolded_room` behind the name, `rows` is large enough for the slice (both asserted).
    Raises: CorruptRecord when something does not fit. Cost: one copy; about 10 ns each, and 1 ns for each byte of headers.
    """
    view: cython.const[cython.uchar][::1] = slice_.view
    position: cython.Py_ssize_t = slice_.position
    batch_left: cython.Py_ssize_t = slice_.batch_left
    base_time_ns: cython.longlong = slice_.base_time_ns
    count: cython.Py_ssize_t = slice_.count
    end: cython.Py_ssize_t = slice_.end
    at: cython.Py_ssize_t = name_size
    after: cython.Py_ssize_t
    row_count: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t
    size: cython.Py_ssize_t
    body_at: cython.Py_ssize_t
    word: cython.uint
    rich: list[tuple[int, int, int]] = []
    assert 0 <= position <= end <= len(view)
    assert len(target) - name_size >= end - position + _MORE_THAN_A_RECORD * count
    assert len(rows) >= count * _COLUMNS
    while count > 0:
        if batch_left == 0:
            if end - position < _C_HEADER_SIZE or load_u32(view, position + 4) != _C_MAGIC or load_u32(view, position + 28) == 0:
                raise CorruptRecord("record batch", position=position, expected="a batch header", found="something else")
            origin = _PASSED if view[position + 14] & _PASSED_OVER else view[position + 13]
            batch_left = load_u32(view, position + 28)
            base_time_ns = load_i64(view, position + 40)
            position += _C_HEADER_SIZE
        size = load_u32(view, position) if end - position >= _C_OVERHEAD else 0
        if size < _C_OVERHEAD or size > end - position:
            raise CorruptRecord("record batch", position=position, expected="a sound record", found="a size that does not fit")
        if origin != _PASSED:
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
            if (word >> 24) & ~(_TIME | _EXPIRY) or size - body_at > _PAYLOAD_SIZE_MAX:
                after = _write_rich(target, at, rows, row, view, position, size)
                if after < 0:
                    rows[row + _REPLY_SIZE] = 0
                    rich.append((row_count - 1, position, base_time_ns))
                else:
                    at = after
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


@cython.cfunc
@cython.exceptval(check=False)
def _write_rich(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    rows: cython.int[::1],
    row: cython.Py_ssize_t,
    view: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write block, body and reply of a record that has more than a body; gives where they end, -1 if it is left to the caller."""
    flags: cython.uint = load_u32(view, position + 4) >> 24
    body: cython.Py_ssize_t = position + (load_u32(view, position + 4) & 0xFFFFFF)
    where: cython.Py_ssize_t = position + _C_OVERHEAD
    start: cython.Py_ssize_t = at
    stop: cython.Py_ssize_t
    where += (8 if flags & _TIME else 0) + (8 if flags & _EXPIRY else 0)
    # Where the first line goes, should there be another one.
    at += _FIRST_LINE_SIZE
    if flags & _KEY:
        stop = sized_end(view, where, body)
        if stop < 0 or not _is_value(view, where + 4, stop):
            return -1
        at = _write_key(target, at, view, where + 4, stop)
        where = stop
    if flags & _HEADERS:
        stop = sized_end(view, where, body)
        at = _write_lines(target, at, rows, row, view, where + 4, stop) if stop >= 0 else -1
        if at < 0:
            return -1
        where = stop
    if flags & _EXTRAS and not _is_foreign(view, where, body):
        return -1
    at = _end_block(target, start, at)
    rows[row + _BLOCK_SIZE] = at - start
    size -= body - position
    if at - start + size > _PAYLOAD_SIZE_MAX:
        return -1
    copy(target, at, view, body, size)
    at += size
    rows[row + _PAYLOAD_SIZE] = at - start
    if rows[row + _REPLY_SIZE]:
        copy(target, at, view, where - rows[row + _REPLY_AT], rows[row + _REPLY_SIZE])
        rows[row + _REPLY_AT] = at
        at += rows[row + _REPLY_SIZE]
    return at


@cython.cfunc
@cython.exceptval(check=False)
def _write_lines(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    rows: cython.int[::1],
    row: cython.Py_ssize_t,
    view: cython.const[cython.uchar][::1],
    where: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write a line for each header, and note how far before `stop` and how large the reply is; -1 if they are left to the caller."""
    name_size: cython.Py_ssize_t
    value: cython.Py_ssize_t
    end: cython.Py_ssize_t
    while where < stop:
        value = sized_end(view, where, stop)
        end = sized_end(view, value, stop) if value >= 0 else -1
        if end < 0:
            return -1
        where += 4
        name_size = value - where
        value += 4
        if name_size == _REPLY_NAME_SIZE and equal_bytes(b"reply-to", view, where, 8):
            if rows[row + _REPLY_SIZE] or not _is_subject(view, value, end):
                return -1
            rows[row + _REPLY_AT], rows[row + _REPLY_SIZE] = stop - value, end - value
        elif name_size == 4 and load_u32(view, where) == _KEY_WORD:
            return -1
        elif _is_name(view, where, where + name_size) and _is_value(view, value, end):
            at = _write_line(target, at, view, where, name_size, value, end - value)
        else:
            return -1
        where = end
    return at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _end_block(target: cython.uchar[::1], start: cython.Py_ssize_t, at: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Write the first line and the empty one around the others; nothing if there are none."""
    if at == start + _FIRST_LINE_SIZE:
        return start
    store_u32(target, start, _FIRST_WORD)
    store_u32(target, start + 4, _VERSION_WORD)
    target[start + 8] = _CR
    target[start + 9] = _LF
    target[at] = _CR
    target[at + 1] = _LF
    return at + 2


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_key(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    view: cython.const[cython.uchar][::1],
    value: cython.Py_ssize_t,
    stop: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    store_u32(target, at, _KEY_WORD)
    return _write_value(target, at + 4, view, value, stop - value)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_line(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    view: cython.const[cython.uchar][::1],
    name: cython.Py_ssize_t,
    name_size: cython.Py_ssize_t,
    value: cython.Py_ssize_t,
    value_size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    copy(target, at, view, name, name_size)
    return _write_value(target, at + name_size, view, value, value_size)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_value(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    view: cython.const[cython.uchar][::1],
    value: cython.Py_ssize_t,
    value_size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write what is behind a name, to the end of the line."""
    target[at] = _COLON
    target[at + 1] = _BLANK
    copy(target, at + 2, view, value, value_size)
    at += 2 + value_size
    target[at] = _CR
    target[at + 1] = _LF
    return at + 2


@cython.cfunc
@cython.exceptval(check=False)
def _is_name(view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
    """Say whether this is plainly a header's name: ASCII that can be seen, without a colon."""
    i: cython.Py_ssize_t
    for i in range(at, stop):
        if view[i] <= _BLANK or view[i] >= _DELETE or view[i] == _COLON:
            return False
    return at < stop


@cython.cfunc
@cython.exceptval(check=False)
def _is_value(view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
    """Say whether this can be a header's value: anything, but for the bytes that end a line."""
    i: cython.Py_ssize_t
    for i in range(at, stop):  # noqa: SIM110  # a generator would be an object
        if view[i] == _CR or view[i] == _LF:
            return False
    return True


@cython.cfunc
@cython.exceptval(check=False)
def _is_subject(view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, stop: cython.Py_ssize_t) -> cython.bint:
    """Say whether this is plainly a subject that answers can go to: tokens of ASCII, no wildcards, and not what servers keep for themselves."""
    i: cython.Py_ssize_t
    last: cython.int = _DOT
    if stop - at > _SUBJECT_SIZE_MAX or stop - at < 2 or view[at] == _DOLLAR or (view[at] == _UNDERSCORE and view[at + 1] != _CAPITAL_I):
        return False
    for i in range(at, stop):
        if view[i] <= _BLANK or view[i] >= _DELETE or view[i] == _STAR or view[i] == _GREATER or (view[i] == _DOT and last == _DOT):
            return False
        last = view[i]
    return last != _DOT


@cython.cfunc
@cython.exceptval(check=False)
def _is_foreign(view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, body: cython.Py_ssize_t) -> cython.bint:
    """Say whether the extras at `at` are sound, and none of them is NATS's own."""
    stop: cython.Py_ssize_t = sized_end(view, at, body)
    if stop < 0:
        return False
    at += 4
    while at < stop:
        if view[at] == _C_ORIGIN:
            return False
        at = sized_end(view, at + 1, stop)
        if at < 0:
            return False
    return True
