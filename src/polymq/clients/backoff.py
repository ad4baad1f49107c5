"""How long to wait before the next attempt to connect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Backoff"]

# Waits are drawn between these parts of the planned one, so that clients that lost a server together come back apart.
_JITTER_MIN: Final = 0.5
_JITTER_MAX: Final = 1.5


class Backoff:
    """Waits that double from the first to the largest, with jitter, until an attempt succeeds."""

    def __init__(self, first_seconds: float, seconds_max: float, random: Callable[[], float]) -> None:
        assert 0 < first_seconds <= seconds_max
        self._first = first_seconds
        self._max = seconds_max
        self._random = random
        self._next = first_seconds

    def next_seconds(self) -> float:
        """Return how long to wait now, and plan a longer wait for the next time."""
        planned = self._next
        self._next = min(self._max, 2 * planned)
        return planned * (_JITTER_MIN + (_JITTER_MAX - _JITTER_MIN) * self._random())

    def succeeded(self) -> None:
        """Begin with the first wait again."""
        self._next = self._first
