"""What an NSQ server sends: frames, and above all message frames straight from log records. Hot; compiled if possible.

    0          4          8                                    n
    +----------+----------+------------------------------------+
    | size     | type     | data                               |   size counts type and data
    | u32 be   | u32 be   | n - 8 bytes                        |
    +----------+----------+------------------------------------+

Read next: `wire/records.py` for the records, `decode` for the other direction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import cython

from polymq.limits import ATTEMPTS_MAX, OFFSET_BITS
from polymq.wire.left_out import left_out as counts

if not cython.compiled:
    from polymq.wire.field_counts import count_fields
    from polymq.wire.inline import copy, load_i64, load_u32, store_i64_be, store_u32_be

if TYPE_CHECKING:
    from array import array

    from polymq.wire.slices import Slice

__all__ = [
    "CLOSE_WAIT_FRAME",
    "HEARTBEAT_FRAME",
    "OK_FRAME",
    "encode_messages",
    "error_frame",
    "frames_size_bytes",
    "ok_frames",
    "response_frame",
]

_RESPONSE: Final = 0
_ERROR: Final = 1
_MESSAGE_FRAME_OVERHEAD: Final = 34  # size, type, timestamp, attempts, id
_RECORD_OVERHEAD: Final = 8
_NOT_COUNTED: Final = counts()

# Of the batch layout in docs/INTERNALS.md; integers of C, because the loop below uses them.
_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 80)
_HEADER_COUNT_AT = cython.declare(cython.Py_ssize_t, 28)
_HEADER_BASE_TIME_AT = cython.declare(cython.Py_ssize_t, 40)
_HAS_TIME_DELTA = cython.declare(cython.uint, 0x0100_0000)
_HAS_KEY_OR_HEADERS = cython.declare(cython.uint, 0x0C00_0000)


def _frame(kind: int, data: bytes) -> bytes:
    return (4 + len(data)).to_bytes(4, "big") + kind.to_bytes(4, "big") + data


def response_frame(data: bytes) -> bytes:
    """Wrap the answer to a command."""
    return _frame(_RESPONSE, data)


def error_frame(text: bytes) -> bytes:
    """Wrap the words of a refusal; `problems` has them."""
    return _frame(_ERROR, text)


OK_FRAME: Final = response_frame(b"OK")
HEARTBEAT_FRAME: Final = response_frame(b"_heartbeat_")
CLOSE_WAIT_FRAME: Final = response_frame(b"CLOSE_WAIT")

_OK_FRAMES: Final = tuple(OK_FRAME * count for count in range(129))


def ok_frames(count: int) -> bytes:
    """Answer a run of `count` commands; ready-made for the usual numbers of commands in flight."""
    return _OK_FRAMES[count] if count < len(_OK_FRAMES) else OK_FRAME * count


def frames_size_bytes(messages: Slice) -> int:
    """Say how much room `encode_messages` needs at most: exact but for optional fields and batch headers."""
    return messages.end - messages.position + messages.count * (_MESSAGE_FRAME_OVERHEAD - _RECORD_OVERHEAD)


def encode_messages(target: bytearray, at: int, messages: Slice, attempts: int, left_out: array[int] | None = None) -> int:
    """Write each record of the slice as a message frame into `target` from `at` on; return where the frames end.

     0          4          8              16         18               34         n
    +----------+----------+--------------+----------+----------------+----------+
    | size     | 2        | published at | attempts | message id     | body     |
    | u32 be   | u32 be   | i64 be, ns   | u16 be   | 16 hex digits  |          |
    +----------+----------+--------------+----------+----------------+----------+

    NSQ has neither keys nor headers: those that are left out are counted in `left_out` (`wire/left_out.py`).
    Limits:  `frames_size_bytes(messages)` bytes of room from `at` on; attempts above 65,535 are written as that.
    Cost:    one copy of the bodies; O(messages).
    Source:  nsq.io, "TCP protocol spec", Data Format; NSQ 1.3.0, nsqd/message.go.
    """
    assert at >= 0
    assert len(target) - at >= frames_size_bytes(messages)
    first_id = messages.partition << OFFSET_BITS | messages.offset
    return _write_frames(
        target,
        at,
        messages.view,
        messages.position,
        messages.count,
        messages.batch_left,
        messages.base_time_ns,
        first_id,
        min(attempts, ATTEMPTS_MAX),
        _NOT_COUNTED if left_out is None else left_out,
    )


@cython.cfunc
def _write_frames(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    source: cython.const[cython.uchar][::1],
    position: cython.Py_ssize_t,
    count: cython.Py_ssize_t,
    batch_left: cython.Py_ssize_t,
    base_time_ns: cython.longlong,
    message_id: cython.longlong,
    attempts: cython.int,
    left_out: array[int],
) -> cython.Py_ssize_t:
    word: cython.uint
    body_at: cython.Py_ssize_t
    body_size: cython.Py_ssize_t
    record_size: cython.Py_ssize_t
    time_ns: cython.longlong
    i: cython.Py_ssize_t
    rest: cython.longlong
    digit: cython.int
    while count > 0:
        if batch_left == 0:
            batch_left = load_u32(source, position + _HEADER_COUNT_AT)
            base_time_ns = load_i64(source, position + _HEADER_BASE_TIME_AT)
            position += _HEADER_SIZE
        record_size = load_u32(source, position)
        word = load_u32(source, position + 4)
        body_at = word & 0xFF_FFFF
        body_size = record_size - body_at
        time_ns = base_time_ns
        if word & _HAS_TIME_DELTA:
            time_ns += load_i64(source, position + 8)
        if word & _HAS_KEY_OR_HEADERS:
            count_fields(source, position, left_out)
        store_u32_be(target, at, 30 + body_size)
        store_u32_be(target, at + 4, 2)
        store_i64_be(target, at + 8, time_ns)
        target[at + 16] = attempts >> 8
        target[at + 17] = attempts & 255
        rest = message_id
        for i in range(16):
            digit = rest & 15
            target[at + 33 - i] = digit + 48 + (39 if digit > 9 else 0)
            rest >>= 4
        copy(target, at + 34, source, position + body_at, body_size)
        at += 34 + body_size
        position += record_size
        message_id += 1
        batch_left -= 1
        count -= 1
    return at
