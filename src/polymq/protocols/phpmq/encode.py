"""What a PHPMQ server sends: messages of type 003, straight from log records. Hot; compiled if possible.

Read next: `codes` for the grammar, `wire/records.py` for the records, `decode` for the other direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import cython

from polymq.limits import OFFSET_BITS
from polymq.wire.left_out import left_out as counts

if not cython.compiled:
    from polymq.protocols.phpmq.ids import write_id
    from polymq.wire.field_counts import count_fields
    from polymq.wire.inline import copy, load_i64, load_u32

if TYPE_CHECKING:
    from array import array

    from polymq.wire.slices import Slice

__all__ = ["dispatch_head", "dispatches_size_bytes", "encode_dispatches"]

_HEAD_SIZE: Final = 32
_NOT_COUNTED: Final = counts()
_ID_SIZE: Final = 32
# Digits of the seconds that 63 bits of nanoseconds are at most.
_TTL_SIZE_MAX: Final = 10
_RECORD_OVERHEAD: Final = 8
# Content's head, id with its head, TTL with its head, without what the record has itself.
_OVERHEAD: Final = _HEAD_SIZE + _HEAD_SIZE + _ID_SIZE + _HEAD_SIZE + _TTL_SIZE_MAX - _RECORD_OVERHEAD

# Of the batch layout in docs/INTERNALS.md; integers of C, because the loop below uses them.
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 80)
_HEADER_COUNT_AT = cython.declare(cython.Py_ssize_t, 28)
_HAS_TIME_DELTA = cython.declare(cython.uint, 0x0100_0000)
_HAS_EXPIRY = cython.declare(cython.uint, 0x0200_0000)
_HAS_KEY_OR_HEADERS = cython.declare(cython.uint, 0x0C00_0000)
_NS_PER_S = cython.declare(cython.longlong, 1_000_000_000)


def dispatch_head(queue: bytes, *, legacy: bool) -> bytes:
    """Give what every message of type 003 of one queue begins with, in one of the two dialects."""
    return b"H01003%02dP01%029d%b" % (3 if legacy else 4, len(queue), queue)


def dispatches_size_bytes(messages: Slice, head: bytes) -> int:
    """Say how much room `encode_dispatches` needs at most."""
    return messages.end - messages.position + messages.count * (len(head) + _OVERHEAD)


def encode_dispatches(
    target: bytearray, at: int, messages: Slice, head: bytes, *, legacy: bool, now_ns: int, salt: int, left_out: array[int] | None = None
) -> int:
    """Write each record of the slice as a message of type 003 into `target` from `at` on; return where they end.

    `head` is what `dispatch_head` gives for the queue and the dialect. A TTL is what is left of it, rounded up to seconds;
    0 for a message that has none; 1 for one that is over at this very moment. PHPMQ has neither keys nor headers: those that
    are left out are counted in `left_out` (`wire/left_out.py`).
    Limits:  `dispatches_size_bytes(messages, head)` bytes of room from `at` on.
    Cost:    one copy of the bodies; O(messages).
    """
    assert at >= 0
    assert len(target) - at >= dispatches_size_bytes(messages, head)
    first_id = messages.partition << OFFSET_BITS | messages.offset
    return _write(
        target,
        at,
        messages.view,
        messages.position,
        messages.count,
        messages.batch_left,
        first_id,
        head,
        not legacy,
        now_ns,
        salt,
        _NOT_COUNTED if left_out is None else left_out,
    )


@cython.cfunc
def _write(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    source: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    batch_left: cython.Py_ssize_t,
    message_id: cython.longlong,
    head: cython.const[cython.uchar][::1],
    with_ttl: cython.bint,
    now_ns: cython.longlong,
    salt: cython.ulonglong,
    left_out: array[int],
) -> cython.Py_ssize_t:
    word: cython.uint
    body_at: cython.Py_ssize_t
    body_size: cython.Py_ssize_t
    record_size: cython.Py_ssize_t
    head_size: cython.Py_ssize_t = len(head)
    while count > 0:
        if batch_left == 0:
            batch_left = load_u32(source, position + _HEADER_COUNT_AT)
            position += _HEADER_SIZE
        record_size = load_u32(source, position)
        word = load_u32(source, position + 4)
        body_at = word & 0xFF_FFFF
        body_size = record_size - body_at
        copy(target, at, head, 0, head_size)
        at = _packet_head(target, at + head_size, 2, body_size)
        copy(target, at, source, position + body_at, body_size)
        at = _packet_head(target, at + body_size, 3, 32)
        write_id(target, at, message_id, salt)
        at += 32
        if with_ttl:
            at = _ttl(target, at, _seconds_left(source, position, word, now_ns))
        if word & _HAS_KEY_OR_HEADERS:
            count_fields(source, position, left_out)
        position += record_size
        message_id += 1
        batch_left -= 1
        count -= 1
    return at


@cython.cfunc
@cython.exceptval(check=False)
def _seconds_left(
    source: cython.const[cython.uchar][::1], position: cython.Py_ssize_t, word: cython.uint, now_ns: cython.longlong
) -> cython.longlong:
    """Give what is left of the TTL of the record at `position`; 0 if it has none."""
    left_ns: cython.longlong
    if not word & _HAS_EXPIRY:
        return 0
    left_ns = load_i64(source, position + (16 if word & _HAS_TIME_DELTA else 8)) - now_ns
    return 1 if left_ns <= 0 else (left_ns - 1) // _NS_PER_S + 1


@cython.cfunc
@cython.exceptval(check=False)
def _packet_head(target: cython.uchar[::1], at: cython.Py_ssize_t, kind: cython.int, size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Write the head of a packet; give where its content goes."""
    i: cython.Py_ssize_t
    target[at] = 80  # P
    target[at + 1] = 48
    target[at + 2] = 48 + kind
    for i in range(at + 31, at + 2, -1):
        target[i] = 48 + size % 10
        size //= 10
    return at + 32


@cython.cfunc
@cython.exceptval(check=False)
def _ttl(target: cython.uchar[::1], at: cython.Py_ssize_t, seconds: cython.longlong) -> cython.Py_ssize_t:
    """Write the packet with the TTL; give where it ends."""
    digits: cython.Py_ssize_t = 1
    rest: cython.longlong = seconds
    i: cython.Py_ssize_t
    while rest >= 10:
        rest //= 10
        digits += 1
    at = _packet_head(target, at, 5, digits)
    for i in range(at + digits - 1, at - 1, -1):
        target[i] = 48 + seconds % 10
        seconds //= 10
    return at + digits
