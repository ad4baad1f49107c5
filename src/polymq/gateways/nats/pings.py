"""PING to whoever is silent, and giving up who does not answer: for clients and for other servers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.gateways.effects import SetTimer, TimerName

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.gateways.effects import Effect
    from polymq.protocols.nats.settings import NatsSettings

__all__ = ["PingPolicy", "Pings"]

_SECOND_NS: Final = 1_000_000_000
# nats-server from 2.10 on: a route that is half open is noticed within a minute and a half.
_ROUTE_INTERVAL_NS_MAX: Final = 30 * _SECOND_NS


@dataclass(frozen=True, slots=True)
class PingPolicy:
    """How often, and how many may be unanswered. `always`: also to who has said something lately."""

    first_ns: int
    interval_ns: int
    unanswered_max: int
    always: bool

    @classmethod
    def of_routes(cls, settings: NatsSettings, *, interval_ns: int | None, unanswered_max: int | None) -> PingPolicy:
        """Say how other servers are pinged: at least every 30 s if nothing else is said, whatever they have said."""
        if interval_ns is None:
            interval_ns = min(_ROUTE_INTERVAL_NS_MAX, settings.ping_interval_ns)
        unanswered = settings.pings_unanswered_max if unanswered_max is None else unanswered_max
        return cls(min(_SECOND_NS, interval_ns), interval_ns, unanswered, always=True)

    @classmethod
    def of_clients(cls, settings: NatsSettings) -> PingPolicy:
        """Say how clients are pinged; the first time soon, to know how far away they are."""
        interval_ns = settings.ping_interval_ns
        return cls(min(2 * _SECOND_NS, interval_ns), interval_ns, settings.pings_unanswered_max, always=False)


class Pings:
    """One connection's. Cost: one look at the clock per read."""

    __slots__ = (
        "_asked_ns",
        "_first",
        "_heard_ns",
        "_monotonic_ns",
        "_policy",
        "_sent_count",
        "_sent_ns",
        "_unanswered",
        "answered_count",
        "rtt_ns",
    )

    def __init__(self, policy: PingPolicy, monotonic_ns: Callable[[], int]) -> None:
        self.rtt_ns = 0  # of the last PING that was answered
        self.answered_count = 0  # of all PINGs: they are answered in their order
        self._sent_count = 0
        self._policy = policy
        self._monotonic_ns = monotonic_ns
        self._heard_ns = self._sent_ns = self._asked_ns = 0
        self._unanswered = 0
        self._first = True

    def wait(self, effects: list[Effect]) -> None:
        """Begin to count, while it is not known yet who the peer is."""
        self._heard_ns = self._monotonic_ns()
        effects.append(SetTimer(TimerName.HEARTBEAT, self._heard_ns + self._policy.interval_ns))

    def start(self, effects: list[Effect]) -> None:
        """Begin to count; the first PING comes soon. Until it is answered, the peer is as far away as it was slow to begin."""
        before_ns, self._heard_ns = self._heard_ns, self._monotonic_ns()
        self.rtt_ns = self._heard_ns - before_ns if before_ns else 0
        effects.append(SetTimer(TimerName.HEARTBEAT, self._heard_ns + self._policy.first_ns))

    def now_ns(self) -> int:
        """Give the monotonic time."""
        return self._monotonic_ns()

    def heard(self) -> int:
        """Note that the peer has said something; gives when that was."""
        self._heard_ns = now_ns = self._monotonic_ns()
        return now_ns

    def answered(self) -> None:
        """Note a PONG."""
        self.answered_count = min(self.answered_count + 1, self._sent_count)
        if self._unanswered:
            self.rtt_ns = self._monotonic_ns() - self._sent_ns
        self._unanswered = 0

    def mark(self) -> int:
        """Have one more PING sent behind something; gives its number, which `answered_count` has when that has been read."""
        self._sent_count += 1
        return self._sent_count

    def due(self, effects: list[Effect]) -> bool | None:
        """The timer has come up: say whether to send a PING now; None: the peer is not there any more."""
        policy, now_ns = self._policy, self._monotonic_ns()
        quiet_ns = now_ns - self._heard_ns
        if not policy.always and not self._first and quiet_ns < policy.interval_ns:
            effects.append(SetTimer(TimerName.HEARTBEAT, self._heard_ns + policy.interval_ns))
            return False
        if self._unanswered >= policy.unanswered_max:
            return None
        self._first = False
        self._note_sent(now_ns)
        effects.append(SetTimer(TimerName.HEARTBEAT, now_ns + policy.interval_ns))
        return True

    def ask(self) -> bool:
        """Say whether to send a PING now, out of order: not if one is unanswered already."""
        if self._unanswered:
            return False
        self._note_sent(self._monotonic_ns())
        return True

    def silent_ns(self) -> int:
        """Say for how long a PING has been unanswered and nothing else has come; 0: all is well."""
        return self._monotonic_ns() - max(self._asked_ns, self._heard_ns) if self._unanswered else 0

    def _note_sent(self, now_ns: int) -> None:
        self._sent_count += 1
        if not self._unanswered:
            self._asked_ns = now_ns
        self._unanswered += 1
        self._sent_ns = now_ns
