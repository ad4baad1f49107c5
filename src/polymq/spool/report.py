"""How a spooler is: counters and the last trouble, for status.json, for people and for the source that waits for a pause."""

from __future__ import annotations

import json
import os
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.spool.portion import Portion
    from polymq.spool.segments import SpoolWriter

__all__ = ["Report"]

_RATE_SECONDS: Final = 10.0
_NS_PER_SECOND: Final = 10**9


class Report:
    """`state` is one word; `quiet_since` says on the monotonic clock since when nothing has come, None while not connected.

    `is_recovered`: the spooler has the lock, has looked at what is there and has said how far it is durable.
    """

    def __init__(self, protocol: str, source: str, monotonic: Callable[[], float]) -> None:
        self.state = "starting"
        self.is_full = False
        self.is_recovered = False
        self.remembered = 0
        self.quiet_since: float | None = None
        self.received_count = 0
        self.stored_count = 0
        self.redelivered_count = 0
        self.trouble_count = 0
        self.trouble = ""
        self._protocol = protocol
        self._source = source
        self._monotonic = monotonic
        self._begun_at = monotonic()
        # When, and how many were stored by then.
        self._seen: deque[tuple[float, int]] = deque()

    def opened(self) -> None:
        """The receiver is connected."""
        self.quiet_since = self._monotonic()

    def received(self, portions: Sequence[Portion]) -> None:
        """Something has come, and is not durable yet."""
        self.quiet_since = None
        self.received_count += sum(portion.received for portion in portions)
        self.redelivered_count += sum(portion.received - portion.count for portion in portions)

    def stored(self, portions: Sequence[Portion], end: int) -> None:
        """It is durable, and acknowledged."""
        self.stored_count += sum(portion.count for portion in portions)
        self.quiet_since = self._monotonic()
        if self.is_full:
            self.is_full = False
            self.state = "receiving"

    def full(self, error: Exception) -> None:
        """The disk has no room."""
        self.is_full = True
        self.state = "full"
        self.trouble = str(error)
        self.trouble_count += 1

    def troubled(self, error: Exception) -> None:
        """Something went wrong that is tried again."""
        self.quiet_since = None
        self.state = "waiting"
        self.trouble = str(error)
        self.trouble_count += 1

    def failed(self, error: BaseException) -> None:
        """It is over."""
        self.state = "failed" if isinstance(error, Exception) else "stopped"
        if isinstance(error, Exception):
            self.trouble = str(error)
            self.trouble_count += 1

    def rate(self) -> float:
        """Messages stored per second in the last seconds."""
        now = self._monotonic()
        self._seen.append((now, self.stored_count))
        while len(self._seen) > 1 and now - self._seen[0][0] > _RATE_SECONDS:
            self._seen.popleft()
        begin, before = self._seen[0]
        return (self.stored_count - before) / (now - begin) if now > begin else 0.0

    def text(self, writer: SpoolWriter, committed: int, now_ns: int) -> str:
        """Write all of it as JSON."""
        return (
            json.dumps(
                {
                    "state": self.state,
                    "pid": os.getpid(),
                    "at": now_ns / _NS_PER_SECOND,
                    "seconds": round(self._monotonic() - self._begun_at, 1),
                    "protocol": self._protocol,
                    "source": self._source,
                    "spool": f"{writer.number:016x}",
                    "start": writer.start,
                    "end": writer.end,
                    "committed": committed,
                    "size_bytes": writer.size_bytes,
                    "received": self.received_count,
                    "stored": self.stored_count,
                    "redelivered": self.redelivered_count,
                    "remembered": self.remembered,
                    "rate": round(self.rate(), 1),
                    "troubles": self.trouble_count,
                    "trouble": self.trouble,
                },
                indent=1,
            )
            + "\n"
        )
