"""Remembers which messages have been received: what comes again within the window is dropped. Hot module: see docs/adr/0001.

Ids are 16 bytes; those of other sizes are hashed to 16 (`words_of`). They are kept in two generations: an id is looked
for in both and added to the younger; when that is full, or old, it becomes the older one and the one before is
forgotten. So at least the last `count_max` ids are known, if the owner turns the window no sooner than it has to.
Nothing is made for an id: both generations are arrays that double as they fill.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import Final

import cython

__all__ = ["ID_SIZE_BYTES", "IdWindow", "salt_of", "words_of"]

ID_SIZE_BYTES: Final = 16
_PLACES_FIRST: Final = 1024
_BYTES_PER_PLACE: Final = 16
# An odd number with well mixed bits, as in wire/inline; of a C integer with a sign.
_FACTOR = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
_MASK = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_SALT_MASK: Final = 0x7FFFFFFFFFFFFFFF


def words_of(message_id: bytes) -> bytes:
    """Make 16 bytes of an id: itself if it has as many."""
    return message_id if len(message_id) == ID_SIZE_BYTES else hashlib.blake2b(message_id, digest_size=ID_SIZE_BYTES).digest()


def salt_of(server: str, topic: bytes) -> int:
    """Make the number that keeps apart equal ids of different servers and topics: not negative, 63 bits."""
    text = server.encode() + b"\0" + topic
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little") & _SALT_MASK


def _places(count: int) -> array[int]:
    return array("q", bytes(_BYTES_PER_PLACE * count))


@cython.cclass
class IdWindow:
    """The ids of the last `count_max` messages at least, and of twice as many at most."""

    def __init__(self, count_max: int) -> None:
        assert count_max > 0
        self.count_max = count_max
        self.count = 0
        self.before = 0
        self._young = _places(_PLACES_FIRST)
        self._old = _places(_PLACES_FIRST)
        self._young_mask = self._old_mask = _PLACES_FIRST - 1

    def add(self, words: bytes, salt: int) -> bool:
        """Add an id, as `words_of` gives it; False if it was there."""
        assert len(words) == ID_SIZE_BYTES
        low = int.from_bytes(words[:8], "little", signed=True) ^ salt
        high = int.from_bytes(words[8:], "little", signed=True)
        return bool(self.add_words(low, high))

    def turn(self) -> None:
        """Begin a new generation; what was in the one before the last is forgotten."""
        self._old, self._old_mask = self._young, self._young_mask
        self.before = self.count
        self._young = _places(_PLACES_FIRST)
        self._young_mask = _PLACES_FIRST - 1
        self.count = 0

    @cython.cfunc
    def add_words(self, low: cython.longlong, high: cython.longlong) -> cython.bint:
        """Add an id; say whether it is new."""
        place: cython.Py_ssize_t
        if low == 0 and high == 0:
            low = 1
        place = _find(self._old, self._old_mask, low, high)
        if self._old[2 * place] != 0 or self._old[2 * place + 1] != 0:
            return False
        place = _find(self._young, self._young_mask, low, high)
        if self._young[2 * place] != 0 or self._young[2 * place + 1] != 0:
            return False
        self._young[2 * place] = low
        self._young[2 * place + 1] = high
        self.count += 1
        if self.count >= self.count_max:
            self.turn()
        elif 2 * self.count > self._young_mask:
            self._grow()
        return True

    @cython.cfunc
    def _grow(self) -> cython.void:
        """Double the younger generation's room."""
        old: cython.longlong[::1] = self._young
        places: cython.Py_ssize_t = self._young_mask + 1
        young: cython.longlong[::1] = _places(2 * places)
        mask: cython.Py_ssize_t = 2 * places - 1
        index: cython.Py_ssize_t
        place: cython.Py_ssize_t
        for index in range(places):
            if old[2 * index] != 0 or old[2 * index + 1] != 0:
                place = _find(young, mask, old[2 * index], old[2 * index + 1])
                young[2 * place] = old[2 * index]
                young[2 * place + 1] = old[2 * index + 1]
        self._young = young
        self._young_mask = mask


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _find(places: cython.longlong[::1], mask: cython.Py_ssize_t, low: cython.longlong, high: cython.longlong) -> cython.Py_ssize_t:
    """Find the place of an id, or the free one where it would be. There is always a free one: at most half are taken."""
    mixed: cython.ulonglong = (cython.cast(cython.ulonglong, low) * _FACTOR) & _MASK
    place: cython.Py_ssize_t
    mixed = ((mixed ^ (mixed >> 29)) + cython.cast(cython.ulonglong, high)) & _MASK
    mixed = (mixed * _FACTOR) & _MASK
    place = cython.cast(cython.Py_ssize_t, (mixed >> 32) & mask)
    while (places[2 * place] != 0 or places[2 * place + 1] != 0) and (places[2 * place] != low or places[2 * place + 1] != high):
        place = (place + 1) & mask
    return place
