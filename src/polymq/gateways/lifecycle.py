"""What every long-lived connection has in common: showing that we are alive, and noticing that the peer is not.

A gateway asks `Liveness` what a timer means and encodes the heartbeat itself; nothing here knows a protocol.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

from polymq.gateways.effects import SetTimer, TimerName

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.gateways.effects import Effect

__all__ = ["Liveness", "Sign"]

# The peer has two intervals to say something, so that one lost heartbeat costs nothing.
_INTERVALS_OF_SILENCE: Final = 2


class Sign(enum.Enum):
    """What a timer means."""

    NOTHING = "nothing"  # a timer of something else, or a deadline that has moved
    BEAT = "beat"  # time for a heartbeat
    SILENCE = "silence"  # the peer has been silent for too long: close


class Liveness:
    """Heartbeats at a fixed interval from the start, and a read deadline of two intervals that every sign of life moves.

    Cost: one look at the clock per sign; the deadline's timer is only set anew when it comes up.
    """

    __slots__ = ("_beat_at_ns", "_heard_ns", "_interval_ns", "_monotonic_ns", "_silence_ns")

    def __init__(self, monotonic_ns: Callable[[], int]) -> None:
        self._monotonic_ns = monotonic_ns
        self._interval_ns = 0
        self._silence_ns = 0
        self._beat_at_ns = 0
        self._heard_ns = 0

    @property
    def interval_ns(self) -> int:
        """The interval between heartbeats; 0 when there are none."""
        return self._interval_ns

    def start(self, interval_ns: int, effects: list[Effect]) -> None:
        """Begin, or begin anew with another interval; 0 turns heartbeats and deadline off."""
        self._interval_ns = interval_ns
        self._beat_at_ns = self._monotonic_ns() + interval_ns
        effects.append(SetTimer(TimerName.HEARTBEAT, self._beat_at_ns if interval_ns else None))
        self.expect(interval_ns, effects)

    def expect(self, interval_ns: int, effects: list[Effect]) -> None:
        """Change the read deadline alone: the peer has two of these intervals to say something; 0 turns it off."""
        self._silence_ns = _INTERVALS_OF_SILENCE * interval_ns
        self._heard_ns = self._monotonic_ns()
        due_ns = self._heard_ns + self._silence_ns
        effects.append(SetTimer(TimerName.READ_DEADLINE, due_ns if interval_ns else None))

    def heard(self, now_ns: int) -> None:
        """Note that the peer said something."""
        self._heard_ns = now_ns

    def timer(self, name: TimerName, effects: list[Effect]) -> Sign:
        """Say what a timer means, and set the next one."""
        now_ns = self._monotonic_ns()
        if name is TimerName.HEARTBEAT and self._interval_ns:
            # From the last due time, not from now: heartbeats do not drift. Those that were missed are not made up for.
            self._beat_at_ns += self._interval_ns * ((now_ns - self._beat_at_ns) // self._interval_ns + 1)
            effects.append(SetTimer(TimerName.HEARTBEAT, self._beat_at_ns))
            return Sign.BEAT
        if name is TimerName.READ_DEADLINE and self._silence_ns:
            deadline_ns = self._heard_ns + self._silence_ns
            if deadline_ns <= now_ns:
                return Sign.SILENCE
            effects.append(SetTimer(TimerName.READ_DEADLINE, deadline_ns))
        return Sign.NOTHING
