"""Message ids on the wire: 32 hex digits, of which the first half is the core's id and the second half checks it.

    0                 16                32
    +-----------------+-----------------+
    | message id      | mix(id, salt)   |   both lower-case hex digits, most significant first
    +-----------------+-----------------+

An id of the reference server, which is chance, or of another data folder, which has another salt, is not taken for one of
ours: one in 2**64 would be. Hot; compiled where possible.
"""

from __future__ import annotations

import cython

__all__ = ["ID_SIZE_BYTES", "id_text", "read_id", "write_id"]

ID_SIZE_BYTES = 32

# Declared, because Cython makes objects of literals beyond 32 bits. The two factors are those of splitmix64.
_MASK = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_FIRST_FACTOR = cython.declare(cython.ulonglong, 0xBF58476D1CE4E5B9)
_SECOND_FACTOR = cython.declare(cython.ulonglong, 0x94D049BB133111EB)
_TOP_BIT = cython.declare(cython.ulonglong, 0x8000000000000000)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _mix(message_id: cython.ulonglong, salt: cython.ulonglong) -> cython.ulonglong:
    """Spread an id over 64 bits, so that no two that are near each other look alike."""
    mixed: cython.ulonglong = (message_id + salt) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * _FIRST_FACTOR) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * _SECOND_FACTOR) & _MASK
    return mixed ^ (mixed >> 31)


@cython.ccall
@cython.exceptval(check=False)
def read_id(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, salt: cython.ulonglong) -> cython.longlong:
    """Read the 32 digits at `at`; -1 if they are no id of ours."""
    first: cython.ulonglong = 0
    second: cython.ulonglong = 0
    digit: cython.int
    i: cython.Py_ssize_t
    for i in range(32):
        digit = data[at + i]
        if 48 <= digit <= 57:
            digit -= 48
        elif 97 <= digit <= 102:
            digit -= 87
        else:
            return -1
        if i < 16:
            first = (first << 4) | digit
        else:
            second = (second << 4) | digit
    if first & _TOP_BIT or _mix(first, salt) != second:
        return -1
    return first


@cython.ccall
@cython.exceptval(check=False)
def write_id(target: cython.uchar[::1], at: cython.Py_ssize_t, message_id: cython.longlong, salt: cython.ulonglong) -> cython.void:
    """Write an id as 32 digits at `at`."""
    first: cython.ulonglong = message_id
    second: cython.ulonglong = _mix(first, salt)
    digit: cython.int
    i: cython.Py_ssize_t
    for i in range(16):
        digit = first & 15
        target[at + 15 - i] = digit + 48 + (39 if digit > 9 else 0)
        first >>= 4
        digit = second & 15
        target[at + 31 - i] = digit + 48 + (39 if digit > 9 else 0)
        second >>= 4


def id_text(message_id: int, salt: int) -> bytes:
    """Give the 32 digits of an id."""
    text = bytearray(ID_SIZE_BYTES)
    write_id(text, 0, message_id, salt)
    return bytes(text)
