"""What everybody else sees of a message of RocketMQ's: KEYS is its key, TAGS and what users have set are its headers. Hot; compiled if possible.

    record    … | u32 size, key | u32 size of what follows, for each header: u32 size, name, u32 size, value | extras | body

The properties stay in the native extra as they came, too, so what goes back to RocketMQ's clients is a copy. Names and values are bytes
as they travel, in their order; of several KEYS the last counts. Which names are the system's, `properties.SYSTEM_NAMES` says: of these
nobody else hears, and from elsewhere nobody may set them. `foreign_properties` is the other way, for one message; `stored` for many.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

import cython

from polymq.protocols.rocketmq.properties import SYSTEM_NAMES
from polymq.rocketmq_limits import PROPERTIES_SIZE_BYTES_MAX

if not cython.compiled:
    from polymq.wire.inline import copy, equal_bytes, store_u32

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["GENERIC", "Generic", "foreign_properties", "generic_of"]

_KEY = cython.declare(cython.uint, 0x04)
_HEADERS = cython.declare(cython.uint, 0x08)
_NAMES: Final = frozenset(name.encode() for name in SYSTEM_NAMES)
_NAME_SIZE_MAX = cython.declare(cython.Py_ssize_t, 30)

assert max(len(name) for name in _NAMES) == _NAME_SIZE_MAX


@cython.final
@cython.cclass
class Generic:
    """The system's names, behind one another by their sizes, and what is done with them."""

    def __init__(self) -> None:
        names = sorted(_NAMES, key=lambda name: (len(name), name))
        self._names = memoryview(b"".join(names))
        # Where the names of each size begin.
        self._starts = memoryview(array("i", [sum(len(name) for name in names if len(name) < size) for size in range(_NAME_SIZE_MAX + 2)]))

    @cython.ccall
    @cython.exceptval(check=False)
    def is_system(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.bint:
        """Say whether a property of this name is the system's. Cost: some nanoseconds."""
        place: cython.Py_ssize_t
        end: cython.Py_ssize_t
        i: cython.Py_ssize_t
        if size < 1 or size > _NAME_SIZE_MAX:
            return False
        place = self._starts[size]
        end = self._starts[size + 1]
        while place < end:
            i = 0
            while i < size and self._names[place + i] == data[at + i]:
                i += 1
            if i == size:
                return True
            place += size
        return False

    @cython.ccall
    @cython.exceptval(check=False)
    def write(
        self,
        target: cython.uchar[::1],
        at: cython.Py_ssize_t,
        source: cython.const[cython.uchar][::1],
        start: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
    ) -> cython.uint:
        """Write key and headers of the properties `source[start:end]` as a record has them; gives the record's flags for them.

        What it takes, `Keeper.generic_size` says.
        """
        flags: cython.uint = 0
        key: cython.Py_ssize_t = -1
        key_end: cython.Py_ssize_t = 0
        headers: cython.Py_ssize_t
        colon: cython.Py_ssize_t
        stop: cython.Py_ssize_t
        place: cython.Py_ssize_t = start
        while place < end:
            stop = _find(source, place, end, 2)
            if stop - place > 5 and source[place + 4] == 1 and equal_bytes(b"KEYS", source, place, 4):
                key = place + 5
                key_end = stop
            place = stop + 1
        if key >= 0:
            flags |= _KEY
            at = _write_sized(target, at, source, key, key_end)
        headers = at
        at += 4
        while start < end:
            stop = _find(source, start, end, 2)
            colon = _find(source, start, stop, 1)
            if (
                colon > start
                and colon < stop - 1
                and not self.is_system(source, start, colon - start)
                and not (colon - start == 4 and equal_bytes(b"KEYS", source, start, 4))
            ):
                at = _write_sized(target, at, source, start, colon)
                at = _write_sized(target, at, source, colon + 1, stop)
            start = stop + 1
        if at > headers + 4:
            flags |= _HEADERS
            store_u32(target, headers, cython.cast(cython.uint, at - headers - 4))
        return flags


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _find(source: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t, byte: cython.uchar) -> cython.Py_ssize_t:
    """Find a byte; `end` if it is not there."""
    while at < end and source[at] != byte:
        at += 1
    return at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_sized(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    source: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    end: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write bytes behind their size."""
    store_u32(target, at, cython.cast(cython.uint, end - start))
    copy(target, at + 4, source, start, end - start)
    return at + 4 + end - start


GENERIC: Final = Generic()


def generic_of(raw: bytes) -> tuple[bytes | None, tuple[tuple[bytes, bytes], ...]]:
    """Say what key and headers everybody else sees of properties: `Generic.write` for paths that are not hot."""
    key = None
    headers = []
    for entry in raw.split(b"\x02"):
        name, _, value = entry.partition(b"\x01")
        if not name or not value or name in _NAMES:
            continue
        if name == b"KEYS":
            key = value
        else:
            headers.append((name, value))
    return key, tuple(headers)


def foreign_properties(key: bytes | None, headers: Iterable[tuple[bytes, bytes]]) -> tuple[bytes, int, int]:
    """Write the properties of a message that came by another protocol; gives also how many keys and headers were left out.

    Left out is what RocketMQ cannot say: no name, no value, the bytes 1 and 2, what is no UTF-8, the system's names, KEYS beside a key,
    and what would make them larger than PROPERTIES_SIZE_BYTES_MAX together.
    """
    parts: list[bytes] = []
    left = PROPERTIES_SIZE_BYTES_MAX
    lost_keys = lost_headers = 0
    if key is not None:
        if _can_be_said(b"KEYS", key, left):
            parts.append(b"KEYS\x01%b\x02" % key)
            left -= len(key) + 6
        else:
            lost_keys = 1
    for name, value in headers:
        if _can_be_said(name, value, left) and not (key is not None and name == b"KEYS"):
            parts.append(b"%b\x01%b\x02" % (name, value))
            left -= len(name) + len(value) + 2
        else:
            lost_headers += 1
    return b"".join(parts), lost_keys, lost_headers


def _can_be_said(name: bytes, value: bytes, size_max: int) -> bool:
    if not name or not value or len(name) + len(value) + 2 > size_max or name in _NAMES:
        return False
    text = name + b"\0" + value
    if b"\x01" in text or b"\x02" in text:
        return False
    try:
        name.decode()
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
