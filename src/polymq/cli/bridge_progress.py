"""How `polymq bridge` says how far it is: one line that changes on a terminal, else a line now and then."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.clients.bridge_ends import Tally

__all__ = ["Progress", "summary"]

_SHOW_SECONDS: Final = 0.25
_LINE_SECONDS: Final = 10.0
# The rate is that of the last seconds.
_RATE_SECONDS: Final = 5.0


class Progress:
    """Watches a tally; `left` gives how many messages are still to be read, None where nobody knows."""

    def __init__(self, tally: Tally, left: Callable[[], int | None], monotonic: Callable[[], float] = time.monotonic) -> None:
        self._tally = tally
        self._left = left
        self._monotonic = monotonic
        self._seen: deque[tuple[float, int]] = deque()
        self._lined_at = monotonic()
        self._lined = ""

    def line(self) -> str:
        """Say how far it is."""
        now = self._monotonic()
        self._seen.append((now, self._tally.moved))
        while len(self._seen) > 2 and now - self._seen[1][0] >= _RATE_SECONDS:
            self._seen.popleft()
        begin, before = self._seen[0]
        rate = (self._tally.moved - before) / (now - begin) if now > begin else 0.0
        parts = [f"moved {self._tally.moved:,}", f"{rate:,.0f}/s"]
        left = self._left()
        if left is not None:
            parts.append(f"{left:,} to be read")
        return " · ".join(parts + [f"{count:,} {word}" for count, word, _ in _exceptions(self._tally)])

    async def show(self) -> None:
        """Show it until cancelled."""
        if not sys.stderr.isatty():
            while True:
                await asyncio.sleep(_SHOW_SECONDS)
                self.show_line()
        from rich.console import Console

        with Console(stderr=True, highlight=False).status(self.line()) as status:
            while True:
                await asyncio.sleep(_SHOW_SECONDS)
                status.update(self.line())

    def show_line(self) -> None:
        """Print a line if the last one was long ago, and said something else."""
        line = self.line()
        if self._monotonic() - self._lined_at >= _LINE_SECONDS and line != self._lined:
            self._lined_at, self._lined = self._monotonic(), line
            print(f"bridge: {line}", file=sys.stderr, flush=True)


def summary(tally: Tally, seconds: float, *, idle_seconds: float = 0.0) -> str:
    """Say what was done; the time in which it was clear that nothing more would come is none of the rate's."""
    busy_seconds = seconds - idle_seconds
    rate = f", {tally.moved / busy_seconds:,.0f}/s" if busy_seconds > 0 and tally.moved else ""
    parts = [f"moved {tally.moved:,} message{'' if tally.moved == 1 else 's'} in {seconds:.1f} s{rate}"]
    parts += [f"{count:,} {words}" for count, _, words in _exceptions(tally)]
    if tally.dropped:
        fields = ", ".join(f"{count:,} × {field}" for field, count in sorted(tally.dropped.items()))
        parts.append(f"not carried by the target's protocol: {fields}")
    return "; ".join(parts)


def _exceptions(tally: Tally) -> list[tuple[int, str, str]]:
    """List what did not go as it should: how many, in a word, and in words."""
    named = (
        (tally.skipped, "refused", "refused and left out"),
        (tally.expired, "expired", "expired on the way"),
        (tally.gone, "gone", "gone before they were read"),
        (tally.again, "sent again", "sent again, which may be there several times"),
    )
    return [each for each in named if each[0]]
