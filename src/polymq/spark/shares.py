"""Who gets how much of what is to be read: arithmetic that does not know what is read."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["edges", "limited"]


def limited(counts: Sequence[int], most: int) -> list[int]:
    """Shorten counts so that they add up to `most` at most, each in proportion.

    What integer division leaves over goes to the first of them, so something is always left.
    """
    assert most > 0
    total = sum(counts)
    if total <= most:
        return list(counts)
    shares = [count * most // total for count in counts]
    left = most - sum(shares)
    for index, count in enumerate(counts):
        if left > 0 and shares[index] < count:
            shares[index] += 1
            left -= 1
    return shares


def edges(start: int, end: int, *, total: int, parts_min: int, size_max: int) -> list[tuple[int, int]]:
    """Cut one range of a `total` of all ranges, so that there are about `parts_min` of all, and none is over `size_max`."""
    assert size_max > 0
    count = end - start
    if count <= 0:
        return []
    wanted = max(-(-count // size_max), round(count * parts_min / total))
    parts = max(1, min(wanted, count))
    return list(itertools.pairwise([start + count * index // parts for index in range(parts + 1)]))
