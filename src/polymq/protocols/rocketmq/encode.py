"""Answers and requests as bytes; those to a run of sends straight from its rows. Hot; compiled if possible.

Strings only in fields, no blanks, fields always there, and an answer's header in the way in which its request's came: that is
what all the clients need. Read next: `stored`, the messages behind the head of a pull's answer.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Final

import cython

from polymq.protocols.rocketmq import events, header
from polymq.protocols.rocketmq.codes import FLAG_ONEWAY, FLAG_RESPONSE, SERIALIZE_BINARY, VERSION, Language
from polymq.protocols.rocketmq.sends import ORDERS
from polymq.rocketmq_limits import PHYSICAL_OFFSET_BITS

if not cython.compiled:
    from polymq.protocols.rocketmq.sends import Orders, Sends
    from polymq.wire.inline import copy, store_u32_be

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.protocols.rocketmq.places import Place

__all__ = [
    "PULL_HEAD_SIZE_BYTES",
    "SEND_REPLY_SIZE_BYTES_MAX",
    "by_queue",
    "encode_found_head",
    "encode_frame",
    "encode_message_ids",
    "encode_request",
    "encode_response",
    "encode_send_replies",
]

# What both kinds of the head of a pull's answer take at most.
PULL_HEAD_SIZE_BYTES: Final = 320
# Region, id and numbers at their largest.
SEND_REPLY_SIZE_BYTES_MAX: Final = 320

_PREFIX: Final = struct.Struct(">iI")
_COLUMNS = cython.declare(cython.Py_ssize_t, events.COLUMNS)
_TOPIC = cython.declare(cython.Py_ssize_t, events.TOPIC)
_QUEUE_ID = cython.declare(cython.Py_ssize_t, events.QUEUE_ID)
_ONEWAY = cython.declare(cython.int, events.ONEWAY)
_BINARY = cython.declare(cython.int, events.BINARY)
_LOW_BITS = cython.declare(cython.int, PHYSICAL_OFFSET_BITS)
_LOW_MASK = cython.declare(cython.longlong, (1 << PHYSICAL_OFFSET_BITS) - 1)
_HEX: Final = b"0123456789ABCDEF"
_REPLY_SIZE_MAX = cython.declare(cython.Py_ssize_t, 320)
# The head of what a pull has found.
_I32: Final = struct.Struct(">i")
_FOUND_HEAD: Final = struct.Struct(">hBhiii5si")
_FOUND_BROKER: Final = struct.pack(">h20si1s", 20, b"suggestWhichBrokerId", 1, b"0")
_FOUND_NAMES: Final = tuple([struct.pack(">h", len(name)) + name for name in (b"nextBeginOffset", b"minOffset", b"maxOffset")])
_FOUND_JSON: Final = (
    b'{"code":0,"extFields":{"suggestWhichBrokerId":"0","nextBeginOffset":"%b","minOffset":"%b","maxOffset":"%b"},'
    b'"flag":1,"language":"PYTHON","opaque":%d,"remark":"FOUND","version":409}'
)
# Behind a send's id in its answer, in both kinds.
_JSON_OFFSET: Final = b'","queueOffset":"'
_JSON_OPAQUE: Final = b'"},"flag":1,"language":"PYTHON","opaque":'
_JSON_END: Final = b',"version":%d}' % VERSION
_BINARY_OFFSET: Final = struct.pack(">h", 11) + b"queueOffset"
# Where binary headers have opaque and the size of their fields, if they have no remark; the fields are behind that.
_OPAQUE_AT = cython.declare(cython.Py_ssize_t, 5)
_FIELDS_SIZE_AT = cython.declare(cython.Py_ssize_t, 17)
_BINARY_MARK = cython.declare(cython.uint, 0x01000000)


def encode_frame(head: bytes, body: bytes = b"", *, binary: bool = False) -> bytes:
    """Put an encoded header and a body into a frame."""
    kind = SERIALIZE_BINARY << 24 if binary else 0
    return b"".join((_PREFIX.pack(4 + len(head) + len(body), kind | len(head)), head, body))


def encode_response(
    code: int, opaque: int, *, remark: str | None = None, ext: Mapping[str, str] | None = None, body: bytes = b"", binary: bool = False
) -> bytes:
    """Answer a request: in the way, `binary` or not, in which it came. Of a oneway request none may be sent."""
    head = header.Header(code, opaque, FLAG_RESPONSE, dict(ext or ()), remark)
    return encode_frame(header.encode_binary(head) if binary else header.encode_json(head), body, binary=binary)


def encode_request(
    code: int, opaque: int, *, ext: Mapping[str, str] | None = None, body: bytes = b"", oneway: bool = False, binary: bool = False
) -> bytes:
    """Ask a peer, or tell it something (`oneway`)."""
    head = header.Header(code, opaque, FLAG_ONEWAY if oneway else 0, dict(ext or ()))
    return encode_frame(header.encode_binary(head) if binary else header.encode_json(head), body, binary=binary)


def encode_found_head(
    target: bytearray, at: int, *, opaque: int, binary: bool, body_size: int, next_offset: int, min_offset: int, max_offset: int
) -> int:
    """Write the head of the answer FOUND to a pull before the messages that are there already; gives where the frame begins.

    The messages lie from `at + PULL_HEAD_SIZE_BYTES` on, the head ends there and begins somewhere behind `at`.
    """
    numbers = (b"%d" % next_offset, b"%d" % min_offset, b"%d" % max_offset)
    if binary:
        fields = b"".join(
            [part for name, number in zip(_FOUND_NAMES, numbers, strict=True) for part in (name, _I32.pack(len(number)), number)]
        )
        size = len(fields) + len(_FOUND_BROKER)
        head = b"".join((_FOUND_HEAD.pack(0, Language.PYTHON, VERSION, opaque, FLAG_RESPONSE, 5, b"FOUND", size), _FOUND_BROKER, fields))
    else:
        head = _FOUND_JSON % (*numbers, opaque)
    start = at + PULL_HEAD_SIZE_BYTES - _PREFIX.size - len(head)
    assert at <= start
    assert at + PULL_HEAD_SIZE_BYTES + body_size <= len(target)
    _PREFIX.pack_into(target, start, 4 + len(head) + body_size, (SERIALIZE_BINARY << 24 if binary else 0) | len(head))
    target[start + _PREFIX.size : at + PULL_HEAD_SIZE_BYTES] = head
    return start


def by_queue(sends: Sends) -> tuple[memoryview, list[tuple[int, int, int, int]]]:
    """Sort a run by topic and queue, stably: the rows (int32) in their order, and (topic index, queue id, first, count) for each queue.

    The order may have more numbers than the run has rows. Cost: O(sends); next to nothing if all are for one queue.
    """
    first: cython.Py_ssize_t = sends.first
    count: cython.Py_ssize_t = sends.count
    rows: cython.int[::1] = sends.numbers
    i: cython.Py_ssize_t
    row: cython.Py_ssize_t = _COLUMNS * first
    topic: cython.int = rows[row + _TOPIC]
    queue_id: cython.int = rows[row + _QUEUE_ID]
    for i in range(1, count):
        row = _COLUMNS * (first + i)
        if rows[row + _TOPIC] != topic or rows[row + _QUEUE_ID] != queue_id:
            order = memoryview(array("i", bytes(4 * count)))
            return order, _sort_several(rows, first, count, order)
    return (ORDERS.view[first:] if first else ORDERS.view), [(topic, queue_id, 0, count)]


@cython.cfunc
def _sort_several(
    rows: cython.int[::1], first: cython.Py_ssize_t, count: cython.Py_ssize_t, order: cython.int[::1]
) -> list[tuple[int, int, int, int]]:
    """Do so for several queues: number them as they come, count each one's rows, then put the rows in their places."""
    i: cython.Py_ssize_t
    row: cython.Py_ssize_t
    number: cython.Py_ssize_t
    key: cython.longlong
    last_key: cython.longlong = 0
    at: cython.int
    numbers: dict[int, int] = {}
    group_of: cython.int[::1] = array("i", bytes(4 * count))
    starts: cython.int[::1] = array("i", bytes(4 * count))
    number = -1
    for i in range(count):
        row = _COLUMNS * (first + i)
        key = cython.cast(cython.longlong, rows[row + _TOPIC]) * 0x100000000 + rows[row + _QUEUE_ID]
        if number < 0 or key != last_key:
            number = numbers.setdefault(key, len(numbers))
            last_key = key
        group_of[i] = number
        starts[number] += 1
    groups = []
    at = 0
    for key, number in numbers.items():
        groups.append(((key + 0x80000000) >> 32, ((key + 0x80000000) & 0xFFFFFFFF) - 0x80000000, at, starts[number]))
        at += starts[number]
        starts[number] = at - starts[number]
    for i in range(count):
        order[starts[group_of[i]]] = first + i
        starts[group_of[i]] += 1
    return groups


