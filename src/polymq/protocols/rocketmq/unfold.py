"""From a run of stored messages to columns, for readers of whole queues: no object for a message. Hot; compiled if possible.

The layout is in `messages`; `runs` has what comes out. A run is walked twice: the first walk looks at every size and adds up
what the columns take, the second one copies. Bodies are taken as they lie there: `is_packed` tells when `runs.unpacked_run` has
something to do first. Of properties, KEYS, TAGS, `reply-to` and UNIQ_KEY have columns of their own, in which the last of several
counts; those that users have set are headers, in their order, but for KEYS (`generic`).
"""

from __future__ import annotations

from array import array
from typing import Final

import cython

from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq import messages, runs
from polymq.protocols.rocketmq.checksums import CHECKSUM
from polymq.protocols.rocketmq.generic import GENERIC
from polymq.protocols.rocketmq.runs import Unfolded

if not cython.compiled:
    from polymq.protocols.rocketmq.checksums import Checksum
    from polymq.protocols.rocketmq.generic import Generic
    from polymq.wire.inline import copy, equal_bytes, load_u32_be

__all__ = ["RUN_SIZE_BYTES_MAX", "is_packed", "unfold"]

# Ends of texts are int32.
RUN_SIZE_BYTES_MAX: Final = 1 << 30

