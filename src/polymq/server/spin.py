"""Whether to wait for the next request awake: the policy, without clock or loop.

A process that sleeps until its socket is readable pays for being woken: 40 to 60 µs on an idle machine, far more than
handling a request. A client that sends its next request as soon as it has the answer is back sooner than that. So
after a turn the shell may poll for a short while before it sleeps, if the last gaps between turns were short enough
to be bridged that way. When they were not, it does not spin at all: a broker that is idle or has evenly spaced
traffic must not burn a core.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["SpinPolicy", "SpinSettings"]

# Confidence that spinning pays: up by one with a short gap, down by four with a long one, so that it takes four short
# gaps out of five to keep spinning. Capped, so that a change of the load is noticed within a few turns.
_SCORE_MAX: Final = 16
_SCORE_ENOUGH: Final = 8
_SCORE_LOSS: Final = 4


@dataclass(frozen=True, slots=True)
class SpinSettings:
    """`spin_ns`: how long to poll before going to sleep; 0 turns it off. `wake_ns`: what a wake-up is taken to cost.

    A gap that was slept through includes the wake-up, so up to `spin_ns + wake_ns` it would have been bridged.
    """

    spin_ns: int = 60_000
    wake_ns: int = 60_000


class SpinPolicy:
    """Learns from the gaps between turns. O(1), no clock of its own."""

    __slots__ = ("_score", "_settings")

    def __init__(self, settings: SpinSettings) -> None:
        self._settings = settings
        self._score = 0

    def budget_ns(self) -> int:
        """How long to spin after the turn that just ended; 0: sleep at once."""
        return self._settings.spin_ns if self._score >= _SCORE_ENOUGH else 0

    def observe(self, gap_ns: int, *, spun: bool, slept: bool) -> None:
        """Learn how long after a turn the next input came, and what the process did meanwhile.

        Having spun and slept, the spin was for nothing. Having only slept, the gap includes the wake-up.
        """
        bridged_ns = self._settings.spin_ns + (self._settings.wake_ns if slept else 0)
        if gap_ns <= bridged_ns and not (spun and slept):
            self._score = min(self._score + 1, _SCORE_MAX)
        else:
            self._score = max(self._score - _SCORE_LOSS, 0)
