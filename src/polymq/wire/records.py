"""The record batch: the bytes that the log stores, that the broker ships to readers, and that Spark turns into Arrow.

One file knows the layout (the byte diagrams are in `docs/INTERNALS.md`, section 2). Nothing here makes an object per
message; `batch.py` has the functions that do, and what belongs to a batch rather than to its records. This
file runs compiled and interpreted with the same results, so it relies on no out-of-range exception and on no
negative index: every size field is compared with what is really there before it is used, because what is read may
come from a damaged disk or from a peer. Read next: `slices.py`, the shapes that go in and out.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import cython

from polymq import limits
from polymq.errors import CorruptRecord
from polymq.wire.batch import (
    ATTRIBUTES_PASSED_OVER,
    COMPRESSION_MASK,
    HEADER_SIZE_BYTES,
    MAGIC,
    RECORD_OVERHEAD_BYTES,
    VERSION,
    BatchHeader,
    Columns,
    Message,
    encode_message,
    parse_header,
    read_messages,
    seal,
)
from polymq.wire.crc import crc32c

if not cython.compiled:
    from polymq.wire.inline import copy, load_i64, load_u32, sized_end, store_u32

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from polymq.wire.slices import MessageBatch

__all__ = [
    "HEADER_SIZE_BYTES",
    "MAGIC",
    "RECORD_OVERHEAD_BYTES",
    "BatchHeader",
    "Columns",
    "Message",
    "check",
    "columns",
    "encode_bodies",
    "encode_message",
    "parse_header",
    "read_messages",
    "seal",
    "skip",
]

# The same numbers as C integers: a module constant of Python would be an object in the compiled loops.
_C_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 80)
_C_OVERHEAD = cython.declare(cython.Py_ssize_t, 8)
_C_MAGIC = cython.declare(cython.uint, 0x514D5950)
_C_OFFSET_MAX = cython.declare(cython.longlong, limits.OFFSET_MAX)
_C_TIME_MAX = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)
_TIME = cython.declare(cython.uint, 0x01)
_EXPIRY = cython.declare(cython.uint, 0x02)
_KEY = cython.declare(cython.uint, 0x04)
_HEADERS = cython.declare(cython.uint, 0x08)
_EXTRAS = cython.declare(cython.uint, 0x10)
_PASSED_OVER = cython.declare(cython.uint, 0x03)

assert (HEADER_SIZE_BYTES, RECORD_OVERHEAD_BYTES, MAGIC) == (_C_HEADER_SIZE, _C_OVERHEAD, _C_MAGIC)
assert ATTRIBUTES_PASSED_OVER == _PASSED_OVER


# --- Writing ----------------------------------------------------------------------------------------------------------


def encode_bodies(target: bytearray, at: int, batch: MessageBatch) -> int:
    """Write one record without optional fields for each body of a batch; return where the next one would start.

    Limits: `target` has `batch.count * RECORD_OVERHEAD_BYTES + batch.size_bytes` bytes from `at` on (asserted).
    Cost:   one copy of the bodies; about 10 ns for a message of 200 bytes when compiled. No object per message.
    """
    end: int = _encode_bodies(target, at, batch.view, batch.positions, batch.sizes, batch.first, batch.count)
    return end


@cython.cfunc
@cython.exceptval(-1)
def _encode_bodies(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    source: cython.const[cython.uchar][::1],
    positions: cython.longlong[::1],
    sizes: cython.longlong[::1],
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Do the work of `encode_bodies` on typed views."""
    room: cython.Py_ssize_t = len(target)
    available: cython.Py_ssize_t = len(source)
    index: cython.Py_ssize_t
    size: cython.Py_ssize_t
    position: cython.Py_ssize_t
    assert at >= 0
    assert first >= 0
    assert count >= 0
    assert first + count <= len(positions)
    assert first + count <= len(sizes)
    for index in range(first, first + count):
        size = sizes[index]
        position = positions[index]
        assert size >= 0
        assert 0 <= position <= available - size
        assert size <= room - at - _C_OVERHEAD
        store_u32(target, at, _C_OVERHEAD + size)
        store_u32(target, at + 4, _C_OVERHEAD)
        at += _C_OVERHEAD
        copy(target, at, source, position, size)
        at += size
    return at


