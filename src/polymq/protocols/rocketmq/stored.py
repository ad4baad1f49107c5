"""Messages of the log as RocketMQ's clients get them: a slice to stored messages. Hot; compiled if possible.

The layouts are in `extras`, `messages` and `wire/records.py`; `send_records` is the other direction. Messages that came by other
protocols have no native extra: they are born when they were stored, their headers are properties, and their key is KEYS. What came by RocketMQ was stored when its batch was: a delayed message
keeps the time of its sending, and clients are to see that of its delivery. Hosts have always 4 bytes in what clients get, since
old ones know no others: what was born elsewhere is born at 0.0.0.0. A body that its sender has packed is in an extra of its own, as it came
(`messages.make_message`); the record's body is unpacked, for everybody else.
"""

from __future__ import annotations

import dataclasses
from array import array
from typing import TYPE_CHECKING, Final

import cython

from polymq.errors import CorruptRecord
from polymq.protocols.rocketmq import messages
from polymq.protocols.rocketmq.checksums import CHECKSUM
from polymq.protocols.rocketmq.generic import GENERIC
from polymq.protocols.rocketmq.messages import (
    ORIGIN_ROCKETMQ,
    Extra,
    StoredMessage,
    body_of,
    decode_stored,
    extra_of,
    make_extra,
    make_message,
    read_extra,
)
from polymq.rocketmq_limits import PHYSICAL_OFFSET_BITS, PROPERTIES_SIZE_BYTES_MAX, RECORD_SIZE_BYTES_MAX
from polymq.wire.batch import ATTRIBUTES_PASSED_OVER, HEADER_SIZE_BYTES, RECORD_OVERHEAD_BYTES, Message, encode_message
from polymq.wire.batch import MAGIC as BATCH_MAGIC
from polymq.wire.left_out import EXPIRED, HEADER, KEY, LARGE
from polymq.wire.left_out import left_out as counts
from polymq.wire.slices import Slice

if not cython.compiled:
    from polymq.protocols.rocketmq.checksums import Checksum
    from polymq.protocols.rocketmq.extras import hash_of
    from polymq.protocols.rocketmq.fields import is_utf8
    from polymq.protocols.rocketmq.generic import Generic
    from polymq.wire.inline import copy, equal_bytes, load_i64, load_u32, load_u32_be, sized_end, store_i64_be, store_u32_be

if TYPE_CHECKING:
    from polymq.protocols.rocketmq.places import Place

__all__ = [
    "ORIGIN_ROCKETMQ",
    "Extra",
    "StoredMessage",
    "body_of",
    "decode_stored",
    "encode_stored",
    "encode_stored_message",
    "extra_of",
    "make_extra",
    "make_message",
    "read_extra",
    "stored_room",
]

_C_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 80)
_C_OVERHEAD = cython.declare(cython.Py_ssize_t, 8)
_C_BATCH_MAGIC = cython.declare(cython.uint, 0x514D5950)
_TIME = cython.declare(cython.uint, 0x01)
_EXPIRY = cython.declare(cython.uint, 0x02)
_KEY = cython.declare(cython.uint, 0x04)
_HEADERS = cython.declare(cython.uint, 0x08)
_EXTRAS = cython.declare(cython.uint, 0x10)
_PASSED_OVER = cython.declare(cython.uint, 0x03)
_C_ORIGIN = cython.declare(cython.uchar, 2)

