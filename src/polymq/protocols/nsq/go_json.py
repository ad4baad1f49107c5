"""JSON as Go's decoder reads it into a struct.

Keys count in any case, null leaves a field as it was, the last of several wins, and a value of the wrong type fails
the whole, wherever it stands. Python's own parser finds the structure; what differs is decided here. Observed on
nsqd 1.3.0. Read next: `identify.py` and `auth.py`, the two that read structs.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

__all__ = ["GoNumber", "GoObject", "parse", "printable", "struct"]

_INT64_MAX: Final = (1 << 63) - 1
# No integer of 64 bits has more characters; Python refuses to convert very long ones.
_INTEGER_SIZE_MAX: Final = 20


class GoNumber:
    """Stands for a number that is no integer of 64 bits: right where it is ignored, wrong where it is wanted."""


class GoObject:
    """Stands for a JSON object, with its keys as often as they occur."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        self.pairs = pairs


_NUMBER: Final = GoNumber()


def _integer(text: str) -> int | GoNumber:
    value = int(text) if len(text) <= _INTEGER_SIZE_MAX else _INT64_MAX + 1
    return value if -_INT64_MAX - 1 <= value <= _INT64_MAX else _NUMBER


def _fraction(_text: str) -> GoNumber:
    return _NUMBER


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)


_DECODER: Final = json.JSONDecoder(object_pairs_hook=GoObject, parse_int=_integer, parse_float=_fraction, parse_constant=_no_constant)


def parse(body: bytes) -> Any:
    """Read a document; raises ValueError. Its numbers are `int` or GoNumber, its objects GoObject."""
    try:
        # Go replaces what is not UTF-8, and does not take a byte order mark for white space.
        return _DECODER.decode(body.decode("utf-8", "replace"))
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def struct(document: Any, fields: Mapping[str, type]) -> dict[str, Any] | None:
    """Give the fields that a document sets, of those that are wanted; None where Go would fail."""
    if document is None:
        return {}
    if not isinstance(document, GoObject):
        return None
    found: dict[str, Any] = {}
    for key, value in document.pairs:
        name = _fold(key)
        wanted = fields.get(name)
        if wanted is None or value is None:
            continue
        if type(value) is not wanted:
            return None
        found[name] = value
    return found


def _fold(key: str) -> str:
    """Bring a key to the case in which Go compares: letter by letter, so that nothing changes its length."""
    return "".join(folded if len(folded := letter.casefold()) == 1 else letter for letter in key)


def printable(value: Any) -> Any:
    """Replace halves of surrogate pairs, which JSON can spell and UTF-8 cannot."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value