_MAGIC = cython.declare(cython.uint, 0xDAA320A7)
_MAGIC_2 = cython.declare(cython.uint, 0xDAA320AB)
# What fills the end of a broker's file; nothing is in it.
_BLANK = cython.declare(cython.uint, 0xCBD43194)
_BLANK_SIZE = cython.declare(cython.Py_ssize_t, 8)
# All of the smallest message but body, topic and properties.
_FIXED_SIZE = cython.declare(cython.Py_ssize_t, 91)
_NUMBER_HIGH = cython.declare(cython.uint, 0x80000000)
_TIME_MS_MAX = cython.declare(cython.longlong, (2**63 - 1) // 1000)
_NO_OFFSET = cython.declare(cython.longlong, -1)
_DIGITS: Final = b"0123456789ABCDEF"

# What `_layout` finds of a record.
_OFFSET = cython.declare(cython.Py_ssize_t, 0)
_TIME_MS = cython.declare(cython.Py_ssize_t, 1)
_RECONSUMED = cython.declare(cython.Py_ssize_t, 2)
_BODY_AT = cython.declare(cython.Py_ssize_t, 3)
_BODY_SIZE = cython.declare(cython.Py_ssize_t, 4)
_PROPERTIES_AT = cython.declare(cython.Py_ssize_t, 5)
_PROPERTIES_END = cython.declare(cython.Py_ssize_t, 6)
_STORE_AT = cython.declare(cython.Py_ssize_t, 7)
_STORE_SIZE = cython.declare(cython.Py_ssize_t, 8)
_LAYOUT: Final = 9

# What `_measure` adds up; behind that the sizes of the texts.
_ROWS = cython.declare(cython.Py_ssize_t, 0)
_BODY_BYTES = cython.declare(cython.Py_ssize_t, 1)
_HEADERS = cython.declare(cython.Py_ssize_t, 2)
_NAME_BYTES = cython.declare(cython.Py_ssize_t, 3)
_VALUE_BYTES = cython.declare(cython.Py_ssize_t, 4)
_GAP = cython.declare(cython.Py_ssize_t, 5)
_DAMAGED = cython.declare(cython.Py_ssize_t, 6)
_TEXTS = cython.declare(cython.Py_ssize_t, 7)

# The texts, and what else a property can be.
_KEY = cython.declare(cython.Py_ssize_t, runs.KEY)
_TAGS = cython.declare(cython.Py_ssize_t, runs.TAGS)
_REPLY_TO = cython.declare(cython.Py_ssize_t, runs.REPLY_TO)
_MESSAGE_ID = cython.declare(cython.Py_ssize_t, runs.MESSAGE_ID)
_FIELDS = cython.declare(cython.Py_ssize_t, runs.FIELDS)
_HEADER = cython.declare(cython.Py_ssize_t, runs.FIELDS)
_SYSTEM = cython.declare(cython.Py_ssize_t, runs.FIELDS + 1)

assert (messages.MAGIC, messages.MAGIC_2) == (_MAGIC, _MAGIC_2)


def is_packed(view: cython.const[cython.uchar][::1]) -> bool:
    """Say whether a run has messages that `unpacked_run` makes plain; what does not fit is left to `unfold`."""
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(view)
    size: cython.Py_ssize_t
    flags: cython.uint
    while end - at >= _FIXED_SIZE:
        size = load_u32_be(view, at)
        flags = load_u32_be(view, at + 36)
        if size < _BLANK_SIZE or size > end - at:
            return False
        if load_u32_be(view, at + 4) != _BLANK and (flags & 1 or flags & 0xC0 == 0xC0):
            return True
        at += size
    return False


def unfold(view: cython.const[cython.uchar][::1], first_offset: int, end_offset: int) -> Unfolded:
    """Turn a run into columns, keeping the messages with `first_offset <= offset < end_offset`.

    A message whose body is not what its checksum says ends the rows (`Unfolded.damaged`); a checksum of 0 says nothing.
    Limits: RUN_SIZE_BYTES_MAX (asserted).
    Raises: RemoteProtocolError (not fatal) when sizes do not fit, or offsets do not grow.
    Cost:   two walks, a copy and a checksum of the bodies; about 0.6 µs for a message of 200 bytes with five properties.
    """
    assert len(view) <= RUN_SIZE_BYTES_MAX
    totals = array("q", bytes(8 * (7 + runs.FIELDS)))
    totals[_GAP] = totals[_DAMAGED] = -1
    wrong = _measure(view, first_offset, end_offset, totals)
    if wrong >= 0:
        raise RemoteProtocolError(f"stored messages do not fit, at byte {wrong} of {len(view)}", fatal=False)
    count, body_bytes, header_count, name_bytes, value_bytes, gap, damaged = totals[:7]
    starts, text_bytes = [], 0
    for size in totals[7:]:
        starts.append(text_bytes)
        text_bytes += size
    result = Unfolded(
        count=count,
        offsets=array("q", bytes(8 * count)),
        times_us=array("q", bytes(8 * count)),
        reconsume_times=array("i", bytes(4 * count)),
        body_ends=array("i", bytes(4 * (count + 1))),
        bodies=bytearray(body_bytes),
        text_starts=tuple(starts),
        text_ends=array("i", bytes(4 * runs.FIELDS * (count + 1))),
        texts=bytearray(text_bytes),
        text_valid=bytearray(runs.FIELDS * ((count + 7) >> 3)),
        header_count=header_count,
        header_ends=array("i", bytes(4 * (count + 1))),
        name_ends=array("i", bytes(4 * (header_count + 1))),
        names=bytearray(name_bytes),
        value_ends=array("i", bytes(4 * (header_count + 1))),
        values=bytearray(value_bytes),
        gap=gap,
        damaged=damaged,
    )
    if count:
        _fill(view, first_offset, end_offset, result)
        _fill_properties(view, first_offset, end_offset, result)
    return result


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _load_number(view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    """Read eight bytes as a number; -1 for all that are negative."""
    high: cython.longlong = load_u32_be(view, at)
    if high >= _NUMBER_HIGH:
        return -1
    return (high << 32) | load_u32_be(view, at + 4)


@cython.cfunc
@cython.exceptval(check=False)
def _layout(
    view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, found: cython.longlong[::1]
) -> cython.Py_ssize_t:
    """Find what the record at `at` has; gives where it ends, -1 if something does not fit. A blank one has the offset -1."""
    size: cython.Py_ssize_t
    magic: cython.uint
    flags: cython.uint
    after: cython.Py_ssize_t
    place: cython.Py_ssize_t
    if end - at < _BLANK_SIZE:
        return -1
    size = load_u32_be(view, at)
    magic = load_u32_be(view, at + 4)
    if size > end - at:
        return -1
    if magic == _BLANK:
        found[_OFFSET] = _NO_OFFSET
        return at + size if size >= _BLANK_SIZE else -1
    if size < _FIXED_SIZE or (magic != _MAGIC and magic != _MAGIC_2):
        return -1
    after = at + size
    flags = load_u32_be(view, at + 36)
    place = at + (68 if flags & 0x10 else 56)
    found[_OFFSET] = _load_number(view, at + 20)
    found[_TIME_MS] = _load_number(view, place)
    found[_STORE_AT] = place + 8
    found[_STORE_SIZE] = 20 if flags & 0x20 else 8
    place += 8 + (20 if flags & 0x20 else 8)
    # Larger hosts: the rest of the fixed part must still be there.
    if after - place < 16 or found[_OFFSET] < 0 or found[_TIME_MS] < 0 or found[_TIME_MS] > _TIME_MS_MAX:
        return -1
    if load_u32_be(view, place) >= _NUMBER_HIGH:
        return -1
    found[_RECONSUMED] = load_u32_be(view, place)
    size = load_u32_be(view, place + 12)
    place += 16
    if size > after - place:
        return -1
    found[_BODY_AT] = place
    found[_BODY_SIZE] = size
    place += size
    # Sizes of topics have a byte, or two.
    size = 2 if magic == _MAGIC_2 else 1
    if after - place < size:
        return -1
    place += 2 + (view[place] << 8 | view[place + 1]) if size == 2 else 1 + view[place]
    if after - place < 2:
        return -1
    size = view[place] << 8 | view[place + 1]
    place += 2
    if size > 0x7FFF or size > after - place:
        return -1
    found[_PROPERTIES_AT] = place
    found[_PROPERTIES_END] = place + size
    return after


@cython.cfunc
@cython.exceptval(-2)
def _measure(
    view: cython.const[cython.uchar][::1], first_offset: cython.longlong, end_offset: cython.longlong, totals: cython.longlong[::1]
) -> cython.Py_ssize_t:
    """Look at all of a run and add up what its columns hold; tells where something is wrong, -1 if nothing is."""
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(view)
    after: cython.Py_ssize_t
    field: cython.Py_ssize_t
    expected: cython.longlong = first_offset
    offset: cython.longlong
    crc: cython.uint
    found: cython.longlong[::1] = array("q", bytes(8 * _LAYOUT))
    texts: cython.longlong[::1] = array("q", bytes(16 * runs.FIELDS))
    checksum: Checksum = CHECKSUM
    while at < end:
        after = _layout(view, at, end, found)
        if after < 0:
            return at
        offset = found[_OFFSET]
        if first_offset <= offset and offset < end_offset:
            if offset < expected:
                return at
            crc = load_u32_be(view, at + 8)
            if crc and crc != checksum.body_crc(view, found[_BODY_AT], found[_BODY_SIZE]):
                totals[_DAMAGED] = offset
                return -1
            if offset > expected and totals[_GAP] < 0:
                totals[_GAP] = expected
            expected = offset + 1
            totals[_ROWS] += 1
            totals[_BODY_BYTES] += found[_BODY_SIZE]
            _measure_properties(view, found[_PROPERTIES_AT], found[_PROPERTIES_END], texts, totals)
            if texts[2 * _MESSAGE_ID + 1] == 0:
                totals[_TEXTS + _MESSAGE_ID] += 2 * (found[_STORE_SIZE] + 8)
            for field in range(_FIELDS):
                totals[_TEXTS + field] += texts[2 * field + 1]
        at = after
    return -1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _find(view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, byte: cython.uchar) -> cython.Py_ssize_t:
    """Find a byte; `end` if it is not there."""
    while at < end and view[at] != byte:
        at += 1
    return at


@cython.cfunc
def _kind(view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Say what a property of this name is: one of the texts, a header, or the system's."""
    generic: Generic = GENERIC
    if size == 4:
        if equal_bytes(b"KEYS", view, at, 4):
            return _KEY
        if equal_bytes(b"TAGS", view, at, 4):
            return _TAGS
    elif size == 8:
        if equal_bytes(b"UNIQ_KEY", view, at, 8):
            return _MESSAGE_ID
        if equal_bytes(b"reply-to", view, at, 8):
            return _REPLY_TO
    return _SYSTEM if generic.is_system(view, at, size) else _HEADER


@cython.cfunc
@cython.exceptval(-1)
def _measure_properties(
    view: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    texts: cython.longlong[::1],
    totals: cython.longlong[::1],
) -> cython.int:
    """Find the texts among properties (where each is, and its size; 0: not there), and add up their headers."""
    stop: cython.Py_ssize_t
    colon: cython.Py_ssize_t
    kind: cython.Py_ssize_t
    for kind in range(2 * _FIELDS):
        texts[kind] = 0
    while at < end:
        stop = _find(view, at, end, 2)
        colon = _find(view, at, stop, 1)
        if colon > at and stop - colon > 1:
            kind = _kind(view, at, colon - at)
            if kind < _FIELDS:
                texts[2 * kind] = colon + 1
                texts[2 * kind + 1] = stop - colon - 1
            if kind in (_HEADER, _TAGS, _REPLY_TO):
                totals[_HEADERS] += 1
                totals[_NAME_BYTES] += colon - at
                totals[_VALUE_BYTES] += stop - colon - 1
        at = stop + 1
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _fill(
    view: cython.const[cython.uchar][::1], first_offset: cython.longlong, end_offset: cython.longlong, target: Unfolded
) -> cython.int:
    """Write what is no property, of as many messages as there are rows."""
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(view)
    row: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = target.count
    size: cython.Py_ssize_t
    after: cython.Py_ssize_t
    found: cython.longlong[::1] = array("q", bytes(8 * _LAYOUT))
    offsets: cython.longlong[::1] = target.offsets
    times: cython.longlong[::1] = target.times_us
    reconsumed: cython.int[::1] = target.reconsume_times
    ends: cython.int[::1] = target.body_ends
    bodies: cython.uchar[::1] = target.bodies
    while row < count:
        after = _layout(view, at, end, found)
        assert after > at
        if first_offset <= found[_OFFSET] and found[_OFFSET] < end_offset:
            size = found[_BODY_SIZE]
            offsets[row] = found[_OFFSET]
            times[row] = found[_TIME_MS] * 1000
            reconsumed[row] = cython.cast(cython.int, found[_RECONSUMED])
            copy(bodies, ends[row], view, found[_BODY_AT], size)
            ends[row + 1] = cython.cast(cython.int, ends[row] + size)
            row += 1
        at = after
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _fill_properties(
    view: cython.const[cython.uchar][::1], first_offset: cython.longlong, end_offset: cython.longlong, target: Unfolded
) -> cython.int:
    """Do for texts and headers what `_fill` does for the rest."""
    at: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(view)
    row: cython.Py_ssize_t = 0
    count: cython.Py_ssize_t = target.count
    header: cython.Py_ssize_t = 0
    after: cython.Py_ssize_t
    field: cython.Py_ssize_t
    place: cython.Py_ssize_t
    size: cython.Py_ssize_t
    found: cython.longlong[::1] = array("q", bytes(8 * _LAYOUT))
    where: cython.longlong[::1] = array("q", bytes(16 * runs.FIELDS))
    unused: cython.longlong[::1] = array("q", bytes(8 * (7 + runs.FIELDS)))
    starts: cython.longlong[::1] = array("q", target.text_starts)
    ends: cython.int[::1] = target.text_ends
    texts: cython.uchar[::1] = target.texts
    valid: cython.uchar[::1] = target.text_valid
    header_ends: cython.int[::1] = target.header_ends
    name_ends: cython.int[::1] = target.name_ends
    names: cython.uchar[::1] = target.names
    value_ends: cython.int[::1] = target.value_ends
    values: cython.uchar[::1] = target.values
    while row < count:
        after = _layout(view, at, end, found)
        if first_offset <= found[_OFFSET] and found[_OFFSET] < end_offset:
            _measure_properties(view, found[_PROPERTIES_AT], found[_PROPERTIES_END], where, unused)
            for field in range(_FIELDS):
                place = field * (count + 1) + row
                size = where[2 * field + 1]
                if size:
                    copy(texts, starts[field] + ends[place], view, where[2 * field], size)
                elif field == _MESSAGE_ID:
                    size = 2 * (found[_STORE_SIZE] + 8)
                    _write_id(texts, starts[field] + ends[place], view, found[_STORE_AT], found[_STORE_SIZE], at + 28)
                if size:
                    valid[field * ((count + 7) >> 3) + (row >> 3)] |= 1 << (row & 7)
                ends[place + 1] = cython.cast(cython.int, ends[place] + size)
            header = _fill_headers(view, found[_PROPERTIES_AT], found[_PROPERTIES_END], header, name_ends, names, value_ends, values)
            row += 1
            header_ends[row] = cython.cast(cython.int, header)
        at = after
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _fill_headers(
    view: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    header: cython.Py_ssize_t,
    name_ends: cython.int[::1],
    names: cython.uchar[::1],
    value_ends: cython.int[::1],
    values: cython.uchar[::1],
) -> cython.Py_ssize_t:
    """Write the headers of one message behind `header` others; gives how many there are by then."""
    stop: cython.Py_ssize_t
    colon: cython.Py_ssize_t
    kind: cython.Py_ssize_t
    while at < end:
        stop = _find(view, at, end, 2)
        colon = _find(view, at, stop, 1)
        if colon > at and stop - colon > 1:
            kind = _kind(view, at, colon - at)
            if kind in (_HEADER, _TAGS, _REPLY_TO):
                _fill_one(view, at, colon - at, name_ends, names, header)
                _fill_one(view, colon + 1, stop - colon - 1, value_ends, values, header)
                header += 1
        at = stop + 1
    return header


@cython.cfunc
@cython.exceptval(-1)
def _fill_one(
    view: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
    ends: cython.int[::1],
    texts: cython.uchar[::1],
    index: cython.Py_ssize_t,
) -> cython.int:
    """Write one text behind the others."""
    copy(texts, ends[index], view, at, size)
    ends[index + 1] = cython.cast(cython.int, ends[index] + size)
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _write_id(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    view: cython.const[cython.uchar][::1],
    store_at: cython.Py_ssize_t,
    store_size: cython.Py_ssize_t,
    physical_at: cython.Py_ssize_t,
) -> cython.int:
    """Write the broker's name for a message: address, port and physical offset, in hexadecimal digits."""
    digits: cython.const[cython.uchar][::1] = _DIGITS
    i: cython.Py_ssize_t
    byte: cython.uchar
    for i in range(store_size + 8):
        byte = view[store_at + i] if i < store_size else view[physical_at + i - store_size]
        target[at + 2 * i] = digits[byte >> 4]
        target[at + 2 * i + 1] = digits[byte & 15]
    return 0
