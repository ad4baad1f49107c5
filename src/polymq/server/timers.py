"""Deadlines of connections: many, moved often, seldom reached.

Moving a deadline later costs nothing but a store: the heap keeps the earlier entry, which finds out when it comes up
that it is not time yet. So a read deadline that every command pushes back does not grow the heap.
"""

from __future__ import annotations

import heapq
import logging
from typing import TYPE_CHECKING, Any, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Alarm", "Timers"]

Key = TypeVar("Key")

log = logging.getLogger(__name__)


class _Timer(Generic[Key]):
    __slots__ = ("due_ns", "key", "queued_ns")

    def __init__(self, key: Key) -> None:
        # None once the timer is over: its entry in the heap keeps nothing else alive.
        self.key: Key | None = key
        self.due_ns: int | None = None
        self.queued_ns: int | None = None


class Timers(Generic[Key]):
    """At most one deadline per key, on the monotonic clock. O(log n) to set earlier, O(1) to set later or cancel."""

    def __init__(self) -> None:
        self._timers: dict[Key, _Timer[Key]] = {}
        self._heap: list[tuple[int, int, _Timer[Key]]] = []
        self._sequence = 0

    def set(self, key: Key, due_ns: int) -> None:
        """Set or move the deadline of `key`."""
        timer = self._timers.get(key)
        if timer is None:
            timer = self._timers[key] = _Timer(key)
        timer.due_ns = due_ns
        if timer.queued_ns is None or due_ns < timer.queued_ns:
            self._queue(timer, due_ns)

    def cancel(self, key: Key) -> None:
        """Take the deadline away, if there is one. Its heap entry stays until it comes up, to be used again by `set`."""
        timer = self._timers.get(key)
        if timer is not None:
            timer.due_ns = None

    def forget(self, key: Key) -> None:
        """Take the deadline away for good."""
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.key = None

    def due_ns(self) -> int | None:
        """When `expired` is worth calling: never later than the first deadline."""
        return self._heap[0][0] if self._heap else None

    def expired(self, now_ns: int) -> list[Key]:
        """Take out the keys whose deadline has come, earliest first."""
        keys: list[Key] = []
        heap = self._heap
        while heap and heap[0][0] <= now_ns:
            queued_ns, _, timer = heapq.heappop(heap)
            key = timer.key
            if key is None or timer.queued_ns != queued_ns:
                continue  # forgotten, or another entry stands for it
            if timer.due_ns is None:
                self.forget(key)
            elif timer.due_ns <= now_ns:
                self.forget(key)
                keys.append(key)
            else:
                self._queue(timer, timer.due_ns)
        return keys

    def _queue(self, timer: _Timer[Key], due_ns: int) -> None:
        timer.queued_ns = due_ns
        self._sequence += 1  # timers have no order of their own
        heapq.heappush(self._heap, (due_ns, self._sequence, timer))


class Alarm:
    """One call at one time, for what is not a connection's. Its own key in the timers that it was made with."""

    __slots__ = ("_function", "_timers")

    def __init__(self, timers: Timers[Any], function: Callable[[], None]) -> None:
        self._timers = timers
        self._function: Callable[[], None] | None = function

    def cancel(self) -> None:
        """Do not call; nothing happens if it has been called already."""
        self._timers.forget(self)
        self._function = None

    def ring(self) -> None:
        """Make the call, unless it was cancelled a moment ago. A failure is a bug of ours, and ends nothing else."""
        function, self._function = self._function, None
        if function is not None:
            try:
                function()
            except Exception:
                log.exception("internal error in something that was due")
