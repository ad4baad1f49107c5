"""Request targets: where a path and a query are taken apart and put together, by Go's rules.

nsqd's answers depend on Go's `net/url`: a semicolon or a stray percent sign spoils a whole query, a path is
compared after decoding, and a redirect is spelled by Go's own escaping. This file does that and nothing else.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

__all__ = ["clean_path", "escape_path", "parse_query", "split_target", "unescape"]

_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
# What Go leaves as it is in a path, beside letters, digits and "-_.~".
_PATH_SAFE: Final = "/$&+,:;=@"


def unescape(text: bytes, *, plus_is_space: bool) -> str | None:
    """Decode percent escapes; None if one of them is malformed. Bytes that are not UTF-8 become U+FFFD."""
    if plus_is_space and b"+" in text:
        text = text.replace(b"+", b" ")
    if b"%" in text:
        if _BAD_ESCAPE.search(text):
            return None
        text = unquote_to_bytes(text)
    return text.decode("utf-8", "replace")


def escape_path(path: str) -> str:
    """Spell a decoded path as Go spells it in a `Location`."""
    return quote_from_bytes(path.encode("utf-8", "replace"), safe=_PATH_SAFE)


def parse_query(query: str) -> dict[str, str] | None:
    """Give the first value of each name; None if any part of the query is malformed.

    Source: net/url, ParseQuery (Go 1.19): parts are separated by `&` alone, and a part with a `;` is an error.
    """
    arguments: dict[str, str] = {}
    for part in query.encode("utf-8", "replace").split(b"&"):
        if not part:
            continue
        if b";" in part:
            return None
        name, _, value = part.partition(b"=")
        name_text = unescape(name, plus_is_space=True)
        value_text = unescape(value, plus_is_space=True)
        if name_text is None or value_text is None:
            return None
        arguments.setdefault(name_text, value_text)
    return arguments


def split_target(target: bytes) -> tuple[str, str, str] | None:
    """Take a request target apart into (origin, decoded path, raw query); None if it is malformed.

    `origin` is what an absolute target has in front of its path ("http://host"), else "".
    """
    text, _, query = target.partition(b"?")
    origin = b""
    if text[:1] != b"/" and text != b"*":
        scheme, separator, rest = text.partition(b"://")
        if not separator or not scheme:
            return None
        host, slash, tail = rest.partition(b"/")
        origin = scheme + separator + host
        text = slash + tail
    path = unescape(text, plus_is_space=False)
    if path is None:
        return None
    # A fragment is not split off: Go's server does not either. In a query it is dropped by `url.Parse` only.
    return origin.decode("latin-1"), path, query.decode("latin-1")


def clean_path(path: str) -> str:
    """Remove empty, `.` and `..` elements, keep a trailing slash: the shortest path that means the same."""
    kept: list[str] = []
    elements = path.split("/")
    for element in elements:
        if element == "..":
            if kept:
                kept.pop()
        elif element and element != ".":
            kept.append(element)
    trailing = elements[-1] in ("", ".") and len(kept) > 0
    return "/" + "/".join(kept) + ("/" if trailing else "")
