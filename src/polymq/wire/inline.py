"""Integer loads and stores and byte copies for the hot modules, as ordinary Python.

This file is what runs when nothing is compiled. A compiled hot module takes the same names from `inline.pxd`
instead, where each is a few machine instructions; a memoryview argument costs about 30 ns to hand to a function of
another compiled module, which is why these are included rather than called. Little-endian unless the name ends in
`_be`. Nothing here checks bounds: callers have made sure that the bytes are there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "copy",
    "load_i64",
    "load_u32",
    "load_u32_be",
    "store_i64",
    "store_i64_be",
    "store_u32",
    "store_u32_be",
]

View = memoryview | bytearray


def copy(target: View, at: int, source: Buffer, start: int, size: int) -> None:
    """Copy `size` bytes from `source[start:]` to `target[at:]`; the two must not overlap."""
    target[at : at + size] = memoryview(source)[start : start + size]


def load_u32(source: memoryview | bytes | bytearray, at: int) -> int:
    """Read four bytes as an unsigned integer."""
    return int.from_bytes(source[at : at + 4], "little")


def load_i64(source: memoryview | bytes | bytearray, at: int) -> int:
    """Read eight bytes as a signed integer."""
    return int.from_bytes(source[at : at + 8], "little", signed=True)


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
