"""What all connections of PHPMQ share: settings, time, and what was wrong with whom, counted and logged with measure."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING, Final

from polymq.limits import COMPLAINTS_PER_MINUTE_MAX

if TYPE_CHECKING:
    from polymq.core.ports import Clock
    from polymq.gateways.contract import Peer
    from polymq.protocols.phpmq.settings import PhpmqSettings

__all__ = ["House"]

_MINUTE_NS: Final = 60_000_000_000

log = logging.getLogger(__name__)


class House:
    """One per broker. `clients` are who is connected; `closed` counts the connections that were closed for a reason, by it; `foreign_ids` what was no id of ours."""

    def __init__(self, settings: PhpmqSettings, clock: Clock) -> None:
        self.settings = settings
        self.clock = clock
        self.clients: set[object] = set()
        self.closed: Counter[str] = Counter()
        self.foreign_ids = 0
        # Lines that were written in the minute that began then, by reason; and what was left out.
        self._said: Counter[str] = Counter()
        self._left_out = 0
        self._begun_ns = 0

    def complain(self, peer: Peer, reason: str, text: str) -> None:
        """Count a connection that is closed for a reason, and log it: of each reason a few times a minute."""
        self.closed[reason] += 1
        now_ns = self.clock.monotonic_ns()
        if now_ns - self._begun_ns >= _MINUTE_NS:
            if self._left_out:
                log.warning("PHPMQ: %d more connections were closed for what they sent", self._left_out)
            self._said.clear()
            self._left_out, self._begun_ns = 0, now_ns
        if self._said[reason] >= COMPLAINTS_PER_MINUTE_MAX:
            self._left_out += 1
            return
        self._said[reason] += 1
        log.warning("PHPMQ client %s is closed (%s): %s", peer.address, reason, text)
