"""Record batches from columns: rows that lie as Arrow has them become records, and keys become places.

For who writes whole tables: Spark's sink. Hot module, the same compiled and interpreted; `records.py` has the layout.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import cython

if not cython.compiled:
    from polymq.wire.inline import copy, load_u32, store_i64, store_u32

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["NO_TIME", "Rows", "encode_rows", "has_extras", "place_keys"]

# A row without a time of its own, or one that never ends.
NO_TIME: Final = -1

_C_OVERHEAD = cython.declare(cython.Py_ssize_t, 8)
_C_BODY_AT_MAX = cython.declare(cython.Py_ssize_t, 0xFFFFFF)
_TIME = cython.declare(cython.uint, 0x01)
_EXPIRY = cython.declare(cython.uint, 0x02)
_KEY = cython.declare(cython.uint, 0x04)
_HEADERS = cython.declare(cython.uint, 0x08)
_EXTRAS = cython.declare(cython.uint, 0x10)
# The header that a row's tag is for every protocol.
_C_TAG_NAME_SIZE = cython.declare(cython.Py_ssize_t, 4)
# "TAGS", as a word.
_C_TAG_NAME = cython.declare(cython.uint, 0x53474154)


def _none() -> memoryview:
    return memoryview(b"")


def _no_ends() -> memoryview:
    return memoryview(array("i"))


def _no_times() -> memoryview:
    return memoryview(array("q"))


def _crc_table() -> memoryview:
    """Make the table of CRC-32C, byte by byte."""
    table = array("I", bytes(4 * 256))
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = value >> 1 ^ (0x82F63B78 if value & 1 else 0)
        table[byte] = value
    return memoryview(table)


_CRC: Final = _crc_table()


@dataclass(frozen=True, slots=True)
class Rows:
    """Columns of `count` rows; those that are empty are not there.

    The value of row i is `values[value_ends[i] : value_ends[i + 1]]` (int32 "i"); keys and tags likewise, where the
    byte `key_valid[i]` is not 0. Row i has the headers `header_ends[i]` to `header_ends[i + 1]`, whose names and contents
    lie like values. `times` and `expiries` are int64 "q", ns since 1970 or NO_TIME.
    """

    count: int
    value_ends: memoryview
    values: memoryview
    key_valid: memoryview = field(default_factory=_none)
    key_ends: memoryview = field(default_factory=_no_ends)
    keys: memoryview = field(default_factory=_none)
    tag_valid: memoryview = field(default_factory=_none)
    tag_ends: memoryview = field(default_factory=_no_ends)
    tags: memoryview = field(default_factory=_none)
    header_ends: memoryview = field(default_factory=_no_ends)
    name_ends: memoryview = field(default_factory=_no_ends)
    names: memoryview = field(default_factory=_none)
    content_ends: memoryview = field(default_factory=_no_ends)
    contents: memoryview = field(default_factory=_none)
    times: memoryview = field(default_factory=_no_times)
    expiries: memoryview = field(default_factory=_no_times)


def encode_rows(target: bytearray, at: int, rows: Rows, first: int, enough: int) -> tuple[int, int]:
    """Write records for a batch whose time is 0, from row `first` on until they take `enough` bytes; at least one, if there is room.

    Gives where the next record would go, and the next row: `first` if even that one does not fit into `target`, or its
    key, tag and headers are too large for a record.
    Cost: one copy, and no object per row.
    """
    with memoryview(target) as view:
        found: tuple[int, int] = _encode_rows(
            view,
            at,
            first,
            rows.count,
            enough,
            rows.value_ends,
            rows.values,
            rows.key_valid,
            rows.key_ends,
            rows.keys,
            rows.tag_valid,
            rows.tag_ends,
            rows.tags,
            rows.header_ends,
            rows.name_ends,
            rows.names,
            rows.content_ends,
            rows.contents,
            rows.times,
            rows.expiries,
        )
    return found


@cython.cfunc
def _encode_rows(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    row: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    enough: cython.Py_ssize_t,
    value_ends: cython.const[cython.int][::1],
    values: cython.const[cython.uchar][::1],
    key_valid: cython.const[cython.uchar][::1],
    key_ends: cython.const[cython.int][::1],
    keys: cython.const[cython.uchar][::1],
    tag_valid: cython.const[cython.uchar][::1],
    tag_ends: cython.const[cython.int][::1],
    tags: cython.const[cython.uchar][::1],
    header_ends: cython.const[cython.int][::1],
    name_ends: cython.const[cython.int][::1],
    names: cython.const[cython.uchar][::1],
    content_ends: cython.const[cython.int][::1],
    contents: cython.const[cython.uchar][::1],
    times: cython.const[cython.longlong][::1],
    expiries: cython.const[cython.longlong][::1],
) -> tuple[int, int]:
    """Do the work of `encode_rows` on typed views."""
    begun_at: cython.Py_ssize_t = at
    size: cython.Py_ssize_t
    key_size: cython.Py_ssize_t
    fields: cython.Py_ssize_t
    body_at: cython.Py_ssize_t
    to: cython.Py_ssize_t
    flags: cython.uint
    assert at >= 0
    assert row >= 0
    assert count < len(value_ends)
    while row < count and at - begun_at < enough:
        size = _size(value_ends, values, row)
        key_size = _optional_size(key_valid, key_ends, keys, row)
        fields = _optional_size(tag_valid, tag_ends, tags, row)
        fields = 0 if fields < 0 else fields + 8 + _C_TAG_NAME_SIZE
        fields += _headers_size(header_ends, name_ends, names, content_ends, contents, row)
        flags = (_TIME if _time(times, row) >= 0 else 0) | (_EXPIRY if _time(expiries, row) >= 0 else 0)
        flags |= (_KEY if key_size >= 0 else 0) | (_HEADERS if fields > 0 else 0)
        body_at = _C_OVERHEAD + (8 if flags & _TIME else 0) + (8 if flags & _EXPIRY else 0)
        body_at += (4 + key_size if flags & _KEY else 0) + (4 + fields if flags & _HEADERS else 0)
        if body_at > _C_BODY_AT_MAX or body_at + size > len(target) - at:
            break
        store_u32(target, at, body_at + size)
        store_u32(target, at + 4, flags << 24 | body_at)
        to = at + _C_OVERHEAD
        to = _put_time(target, to, _time(times, row))
        to = _put_time(target, to, _time(expiries, row))
        if flags & _KEY:
            to = _put(target, to, keys, key_ends[row], key_ends[row + 1])
        if fields > 0:
            store_u32(target, to, fields)
            to = _put_tag(target, to + 4, tag_valid, tag_ends, tags, row)
            to = _put_headers(target, to, header_ends, name_ends, names, content_ends, contents, row)
        copy(target, to, values, value_ends[row], size)
        assert to == at + body_at
        at = to + size
        row += 1
    return at, row


@cython.cfunc
@cython.inline
@cython.exceptval(-2)
def _size(ends: cython.const[cython.int][::1], data: cython.const[cython.uchar][::1], row: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Give the size of one element of a column; asserts that it lies within."""
    assert row + 1 < len(ends)
    assert 0 <= ends[row]
    assert ends[row] <= ends[row + 1]
    assert ends[row + 1] <= len(data)
    return ends[row + 1] - ends[row]