# --- Reading and checking ---------------------------------------------------------------------------------------------


def check(view: Buffer, at: int, end: int) -> str | None:
    """Say what is wrong with the batch at `at`, for people; None if a whole and valid one ends at or before `end`.

    Everything is looked at: the header's fields, the checksum, and every size inside every record, so that later
    readers of the same bytes may go fast. Nothing outside `view[at:end]` is read.
    Cost: the checksum (20 GB/s) and about 2 ns per record when compiled.
    """
    if at < 0 or end - at < HEADER_SIZE_BYTES:
        return f"{max(end - at, 0)} bytes are fewer than a batch header has"
    header = parse_header(view, at)
    if header.magic != MAGIC:
        return f"the magic number is 0x{header.magic:08x}, not 0x{MAGIC:08x}"
    if header.version != VERSION:
        return f"the format version is {header.version}, this program reads {VERSION}"
    if header.size < HEADER_SIZE_BYTES + RECORD_OVERHEAD_BYTES or header.size > end - at:
        return f"the batch claims {header.size} bytes, {end - at} are there"
    with memoryview(view) as whole, whole[at + 4 : at + header.size] as covered:
        checksum = crc32c(covered)
    if checksum != header.crc:
        return f"the checksum is 0x{checksum:08x}, the header says 0x{header.crc:08x}"
    if header.attributes & ~(ATTRIBUTES_PASSED_OVER | COMPRESSION_MASK):
        return f"unknown attributes 0x{header.attributes:04x}"
    if header.count < 1 or header.base_offset < 0 or header.base_time_ns < 0:
        return f"impossible header: count {header.count}, base offset {header.base_offset}, base time {header.base_time_ns}"
    if header.attributes & COMPRESSION_MASK:
        return None
    wrong = _walk_batch(view, at + HEADER_SIZE_BYTES, at + header.size, header.count, header.base_time_ns)
    return None if wrong < 0 else f"the record at byte {wrong - at} of the batch does not fit"


