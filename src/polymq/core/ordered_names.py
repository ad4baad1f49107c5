"""The names of topics in order, namespace by namespace: so that a page of them costs what is on it, however many there are."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import Final

__all__ = ["TopicNames"]

# So many new names are put in one by one; of more, sorting anew costs less.
_FEW: Final = 16


class _Names:
    """Names of one namespace: those in order, and those that have come since."""

    __slots__ = ("_new", "_sorted")

    def __init__(self) -> None:
        self._sorted: list[str] = []
        self._new: dict[str, None] = {}

    def add(self, name: str) -> None:
        self._new[name] = None

    def remove(self, name: str) -> None:
        if name in self._new:
            del self._new[name]
        else:
            del self._sorted[bisect_left(self._sorted, name)]

    def sorted(self) -> list[str]:
        """Put in what is new, and give all: not to be changed."""
        if self._new:
            if len(self._new) <= _FEW:
                for name in self._new:
                    insort(self._sorted, name)
            else:
                self._sorted += self._new
                self._sorted.sort()
            self._new.clear()
        return self._sorted


class TopicNames:
    """Names of topics of all namespaces. Kept by the catalogue.

    Cost: a page O(log n + its size); after changes, up to a millisecond for each of a few among a million, or n log n for many.
    """

    def __init__(self) -> None:
        self.changes = 0  # how often names have come or gone
        self._names: dict[str, _Names] = {}

    def add(self, namespace: str, name: str) -> None:
        """Add a name that is not there. Cost: O(1)."""
        self.changes += 1
        names = self._names.get(namespace)
        if names is None:
            names = self._names[namespace] = _Names()
        names.add(name)

    def remove(self, namespace: str, name: str) -> None:
        """Take a name out that is there."""
        self.changes += 1
        self._names[namespace].remove(name)

    def all(self, namespace: str) -> list[str]:
        """Give all names of a namespace, sorted."""
        names = self._names.get(namespace)
        return list(names.sorted()) if names is not None else []

    def page(self, namespace: str, after: str, count_max: int) -> list[str]:
        """Give the next names behind `after`, sorted."""
        names = self._names.get(namespace)
        if names is None:
            return []
        found = names.sorted()
        first = bisect_right(found, after)
        return found[first : first + count_max]