_C_MAGIC = cython.declare(cython.uint, 0xDAA320A7)
# All of a stored message but body, topic and properties.
_STORED_FIXED = cython.declare(cython.Py_ssize_t, 91)
_FIXED_SIZE = cython.declare(cython.Py_ssize_t, 48)
_LOW_BITS = cython.declare(cython.int, PHYSICAL_OFFSET_BITS)
_LOW_MASK = cython.declare(cython.longlong, (1 << PHYSICAL_OFFSET_BITS) - 1)
_PROPERTIES_SIZE_MAX = cython.declare(cython.Py_ssize_t, PROPERTIES_SIZE_BYTES_MAX)
_STORED_SIZE_MAX = cython.declare(cython.Py_ssize_t, RECORD_SIZE_BYTES_MAX)
# hosts of 16 bytes
_V6_BITS = cython.declare(cython.uint, 0x30)
_NO_WANTED: Final = memoryview(array("i", [0]))
_NOT_COUNTED: Final = counts()
_LOST_KEY = cython.declare(cython.Py_ssize_t, KEY)
_LOST_HEADER = cython.declare(cython.Py_ssize_t, HEADER)
_TOO_LARGE = cython.declare(cython.Py_ssize_t, LARGE)
_OVER = cython.declare(cython.Py_ssize_t, EXPIRED)

assert (HEADER_SIZE_BYTES, RECORD_OVERHEAD_BYTES, BATCH_MAGIC) == (_C_HEADER_SIZE, _C_OVERHEAD, _C_BATCH_MAGIC)
assert ATTRIBUTES_PASSED_OVER == _PASSED_OVER
assert (ORIGIN_ROCKETMQ, messages.MAGIC) == (_C_ORIGIN, _C_MAGIC)


def stored_room(slice_: Slice, place: Place, size_max: int) -> int:
    """Say how much room `encode_stored` needs at most. Raises CorruptRecord. Cost: some nanoseconds per record."""
    return _room(slice_.view, slice_.position, slice_.batch_left, slice_.count, slice_.end, len(place.topic) + _STORED_FIXED, size_max)


