"""How a consumer of several servers divides what it may have in flight, and when it takes less: decisions, no I/O.

Every server gets an even share. When there are more servers than messages allowed, some get one each and the others
wait for their turn: a server that sent nothing in a period gives its place up, one that did keeps it for a while.
When messages cannot be handled the throttle stops all of them, then tries with a single one: there is one place then,
and it moves in the same way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

__all__ = ["Sharing", "Throttle"]

# So many periods a busy server keeps its place while others wait; with 5 s each, go-nsq's 30 s.
_PERIODS_KEPT_MAX: Final = 6


class Sharing:
    """Divides `total` messages among servers, which are known by their addresses."""

    def __init__(self, total: int) -> None:
        assert total > 0
        self._total = total
        self._order: list[str] = []  # those that have a place first, then those that wait, longest first
        self._kept: dict[str, int] = {}

    def divide(self, servers: Sequence[str]) -> dict[str, int]:
        """Say how many each may have in flight. Who had a place keeps it."""
        known = set(servers)
        self._order = [each for each in self._order if each in known]
        self._order += [each for each in servers if each not in self._order]
        if not servers:
            return {}
        share, rest = divmod(self._total, len(servers))
        return {each: share + (index < rest) for index, each in enumerate(self._order)}

    def rotate(self, servers: Sequence[str], busy: AbstractSet[str], limit: int | None = None) -> dict[str, int]:
        """Do the same at the end of a period, in which `busy` sent something: places move if there are too few.

        `limit` is how many messages the throttle allows in all. Who has a place then comes first.
        """
        self.divide(servers)
        count = self._total if limit is None else min(limit, self._total)
        if len(servers) > count:
            places = self._order[:count]
            for each in places:
                self._kept[each] = self._kept.get(each, 0) + 1
            leaving = [each for each in places if each not in busy or self._kept[each] >= _PERIODS_KEPT_MAX]
            for each in leaving[: len(servers) - count]:
                self._order.remove(each)
                self._order.append(each)
                del self._kept[each]
        return self.divide(servers)


class Throttle:
    """Backs off when handling fails: nothing for a while, then one message at a time, longer after each failure.

    As go-nsq does it: a failure doubles the wait, a success halves it, and at the lowest level everything goes on.
    """

    def __init__(self, first_seconds: float, seconds_max: float) -> None:
        assert 0 < first_seconds <= seconds_max
        self._first = first_seconds
        self._max = seconds_max
        self._level = 0
        self._until = 0.0

    def failed(self, now: float) -> None:
        """A message could not be handled. Those that were on their way when the wait began count once."""
        if not self._level or now >= self._until:
            self._level += 1
            self._wait(now)

    def succeeded(self, now: float) -> None:
        """A message was handled."""
        if self._level and now >= self._until:
            self._level -= 1
            if self._level:
                self._wait(now)

    def until(self) -> float | None:
        """When the wait is over; None when there is none to wait for."""
        return self._until if self._level else None

    def limit(self, now: float) -> int | None:
        """How many messages may be in flight in all: 0, 1, or None for as many as usual."""
        if not self._level:
            return None
        return 0 if now < self._until else 1

    def _wait(self, now: float) -> None:
        self._until = now + min(self._max, self._first * 2 ** min(self._level - 1, 62))
