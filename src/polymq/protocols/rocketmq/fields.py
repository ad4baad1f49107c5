r"""A header's fields as positions in it, without an object for any: the scanner of the decoder. Hot; compiled if possible.

It knows what real peers write: JSON whose values are strings, whole numbers and booleans, in any order, and binary headers. All
else (more fields than any peer has, nested values, null, fractions, halves of characters, what is wrong) it leaves to
`header`, which reads the same of what both read.
"""

from __future__ import annotations

from array import array
from typing import Final

import cython

from polymq.protocols.rocketmq.codes import Language

if not cython.compiled:
    from polymq.wire.inline import bytes_at, equal_bytes, load_u32_be

__all__ = ["FIELDS_MAX", "Fields", "is_utf8", "unescape"]

# A send has 14 fields, what a broker sends on for a replier 16, and signatures are four.
FIELDS_MAX: Final = 64
_FIELDS_MAX = cython.declare(cython.Py_ssize_t, 64)
# Of each field: where its name is and how long, the same of its value, and what kind that is.
_PLACES = cython.declare(cython.Py_ssize_t, 5)

# Kinds of values, and that it is none that the scanner reads.
_TEXT = cython.declare(cython.int, 0)
_ESCAPED = cython.declare(cython.int, 1)  # a string with escapes
_NUMBER = cython.declare(cython.int, 2)
_WORD = cython.declare(cython.int, 3)  # true or false

_QUOTE = cython.declare(cython.int, 34)
_BACKSLASH = cython.declare(cython.int, 92)
_LANGUAGES: Final = {language.name.encode(): int(language) for language in Language}
_OTHER = cython.declare(cython.int, int(Language.OTHER))
_LANGUAGES_MAX = cython.declare(cython.int, len(Language))


