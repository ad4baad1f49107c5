"""A queue of pairs of integers, without an object for each pair."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator

__all__ = ["PairQueue"]

# What has been taken out is given free when it is more than this and more than half.
_SPENT_MIN: Final = 1024


class PairQueue:
    """First in, first out: (i64, i64) pairs, 16 bytes each. All that is done to its ends is O(1), amortised."""

    __slots__ = ("_firsts", "_head", "_seconds")

    def __init__(self) -> None:
        self._firsts = array("q")
        self._seconds = array("q")
        self._head = 0

    def __len__(self) -> int:
        return len(self._firsts) - self._head

    def append(self, first: int, second: int) -> None:
        """Add a pair behind all others."""
        self._firsts.append(first)
        self._seconds.append(second)

    def peek(self) -> tuple[int, int]:
        """Show the foremost pair; raises IndexError."""
        return self._firsts[self._head], self._seconds[self._head]

    def pop(self) -> tuple[int, int]:
        """Take the foremost pair out; raises IndexError."""
        pair = self.peek()
        self._head += 1
        if self._head > _SPENT_MIN and 2 * self._head > len(self._firsts):
            del self._firsts[: self._head]
            del self._seconds[: self._head]
            self._head = 0
        return pair

    def firsts(self) -> Iterator[int]:
        """Give the first number of each pair, in order."""
        return iter(self._firsts[self._head :])

    def firsts_from(self, start: int, count: int) -> array[int]:
        """Give the first number of at most `count` pairs, beginning with the one that has `start` before it. A copy."""
        start += self._head
        return self._firsts[start : start + count]

    def take_out(self, start: int, count: int, unwanted: Container[int]) -> None:
        """Of the `count` pairs behind the foremost `start`, take those out whose first number is unwanted.

        Cost: O(count), and one move in memory of what lies behind.
        """
        place = slice(self._head + start, self._head + start + count)
        kept = [index for index, first in enumerate(self._firsts[place], place.start) if first not in unwanted]
        firsts, seconds = self._firsts, self._seconds
        firsts[place], seconds[place] = array("q", [firsts[index] for index in kept]), array("q", [seconds[index] for index in kept])

    def keep(self, wanted: Callable[[int], bool]) -> None:
        """Keep the pairs whose first number is wanted. O(n)."""
        pairs = zip(self._firsts[self._head :], self._seconds[self._head :], strict=True)
        self.clear()
        for first, second in pairs:
            if wanted(first):
                self.append(first, second)

    def clear(self) -> None:
        """Drop everything."""
        self._firsts = array("q")
        self._seconds = array("q")
        self._head = 0
