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

__all__ = ["INT32", "INT64", "Shape", "decode_struct"]

Shape = type | range | dict[str, "Shape"] | list["Shape"]

INT32: Final = range(-(1 << 31), 1 << 31)
INT64: Final = range(-(1 << 63), 1 << 63)
# No integer of 64 bits has more characters; Python refuses to convert very long ones.
_INTEGER_SIZE_MAX: Final = 20


class _Number:
    """Stands for a number that is no integer of 64 bits: right where it is ignored, wrong where it is wanted."""


class _Object:
    """Stands for a JSON object, with its keys as often as they occur."""

    __slots__ = ("pairs",)

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


def decode_struct(data: bytes, fields: Mapping[str, Shape]) -> dict[str, Any] | None:
    """Read an object with these fields; None if Go would not.

    A shape is a type, a `range` (an integer within its bounds), fields (an object), or a list with one shape in it (of
    any number of such). What is absent or null is not in the result; a null in a list is "" or an empty object.
    """
    try:
        # Go replaces what is not UTF-8, and does not take a byte order mark for white space.
        document = _DECODER.decode(data.decode("utf-8", "replace"))
        return {} if document is None else _struct(document, fields)
    except (ValueError, RecursionError):
        return None


def _struct(value: Any, fields: Mapping[str, Shape]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, inner in _checked(value, _Object).pairs:
        name = _fold(key)
        if name in fields and inner is not None:
            found[name] = _read(inner, fields[name])
    return found


def _read(value: Any, wanted: Shape) -> Any:
    """Give a value as it is wanted; raises ValueError."""
    if isinstance(wanted, range):
        if type(value) is not int or value not in wanted:
            raise ValueError(value)
        return value
    if isinstance(wanted, list):
        (shape,) = wanted
        zero = _Object([]) if isinstance(shape, dict) else ""
        return [_read(zero if inner is None else inner, shape) for inner in _checked(value, list)]
    if isinstance(wanted, dict):
        return _struct(value, wanted)
    return _printable(_checked(value, wanted))


def _checked(value: Any, wanted: type) -> Any:
    if type(value) is not wanted:
        raise ValueError(value)
    return value


def _printable(value: Any) -> Any:
    """Replace halves of surrogate pairs, which JSON can spell and UTF-8 cannot."""
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value
