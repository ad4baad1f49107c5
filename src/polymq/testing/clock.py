"""A clock that moves when it is told to, behind the same port as the real one."""

from __future__ import annotations

from typing import Final

__all__ = ["FakeClock"]

_MONOTONIC_NS_FIRST: Final = 1_000_000_000_000
_WALL_NS_FIRST: Final = 1_750_000_000_000_000_000


class FakeClock:
    """Monotonic and wall time for tests: both advance together, and only the wall clock can be set."""

    __slots__ = ("_monotonic_ns", "_wall_ns")

    def __init__(self, *, monotonic_ns: int = _MONOTONIC_NS_FIRST, wall_ns: int = _WALL_NS_FIRST) -> None:
        self._monotonic_ns = monotonic_ns
        self._wall_ns = wall_ns

    def monotonic_ns(self) -> int:
        """Nanoseconds since some moment; never goes backwards."""
        return self._monotonic_ns

    def wall_ns(self) -> int:
        """Nanoseconds since 1970; jumps when somebody sets the clock."""
        return self._wall_ns

    def advance(self, by_ns: int) -> None:
        """Let `by_ns` >= 0 nanoseconds pass."""
        assert by_ns >= 0
        self._monotonic_ns += by_ns
        self._wall_ns += by_ns

    def advance_to(self, monotonic_ns: int) -> None:
        """Let time pass until the monotonic clock shows `monotonic_ns`; nothing if it already does."""
        self.advance(max(0, monotonic_ns - self._monotonic_ns))

    def step_wall(self, by_ns: int) -> None:
        """Set the wall clock forwards or backwards, as an operator or a time service does."""
        self._wall_ns += by_ns
