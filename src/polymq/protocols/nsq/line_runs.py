"""Runs of lines that look the same: FINs, from bytes to message ids, and lines that were there before. Hot.

Of FIN only the usual form of an id of ours is read here; everything else is left to `commands.interpret`.
"""

from __future__ import annotations

from typing import Final

import cython

if not cython.compiled:
    from polymq.wire.inline import load_i64, load_u32_be

__all__ = ["FINISH_SIZE_BYTES", "read_finishes", "repeats"]

FINISH_SIZE_BYTES: Final = 21  # "FIN ", 16 digits, newline
_FINISH_SIZE = cython.declare(cython.Py_ssize_t, 21)

# The same byte in each of eight lanes. Declared, because Cython makes objects of literals beyond 32 bits.
_LOWER_HALVES = cython.declare(cython.ulonglong, 0x0F0F0F0F0F0F0F0F)
_UPPER_HALVES = cython.declare(cython.ulonglong, 0xF0F0F0F0F0F0F0F0)
_UPPER_OF_DIGITS = cython.declare(cython.ulonglong, 0x3030303030303030)
_BITS_OF_LETTERS = cython.declare(cython.ulonglong, 0x4040404040404040)
_TOP_BITS = cython.declare(cython.ulonglong, 0x8080808080808080)
_TOP_FROM_10 = cython.declare(cython.ulonglong, 0x7676767676767676)  # added to 10 or more, it sets the top bit
_TOP_FROM_16 = cython.declare(cython.ulonglong, 0x7070707070707070)
_PAIRS = cython.declare(cython.ulonglong, 0x00FF00FF00FF00FF)
_FOURS = cython.declare(cython.ulonglong, 0x000000FF000000FF)


@cython.ccall
@cython.exceptval(check=False)
def read_finishes(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    ids: cython.longlong[::1],
    used: cython.Py_ssize_t,
    capacity: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write the ids of the FINs at `at` to `ids`, from `used` on, as many as there is room for; give where they end."""
    high: cython.longlong
    low: cython.longlong
    while used < capacity and end - at >= _FINISH_SIZE:
        if load_u32_be(data, at) != 0x46494E20 or data[at + 20] != 10:  # "FIN ", newline
            break
        if data[at + 4] > 55:  # a first digit above 7: not an id of ours
            break
        high = _eight_digits(load_i64(data, at + 4))
        low = _eight_digits(load_i64(data, at + 12))
        if high < 0 or low < 0:
            break
        ids[used] = high << 32 | low
        used += 1
        at += _FINISH_SIZE
    return at


@cython.ccall
@cython.exceptval(check=False)
def repeats(
    data: cython.const[cython.uchar][::1],
    at: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
    line: cython.const[cython.uchar][::1],
    size: cython.Py_ssize_t,
) -> cython.bint:
    """Say whether `line`, of `size` bytes, stands at `at`."""
    i: cython.Py_ssize_t = 0
    if size > end - at:
        return False
    while i < size and data[at + i] == line[i]:
        i += 1
    return i == size


@cython.cfunc
@cython.exceptval(check=False)
def _eight_digits(text: cython.ulonglong) -> cython.longlong:
    """Read eight lower-case hex digits, loaded as one little-endian integer, all at once; -1 if they are not that.

    Each byte is a lane that no sum below can leave. Letters have bit 6 set and digits do not, which gives a value to
    each lane (0 to 24); it has to be below 16, at least 10 exactly for letters, and the upper halves have to be those
    of "0" and "a". Then neighbours join: first in pairs, then the pairs, then the fours.
    """
    letters: cython.ulonglong = (text & _BITS_OF_LETTERS) >> 6
    lanes: cython.ulonglong = (text & _LOWER_HALVES) + letters * 9
    if (text & _UPPER_HALVES) != _UPPER_OF_DIGITS + letters * 0x30:
        return -1
    if (lanes + _TOP_FROM_16) & _TOP_BITS or (lanes + _TOP_FROM_10) & _TOP_BITS != letters << 7:
        return -1
    lanes = (lanes & _PAIRS) << 4 | (lanes >> 8) & _PAIRS
    lanes = (lanes & _FOURS) << 8 | (lanes >> 16) & _FOURS
    return (lanes & 0xFFFF) << 16 | lanes >> 32
