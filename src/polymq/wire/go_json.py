"""JSON read as Go's encoding/json reads it into a struct, for peers that were written against Go programs.

Keys match in any case, null leaves a field as it was, the last of several wins, unknown keys are ignored whatever
they hold, and a value of the wrong type fails the whole, wherever it stands. Python's own parser finds the
structure; what differs is decided here. Observed on nsqd and nsqlookupd 1.3.0.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

__all__ = ["INT32", "INT64", "decode_struct"]

INT32: Final = range(-(1 << 31), 1 << 31)
INT64: Final = range(-(1 << 63), 1 << 63)
# No integer of 64 bits has more characters; Python refuses to convert very long ones.
_INTEGER_SIZE_MAX: Final = 20


class _Number:
    """Stands for a number that is no integer of 64 bits: right where it is ignored, wrong where it is wanted."""


class _Object:
    """Stands for a JSON object, with its keys as often as they occur."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


_NUMBER: Final = _Number()


def _integer(text: str) -> int | _Number:
    if len(text) > _INTEGER_SIZE_MAX:
        return _NUMBER
    value = int(text)
    return value if value in INT64 else _NUMBER


def _fraction(_text: str) -> _Number:
    return _NUMBER


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_Object, parse_int=_integer, parse_float=_fraction, parse_constant=_no_constant)


def _fold(key: str) -> str:
    """Bring a key to the case in which Go compares: letter by letter, so that nothing changes its length."""
    return "".join(folded if len(folded := letter.casefold()) == 1 else letter for letter in key)


def decode_struct(data: bytes, fields: Mapping[str, type | range]) -> dict[str, Any] | None:
    """Read an object with these fields; None if Go would not. A `range` is an integer within its bounds.

    What is absent or null is not in the result.
    """
    try:
        # Go replaces what is not UTF-8, and does not take a byte order mark for white space.
        document = _DECODER.decode(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if document is None:
        return {}
    if not isinstance(document, _Object):
        return None
    found: dict[str, Any] = {}
    for key, value in document.pairs:
        name = _fold(key)
        wanted = fields.get(name)
        if wanted is None or value is None:
            continue
        if not (type(value) is int and value in wanted if isinstance(wanted, range) else type(value) is wanted):
            return None
        found[name] = _printable(value)
    return found


def _printable(value: Any) -> Any:
    """Replace halves of surrogate pairs, which JSON can spell and UTF-8 cannot."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value