@cython.cfunc
@cython.exceptval(-1)
def _room(
    view: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    batch_left: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    more: cython.Py_ssize_t,
    size_max: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Add up what the messages take at most, or the largest of them alone. A record's words outweigh what properties need more than headers."""
    total: cython.Py_ssize_t = 0
    largest: cython.Py_ssize_t = size_max
    size: cython.Py_ssize_t
    assert 0 <= position <= end <= len(view)
    while count > 0:
        if batch_left == 0:
            batch_left = _batch_count(view, position, end)
            position += _C_HEADER_SIZE
        size = _record_size(view, position, end)
        position += size
        size += more
        total += size
        if size > largest:
            largest = size
        batch_left -= 1
        count -= 1
    return total if total < largest else largest


@cython.cfunc
@cython.exceptval(-1)
def _batch_count(view: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Read how many records the batch at `position` has."""
    if end - position < _C_HEADER_SIZE or load_u32(view, position + 4) != _C_BATCH_MAGIC or load_u32(view, position + 28) == 0:
        raise CorruptRecord("record batch", position=position, expected="a batch header", found="something else")
    return load_u32(view, position + 28)


@cython.cfunc
@cython.exceptval(-1)
def _record_size(view: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Read how large the record at `position` is, with its body inside."""
    size: cython.Py_ssize_t = load_u32(view, position) if end - position >= _C_OVERHEAD else 0
    body_at: cython.Py_ssize_t
    if size < _C_OVERHEAD or size > end - position:
        raise CorruptRecord("record batch", position=position, expected="a sound record", found="a size that does not fit")
    body_at = load_u32(view, position + 4) & 0xFFFFFF
    if body_at < _C_OVERHEAD or body_at > size:
        raise CorruptRecord("record batch", position=position, expected="a sound record", found="a body outside its record")
    return size


def encode_stored(
    target: bytearray,
    at: int,
    slice_: Slice,
    place: Place,
    wanted: array[int] | None,
    count_max: int,
    size_max: int,
    *,
    now_ns: int = 0,
    left_out: array[int] | None = None,
) -> tuple[int, int, int, int]:
    """Write the stored messages of a slice of our log whose tags code is `wanted` (None: all) into `target` from `at` on.

    Gives where they end, how many there are, the offset to go on from, and how many records have been looked at. Stops behind
    `count_max` messages and before one that would make more than `size_max` bytes, though not before the first one. What is
    in a batch that all pass over, larger than RECORD_SIZE_BYTES_MAX, or over at `now_ns` (0: nothing is) is passed over. What RocketMQ cannot
    say of other protocols' messages is left out (`generic.foreign_properties` has the rule), and counted in `left_out` (`wire/left_out.py`).

    Limits:  `stored_room(…)` bytes of room from `at` on (asserted of each message).
    Raises:  CorruptRecord when something in the slice does not fit.
    Cost:    one copy of everything, and about 50 ns each.
    """
    assert at >= 0
    writer = _Writer(place, wanted, now_ns, _NOT_COUNTED if left_out is None else left_out)
    return writer.write(target, at, slice_, count_max, size_max)


def encode_stored_message(message: Message, offset: int, place: Place, *, topic: bytes | None = None, stored_ns: int = 0) -> bytes:
    """Write one message as a stored one: for queries, and for what the broker asks of a producer. Empty if it is too large.

    `topic`: as if it were of that one. `stored_ns`: the time of its batch, if it is not the message's own.
    """
    if topic is not None:
        place = dataclasses.replace(place, topic=topic)
    time_ns = stored_ns or message.time_ns
    view = memoryview(encode_message(message, time_ns))
    slice_ = Slice(view, partition=0, position=0, end=len(view), offset=offset, count=1, batch_left=1, base_time_ns=time_ns)
    target = bytearray(stored_room(slice_, place, 0))
    end, _, _, _ = encode_stored(target, 0, slice_, place, None, 1, 0)
    return bytes(target[:end])


@cython.final
@cython.cclass
class _Writer:
    """Writes stored messages of one queue."""

    _place: Place
    _topic: cython.const[cython.uchar][::1]
    _host: cython.const[cython.uchar][::1]
    _wanted: cython.int[::1]
    _all: cython.bint
    _queue_id: cython.uint
    _port: cython.uint
    _number: cython.longlong
    _checksum: Checksum
    # Of the record that is looked at.
    _native: cython.Py_ssize_t
    _native_size: cython.Py_ssize_t
    _packed: cython.Py_ssize_t
    _packed_size: cython.Py_ssize_t
    _key: cython.Py_ssize_t
    _headers: cython.Py_ssize_t
    _headers_end: cython.Py_ssize_t
    _time_ns: cython.longlong
    _expiry_ns: cython.longlong
    _now_ns: cython.longlong
    _left_out: cython.longlong[::1]
    _generic: Generic

    def __init__(self, place: Place, wanted: array[int] | None, now_ns: int, left_out: array[int]) -> None:
        self._place = place
        self._topic = place.topic
        self._host = place.host
        self._all = wanted is None
        self._wanted = _NO_WANTED if wanted is None else wanted
        self._queue_id, self._port, self._number = place.queue_id, place.port, place.partition_number
        self._checksum = CHECKSUM
        self._generic = GENERIC
        self._now_ns = now_ns
        self._left_out = left_out
        self._native = self._native_size = self._packed = self._packed_size = self._key = self._headers = self._headers_end = 0
        self._time_ns = self._expiry_ns = 0

    def write(self, target: bytearray, at: int, slice_: Slice, count_max: int, size_max: int) -> tuple[int, int, int, int]:
        """Do the work of `encode_stored`."""
        room: cython.uchar[::1] = target
        view: cython.const[cython.uchar][::1] = slice_.view
        position: cython.Py_ssize_t = slice_.position
        end: cython.Py_ssize_t = slice_.end
        left: cython.Py_ssize_t = slice_.batch_left
        time_ns: cython.longlong = slice_.base_time_ns
        offset: cython.longlong = slice_.offset
        stop: cython.longlong = slice_.offset + slice_.count
        visible: cython.bint = True
        found: cython.Py_ssize_t = 0
        found_max: cython.Py_ssize_t = count_max
        behind: cython.Py_ssize_t = at
        size_left: cython.Py_ssize_t = size_max
        size: cython.Py_ssize_t
        stored_size: cython.Py_ssize_t
        while offset < stop and found < found_max:
            if left == 0:
                left = _batch_count(view, position, end)
                time_ns = load_i64(view, position + 40)
                visible = not view[position + 14] & _PASSED_OVER
                position += _C_HEADER_SIZE
            size = _record_size(view, position, end)
            if visible:
                self._look(view, position, position + (load_u32(view, position + 4) & 0xFFFFFF), time_ns)
                if self._expiry_ns <= self._now_ns and self._expiry_ns:
                    self._left_out[_OVER] += 1
                elif self._all or self._is_wanted(view):
                    stored_size = self._stored_size(room, view, position, size)
                    if found and stored_size > size_left:
                        break
                    if stored_size > _STORED_SIZE_MAX:
                        self._left_out[_TOO_LARGE] += 1
                    else:
                        assert stored_size <= len(room) - behind
                        behind = self._write_one(room, behind, view, position, size, offset)
                        size_left -= stored_size
                        found += 1
            position += size
            left -= 1
            offset += 1
        return behind, found, offset, offset - slice_.offset

    @cython.cfunc
    @cython.exceptval(-1)
    def _look(
        self, view: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, body: cython.Py_ssize_t, time_ns: cython.longlong
    ) -> cython.int:
        """Find what a record has, up to its body."""
        flags: cython.uint = load_u32(view, position + 4) >> 24
        at: cython.Py_ssize_t = position + _C_OVERHEAD
        self._time_ns = time_ns
        self._native = self._packed = self._key = self._headers = 0
        self._expiry_ns = 0
        if flags & _TIME:
            if body - at < 8:
                return self._misfit(position)
            self._time_ns = time_ns + load_i64(view, at)
            at += 8
        if flags & _EXPIRY:
            if body - at < 8:
                return self._misfit(position)
            self._expiry_ns = load_i64(view, at)
            at += 8
        if flags & _KEY:
            self._key = at
            at = sized_end(view, at, body)
        if at >= 0 and flags & _HEADERS:
            self._headers = at + 4
            at = sized_end(view, at, body)
            self._headers_end = at
            if at >= 0 and not _is_sound(view, self._headers, at):
                at = -1
        if at < 0 or at > body:
            return self._misfit(position)
        if flags & _EXTRAS:
            if sized_end(view, at, body) < 0:
                return self._misfit(position)
            self._find_native(view, at + 4, sized_end(view, at, body))
            if self._native:
                self._time_ns = time_ns
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _misfit(self, position: cython.Py_ssize_t) -> cython.int:
        raise CorruptRecord("record batch", position=position, expected="a sound record", found="sizes that do not fit")

    @cython.cfunc
    @cython.exceptval(check=False)
    def _find_native(self, view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.int:
        """Find the native extra among the extras `view[at:end]`, none if it is of a version that is not known, and a packed body behind it."""
        size: cython.Py_ssize_t
        fixed: cython.Py_ssize_t
        while end - at >= 5:
            size = load_u32(view, at + 1)
            if size > end - at - 5:
                return 0
            if not self._native and view[at] == _C_ORIGIN and size >= _FIXED_SIZE and view[at + 5] == 1:
                fixed = _FIXED_SIZE - 4 + view[at + 6]
                if (view[at + 6] == 4 or view[at + 6] == 16) and size >= fixed and size - fixed <= _PROPERTIES_SIZE_MAX:
                    self._native = at + 5
                    self._native_size = size
            elif view[at] == _C_ORIGIN and size > 0 and view[at + 5] == 2 and self._native:
                self._packed = at + 6
                self._packed_size = size - 1
                return 0
            at += 5 + size
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _is_wanted(self, view: cython.const[cython.uchar][::1]) -> cython.bint:
        """Say whether the record's tags are among those that are wanted."""
        i: cython.Py_ssize_t
        code: cython.longlong = 0
        at: cython.Py_ssize_t
        if self._native:
            at = self._native + 36 + view[self._native + 1]
            code = load_u32_be(view, at)
            if code >= 0x80000000:
                code -= 0x100000000
        elif self._headers:
            code = _tags_code(view, self._headers, self._headers_end)
        for i in range(len(self._wanted)):  # noqa: SIM110  # a generator would be an object
            if self._wanted[i] == code:
                return True
        return False

    @cython.cfunc
    @cython.exceptval(-1)
    def _stored_size(
        self,
        target: cython.uchar[::1],
        view: cython.const[cython.uchar][::1],
        position: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
    ) -> cython.Py_ssize_t:
        """Say how large the stored message will be."""
        body_size: cython.Py_ssize_t = size - (load_u32(view, position + 4) & 0xFFFFFF)
        if self._packed:
            body_size = self._packed_size
        size = _STORED_FIXED + len(self._topic) + body_size
        if self._native:
            return size + self._native_size - _FIXED_SIZE + 4 - view[self._native + 1]
        return size + self._write_properties(target, 0, view, True)

    @cython.cfunc
    @cython.exceptval(-1)
    def _write_one(
        self,
        target: cython.uchar[::1],
        at: cython.Py_ssize_t,
        view: cython.const[cython.uchar][::1],
        position: cython.Py_ssize_t,
        size: cython.Py_ssize_t,
        offset: cython.longlong,
    ) -> cython.Py_ssize_t:
        """Write the stored message of the record that was looked at."""
        start: cython.Py_ssize_t = at
        body: cython.Py_ssize_t = position + (load_u32(view, position + 4) & 0xFFFFFF)
        body_size: cython.Py_ssize_t = position + size - body
        native: cython.Py_ssize_t = self._native
        tail: cython.Py_ssize_t = native + 24 + (view[native + 1] if native else 0)
        topic_size: cython.Py_ssize_t = len(self._topic)
        properties: cython.Py_ssize_t
        stored_ms: cython.longlong = self._time_ns // 1_000_000
        if self._packed:
            body = self._packed
            body_size = self._packed_size
        store_u32_be(target, at + 4, _C_MAGIC)
        store_u32_be(target, at + 12, self._queue_id)
        store_i64_be(target, at + 20, offset)
        store_i64_be(target, at + 28, self._number << _LOW_BITS | offset & _LOW_MASK)
        if native:
            copy(target, at + 8, view, tail + 16, 4)
            copy(target, at + 16, view, native + 4, 4)
            store_u32_be(target, at + 36, load_u32_be(view, native + 8) & ~_V6_BITS)
            copy(target, at + 40, view, native + 12, 8)
            self._write_born_host(target, at + 48, view)
            copy(target, at + 72, view, tail, 12)
        else:
            store_u32_be(target, at + 8, self._checksum.body_crc(view, body, body_size))
            store_u32_be(target, at + 16, 0)
            store_u32_be(target, at + 36, 0)
            store_i64_be(target, at + 40, stored_ms)
            copy(target, at + 48, self._host, 0, 4)
            store_u32_be(target, at + 52, self._port)
            store_u32_be(target, at + 72, 0)
            store_i64_be(target, at + 76, 0)
        store_i64_be(target, at + 56, stored_ms)
        copy(target, at + 64, self._host, 0, 4)
        store_u32_be(target, at + 68, self._port)
        store_u32_be(target, at + 84, cython.cast(cython.uint, body_size))
        at += 88
        copy(target, at, view, body, body_size)
        at += body_size
        target[at] = topic_size
        copy(target, at + 1, self._topic, 0, topic_size)
        at += 1 + topic_size
        if native:
            properties = native + self._native_size - tail - 20
            copy(target, at + 2, view, tail + 20, properties)
        else:
            properties = self._write_properties(target, at + 2, view, False)
        target[at] = properties >> 8
        target[at + 1] = properties & 255
        at += 2 + properties
        store_u32_be(target, start, cython.cast(cython.uint, at - start))
        return at

    @cython.cfunc
    @cython.exceptval(check=False)
    def _write_born_host(self, target: cython.uchar[::1], at: cython.Py_ssize_t, view: cython.const[cython.uchar][::1]) -> cython.int:
        """Write where the message was born: only addresses of 4 bytes."""
        if view[self._native + 1] == 4:
            copy(target, at, view, self._native + 20, 8)
        else:
            store_u32_be(target, at, 0)
            copy(target, at + 4, view, self._native + 36, 4)
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _write_properties(
        self, target: cython.uchar[::1], start: cython.Py_ssize_t, view: cython.const[cython.uchar][::1], dry: cython.bint
    ) -> cython.Py_ssize_t:
        """Write key and headers of the record as properties, those that can be said; `dry`: only say how much it is."""
        at: cython.Py_ssize_t = start
        name: cython.Py_ssize_t
        value: cython.Py_ssize_t
        name_size: cython.Py_ssize_t
        value_size: cython.Py_ssize_t
        if self._key:
            value_size = load_u32(view, self._key)
            if 0 < value_size <= _PROPERTIES_SIZE_MAX - 6 and _is_text(view, self._key + 4, value_size):
                if not dry:
                    target[at] = 75  # KEYS
                    target[at + 1] = 69
                    target[at + 2] = 89
                    target[at + 3] = 83
                    _write_value(target, at + 4, view, self._key + 4, value_size)
                at += 6 + value_size
            elif not dry:
                self._left_out[_LOST_KEY] += 1
        name = self._headers
        while self._headers and name < self._headers_end:
            name_size = load_u32(view, name)
            value = name + 4 + name_size
            value_size = load_u32(view, value)
            if name_size + value_size + 2 <= _PROPERTIES_SIZE_MAX - (at - start) and self._is_sayable(
                view, name + 4, name_size, value + 4, value_size
            ):
                if not dry:
                    copy(target, at, view, name + 4, name_size)
                    _write_value(target, at + name_size, view, value + 4, value_size)
                at += name_size + value_size + 2
            elif not dry:
                self._left_out[_LOST_HEADER] += 1
            name = value + 4 + value_size
        return at - start

    @cython.cfunc
    @cython.exceptval(-1)
    def _is_sayable(
        self,
        view: cython.const[cython.uchar][::1],
        name: cython.Py_ssize_t,
        name_size: cython.Py_ssize_t,
        value: cython.Py_ssize_t,
        value_size: cython.Py_ssize_t,
    ) -> cython.bint:
        """Say whether a header can be a property: text, not the system's, and not KEYS beside a key."""
        if name_size == 0 or value_size == 0 or (self._key and name_size == 4 and equal_bytes(b"KEYS", view, name, 4)):
            return False
        return _is_text(view, name, name_size) and _is_text(view, value, value_size) and not self._generic.is_system(view, name, name_size)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_value(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    view: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.int:
    target[at] = 1
    copy(target, at + 1, view, start, size)
    target[at + 1 + size] = 2
    return 0


@cython.cfunc
@cython.exceptval(-1)
def _is_text(view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
    """Say whether something can be in a property: UTF-8, and not what ends one."""
    i: cython.Py_ssize_t
    seen: cython.uchar = 0
    for i in range(at, at + size):
        if view[i] == 1 or view[i] == 2:
            return False
        seen |= view[i]
    return seen < 128 or is_utf8(view, at, at + size)


@cython.cfunc
@cython.exceptval(check=False)
def _is_sound(view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
    """Say whether names and values of headers fit."""
    while at < end:
        at = sized_end(view, at, end)
        if at < 0:
            return False
        at = sized_end(view, at, end)
        if at < 0:
            return False
    return True


@cython.cfunc
@cython.exceptval(-1)
def _tags_code(view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.longlong:
    """Hash the header TAGS; 0 if there is none."""
    size: cython.Py_ssize_t
    value: cython.Py_ssize_t
    found: cython.longlong = 0
    while at < end:
        size = load_u32(view, at)
        value = at + 4 + size
        at = value + 4 + load_u32(view, value)
        if size == 4 and equal_bytes(b"TAGS", view, value - 4, 4):
            found = hash_of(view, value + 4, at)
    return found
