"""How the monitoring pages are written and asked: JSON, times and numbers as Go has them, and its complaints about arguments."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import orjson

from polymq.limits import NATS_ROWS_MAX
from polymq.wire.exchange import Response

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from polymq.gateways.nats.figures import SubscriptionFigures
    from polymq.wire.exchange import Request

__all__ = [
    "ROWS_AT_ONCE",
    "BadArgument",
    "arguments",
    "boolean",
    "complaint",
    "described_subscription",
    "duration",
    "integer",
    "json",
    "lazily",
    "number",
    "page",
    "rfc3339",
    "rows_max",
    "text",
    "unsigned",
    "uptime",
]

_NS_PER_US: Final = 1_000
_NS_PER_MS: Final = 1_000_000
_NS_PER_SECOND: Final = 1_000_000_000
# encoding/json escapes these for the sake of HTML and of JavaScript. Outside strings they cannot occur.
_ESCAPED: Final = (
    (b"&", b"\\u0026"),
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
# The booleans of strconv.ParseBool.
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DIGITS_MAX: Final = 30  # more than any number of 64 bits has
# Rows that are made in one piece: a page of ten thousand must hold up nobody.
ROWS_AT_ONCE: Final = 64
# Rows of a list if the request names no limit.
_ROWS_USUAL: Final = 1024
_PLAIN: Final = (("Content-Type", "text/plain; charset=utf-8"),)


class BadArgument(Exception):
    """An argument of the query that makes no sense; the text is the answer."""


def json(value: object, *, indented: bool = True) -> bytes:
    """Write a value as encoding/json does; dictionaries keep their order, as Go's structs do."""
    data = orjson.dumps(value, option=orjson.OPT_INDENT_2 if indented else None)
    for character, escape in _ESCAPED:
        data = data.replace(character, escape)
    return data


def text(value: bytes | str) -> str:
    """Give what JSON can hold of a name: what is no text becomes U+FFFD, as in Go."""
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return data.decode("utf-8", "replace")


def page(body: bytes, status: int = 200) -> Response:
    """Answer with JSON. A function that is named to be called with it (`callback`) is none of ours, as since 2.15."""
    return Response(status, (("Content-Type", "application/json"), ("Access-Control-Allow-Origin", "*")), body)


def complaint(error: BadArgument) -> Response:
    """Answer a request that makes no sense."""
    return Response(400, _PLAIN, str(error).encode())


def arguments(request: Request) -> Mapping[str, str]:
    """Give the arguments of the query; none if it cannot be decoded, as Go does."""
    return request.arguments or {}


def boolean(request: Request, name: str) -> bool:
    """Read a flag; False if it is not there. Raises BadArgument."""
    value = arguments(request).get(name, "")
    if not value or value in _FALSE:
        return False
    if value not in _TRUE:
        raise BadArgument(f"Error decoding boolean for '{name}': strconv.ParseBool: parsing {_quoted(value)}: invalid syntax")
    return True


def integer(request: Request, name: str) -> int:
    """Read a number; 0 if it is not there. Raises BadArgument."""
    return _number(request, name, "int", "Atoi", range(-(1 << 63), 1 << 63))


def unsigned(request: Request, name: str) -> int:
    """Read a number that is not negative; 0 if it is not there. Raises BadArgument."""
    return _number(request, name, "uint64", "ParseUint", range(1 << 64))


def _number(request: Request, name: str, kind: str, function: str, bounds: range) -> int:
    value = arguments(request).get(name, "")
    if not value:
        return 0
    if not _INTEGER.fullmatch(value) or (value[0] in "+-" and bounds.start >= 0):
        problem = "invalid syntax"
    # What has more digits than any number of 64 bits is not even converted.
    elif len(value) > _DIGITS_MAX or int(value) not in bounds:
        problem = "value out of range"
    else:
        return int(value)
    raise BadArgument(f"Error decoding {kind} for '{name}': strconv.{function}: parsing {_quoted(value)}: {problem}")


def _quoted(value: str) -> str:
    return orjson.dumps(text(value)).decode()


def rfc3339(ns: int) -> str:
    """Write a moment of UTC as time.RFC3339Nano."""
    seconds, rest = divmod(ns, _NS_PER_SECOND)
    whole = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{whole}{f'.{rest:09}'.rstrip('0') if rest else ''}Z"


def uptime(ns: int) -> str:
    """Write how long something is up, or idle, as nats-server does: seconds, and what is above from the greatest unit on."""
    seconds = max(ns, 0) // _NS_PER_SECOND
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    years = days // 365
    parts = ((years, "y"), (days % 365, "d"), (hours % 24, "h"), (minutes % 60, "m"), (seconds % 60, "s"))
    first = next((index for index, (count, _) in enumerate(parts) if count), len(parts) - 1)
    return "".join(f"{count}{unit}" for count, unit in parts[first:])


def duration(ns: int) -> str:
    """Write a time.Duration below a minute."""
    for unit, size in (("s", _NS_PER_SECOND), ("ms", _NS_PER_MS), ("µs", _NS_PER_US)):
        if ns >= size:
            whole, rest = divmod(ns, size)
            fraction = str(rest).rjust(len(str(size)) - 1, "0").rstrip("0")
            return f"{whole}.{fraction}{unit}" if fraction else f"{whole}{unit}"
    return f"{ns}ns" if ns else "0s"


def number(value: float) -> Any:
    """Write a float as Go does: without a fraction if it has none."""
    return int(value) if value == int(value) else value


def described_subscription(each: SubscriptionFigures) -> dict[str, Any]:
    """Make what is said of one subscription."""
    row: dict[str, Any] = {"subject": text(each.subject)}
    if each.queue:
        row["qgroup"] = text(each.queue)
    row |= {"sid": text(each.sid), "msgs": each.given}
    if each.limit:
        row["max"] = each.limit
    return row | {"cid": each.client_id}


def rows_max(limit: int) -> int:
    """Say how many rows there are at most, when a request asks for `limit`; 0 and less: as many as usual."""
    return min(limit, NATS_ROWS_MAX) if limit > 0 else _ROWS_USUAL


def lazily(head: dict[str, Any], name: str, rows: Iterator[dict[str, Any]], count: int, *, at_once: int = ROWS_AT_ONCE) -> Response:
    """Answer with a document whose last member is a list; a long list is made while it is sent, `at_once` rows at a time."""
    if count <= at_once:
        return page(json({**head, name: list(rows)}))
    whole = page(json({**head, name: []}))
    assert isinstance(whole.body, bytes)
    before, between, after = whole.body.rpartition(b"[]")
    assert between
    return replace(whole, body=_pieces(before, rows, after, at_once))


def _pieces(before: bytes, rows: Iterator[dict[str, Any]], after: bytes, at_once: int) -> Iterator[bytes]:
    yield before + b"["
    comma = b"\n"
    while some := list(islice(rows, at_once)):
        # The list within its document is indented once more than by itself, which is "[\n" … "\n]" around the rows.
        inner = json(some)[2:-2].replace(b"\n", b"\n  ")
        yield comma + b"  " + inner
        comma = b",\n"
    yield b"\n  ]" + after
