"""Take values out of a tree of nats-server's configuration language: kinds of values, and blocks by a table of their keys.

A kind is a function of a value, the name that the value has in messages, and the report; it gives what the program uses, or raises
ValueError with what was expected. Blocks within blocks report for themselves. No message shows a value that may be a secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from polymq.config_values import GO_DURATION_EXPECTED, PORT_MAX, TcpAddress, format_duration, parse_go_duration
from polymq.protocols.nats.conf_tree import Block

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.protocols.nats.conf_tree import Place, Value

__all__ = [
    "DEFAULT",
    "Foreign",
    "Key",
    "Report",
    "address",
    "advertised",
    "choice",
    "count",
    "duration",
    "items",
    "name_without_spaces",
    "parse_advertised",
    "parse_host_port",
    "read_block",
    "seconds",
    "some_text",
    "switch",
    "text",
    "texts",
]

_SECOND_NS: Final = 1_000_000_000
# No time makes sense beyond this, as for polymq's own settings.
_DURATION_MAX_NS: Final = 3650 * 24 * 3600 * _SECOND_NS
# nats-server says so too: a longer time is mostly a unit that was lost.
_TIMEOUT_USUAL_NS_MAX: Final = 60 * _SECOND_NS
_ADDRESS_EXPECTED: Final = 'expected a port, "HOST:PORT" or "[IPV6]:PORT"'

DEFAULT: Final = object()
"""What a kind gives for a value that is the same as none (a 0 for most numbers)."""


@dataclass(slots=True)
class Report:
    """What is wrong, what is to be told, and the top keys that something is wrong with."""

    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)

    def problem(self, place: Place | str, name: str, what: str) -> None:
        """Say what is wrong with the value of that name."""
        self.problems.append(f"{place}: {name}: {what}")
        self.broken.add(name.partition(".")[0])

    def note(self, place: Place | str, name: str, what: str) -> None:
        """Say what whoever wrote the value should know."""
        self.notes.append(f"{place}: {name}: {what}")


Reader = Callable[["Value", str, Report], Any]


@dataclass(frozen=True, slots=True)
class Key:
    """What a key is: the field that it goes to, and how its value is read."""

    field: str
    read: Reader


@dataclass(frozen=True, slots=True)
class Foreign:
    """A key of nats-server's that polymq has no use for: refused, since who writes it must not believe that he has it, or noted.

    `harmless` are values that ask for nothing.
    """

    why: str
    harmless: tuple[object, ...] = ()
    refused: bool = True

    def meet(self, value: Value, name: str, report: Report) -> None:
        """Say so, unless the value is harmless."""
        if any(type(each) is type(value.data) and each == value.data for each in self.harmless):
            return
        if self.refused:
            report.problem(value.place, name, f"polymq does not serve this ({self.why}); take it out to do without")
        else:
            report.note(value.place, name, f"has no meaning here: {self.why}")


def read_block(
    block: Block, keys: Mapping[str, Key], foreign: Mapping[str, Foreign], name: str, report: Report
) -> tuple[dict[str, Any], dict[str, Place]]:
    """Read the keys of a block, whatever their case: values and places by field. `name` is the block's own, "" for a whole file."""
    found: dict[str, Any] = {}
    places: dict[str, Place] = {}
    for spelt, value in block:
        key, called = keys.get(spelt.lower()), f"{name}.{spelt}" if name else spelt
        if key is None:
            if spelt.lower() in foreign:
                foreign[spelt.lower()].meet(value, called, report)
            elif spelt not in block.variables:
                report.problem(value.place, called, f"nats-server has no such key{_suggest(spelt.lower(), [*keys, *foreign])}")
            continue
        if key.field in places:
            report.problem(value.place, called, f"this is said in line {places[key.field].line} as well; keep one of the two")
            continue
        places[key.field] = value.place
        if value.data is None:
            report.broken.add(called.partition(".")[0])
            continue
        try:
            read = key.read(value, called, report)
        except ValueError as error:
            report.problem(value.place, called, str(error))
            continue
        if read is not DEFAULT:
            found[key.field] = read
    return found, places


def _suggest(word: str, known: list[str]) -> str:
    matches = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def _is(value: Value) -> str:
    """Say what kind of value stands there."""
    data = value.data
    if isinstance(data, bool):
        return f"{value.spelling} (which is {'true' if data else 'false'})" if value.spelling else "true or false"
    if isinstance(data, int | float):
        return "a number"
    if isinstance(data, datetime):
        return "a date"
    return {str: "text", tuple: "a list", Block: "a block"}.get(type(data), "nothing")


def text(value: Value, _name: str, _report: Report) -> str:
    """Take text."""
    if isinstance(value.data, str):
        return value.data
    hint = "; put it in quotes" if isinstance(value.data, bool | int | float | datetime) else ""
    raise ValueError(f"expected text, not {_is(value)}{hint}")


def some_text(value: Value, name: str, report: Report) -> str:
    """Take text that is not empty."""
    found = text(value, name, report)
    if not found:
        raise ValueError("expected text, not nothing")
    return found


def name_without_spaces(value: Value, name: str, report: Report) -> str:
    """Take the name of a server or of a cluster."""
    found = text(value, name, report)
    if any(character.isspace() for character in found):
        raise ValueError("expected a name without blanks")
    return found


