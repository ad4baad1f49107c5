"""Who waits at the end of which log: one look at each log for all of them, and a ring for those who have something.

A log does not say when it grows: that is the hottest path there is, and nearly always nobody waits. So it is looked at,
as often as an answer would look by itself, but once for all who wait and only while somebody does. What else ends a
wait (the topic goes, the permission ends) is seen by the answer's own, rarer look.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polymq import limits

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.ports import Clock, Log

__all__ = ["Tails"]


class _Tail:
    """A log's end as it was, and the connections that wait for more."""

    __slots__ = ("connections", "readable")

    def __init__(self, readable: int) -> None:
        self.readable = readable
        self.connections: dict[Any, None] = {}


class Tails:
    """All that wait at one door. `call_at(due_ns, function)` has something called at a time.

    Limits:  a connection waits for one thing at a time, so there are as many as connections.
    Cost:    0.3 us for each log that is waited for, every HTTP_POLL_INTERVAL_NS.
    """

    def __init__(self, call_at: Callable[[int, Callable[[], None]], object], clock: Clock) -> None:
        self._call_at = call_at
        self._clock = clock
        self._tails: dict[Log, _Tail] = {}
        self._looks = False

    def wait(self, log: Log, connection: Any) -> None:
        """Ring for a connection when there is more to read, or never will be."""
        tail = self._tails.get(log)
        if tail is None:
            tail = self._tails[log] = _Tail(log.readable)
        tail.connections[connection] = None
        self._look_later()

    def leave(self, log: Log, connection: Any) -> None:
        """Forget a connection; it may have been rung for already."""
        tail = self._tails.get(log)
        if tail is not None:
            tail.connections.pop(connection, None)
            if not tail.connections:
                del self._tails[log]

    def _look_later(self) -> None:
        if self._tails and not self._looks:
            self._looks = True
            self._call_at(self._clock.monotonic_ns() + limits.HTTP_POLL_INTERVAL_NS, self._look)

    def _look(self) -> None:
        self._looks = False
        grown = [log for log, tail in self._tails.items() if log.readable != tail.readable or log.failed]
        for log in grown:
            for connection in self._tails.pop(log).connections:
                connection.ring()
        self._look_later()