@cython.final
@cython.cclass
class _Parts:
    """What answers are made of, as C reads it: to look at a buffer from Python takes 0.1 µs."""

    digits: cython.const[cython.uchar][::1]
    json_offset: cython.const[cython.uchar][::1]
    json_opaque: cython.const[cython.uchar][::1]
    json_end: cython.const[cython.uchar][::1]
    json_end_size: cython.Py_ssize_t
    binary_offset: cython.const[cython.uchar][::1]

    def __init__(self) -> None:
        self.digits, self.json_offset, self.json_opaque, self.json_end = _HEX, _JSON_OFFSET, _JSON_OPAQUE, _JSON_END
        self.json_end_size, self.binary_offset = len(_JSON_END), _BINARY_OFFSET


_PARTS: Final = _Parts()


def encode_send_replies(
    target: bytearray, at: int, sends: Sends, order: memoryview, first: int, count: int, *, place: Place, first_offset: int
) -> int:
    """Answer the sends `order[first : first + count]`, whose messages are at `first_offset` and behind it, into `target` from `at` on.

    Those that want no answer get none. Gives where the answers end.
    Limits:  SEND_REPLY_SIZE_BYTES_MAX of room for each.
    """
    assert at >= 0
    assert 0 <= first <= first + count <= min(len(order), sends.count)
    assert 0 <= first_offset
    assert len(target) - at >= count * SEND_REPLY_SIZE_BYTES_MAX
    orders: Orders = ORDERS
    return _reply(target, at, sends.numbers, orders.numbers_of(order), first, count, place, place.partition_number, first_offset)


