"""What is left out where a message of one protocol is read by another, counted for each protocol that reads.

Gateways take the counts of theirs from here and add to them; the statistics show all. The indexes are in `wire/left_out.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.core.statistics import Family, Kind, Sample
from polymq.wire.left_out import EXPIRED, HEADER, KEY, LARGE, UNHEARD, left_out

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterator

    from polymq.core.statistics import Registry

__all__ = ["LeftOut"]

_PARTS: Final = {"header": HEADER, "key": KEY}
_WHOLE: Final = {"expired": EXPIRED, "size": LARGE, "unheard": UNHEARD}


class LeftOut:
    """The counts of all protocols that read, by the names that they give themselves."""

    def __init__(self) -> None:
        self._counts: dict[str, array[int]] = {}

    def of(self, reader: str) -> array[int]:
        """Give the counts of one protocol: always the same ones."""
        return self._counts.setdefault(reader, left_out())

    def register(self, registry: Registry) -> None:
        """Have them shown."""

        def collect(label: str, indexes: dict[str, int]) -> Iterator[Sample]:
            for reader, counts in sorted(self._counts.items()):
                for what, index in indexes.items():
                    yield Sample({"protocol": reader, label: what}, counts[index])

        parts = "Keys and headers that a reader's protocol cannot say, each time that a message went out without them."
        registry.register(Family("polymq_conversion_dropped_total", Kind.COUNTER, parts, lambda: collect("what", _PARTS)))
        whole = "Messages of other protocols that were passed over for a reader."
        registry.register(Family("polymq_conversion_passed_over_total", Kind.COUNTER, whole, lambda: collect("reason", _WHOLE)))
