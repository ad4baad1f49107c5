"""What a work group knows of offsets that it has not come to yet: ranges that it leaves out, or that were out before.

Both come from elsewhere than from handing out: a topic was emptied while it was paused, a group has been taken over
from another server with its attempts, or a message goes on as another one (`renewing.py`). There may be a range for
every other message, so they are integers side by side and not objects. Read next: `work_group.py`.
"""

from __future__ import annotations

import struct
from array import array
from typing import TYPE_CHECKING, Final

from polymq.core.lease_window import WAITING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from polymq.core.lease_window import LeaseWindow

__all__ = ["LEFT_OUT", "Ahead"]

# In the place of attempts: the group steps over the range.
LEFT_OUT: Final = -1
# Ranges per piece of a snapshot: 96 KiB.
_RANGES_PER_PIECE: Final = 4096
# Passed ranges in front are removed when there are so many, and more than are left.
_PASSED_MAX: Final = 1024


class Ahead:
    """Ranges [first, end) in order, each with how often its messages were out before, or LEFT_OUT.

    `left_out` is how many messages the ranges leave out: counted along, because a group's depth is asked for every
    turn. Cost: 24 bytes per range; `append`, `pass_to` and what asks about an offset are O(1).
    """

    __slots__ = ("_attempts", "_ends", "_firsts", "_passed", "left_out")

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._firsts = array("q")
        self._ends = array("q")
        self._attempts = array("q")
        self._passed = 0
        self.left_out = 0

    def __len__(self) -> int:
        return len(self._firsts) - self._passed

    def append(self, first: int, end: int, attempts: int) -> None:
        """Add a range behind the others; ranges that it overlaps there give way, and one that it goes on from becomes longer."""
        assert first < end
        assert attempts >= LEFT_OUT
        while self and self._firsts[-1] >= first:
            end = max(end, self._ends[-1])
            self._shorten(self._firsts[-1])
        if self and self._ends[-1] > first:
            self._shorten(first)
        if self and self._ends[-1] == first and self._attempts[-1] == attempts:
            self._ends[-1] = end
        else:
            self._firsts.append(first)
            self._ends.append(end)
            self._attempts.append(attempts)
        if attempts == LEFT_OUT:
            self.left_out += end - first

    def leave_out(self, first: int, end: int) -> None:
        """Leave out a range wherever it lies; others stay as far as they reach beyond it."""
        assert first < end
        if not self or first >= self._ends[-1]:
            self.append(first, end, LEFT_OUT)
            return
        rows = [(low, min(high, first), attempts) for low, high, attempts in self.ranges() if low < first]
        rows.append((first, end, LEFT_OUT))
        rows += [(max(low, end), high, attempts) for low, high, attempts in self.ranges() if high > end]
        self._clear()
        self.extend(rows)

    def _shorten(self, end: int) -> None:
        """Let the last range end at `end`; one that is empty then is none."""
        if self._attempts[-1] == LEFT_OUT:
            self.left_out -= self._ends[-1] - end
        self._ends[-1] = end
        if self._firsts[-1] == end:
            for column in (self._firsts, self._ends, self._attempts):
                column.pop()

    def pass_to(self, offset: int) -> int:
        """Forget the ranges that end at or before an offset, and those that are left out from there; gives the offset behind them."""
        while self._passed < len(self._firsts) and self._firsts[self._passed] <= offset:
            end = self._ends[self._passed]
            left_out = self._attempts[self._passed] == LEFT_OUT
            if end > offset:
                if not left_out:
                    break
                offset = end
            if left_out:
                self.left_out -= end - self._firsts[self._passed]
            self._passed += 1
        if self._passed > _PASSED_MAX and self._passed > len(self):
            for column in (self._firsts, self._ends, self._attempts):
                del column[: self._passed]
            self._passed = 0
        return offset

    def boundary(self, offset: int, limit: int) -> int:
        """Give the offset, at most `limit`, before which all messages from `offset` on are alike."""
        if self._passed == len(self._firsts):
            return limit
        first = self._firsts[self._passed]
        if first <= offset and self._attempts[self._passed] != LEFT_OUT:
            return min(limit, self._ends[self._passed])
        return min(limit, first)

    def attempts_at(self, offset: int) -> int:
        """Say how often the message at an offset was out before; `pass_to` has been called with it."""
        if self._passed < len(self._firsts) and self._firsts[self._passed] <= offset:
            return self._attempts[self._passed]
        return 0

    def recall(self, window: LeaseWindow) -> None:
        """Recovery: let what was out when the process died have been out before, as often as was known ahead."""
        for first, end, attempts in self.ranges():
            for offset in range(first, min(end, window.next) if attempts > 0 else first):
                state, counted, _owner = window.slot(offset)
                if state == WAITING and counted < attempts:
                    window.restore(offset, attempts, deferred=False)

    def cut_below(self, end: int) -> None:
        """Forget the ranges that end at or before an offset."""
        kept = [row for row in self.ranges() if row[1] > end]
        self._clear()
        self.extend(kept)

    def extend(self, ranges: Iterable[tuple[int, int, int]]) -> None:
        """Add (first, end, attempts) ranges behind all others."""
        for first, end, attempts in ranges:
            self.append(first, end, attempts)

    def ranges(self) -> Iterator[tuple[int, int, int]]:
        """List (first, end, attempts) of the ranges that are not passed."""
        for index in range(self._passed, len(self._firsts)):
            yield self._firsts[index], self._ends[index], self._attempts[index]

    def pieces(self) -> Iterator[bytes]:
        """Give the same as (first i64, end i64, attempts i64), in pieces of at most 4,096: for the journal."""
        rows: list[int] = []
        for row in self.ranges():
            rows.extend(row)
            if len(rows) == 3 * _RANGES_PER_PIECE:
                yield struct.pack(f"<{len(rows)}q", *rows)
                rows.clear()
        if rows:
            yield struct.pack(f"<{len(rows)}q", *rows)
