"""Text in quotes as Go's %q writes it: errors of peers that were written in Go name what they refuse that way."""

from __future__ import annotations

from typing import Final

__all__ = ["quote"]

_QUOTED: Final = {
    0x07: "\\a",
    0x08: "\\b",
    0x09: "\\t",
    0x0A: "\\n",
    0x0B: "\\v",
    0x0C: "\\f",
    0x0D: "\\r",
    0x22: '\\"',
    0x5C: "\\\\",
}


def quote(raw: bytes) -> bytes:
    r"""Put a name in quotes as Go's %q does.

    Printable characters stay; quotes and backslashes are escaped; bytes that are not UTF-8 become \x and two digits.
    Source: Go, strconv.Quote.
    """
    return b'"' + "".join(map(_quote_character, raw.decode("utf-8", "surrogateescape"))).encode() + b'"'


def _quote_character(character: str) -> str:
    code = ord(character)
    if code in _QUOTED:
        return _QUOTED[code]
    if character.isprintable():
        return character
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not part of any character
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