def switch(value: Value, _name: str, _report: Report) -> bool:
    """Take true or false."""
    if isinstance(value.data, bool):
        return value.data
    hint = (
        " in quotes; take them off"
        if isinstance(value.data, str) and value.data.lower() in ("true", "false", "yes", "no", "on", "off")
        else ""
    )
    raise ValueError(f"expected true or false, not {_is(value)}{hint}")


def choice(*words: str) -> Reader:
    """Take one of a few words, in any case."""

    def read(value: Value, name: str, report: Report) -> str:
        found = text(value, name, report).lower()
        if found not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return found

    return read


def count(low: int, high: int, *, zero: object = None, negative: object = None) -> Reader:
    """Take a whole number within bounds. `zero` and `negative`, if given, are what such numbers come to."""

    def read(value: Value, _name: str, _report: Report) -> object:
        number = value.data
        if isinstance(number, bool) or not isinstance(number, int):
            hint = "; take the quotes off" if isinstance(number, str) else ""
            raise ValueError(f"expected a whole number, not {_is(value)}{hint}")
        if number == 0 and zero is not None:
            return zero
        if number < 0 and negative is not None:
            return negative
        if not low <= number <= high:
            raise ValueError(f"expected a number from {low} to {high}")
        return number

    return read


def duration(low_ns: int = 0, *, zero: object = None) -> Reader:
    """Take a time: text with a unit; a bare number is seconds, as with nats-server, and is noted as there."""

    def read(value: Value, name: str, report: Report) -> object:
        found_ns = _time_ns(value)
        if not isinstance(value.data, str):
            report.note(value.place, name, f'taken for seconds; write "{value.data}s"')
        if found_ns == 0 and zero is not None:
            return zero
        if not low_ns <= found_ns <= _DURATION_MAX_NS:
            raise ValueError(f"expected a time from {format_duration(low_ns)} to {format_duration(_DURATION_MAX_NS)}")
        return found_ns

    return read


def seconds(value: Value, name: str, report: Report) -> object:
    """Take a timeout: a number is seconds, text is a time with a unit; 0 is as if it were not there."""
    found_ns = round(value.data * _SECOND_NS) if isinstance(value.data, float) and abs(value.data) < _DURATION_MAX_NS else _time_ns(value)
    if found_ns == 0:
        return DEFAULT
    if not 0 < found_ns <= _DURATION_MAX_NS:
        raise ValueError(f"expected a time of at most {format_duration(_DURATION_MAX_NS)}")
    if found_ns > _TIMEOUT_USUAL_NS_MAX:
        report.note(value.place, name, f"{format_duration(found_ns)} is long for this; was another unit meant?")
    return found_ns


def _time_ns(value: Value) -> int:
    data = value.data
    if isinstance(data, str):
        return parse_go_duration(data)
    if isinstance(data, bool) or not isinstance(data, int):
        raise ValueError(f"expected {GO_DURATION_EXPECTED}, not {_is(value)}")
    if not value.spelling.lstrip("-").isdigit():
        raise ValueError(f'{value.spelling} without quotes is the number {data}; write "{value.spelling}", or seconds without a unit')
    return data * _SECOND_NS


def items(value: Value) -> tuple[Value, ...]:
    """Take a list."""
    if isinstance(value.data, tuple):
        return value.data
    raise ValueError(f"expected a list, [ … ], not {_is(value)}")


def texts(value: Value, name: str, report: Report) -> tuple[str, ...]:
    """Take a text, or a list of them."""
    if isinstance(value.data, str):
        return (value.data,)
    return tuple(text(each, name, report) for each in items(value) if each.data is not None)


def parse_host_port(text: str) -> tuple[str, int]:
    """Read `HOST:PORT`, `[v6]:PORT` or `:PORT`; the port may be -1 (any). Raises ValueError."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host or "[" in host or "]" in host:
        raise ValueError(f"{_ADDRESS_EXPECTED}: an IPv6 address goes in brackets, and all of it in quotes")
    digits = port.removeprefix("-")
    if not colon or not (digits.isascii() and digits.isdigit()) or len(digits) > len(str(PORT_MAX)) or not -1 <= int(port) <= PORT_MAX:
        raise ValueError(_ADDRESS_EXPECTED)
    if any(character.isspace() or character in "/@" for character in host):
        raise ValueError(_ADDRESS_EXPECTED)
    return host, int(port)


def address(value: Value, name: str, report: Report) -> tuple[str, int]:
    """Take where to listen: host ("" if none is said) and port (0: the default, or none; -1: any)."""
    if isinstance(value.data, str):
        return parse_host_port(value.data)
    port: int = count(-1, PORT_MAX)(value, name, report)
    return "", port


def parse_advertised(text: str) -> TcpAddress:
    """Read `HOST` or `HOST:PORT`; without a port, or with 0 or -1, it is 0. Raises ValueError."""
    text = text.strip()
    if ":" in text and not text.endswith("]"):
        host, port = parse_host_port(text)
    else:
        host, port = parse_host_port(f"{text}:0")
    if not host:
        raise ValueError("expected HOST or HOST:PORT")
    return TcpAddress(host, max(port, 0))


def advertised(value: Value, name: str, report: Report) -> object:
    """Take what others are told to connect to: a host, maybe with a port; empty is as if it were not there."""
    found = text(value, name, report)
    return parse_advertised(found) if found.strip() else DEFAULT
