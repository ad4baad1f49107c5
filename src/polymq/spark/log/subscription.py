"""Which topics and partitions a query reads: by name, by a pattern, or partition by partition. One of the three."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from polymq.spark.log.offsets import Place
    from polymq.spark.option_values import OptionReader

__all__ = ["Subscription", "names_of", "read_subscription"]

_FORMS: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class Subscription:
    """`topics` by name, or those whose whole name matches `pattern`; `assigned` are names of partitions by topic, empty: all of them."""

    topics: tuple[str, ...] = ()
    pattern: str = ""
    assigned: Mapping[str, frozenset[str]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Say what is read, for people."""
        if self.pattern:
            return f"subscribePattern={self.pattern}"
        if self.assigned:
            return "assign=" + ",".join(f"{topic}/{key}" for topic, keys in self.assigned.items() for key in sorted(keys))
        return f"subscribe={','.join(self.topics)}"

    def matches(self, topic: str) -> bool:
        """Tell whether the pattern is of this topic."""
        return re.fullmatch(self.pattern, topic) is not None

    def takes(self, place: Place) -> bool:
        """Tell whether a partition of a topic that is read is read."""
        if not self.assigned:
            return True
        keys = self.assigned.get(place.topic, frozenset())
        return not keys.isdisjoint(names_of(place))

    def unknown(self, places: Iterable[Place]) -> list[str]:
        """List the partitions that are assigned and are not there."""
        known = {(place.topic, key) for place in places for key in names_of(place)}
        return [f"{topic}/{key}" for topic, keys in self.assigned.items() for key in sorted(keys) if (topic, key) not in known]


def names_of(place: Place) -> tuple[str, str]:
    """Give what options may call a partition of its topic: that of its node before that of any."""
    return f"{place.node}/{place.partition}", str(place.partition)


def read_subscription(reader: OptionReader) -> Subscription:
    """Read which of the three there is, and what it says."""
    given = [name for name in _FORMS if reader.text(name) is not None]
    if len(given) != 1:
        what = f"{' and '.join(given)} exclude each other" if given else "nothing says what to read"
        reader.problems.append(f"{what}: give exactly one of {', '.join(_FORMS)}")
        return Subscription()
    if given == ["subscribe"]:
        return Subscription(reader.topics("subscribe"))
    text = (reader.text(given[0]) or "").strip()
    if given == ["subscribePattern"]:
        return Subscription(pattern=_pattern(reader, text))
    return _assigned(reader, text)


def _pattern(reader: OptionReader, text: str) -> str:
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        reader.problems.append(f"subscribePattern is no regular expression: {error}")
        return ""
    if not text:
        reader.problems.append("subscribePattern must not be empty")
    return text


def _assigned(reader: OptionReader, text: str) -> Subscription:
    try:
        found = {str(topic): frozenset(map(_key, keys)) for topic, keys in json.loads(text).items() if isinstance(keys, list)}
    except (ValueError, AttributeError, TypeError, RecursionError):
        found = {}
    if not found or not all(found.values()):
        reader.problems.append(f"assign must be {reader.known['assign']}, not {text!r}")
        return Subscription()
    return Subscription(tuple(found), assigned=found)


def _key(value: object) -> str:
    """Take the name of a partition: its index, or node/index; raises ValueError when it is none."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(text, str) or not re.fullmatch(r"(?:[^/]+/)?[0-9]{1,9}", text):
        raise ValueError("not a partition")
    return text