def skip(
    view: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    batch_left: cython.Py_ssize_t,
    base_time_ns: cython.longlong,
    count_max: cython.Py_ssize_t,
    size_bytes_max: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> tuple[int, int, int, int]:
    """Walk over up to `count_max` records, across batches, to find where a slice ends.

    `position` is a record of which `batch_left` remain in its batch or, when none remain, the next batch's header.
    Returns (records passed, position behind the last of them, records left in its batch, time of its batch). Stops
    before a record that would make the stretch longer than `size_bytes_max`, though not before the first one; at
    `end`; and before anything that is not a record or a header, which `check` then tells more about.
    Cost: about 2 ns per record when compiled. Nothing outside `view[position:end]` is read.
    """
    start: cython.Py_ssize_t = position
    at: cython.Py_ssize_t = position
    left: cython.Py_ssize_t = batch_left
    time_ns: cython.longlong = base_time_ns
    count: cython.Py_ssize_t = 0
    size: cython.Py_ssize_t
    assert position >= 0
    assert position <= end
    assert end <= len(view)
    assert batch_left >= 0
    while count < count_max:
        if left == 0:
            left = _batch_count(view, at, end)
            if left == 0:
                break
            time_ns = load_i64(view, at + 40)
            at += _C_HEADER_SIZE
        size = _record_size(view, at, end)
        if size == 0 or (count > 0 and at + size - start > size_bytes_max):
            break
        at += size
        left -= 1
        count += 1
        position = at
        batch_left = left
        base_time_ns = time_ns
    return count, position, batch_left, base_time_ns


# --- Columns ----------------------------------------------------------------------------------------------------------

# Places in the array of totals that `_measure` fills.
_RECORDS = cython.declare(cython.Py_ssize_t, 0)
_BODY_BYTES = cython.declare(cython.Py_ssize_t, 1)
_KEY_COUNT = cython.declare(cython.Py_ssize_t, 2)
_KEY_BYTES = cython.declare(cython.Py_ssize_t, 3)
_HEADER_COUNT = cython.declare(cython.Py_ssize_t, 4)
_NAME_BYTES = cython.declare(cython.Py_ssize_t, 5)
_VALUE_BYTES = cython.declare(cython.Py_ssize_t, 6)
_TOTALS: Final = 7
# Ends are int32, as Arrow's `binary` has them.
_COLUMNS_SIZE_BYTES_MAX: Final = 0x7FFFFFFF


def columns(view: Buffer, start: int, end: int, first_offset: int, end_offset: int) -> Columns:
    """Turn a run of whole batches into columns, keeping the records with `first_offset <= offset < end_offset`.

    Every size is checked, the checksums are not: that is `check`'s work, on bytes of which that is not known.
    Batches that readers pass over (ATTRIBUTES_PASSED_OVER) are left out: so offsets have gaps.

    Limits: `end - start` is below 2 GiB (asserted).
    Raises: CorruptRecord when something in the run does not fit, or is compressed in a way this version cannot read.
    Cost:   two walks and one copy of the bodies. No object per record.
    """
    assert end - start <= _COLUMNS_SIZE_BYTES_MAX
    totals = array("q", bytes(8 * _TOTALS))
    wrong = _measure(view, start, end, first_offset, end_offset, totals)
    if wrong >= 0:
        raise CorruptRecord("record batches", position=wrong, expected="a batch or a record", found="something that does not fit")
    count, body_bytes, key_count, key_bytes, header_count, name_bytes, value_bytes = totals
    result = Columns(
        count=count,
        offsets=array("q", bytes(8 * count)),
        times_us=array("q", bytes(8 * count)),
        body_ends=array("i", bytes(4 * (count + 1))),
        bodies=bytearray(body_bytes),
        key_count=key_count,
        key_valid=bytearray((count + 7) >> 3),
        key_ends=array("i", bytes(4 * (count + 1))),
        keys=bytearray(key_bytes),
        header_count=header_count,
        header_ends=array("i", bytes(4 * (count + 1))),
        name_ends=array("i", bytes(4 * (header_count + 1))),
        names=bytearray(name_bytes),
        value_ends=array("i", bytes(4 * (header_count + 1))),
        values=bytearray(value_bytes),
    )
    _fill(view, start, end, first_offset, end_offset, result)
    return result


@cython.cfunc
@cython.exceptval(-2)
def _measure(
    view: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    first_offset: cython.longlong,
    end_offset: cython.longlong,
    totals: cython.longlong[::1],
) -> cython.Py_ssize_t:
    """Check a run of batches and add up what its columns will hold; tell where something is wrong, -1 if nothing is."""
    at: cython.Py_ssize_t = start
    after: cython.Py_ssize_t
    batch_end: cython.Py_ssize_t
    left: cython.Py_ssize_t
    offset: cython.longlong
    time_ns: cython.longlong
    word: cython.uint
    assert start >= 0
    assert start <= end
    assert end <= len(view)
    while at < end:
        left = _batch_count(view, at, end)
        if left == 0:
            return at
        batch_end = load_u32(view, at + 8)
        offset = load_i64(view, at + 32)
        time_ns = load_i64(view, at + 40)
        if (
            batch_end < _C_HEADER_SIZE
            or batch_end > end - at
            or offset < 0
            or offset > _C_OFFSET_MAX
            or time_ns < 0
            or view[at + 14] & 0xF0
        ):
            return at
        batch_end += at
        if view[at + 14] & _PASSED_OVER:
            at = batch_end
            continue
        at += _C_HEADER_SIZE
        while left > 0:
            after = _fields_end(view, at, batch_end, time_ns)
            if after < 0:
                return at
            if first_offset <= offset and offset < end_offset:
                word = load_u32(view, at + 4)
                totals[_RECORDS] += 1
                totals[_BODY_BYTES] += after - at - (word & 0xFFFFFF)
                if (word >> 24) & (_KEY | _HEADERS):
                    _measure_fields(view, at, word >> 24, totals)
            at = after
            offset += 1
            left -= 1
        if at != batch_end:
            return at
    return -1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _key_at(at: cython.Py_ssize_t, flags: cython.uint) -> cython.Py_ssize_t:
    """Tell where key, or else headers, of the record at `at` start."""
    return at + _C_OVERHEAD + (8 if flags & _TIME else 0) + (8 if flags & _EXPIRY else 0)


@cython.cfunc
@cython.exceptval(check=False)
def _measure_fields(
    view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, flags: cython.uint, totals: cython.longlong[::1]
) -> cython.Py_ssize_t:
    """Add up key and headers of a record that is known to be sound; tell where they end."""
    size: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    at = _key_at(at, flags)
    if flags & _KEY:
        size = load_u32(view, at)
        totals[_KEY_COUNT] += 1
        totals[_KEY_BYTES] += size
        at += 4 + size
    if flags & _HEADERS:
        size = load_u32(view, at)
        at += 4
        stop = at + size
        while at < stop:
            size = load_u32(view, at)
            totals[_NAME_BYTES] += size
            at += 4 + size
            size = load_u32(view, at)
            totals[_VALUE_BYTES] += size
            at += 4 + size
            totals[_HEADER_COUNT] += 1
    return at


@cython.cfunc
@cython.exceptval(-1)
def _fill(
    view: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    first_offset: cython.longlong,
    end_offset: cython.longlong,
    target: Columns,
) -> cython.Py_ssize_t:
    """Copy what `_measure` has found sound into columns of the sizes that it has found; tell how many records."""
    offsets: cython.longlong[::1] = target.offsets
    times_us: cython.longlong[::1] = target.times_us
    body_ends: cython.int[::1] = target.body_ends
    bodies: cython.uchar[::1] = target.bodies
    at: cython.Py_ssize_t = start
    left: cython.Py_ssize_t
    size: cython.Py_ssize_t
    body_at: cython.Py_ssize_t
    body_end: cython.Py_ssize_t = 0
    row: cython.Py_ssize_t = 0
    offset: cython.longlong
    time_ns: cython.longlong
    record_ns: cython.longlong
    flags: cython.uint
    has_fields: cython.bint = target.key_count > 0 or target.header_count > 0
    while at < end:
        left = 0 if view[at + 14] & _PASSED_OVER else _batch_count(view, at, end)
        offset = load_i64(view, at + 32)
        time_ns = load_i64(view, at + 40)
        at += _C_HEADER_SIZE if left > 0 else load_u32(view, at + 8)
        while left > 0:
            size = load_u32(view, at)
            if first_offset <= offset and offset < end_offset:
                flags = load_u32(view, at + 4)
                body_at = flags & 0xFFFFFF
                flags >>= 24
                record_ns = time_ns + load_i64(view, at + 8) if flags & _TIME else time_ns
                offsets[row] = offset
                times_us[row] = record_ns // 1000
                copy(bodies, body_end, view, at + body_at, size - body_at)
                body_end += size - body_at
                row += 1
                body_ends[row] = body_end
            at += size
            offset += 1
            left -= 1
    if has_fields:
        _fill_fields(view, start, end, first_offset, end_offset, target)
    return row


@cython.cfunc
@cython.exceptval(-1)
def _fill_fields(
    view: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    first_offset: cython.longlong,
    end_offset: cython.longlong,
    target: Columns,
) -> cython.Py_ssize_t:
    """Do for keys and headers what `_fill` does for the rest; most logs have neither and are spared the walk."""
    key_valid: cython.uchar[::1] = target.key_valid
    key_ends: cython.int[::1] = target.key_ends
    keys: cython.uchar[::1] = target.keys
    header_ends: cython.int[::1] = target.header_ends
    name_ends: cython.int[::1] = target.name_ends
    names: cython.uchar[::1] = target.names
    value_ends: cython.int[::1] = target.value_ends
    values: cython.uchar[::1] = target.values
    at: cython.Py_ssize_t = start
    field: cython.Py_ssize_t
    stop: cython.Py_ssize_t
    size: cython.Py_ssize_t
    left: cython.Py_ssize_t
    row: cython.Py_ssize_t = 0
    header: cython.Py_ssize_t = 0
    offset: cython.longlong
    flags: cython.uint
    while at < end:
        left = 0 if view[at + 14] & _PASSED_OVER else _batch_count(view, at, end)
        offset = load_i64(view, at + 32)
        at += _C_HEADER_SIZE if left > 0 else load_u32(view, at + 8)
        while left > 0:
            if first_offset <= offset and offset < end_offset:
                flags = load_u32(view, at + 4) >> 24
                field = _key_at(at, flags)
                key_ends[row + 1] = key_ends[row]
                if flags & _KEY:
                    size = load_u32(view, field)
                    key_valid[row >> 3] |= 1 << (row & 7)
                    copy(keys, key_ends[row], view, field + 4, size)
                    key_ends[row + 1] += size
                    field += 4 + size
                if flags & _HEADERS:
                    stop = field + 4 + load_u32(view, field)
                    field += 4
                    while field < stop:
                        field = _fill_text(view, field, name_ends, names, header)
                        field = _fill_text(view, field, value_ends, values, header)
                        header += 1
                row += 1
                header_ends[row] = header
            at += load_u32(view, at)
            offset += 1
            left -= 1
    return row


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _fill_text(
    view: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    ends: cython.int[::1],
    texts: cython.uchar[::1],
    index: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Append the bytes whose size is at `at` as element `index` of a column; tell where they end."""
    size: cython.Py_ssize_t = load_u32(view, at)
    copy(texts, ends[index], view, at + 4, size)
    ends[index + 1] = ends[index] + size
    return at + 4 + size


# --- The walk, in C when compiled -------------------------------------------------------------------------------------


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _batch_count(view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Tell how many records the batch at `at` claims; 0 if there is no header with records behind it."""
    if end - at < _C_HEADER_SIZE or load_u32(view, at + 4) != _C_MAGIC:
        return 0
    return load_u32(view, at + 28)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _record_size(view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Tell the size of the record at `at`, 0 if size or body distance reach outside `view[at:end]`."""
    size: cython.Py_ssize_t
    body_at: cython.Py_ssize_t
    if end - at < _C_OVERHEAD:
        return 0
    size = load_u32(view, at)
    body_at = load_u32(view, at + 4) & 0xFFFFFF
    if size > end - at or body_at < _C_OVERHEAD or body_at > size:
        return 0
    return size


@cython.cfunc
@cython.exceptval(check=False)
def _inner_end(
    view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, stop: cython.Py_ssize_t, extras: cython.bint
) -> cython.Py_ssize_t:
    """Check the headers (or the extras) whose common size is at `at`; tell where they end, -1 if they do not fit."""
    after: cython.Py_ssize_t = sized_end(view, at, stop)
    if after < 0:
        return -1
    at += 4
    while at < after:
        at = at + 1 if extras else sized_end(view, at, after)
        if at < 0:
            return -1
        at = sized_end(view, at, after)
        if at < 0:
            return -1
    return after


@cython.cfunc
@cython.exceptval(check=False)
def _fields_end(
    view: cython.const[cython.uchar][::1], start: cython.Py_ssize_t, end: cython.Py_ssize_t, base_time_ns: cython.longlong
) -> cython.Py_ssize_t:
    """Check the optional fields of the record at `start`; tell where the record ends, -1 if something does not fit.

    Fields of flags that this version does not know lie behind the known ones and are passed over.
    """
    size: cython.Py_ssize_t = _record_size(view, start, end)
    word: cython.uint
    flags: cython.uint
    at: cython.Py_ssize_t = start + _C_OVERHEAD
    body: cython.Py_ssize_t
    delta_ns: cython.longlong
    if size == 0:
        return -1
    word = load_u32(view, start + 4)
    flags = word >> 24
    if flags == 0:
        return start + size
    body = start + (word & 0xFFFFFF)
    if flags & _TIME:
        if body - at < 8:
            return -1
        delta_ns = load_i64(view, at)
        # Neither sum nor difference can overflow, since a base time is not negative.
        if base_time_ns < 0 or delta_ns < -base_time_ns or delta_ns > _C_TIME_MAX - base_time_ns:
            return -1
        at += 8
    if flags & _EXPIRY:
        at += 8
    if flags & _KEY:
        at = sized_end(view, at, body)
    if at >= 0 and flags & _HEADERS:
        at = _inner_end(view, at, body, False)
    if at >= 0 and flags & _EXTRAS:
        at = _inner_end(view, at, body, True)
    return -1 if at < 0 or at > body else start + size


@cython.cfunc
@cython.exceptval(check=False)
def _walk_batch(
    view: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    base_time_ns: cython.longlong,
) -> cython.Py_ssize_t:
    """Tell where the first record starts that is not sound, or where bytes are left over; -1 if all is well."""
    after: cython.Py_ssize_t
    while count > 0:
        after = _fields_end(view, at, end, base_time_ns)
        if after < 0:
            return at
        at = after
        count -= 1
    return -1 if at == end else at