@cython.cfunc
@cython.inline
@cython.exceptval(-2)
def _optional_size(
    valid: cython.const[cython.uchar][::1],
    ends: cython.const[cython.int][::1],
    data: cython.const[cython.uchar][::1],
    row: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Do as `_size`; -1 where there is nothing."""
    if len(valid) == 0:
        return -1
    assert row < len(valid)
    return _size(ends, data, row) if valid[row] else -1


@cython.cfunc
@cython.inline
@cython.exceptval(-2)
def _time(times: cython.const[cython.longlong][::1], row: cython.Py_ssize_t) -> cython.longlong:
    """Give a row's time, -1 where there is none."""
    if len(times) == 0:
        return -1
    assert row < len(times)
    return times[row] if times[row] >= 0 else -1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_time(target: cython.uchar[::1], at: cython.Py_ssize_t, time_ns: cython.longlong) -> cython.Py_ssize_t:
    """Write a time, if there is one; give where it ends."""
    if time_ns < 0:
        return at
    store_i64(target, at, time_ns)
    return at + 8


@cython.cfunc
@cython.inline
@cython.exceptval(-2)
def _headers_size(
    header_ends: cython.const[cython.int][::1],
    name_ends: cython.const[cython.int][::1],
    names: cython.const[cython.uchar][::1],
    content_ends: cython.const[cython.int][::1],
    contents: cython.const[cython.uchar][::1],
    row: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Say how many bytes the headers of a row take."""
    fields: cython.Py_ssize_t = 0
    header: cython.Py_ssize_t
    if len(header_ends) == 0:
        return 0
    assert row + 1 < len(header_ends)
    assert header_ends[row] >= 0
    for header in range(header_ends[row], header_ends[row + 1]):
        fields += 8 + _size(name_ends, names, header) + _size(content_ends, contents, header)
    return fields


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_tag(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    valid: cython.const[cython.uchar][::1],
    ends: cython.const[cython.int][::1],
    tags: cython.const[cython.uchar][::1],
    row: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write a row's tag as a header; give where that ends."""
    if len(valid) == 0 or not valid[row]:
        return at
    store_u32(target, at, _C_TAG_NAME_SIZE)
    store_u32(target, at + 4, _C_TAG_NAME)
    return _put(target, at + 8, tags, ends[row], ends[row + 1])


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_headers(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    header_ends: cython.const[cython.int][::1],
    name_ends: cython.const[cython.int][::1],
    names: cython.const[cython.uchar][::1],
    content_ends: cython.const[cython.int][::1],
    contents: cython.const[cython.uchar][::1],
    row: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write a row's headers; give where they end."""
    header: cython.Py_ssize_t
    if len(header_ends) == 0:
        return at
    for header in range(header_ends[row], header_ends[row + 1]):
        at = _put(target, at, names, name_ends[header], name_ends[header + 1])
        at = _put(target, at, contents, content_ends[header], content_ends[header + 1])
    return at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    source: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write bytes with their size before them; give where they end."""
    store_u32(target, at, end - start)
    copy(target, at + 4, source, start, end - start)
    return at + 4 + end - start


def place_keys(target: array[int], key_valid: Buffer, key_ends: Buffer, keys: Buffer, count: int, partitions: int) -> None:
    """Write for each row the partition where its key goes ("i"), as `Topic.pick_for` has it; -1 for a row without one."""
    _place(target, key_valid, key_ends, keys, count, partitions, _CRC)


@cython.cfunc
@cython.exceptval(-1)
def _place(
    target: cython.int[::1],
    key_valid: cython.const[cython.uchar][::1],
    key_ends: cython.const[cython.int][::1],
    keys: cython.const[cython.uchar][::1],
    count: cython.Py_ssize_t,
    partitions: cython.uint,
    table: cython.const[cython.uint][::1],
) -> cython.int:
    """Do the work of `place_keys` on typed views."""
    row: cython.Py_ssize_t
    at: cython.Py_ssize_t
    crc: cython.uint
    assert partitions > 0
    assert count <= len(target)
    assert count <= len(key_valid)
    assert count < len(key_ends)
    for row in range(count):
        if not key_valid[row]:
            target[row] = -1
            continue
        assert 0 <= key_ends[row] <= key_ends[row + 1] <= len(keys)
        crc = 0xFFFFFFFF
        for at in range(key_ends[row], key_ends[row + 1]):
            crc = table[(crc ^ keys[at]) & 0xFF] ^ crc >> 8
        target[row] = (crc ^ 0xFFFFFFFF) % partitions
    return 0


def has_extras(view: Buffer, at: int, count: int) -> bool:
    """Say whether one of the records of a batch that was checked has extras: those of a protocol are for its gateway to write."""
    found: bool = _has_extras(view, at, count)
    return found


@cython.cfunc
@cython.exceptval(check=False)
def _has_extras(view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, count: cython.Py_ssize_t) -> cython.bint:
    end: cython.Py_ssize_t = len(view)
    while count > 0 and end - at >= _C_OVERHEAD:
        if (load_u32(view, at + 4) >> 24) & _EXTRAS:
            return True
        at += load_u32(view, at)
        count -= 1
    return False
