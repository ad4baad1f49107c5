"""What all sources do about messages that are gone, and how long they try again what cannot be reached."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Final, Protocol

from polymq.errors import DeadlineExceeded, PolyMQError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["DataLoss", "Patience", "report_loss"]

# What failed is tried again after this, then after twice as long, and so on up to the largest.
_PAUSE_SECONDS_FIRST: Final = 0.05
_PAUSE_SECONDS_MAX: Final = 1.0


class DataLoss(PolyMQError):
    """Messages that the query was to read are no longer there, or were replaced by others under the same offsets."""


class _Options(Protocol):
    """What is asked of a source's options."""

    @property
    def fail_on_data_loss(self) -> bool: ...


def report_loss(text: str, options: _Options, what: str = "records") -> None:
    """Fail for what is lost, or warn if the query is to go on."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{text}. Some {what} cannot be read any more; set failOnDataLoss to false to go on without them.")
    warnings.warn(text, RuntimeWarning, stacklevel=2)


class Patience:
    """Pauses between attempts that double from one to the next, until the time for them is over."""

    def __init__(
        self, seconds: float, sleep: Callable[[float], None] = time.sleep, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds = seconds
        self._sleep = sleep
        self._monotonic = monotonic
        self.renew()

    def renew(self) -> None:
        """Begin anew: there was progress."""
        self._pause = _PAUSE_SECONDS_FIRST
        self._deadline: float | None = None

    def pause(self, text: str) -> None:
        """Sleep; raises DeadlineExceeded with `text` instead when the time is over."""
        now = self._monotonic()
        if self._deadline is None:
            self._deadline = now + self._seconds
        if now + self._pause > self._deadline:
            raise DeadlineExceeded(f"{text}, after {self._seconds:g} s")
        self._sleep(self._pause)
        self._pause = min(self._pause * 2, _PAUSE_SECONDS_MAX)