@cython.cfunc
@cython.exceptval(-1)
def _reply(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    rows: cython.int[::1],
    order: cython.int[::1],
    first: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    place: Place,
    partition_number: cython.longlong,
    offset: cython.longlong,
) -> cython.Py_ssize_t:
    """Write the answers."""
    i: cython.Py_ssize_t
    row: cython.Py_ssize_t
    start: cython.Py_ssize_t
    physical: cython.longlong
    json_head: cython.const[cython.uchar][::1]
    binary_head: cython.const[cython.uchar][::1]
    json_size: cython.Py_ssize_t = 0
    binary_size: cython.Py_ssize_t = 0
    parts: _Parts = _PARTS
    for i in range(first, first + count):
        row = _COLUMNS * order[i]
        physical = partition_number << _LOW_BITS | offset & _LOW_MASK
        if not rows[row + 1] & _ONEWAY:
            start = at
            at += 8
            if rows[row + 1] & _BINARY:
                if binary_size == 0:
                    binary_head = place.binary_head
                    binary_size = len(binary_head)
                copy(target, at, binary_head, 0, binary_size)
                store_u32_be(target, at + _OPAQUE_AT, cython.cast(cython.uint, rows[row] & 0xFFFFFFFF))
                at = _write_hex(target, at + binary_size, parts.digits, physical)
                copy(target, at, parts.binary_offset, 0, 13)
                at += 17
                row = _write_number(target, at, offset)
                store_u32_be(target, at - 4, cython.cast(cython.uint, row - at))
                at = row
                store_u32_be(target, start + 8 + _FIELDS_SIZE_AT, cython.cast(cython.uint, at - start - 12 - _FIELDS_SIZE_AT))
                store_u32_be(target, start + 4, _BINARY_MARK | cython.cast(cython.uint, at - start - 8))
            else:
                if json_size == 0:
                    json_head = place.json_head
                    json_size = len(json_head)
                copy(target, at, json_head, 0, json_size)
                at = _write_hex(target, at + json_size, parts.digits, physical)
                copy(target, at, parts.json_offset, 0, 17)
                at = _write_number(target, at + 17, offset)
                copy(target, at, parts.json_opaque, 0, 41)
                at += 41
                if rows[row] < 0:
                    target[at] = 45
                    at += 1
                at = _write_number(target, at, _size_of(rows[row]))
                copy(target, at, parts.json_end, 0, parts.json_end_size)
                at += parts.json_end_size
                store_u32_be(target, start + 4, cython.cast(cython.uint, at - start - 8))
            store_u32_be(target, start, cython.cast(cython.uint, at - start - 4))
        offset += 1
    return at


def encode_message_ids(host: bytes, port: int, physical: int, count: int) -> str:
    """Name `count` messages that are one behind the other by their offset ids, with commas between them: the answer to a batch."""
    assert len(host) == 4
    assert count > 0
    assert physical >= 0
    head = (host + port.to_bytes(4, "big")).hex().upper().encode()
    target = bytearray(33 * count)
    _write_ids(target, head, physical, count)
    return target[: 33 * count - 1].decode()


@cython.cfunc
@cython.exceptval(check=False)
def _write_ids(
    target: cython.uchar[::1], head: cython.const[cython.uchar][::1], physical: cython.longlong, count: cython.Py_ssize_t
) -> cython.int:
    digits: cython.const[cython.uchar][::1] = _HEX
    i: cython.Py_ssize_t
    for i in range(count):
        copy(target, 33 * i, head, 0, 16)
        _write_hex(target, 33 * i + 16, digits, physical + i)
        target[33 * i + 32] = 44
    return 0


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _size_of(value: cython.longlong) -> cython.longlong:
    return -value if value < 0 else value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_hex(
    target: cython.uchar[::1], at: cython.Py_ssize_t, digits: cython.const[cython.uchar][::1], value: cython.longlong
) -> cython.Py_ssize_t:
    """Write a number in 16 digits."""
    i: cython.Py_ssize_t
    for i in range(15, -1, -1):
        target[at + i] = digits[value & 15]
        value >>= 4
    return at + 16


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_number(target: cython.uchar[::1], at: cython.Py_ssize_t, value: cython.longlong) -> cython.Py_ssize_t:
    """Write a number that is not negative in digits."""
    after: cython.Py_ssize_t = at + 1
    rest: cython.longlong = value
    place: cython.Py_ssize_t
    while rest >= 10:
        after += 1
        rest //= 10
    place = after
    while place > at:
        place -= 1
        target[place] = 48 + value % 10
        value //= 10
    return after


assert SEND_REPLY_SIZE_BYTES_MAX == _REPLY_SIZE_MAX
assert (len(_JSON_OFFSET), len(_JSON_OPAQUE), len(_BINARY_OFFSET)) == (17, 41, 13)
