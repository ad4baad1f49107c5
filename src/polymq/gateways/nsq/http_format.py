"""Values written as Go writes them: JSON, durations and times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import orjson

__all__ = ["duration", "json", "rfc3339", "short_duration"]

NS_PER_SECOND: Final = 1_000_000_000
_NS_PER_MINUTE: Final = 60 * NS_PER_SECOND
_NS_PER_HOUR: Final = 60 * _NS_PER_MINUTE
# encoding/json escapes these for the sake of HTML and of JavaScript. Outside strings they cannot occur.
_ESCAPED: Final = (
    (b"&", b"\\u0026"),
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


def json(value: object) -> bytes:
    """Write a value as encoding/json does; dictionaries keep their order, as Go's structs do."""
    data = orjson.dumps(value)
    for character, escape in _ESCAPED:
        data = data.replace(character, escape)
    return data


def duration(ns: int) -> str:
    """Write a duration that is not negative as Go's time.Duration does: `7m13.3135s`, `250ms`, `0s`."""
    if ns < NS_PER_SECOND:
        for unit, size in (("ms", 1_000_000), ("µs", 1_000), ("ns", 1)):
            if ns >= size:
                return f"{_fraction(ns, size)}{unit}"
        return "0s"
    hours, rest = divmod(ns, _NS_PER_HOUR)
    minutes, rest = divmod(rest, _NS_PER_MINUTE)
    text = f"{_fraction(rest, NS_PER_SECOND)}s"
    if hours:
        return f"{hours}h{minutes}m{text}"
    return f"{minutes}m{text}" if minutes else text


def _fraction(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    if not rest:
        return str(whole)
    return f"{whole}." + str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")


def short_duration(ns: int) -> str:
    """Write a latency for the text format: `1.5ms`.

    Source: internal/stringy/template.go, NanoSecondToHuman, NSQ 1.3.0.
    """
    for unit, size in (("s", NS_PER_SECOND), ("ms", 1_000_000), ("us", 1_000)):
        if ns > size:
            return f"{ns / size:.1f}{unit}"
    return f"{ns:.1f}ns"


def rfc3339(wall_ns: int) -> str:
    """Write a time to the second, as the clocks here show it: `2026-11-21T01:04:25+01:00`, and Z for no offset.

    Source: time.Format with time.RFC3339 of a local time: the offset is cut to minutes.
    """
    local = datetime.fromtimestamp(wall_ns // NS_PER_SECOND, UTC).astimezone()
    text = local.strftime("%Y-%m-%dT%H:%M:%S")
    offset = local.utcoffset()
    if not offset:
        return text + "Z"
    hours, minutes = divmod(abs(offset) // timedelta(minutes=1), 60)
    return f"{text}{'-' if offset < timedelta() else '+'}{hours:02}:{minutes:02}"
