"""Sending NATS' clients elsewhere before the server stops, a few at a time, so that no other server is overrun (SIGUSR2).

As nats-server does it: nobody comes in any more; who understands it is told that this server is about to go (INFO with `ldm`); after a
grace period the connections are closed one after the other, over the rest of the duration, but never more than a second apart; then the
server stops as ever.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.ports import Clock
    from polymq.gateways.nats.house import House

    Call = Callable[[], None]

__all__ = ["LameDuck"]

_NS_PER_SECOND: Final = 1_000_000_000
# Between two steps: with more clients than there are steps, each closes several.
_STEP_NS_MIN: Final = 10_000_000
# Nobody is spared anything by going slower than that, as nats-server finds.
_STEP_NS_MAX: Final = _NS_PER_SECOND

log = logging.getLogger(__name__)


class LameDuck:
    """What is left of a server's life once it has been told to go. `refuse` lets nobody in any more, `stop` ends it all."""

    def __init__(self, house: House, clock: Clock, call_at: Callable[[int, Call], object], *, refuse: Call, stop: Call) -> None:
        self._house = house
        self._clock = clock
        self._call_at = call_at
        self._refuse = refuse
        self._stop = stop
        self._begun = False
        self._step_ns = 0
        self._batch = 0

    def begin(self) -> None:
        """Go. Again: nothing happens."""
        if self._begun:
            return
        self._begun = True
        house, settings = self._house, self._house.settings
        log.info("lame duck: no more NATS clients; %d are sent elsewhere, then the server stops", len(house.clients))
        self._refuse()
        house.tell(replace(house.info, ldm=True))
        if house.cluster is not None:
            house.cluster.lame_duck()
        if house.clients:
            self._call_at(self._clock.monotonic_ns() + settings.lame_duck_grace_period_ns, self._begin_to_close)
        else:
            self._stop()

    def _begin_to_close(self) -> None:
        settings, count = self._house.settings, len(self._house.clients)
        left_ns = max(settings.lame_duck_duration_ns - settings.lame_duck_grace_period_ns, 0)
        self._step_ns = min(max(left_ns // max(count, 1), _STEP_NS_MIN), _STEP_NS_MAX)
        self._batch = max(-(-count * self._step_ns // max(left_ns, 1)), 1)
        self._close_some()

    def _close_some(self) -> None:
        clients = list(self._house.clients.values())
        for client in clients[: self._batch]:
            client.send_away()
        if len(clients) > self._batch:
            self._call_at(self._clock.monotonic_ns() + self._step_ns, self._close_some)
        else:
            self._call_at(self._clock.monotonic_ns() + _STEP_NS_MIN, self._stop)
