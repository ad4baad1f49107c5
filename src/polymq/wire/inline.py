"""Integer loads and stores and byte copies for the hot modules, as ordinary Python.

This file is what runs when nothing is compiled. A compiled hot module takes the same names from `inline.pxd`
instead, where each is a few machine instructions; a memoryview argument costs about 30 ns to hand to a function of
another compiled module, which is why these are included rather than called. Little-endian unless the name ends in
`_be`. Nothing here checks bounds: callers have made sure that the bytes are there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "bytes_at",
    "copy",
    "equal_bytes",
    "find_blank",
    "hash_bytes",
    "load_i64",
    "load_u32",
    "load_u32_be",
    "sized_end",
    "store_i64",
    "store_i64_be",
    "store_u32",
    "store_u32_be",
]

View = memoryview | bytearray

_BLANK: Final = re.compile(rb"[\x00-\x20]")


def copy(target: View, at: int, source: Buffer, start: int, size: int) -> None:
    """Copy `size` bytes from `source[start:]` to `target[at:]`; the two must not overlap."""
    target[at : at + size] = memoryview(source)[start : start + size]


def load_u32(source: memoryview | bytes | bytearray, at: int) -> int:
    """Read four bytes as an unsigned integer."""
    return int.from_bytes(source[at : at + 4], "little")


def load_i64(source: memoryview | bytes | bytearray, at: int) -> int:
    """Read eight bytes as a signed integer."""
    return int.from_bytes(source[at : at + 8], "little", signed=True)


def sized_end(source: memoryview | bytes | bytearray, at: int, stop: int) -> int:
    """Say where the bytes end whose size is in the four bytes at `at`; -1 if that is behind `stop`, or the size is."""
    if stop - at < 4:
        return -1
    size = load_u32(source, at)
    return -1 if size > stop - at - 4 else at + 4 + size


def store_u32(target: View, at: int, value: int) -> None:
    """Write an unsigned integer below 2**32 as four bytes."""
    target[at : at + 4] = value.to_bytes(4, "little")


def store_i64(target: View, at: int, value: int) -> None:
    """Write a signed integer of 64 bits as eight bytes."""
    target[at : at + 8] = value.to_bytes(8, "little", signed=True)


def load_u32_be(source: memoryview | bytes | bytearray, at: int) -> int:
    """Read four bytes in network order as an unsigned integer."""
    return int.from_bytes(source[at : at + 4], "big")


def store_u32_be(target: View, at: int, value: int) -> None:
    """Write an unsigned integer below 2**32 in network order."""
    target[at : at + 4] = value.to_bytes(4, "big")


def store_i64_be(target: View, at: int, value: int) -> None:
    """Write a signed integer of 64 bits in network order."""
    target[at : at + 8] = value.to_bytes(8, "big", signed=True)


def find_blank(source: Buffer, at: int, end: int) -> int:
    """Say where, from `at` on and before `end`, the first byte is that is a blank or below one in ASCII; `end` if there is none."""
    found = _BLANK.search(source, at, end)
    return found.start() if found else end


# An odd multiplier with well mixed bits (a prime near 2**64 divided by the golden ratio).
_HASH_FACTOR = 0x9E3779B97F4A7C15
_WORD_MASK = 0xFFFFFFFFFFFFFFFF


def hash_bytes(source: memoryview | bytes | bytearray, at: int, size: int) -> int:
    """Mix `size` bytes into 32 bits, for tables that are bounded whatever comes: who wants collisions can make them."""
    mixed = size * _HASH_FACTOR & _WORD_MASK
    left = size
    while left >= 8:
        mixed = (mixed ^ load_i64(source, at) & _WORD_MASK) * _HASH_FACTOR & _WORD_MASK
        mixed ^= mixed >> 29
        at += 8
        left -= 8
    word = 0
    if size >= 8:
        # The last eight once more, some of which were there already.
        word = load_i64(source, at + left - 8) & _WORD_MASK
    else:
        while left > 0:
            left -= 1
            word = word << 8 | source[at + left]
    mixed = (mixed ^ word) * _HASH_FACTOR & _WORD_MASK
    # A product's low bits know nothing of a factor's high ones, where the last bytes are: hence once more.
    mixed = (mixed ^ mixed >> 32) * _HASH_FACTOR & _WORD_MASK
    return mixed >> 32


def equal_bytes(text: bytes, source: View, at: int, size: int) -> bool:
    """Say whether `source[at : at + size]` is `text`."""
    return text == bytes(source[at : at + size])


def bytes_at(source: View, at: int, size: int) -> bytes:
    """Copy out `size` bytes."""
    return bytes(source[at : at + size])
