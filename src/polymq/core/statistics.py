"""One registry of numbers, from which every statistics format and the metrics are rendered.

Counters are kept by the objects they describe; the registry only knows how to collect them, so a number exists once.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

__all__ = ["Family", "Kind", "Registry", "Sample"]


class Kind(enum.Enum):
    """How a number behaves."""

    COUNTER = "counter"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class Sample:
    """One number with its labels."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Family:
    """Numbers of one meaning; `name` ends in its unit, as Prometheus names do."""

    name: str
    kind: Kind
    help: str
    collect: Callable[[], Iterable[Sample]]


class Registry:
    """Every family of numbers that the broker keeps. Names are unique."""

    def __init__(self) -> None:
        self._families: dict[str, Family] = {}

    def register(self, family: Family) -> None:
        """Add a family; raises ValueError if the name is taken."""
        if family.name in self._families:
            raise ValueError(f"statistics family {family.name} is registered already")
        self._families[family.name] = family

    def __iter__(self) -> Iterator[Family]:
        return iter(self._families.values())
