"""What happened in a run, kept short: the tail is printed when a promise is broken, all of it with `--verbose`."""

from __future__ import annotations

import zlib
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.ports import Clock

__all__ = ["Trace"]

_TAIL_EVENTS: Final = 20_000


class Trace:
    """A ring of events with their time since the start. Text is only put together when somebody reads it."""

    __slots__ = ("_checksum", "_clock", "_events", "_start_ns", "count", "echo")

    def __init__(self, clock: Clock, echo: Callable[[str], None] | None = None) -> None:
        self._clock = clock
        self._start_ns = clock.monotonic_ns()
        self._events: deque[tuple[int, str, tuple[object, ...]]] = deque(maxlen=_TAIL_EVENTS)
        self.count = 0
        self.echo = echo

    def __call__(self, template: str, *values: object) -> None:
        """Note one event; `template` takes the values with `%`."""
        event = (self._clock.monotonic_ns() - self._start_ns, template, values)
        self._events.append(event)
        self.count += 1
        if self.echo is not None:
            self.echo(_format(event))

    def fingerprint(self) -> int:
        """A number that two runs share only if they ended with the same events at the same times."""
        return zlib.crc32("\n".join(self.tail(_TAIL_EVENTS)).encode(), self.count)

    def tail(self, count: int) -> list[str]:
        """The newest events as text, oldest first."""
        return [_format(event) for event in list(self._events)[-count:]]


def _format(event: tuple[int, str, tuple[object, ...]]) -> str:
    at_ns, template, values = event
    return f"{at_ns / 1e9:10.6f}  {template % values if values else template}"
