"""From NSQ's frames straight to records of the spool and the commands that settle them: nothing is made per message.

Also the way back, for a spooler that starts: the ids in record batches, into the window. Like `wire/records.py`,
which explains the layout of records: hot, and the same compiled and interpreted. What a note is: `notes.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from polymq.spool.notes import NOTE_SIZE_BYTES_MIN
from polymq.spool.window import words_of

if not cython.compiled:
    from polymq.wire.inline import copy, load_i64, load_u32, load_u32_be, store_i64, store_u32

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from polymq.spool.window import IdWindow

__all__ = ["FIN_SIZE_BYTES", "RECORD_EXTRA_BYTES", "remember", "take_frames"]

# "FIN ", the id and a newline.
FIN_SIZE_BYTES = 21
# Of a record with time and note, beyond the note: two words, the time, the note's size.
RECORD_EXTRA_BYTES = 20

_C_FIN = cython.declare(cython.Py_ssize_t, 21)
_C_EXTRA = cython.declare(cython.Py_ssize_t, 20)
_C_ID = cython.declare(cython.Py_ssize_t, 16)
_C_NOTE_MIN = cython.declare(cython.Py_ssize_t, 8)
_C_HEADER_SIZE = cython.declare(cython.Py_ssize_t, 80)
_C_OVERHEAD = cython.declare(cython.Py_ssize_t, 8)
# A message frame: size, type, time, attempts, id, and then the body.
_C_FRAME_HEAD = cython.declare(cython.Py_ssize_t, 34)
_C_FRAME_SIZE_MIN = cython.declare(cython.Py_ssize_t, 30)
_TIME = cython.declare(cython.uint, 0x01)
_EXPIRY = cython.declare(cython.uint, 0x02)
_KEY = cython.declare(cython.uint, 0x04)
_TWO_32 = cython.declare(cython.longlong, 0x100000000)

assert (FIN_SIZE_BYTES, RECORD_EXTRA_BYTES, NOTE_SIZE_BYTES_MIN) == (_C_FIN, _C_EXTRA, _C_NOTE_MIN)


def take_frames(
    frames: Buffer,
    target: bytearray,
    at: int,
    note: bytes,
    window: IdWindow,
    *,
    base_time_ns: int,
    salt: int,
    finishes: bytearray,
    finishes_at: int,
) -> tuple[int, int, int]:
    """Write a record for each message frame that is new, and a FIN for each one; new or not, they are to be settled.

    `note` is one with the topic and room for an id at its end. Returns where the next record would start, how many
    records there are, and where the next FIN would start.
    Limits:  `target` has room for the frames and RECORD_EXTRA_BYTES and a note for each, `finishes` for FIN_SIZE_BYTES each;
             the frames are whole (all asserted).
    Cost:    one copy of the bodies, about 40 ns a message when compiled.
    """
    return _take_frames(frames, target, at, note, window, base_time_ns, salt, finishes, finishes_at)


@cython.cfunc
def _take_frames(
    frames: cython.const[cython.uchar][::1],
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    note: cython.const[cython.uchar][::1],
    window: IdWindow,
    base_time_ns: cython.longlong,
    salt: cython.longlong,
    finishes: cython.uchar[::1],
    finishes_at: cython.Py_ssize_t,
) -> tuple[int, int, int]:
    """Do the work of `take_frames` on typed views."""
    source: cython.Py_ssize_t = 0
    end: cython.Py_ssize_t = len(frames)
    room: cython.Py_ssize_t = len(target)
    finishes_room: cython.Py_ssize_t = len(finishes)
    note_size: cython.Py_ssize_t = len(note)
    size: cython.Py_ssize_t
    body_at: cython.Py_ssize_t = _C_EXTRA + note_size
    count: cython.Py_ssize_t = 0
    high: cython.longlong
    time_ns: cython.longlong
    word: cython.uint = ((_TIME | _KEY) << 24) | body_at
    assert note_size >= _C_NOTE_MIN + _C_ID
    assert at >= 0
    assert finishes_at >= 0
    assert base_time_ns >= 0
    while source < end:
        assert end - source >= _C_FRAME_HEAD
        size = load_u32_be(frames, source)
        assert _C_FRAME_SIZE_MIN <= size <= end - source - 4
        assert finishes_room - finishes_at >= _C_FIN
        finishes[finishes_at] = 70
        finishes[finishes_at + 1] = 73
        finishes[finishes_at + 2] = 78
        finishes[finishes_at + 3] = 32
        copy(finishes, finishes_at + 4, frames, source + 18, _C_ID)
        finishes[finishes_at + 20] = 10
        finishes_at += _C_FIN
        if window.add_words(load_i64(frames, source + 18) ^ salt, load_i64(frames, source + 26)):
            size -= _C_FRAME_SIZE_MIN
            assert room - at >= body_at + size
            store_u32(target, at, body_at + size)
            store_u32(target, at + 4, word)
            # A clock that is wrong by centuries counts as 1970.
            high = load_u32_be(frames, source + 8)
            time_ns = high * _TWO_32 + load_u32_be(frames, source + 12) if high < 0x80000000 else 0
            store_i64(target, at + 8, time_ns - base_time_ns)
            store_u32(target, at + 16, note_size)
            copy(target, at + 20, note, 0, note_size - _C_ID)
            target[at + 20] = frames[source + 17]
            target[at + 21] = frames[source + 16]
            copy(target, at + 4 + note_size, frames, source + 18, _C_ID)
            at += body_at
            copy(target, at, frames, source + _C_FRAME_HEAD, size)
            at += size
            size += _C_FRAME_SIZE_MIN
            count += 1
        source += 4 + size
    return at, count, finishes_at


def remember(view: Buffer, at: int, end: int, window: IdWindow) -> int:
    """Put the ids of batches, which `check` has found sound, into a window; say how many were read.

    Batches without a salt (a producer id below 0) have none, and what is no note is passed over.
    """
    found: int = _remember(view, at, end, window)
    return found


@cython.cfunc
def _remember(view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, window: IdWindow) -> cython.Py_ssize_t:
    """Do the work of `remember` on a typed view."""
    batch_end: cython.Py_ssize_t
    left: cython.Py_ssize_t
    salt: cython.longlong
    flags: cython.uint
    field: cython.Py_ssize_t
    size: cython.Py_ssize_t
    count: cython.Py_ssize_t = 0
    assert 0 <= at <= end <= len(view)
    while end - at >= _C_HEADER_SIZE:
        batch_end = at + load_u32(view, at + 8)
        left = load_u32(view, at + 28)
        salt = load_i64(view, at + 48)
        assert at < batch_end <= end
        at += _C_HEADER_SIZE
        while salt >= 0 and left > 0 and batch_end - at >= _C_OVERHEAD:
            size = load_u32(view, at)
            flags = load_u32(view, at + 4) >> 24
            assert _C_OVERHEAD <= size <= batch_end - at
            if flags & _KEY:
                field = at + _C_OVERHEAD + (8 if flags & _TIME else 0) + (8 if flags & _EXPIRY else 0)
                count += _remember_note(view, field + 4, load_u32(view, field), salt, window)
            at += size
            left -= 1
        at = batch_end
    return count


@cython.cfunc
def _remember_note(
    view: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t, salt: cython.longlong, window: IdWindow
) -> cython.Py_ssize_t:
    """Put the id of one note into the window; say whether there was one."""
    id_at: cython.Py_ssize_t
    id_size: cython.Py_ssize_t
    if size < _C_NOTE_MIN:
        return 0
    id_at = at + _C_NOTE_MIN + (view[at + 2] | (view[at + 3] << 8))
    id_size = view[at + 4] | (view[at + 5] << 8)
    if id_size == 0 or id_at + id_size > at + size:
        return 0
    if id_size == _C_ID:
        window.add_words(load_i64(view, id_at) ^ salt, load_i64(view, id_at + 8))
    else:
        window.add(words_of(bytes(view[id_at : id_at + id_size])), salt)
    return 1