@cython.final
@cython.cclass
class Fields:
    """What was found in the header that was scanned last. Field i is in `places[5 * i:]`: name at, size, value at, size, kind."""

    def __init__(self) -> None:
        self.places = memoryview(array("i", bytes(4 * 5 * FIELDS_MAX)))
        self.count = 0
        self.code = self.opaque = self.flag = self.version = self.language = 0
        self.remark_at = self.remark_size = 0
        self.remark_kind = -1
        self._at = self._size = 0
        self._kind = 0
        self._number = 0

    # -- JSON ------------------------------------------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(check=False)
    def scan_json(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        """Read the header `data[at:end]`; False if it is none that is read here."""
        name_at: cython.Py_ssize_t
        name_size: cython.Py_ssize_t
        has_fields: cython.bint = False
        self._clear()
        at = _skip_blanks(data, at, end)
        if at >= end or data[at] != 123:  # {
            return False
        while True:
            at = _skip_blanks(data, at + 1, end)
            if at >= end or data[at] != _QUOTE:
                return False
            at = self._string(data, at, end)
            if at < 0 or self._kind != _TEXT:
                return False
            name_at = self._at
            name_size = self._size
            at = _skip_blanks(data, at, end)
            if at >= end or data[at] != 58:  # :
                return False
            at = _skip_blanks(data, at + 1, end)
            if name_size == 9 and equal_bytes(b"extFields", data, name_at, 9):
                at = -1 if has_fields else self._fields(data, at, end)
                has_fields = True
            else:
                at = self._value(data, at, end)
                if at >= 0 and not self._known(data, name_at, name_size):
                    return False
            if at < 0:
                return False
            at = _skip_blanks(data, at, end)
            if at >= end:
                return False
            if data[at] != 44:  # ,
                break
        return data[at] == 125 and _skip_blanks(data, at + 1, end) == end

    @cython.cfunc
    @cython.exceptval(check=False)
    def _clear(self) -> cython.int:
        self.count = 0
        self.code = self.opaque = self.flag = self.version = self.language = 0
        self.remark_kind = -1
        return 0

    @cython.cfunc
    @cython.exceptval(check=False)
    def _known(self, data: cython.const[cython.uchar][::1], name_at: cython.Py_ssize_t, name_size: cython.Py_ssize_t) -> cython.bint:
        """Keep a value that the header is about, and pass over others; False if it is none of its kind."""
        if name_size == 4 and equal_bytes(b"code", data, name_at, 4):
            if not self._is_integer(data):
                return False
            self.code = self._number
        elif name_size == 6 and equal_bytes(b"opaque", data, name_at, 6):
            if not self._is_integer(data):
                return False
            self.opaque = self._number
        elif name_size == 4 and equal_bytes(b"flag", data, name_at, 4):
            if not self._is_integer(data):
                return False
            self.flag = self._number
        elif name_size == 7 and equal_bytes(b"version", data, name_at, 7):
            if not self._is_integer(data):
                return False
            self.version = self._number
        elif name_size == 8 and equal_bytes(b"language", data, name_at, 8):
            if self._kind != _TEXT:
                return False
            self.language = self._language(data)
        elif name_size == 6 and equal_bytes(b"remark", data, name_at, 6):
            self.remark_at = self._at
            self.remark_size = self._size
            self.remark_kind = self._kind
        return True

    @cython.cfunc
    @cython.exceptval(check=False)
    def _language(self, data: cython.const[cython.uchar][::1]) -> cython.int:
        if self._size == 4 and equal_bytes(b"JAVA", data, self._at, 4):
            return 0
        return _LANGUAGES.get(bytes_at(data, self._at, self._size), _OTHER)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _is_integer(self, data: cython.const[cython.uchar][::1]) -> cython.bint:
        """Say whether the value is a number of 32 bits, which `_number` is then."""
        at: cython.Py_ssize_t = self._at
        end: cython.Py_ssize_t = at + self._size
        value: cython.longlong = 0
        negative: cython.bint
        if self._kind != _NUMBER or self._size > 11:
            return False
        negative = data[at] == 45
        if negative:
            at += 1
        while at < end:
            value = 10 * value + data[at] - 48
            at += 1
        self._number = -value if negative else value
        return -0x80000000 <= self._number and self._number <= 0x7FFFFFFF

    @cython.cfunc
    @cython.exceptval(check=False)
    def _fields(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read the object `extFields`; gives what is behind it, -1 if it is none that is read here."""
        place: cython.Py_ssize_t
        if at >= end or data[at] != 123:
            return -1
        at = _skip_blanks(data, at + 1, end)
        if at < end and data[at] == 125:
            return at + 1
        while True:
            if at >= end or data[at] != _QUOTE or self.count == _FIELDS_MAX:
                return -1
            at = self._string(data, at, end)
            if at < 0 or self._kind != _TEXT:
                return -1
            place = _PLACES * self.count
            self.places[place] = self._at
            self.places[place + 1] = self._size
            at = _skip_blanks(data, at, end)
            if at >= end or data[at] != 58:
                return -1
            at = self._value(data, _skip_blanks(data, at + 1, end), end)
            if at < 0:
                return -1
            self.places[place + 2] = self._at
            self.places[place + 3] = self._size
            self.places[place + 4] = self._kind
            self.count += 1
            at = _skip_blanks(data, at, end)
            if at >= end:
                return -1
            if data[at] == 125:
                return at + 1
            if data[at] != 44:
                return -1
            at = _skip_blanks(data, at + 1, end)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _value(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read one value into `_at`, `_size` and `_kind`; gives what is behind it, -1 if it is none that is read here."""
        start: cython.Py_ssize_t = at
        if at >= end:
            return -1
        if data[at] == _QUOTE:
            return self._string(data, at, end)
        self._at = at
        if data[at] == 116 and end - at >= 4 and equal_bytes(b"true", data, at, 4):
            self._kind = _WORD
            self._size = 4
            return at + 4
        if data[at] == 102 and end - at >= 5 and equal_bytes(b"false", data, at, 5):
            self._kind = _WORD
            self._size = 5
            return at + 5
        if data[at] == 45:
            at += 1
        if at >= end or data[at] < 48 or data[at] > 57:
            return -1
        if data[at] == 48:
            at += 1
        else:
            while at < end and data[at] >= 48 and data[at] <= 57:
                at += 1
        # Behind a digit: a fraction, an exponent, or a zero too many.
        if at < end and (data[at] == 46 or data[at] == 101 or data[at] == 69 or (data[at] >= 48 and data[at] <= 57)):
            return -1
        self._kind = _NUMBER
        self._size = at - start
        return at

    @cython.cfunc
    @cython.exceptval(check=False)
    def _string(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Read the string that begins at `at`; gives what is behind its quote, -1 if it is none that is read here."""
        at += 1
        self._at = at
        self._kind = _TEXT
        while at < end:
            if data[at] == _QUOTE:
                self._size = at - self._at
                return at + 1
            if data[at] == _BACKSLASH:
                self._kind = _ESCAPED
                at = _escape_end(data, at, end)
                if at < 0:
                    return -1
            else:
                at += 1
        return -1

    # -- binary ----------------------------------------------------------------------------------------------------

    @cython.ccall
    @cython.exceptval(check=False)
    def scan_binary(self, data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
        """Read the header `data[at:end]`; False if it is none that is read here."""
        size: cython.longlong
        stop: cython.Py_ssize_t
        place: cython.Py_ssize_t
        self._clear()
        if end - at < 21:
            return False
        self.code = _i16(data, at)
        self.language = data[at + 2]
        if self.language >= _LANGUAGES_MAX:
            self.language = _OTHER
        self.version = _i16(data, at + 3)
        self.opaque = _i32(data, at + 5)
        self.flag = _i32(data, at + 9)
        size = _i32(data, at + 13)
        at += 17
        if size < 0 or size > end - at - 4:
            return False
        if size > 0:
            self.remark_at = at
            self.remark_size = size
            self.remark_kind = _TEXT
            at += size
        size = _i32(data, at)
        at += 4
        if size < 0:
            size = 0
        if size > end - at:
            return False
        stop = at + size
        while at < stop:
            if self.count == _FIELDS_MAX or stop - at < 6:
                return False
            place = _PLACES * self.count
            size = _i16(data, at)
            at += 2
            if size <= 0 or size > stop - at - 4:
                return False
            self.places[place] = at
            self.places[place + 1] = size
            at += size
            size = _i32(data, at)
            at += 4
            if size < 0 or size > stop - at:
                return False
            self.places[place + 2] = at
            self.places[place + 3] = size
            self.places[place + 4] = _TEXT
            self.count += 1
            at += size
        return True

    @cython.ccall
    @cython.exceptval(-1)
    def is_utf8(self, data: cython.const[cython.uchar][::1]) -> cython.bint:
        """Say whether all texts of the binary header that was scanned are UTF-8."""
        i: cython.Py_ssize_t
        if self.remark_kind >= 0 and not is_utf8(data, self.remark_at, self.remark_at + self.remark_size):
            return False
        for i in range(0, _PLACES * self.count, _PLACES):
            if not is_utf8(data, self.places[i], self.places[i] + self.places[i + 1]):
                return False
            if not is_utf8(data, self.places[i + 2], self.places[i + 2] + self.places[i + 3]):
                return False
        return True

    # -- what was found --------------------------------------------------------------------------------------------

    def ext(self, data: cython.const[cython.uchar][::1]) -> dict[str, str]:
        """Make strings of all fields. Raises UnicodeDecodeError: only what is UTF-8 is read here."""
        i: cython.Py_ssize_t
        found: dict[str, str] = {}
        for i in range(0, _PLACES * self.count, _PLACES):
            name = bytes_at(data, self.places[i], self.places[i + 1]).decode()
            found[name] = _text(data, self.places[i + 2], self.places[i + 3], self.places[i + 4])
        return found

    def remark(self, data: cython.const[cython.uchar][::1]) -> str | None:
        """Make a string of the remark; None if there is none. Raises UnicodeDecodeError."""
        if self.remark_kind < 0:
            return None
        return _text(data, self.remark_at, self.remark_size, self.remark_kind)


@cython.ccall
@cython.exceptval(-1)
def is_utf8(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.bint:
    """Say whether `data[at:end]` is UTF-8. Cost: next to nothing where it is ASCII."""
    seen: cython.uchar = 0
    i: cython.Py_ssize_t
    if cython.compiled:
        for i in range(at, end):
            seen |= data[i]
        if seen < 128:
            return True
    try:
        bytes_at(data, at, end - at).decode()
    except UnicodeDecodeError:
        return False
    return True


@cython.cfunc
def _text(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, size: cython.Py_ssize_t, kind: cython.int) -> str:
    """Make a string of a value."""
    if kind != _ESCAPED:
        return bytes_at(data, at, size).decode()
    room = bytearray(size)
    end: cython.Py_ssize_t = unescape(room, 0, data, at, size)
    return room[:end].decode()


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _skip_blanks(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    while at < end and (data[at] == 32 or data[at] == 10 or data[at] == 13 or data[at] == 9):
        at += 1
    return at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _i16(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.int:
    value: cython.int = data[at] << 8 | data[at + 1]
    return value - 0x10000 if value >= 0x8000 else value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _i32(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.longlong:
    value: cython.longlong = load_u32_be(data, at)
    return value - 0x100000000 if value >= 0x80000000 else value


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _hex(digit: cython.int) -> cython.int:
    """Read a hexadecimal digit; below 0 if it is none."""
    if digit >= 48 and digit <= 57:
        return digit - 48
    digit |= 32
    return digit - 87 if digit >= 97 and digit <= 102 else -65536


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _unit(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t) -> cython.int:
    """Read four hexadecimal digits; below 0 if they are none."""
    high: cython.int = _hex(data[at]) * 4096 + _hex(data[at + 1]) * 256
    return -1 if high < 0 else _low(high, _hex(data[at + 2]), _hex(data[at + 3]))


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _low(high: cython.int, third: cython.int, fourth: cython.int) -> cython.int:
    return -1 if third < 0 or fourth < 0 else high + third * 16 + fourth


@cython.cfunc
@cython.exceptval(check=False)
def _escape_end(data: cython.const[cython.uchar][::1], at: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Say what is behind the escape at `at`, both halves of a character; -1 if it is none that is read here."""
    unit: cython.int
    if end - at < 2:
        return -1
    # " \ / b f n r t
    unit = data[at + 1]
    if unit == 34 or unit == 92 or unit == 47 or unit == 98 or unit == 102 or unit == 110 or unit == 114 or unit == 116:
        return at + 2
    if unit != 117 or end - at < 6:
        return -1
    unit = _unit(data, at + 2)
    if unit < 0 or (unit >= 0xDC00 and unit < 0xE000):
        return -1
    if unit < 0xD800 or unit >= 0xE000:
        return at + 6
    if end - at < 12 or data[at + 6] != _BACKSLASH or data[at + 7] != 117:
        return -1
    unit = _unit(data, at + 8)
    return at + 12 if unit >= 0xDC00 and unit < 0xE000 else -1


@cython.ccall
@cython.exceptval(check=False)
def unescape(
    target: cython.uchar[::1],
    at: cython.Py_ssize_t,
    source: cython.const[cython.uchar][::1],
    start: cython.Py_ssize_t,
    size: cython.Py_ssize_t,
) -> cython.Py_ssize_t:
    """Write the string `source[start : start + size]`, of a header that was scanned, in UTF-8; gives where it ends. It takes `size` bytes at most."""
    end: cython.Py_ssize_t = start + size
    unit: cython.int
    letter: cython.int
    while start < end:
        if source[start] != _BACKSLASH:
            target[at] = source[start]
            at += 1
            start += 1
            continue
        letter = source[start + 1]
        start += 2
        if letter != 117:
            target[at] = _unescaped(letter)
            at += 1
            continue
        unit = _unit(source, start)
        start += 4
        if unit >= 0xD800 and unit < 0xE000:
            unit = 0x10000 + ((unit & 0x3FF) << 10) + (_unit(source, start + 2) & 0x3FF)
            start += 6
        at = _write_character(target, at, unit)
    return at


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _unescaped(letter: cython.int) -> cython.int:
    if letter == 110:
        return 10
    if letter == 116:
        return 9
    if letter == 114:
        return 13
    if letter == 98:
        return 8
    return 12 if letter == 102 else letter


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _write_character(target: cython.uchar[::1], at: cython.Py_ssize_t, unit: cython.int) -> cython.Py_ssize_t:
    """Write a character in UTF-8."""
    if unit < 0x80:
        target[at] = unit
        return at + 1
    if unit < 0x800:
        target[at] = 0xC0 | unit >> 6
        target[at + 1] = 0x80 | unit & 63
        return at + 2
    if unit < 0x10000:
        target[at] = 0xE0 | unit >> 12
        target[at + 1] = 0x80 | unit >> 6 & 63
        target[at + 2] = 0x80 | unit & 63
        return at + 3
    target[at] = 0xF0 | unit >> 18
    target[at + 1] = 0x80 | unit >> 12 & 63
    target[at + 2] = 0x80 | unit >> 6 & 63
    target[at + 3] = 0x80 | unit & 63
    return at + 4
