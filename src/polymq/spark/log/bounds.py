"""Where a query starts and where a batch read ends: by words, by offsets, or by times, as Kafka's options have it.

JSON names partitions by topic and index, `{"orders": {"0": 15}}`; with several nodes also by node, `{"orders": {"<node>/0": 15}}`,
and an index alone is then that partition of every node.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.spark.log.subscription import names_of
from polymq.spark.option_values import EARLIEST, LATEST

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.spark.log.offsets import Place
    from polymq.spark.option_values import OptionReader

__all__ = ["NAMES_END", "NAMES_START", "Bound", "read_bound"]

NAMES_START: Final = ("startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp")
NAMES_END: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}
_KEY: Final = re.compile(r"(?:[^/]+/)?[0-9]{1,9}")
_TIME_MS_MAX: Final = (2**63 - 1) // 1_000_000


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of what is read. `named` are offsets, or milliseconds since 1970 if `by_time`; `others` is for those not named.

    `time_ms`: the same time for all. `name` is the option that all this is from.
    """

    name: str
    others: int
    named: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    by_time: bool = False
    time_ms: int | None = None

    def of(self, place: Place) -> tuple[int, bool]:
        """Say what holds for a partition: a number, and whether it is a time."""
        if self.time_ms is not None:
            return self.time_ms, True
        keys = self.named.get(place.topic, {})
        for key in names_of(place):
            if key in keys:
                return keys[key], self.by_time
        return self.others, False

    def unknown(self, places: Mapping[Place, object]) -> list[str]:
        """List the partitions that are named and are not there."""
        known = {(place.topic, key) for place in places for key in names_of(place)}
        return [f"{topic}/{key}" for topic, keys in self.named.items() for key in keys if (topic, key) not in known]


def read_bound(reader: OptionReader, names: tuple[str, str, str], default: str, *, topics: tuple[str, ...] | None) -> Bound:
    """Read the options of one end; where several are given a time for all comes first, then times, then offsets, as Kafka has it.

    `topics`: those that may be named; None: any.
    """
    by_offset, by_time, time = names
    is_end = names is NAMES_END
    others = LATEST if is_end else EARLIEST
    time_ms = reader.whole(time, None, 0, _TIME_MS_MAX)
    if reader.text(time) is not None:
        return Bound(time, others, by_time=True, time_ms=time_ms)
    name = by_time if reader.text(by_time) is not None else by_offset
    text = (reader.text(name) or default).strip()
    if name == by_offset and text.lower() in _WORDS:
        if is_end and text.lower() == "earliest":
            reader.problems.append(f"{name} cannot be earliest")
        return Bound(name, _WORDS[text.lower()])
    try:
        low, high = (0, _TIME_MS_MAX) if name == by_time else (EARLIEST, 2**63 - 1)
        named = {
            str(topic): {_key(key): _number(value, low, high) for key, value in keys.items()} for topic, keys in json.loads(text).items()
        }
    except (ValueError, AttributeError, TypeError, RecursionError):
        reader.problems.append(f"{name} must be {reader.known[name]}, not {text!r}")
        return Bound(name, others)
    strange = sorted(set(named) - set(topics)) if topics is not None else []
    if strange:
        reader.problems.append(f"{name} speaks of {', '.join(strange)}, which the query does not read")
    if is_end and any(value == EARLIEST for keys in named.values() for value in keys.values()):
        reader.problems.append(f"{name} cannot be earliest (-2)")
    return Bound(name, others, named, name == by_time)


def _key(key: str) -> str:
    """Take the name of a partition, with its index written as everywhere; raises ValueError when it is none."""
    if not _KEY.fullmatch(key):
        raise ValueError("not a partition")
    node, slash, partition = key.rpartition("/")
    return f"{node}{slash}{int(partition)}"


def _number(value: object, low: int, high: int) -> int:
    """Take an offset or a time; raises ValueError when it is none."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise ValueError("not a number within bounds")
    return value
