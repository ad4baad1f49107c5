"""One outgoing connection that is always wanted: dialled again, ever more slowly, when it fails or ends."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.config_values import format_address

if TYPE_CHECKING:
    from polymq.config_values import Address
    from polymq.core.ports import Clock
    from polymq.gateways.contract import Gateway, GatewayFactory, Peer
    from polymq.server.ports import Alarms, ClientTls, Dial, Dialer
    from polymq.server.timers import Alarm

__all__ = ["Redial", "RedialSettings"]

_SECOND_NS: Final = 1_000_000_000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RedialSettings:
    """How long a dial may take, and the pauses between two: the first, and the longest that doubling leads to."""

    timeout_ns: int = 2 * _SECOND_NS
    pause_ns: int = 1 * _SECOND_NS
    pause_ns_max: int = 60 * _SECOND_NS


class Redial:
    """Keeps one connection to `address`. Its gateway says how it goes: `settle()` when it is good, `lost()` in `ended()`.

    Failures are logged when they begin and when they change, not each time.
    """

    def __init__(
        self,
        dialer: Dialer,
        alarms: Alarms,
        clock: Clock,
        address: Address,
        factory: GatewayFactory,
        *,
        settings: RedialSettings | None = None,
        tls: ClientTls | None = None,
        what: str = "",
    ) -> None:
        """`what` is at the address, for people."""
        self.address = address
        self._name = f"{what} {format_address(address)}".lstrip()
        self._dialer = dialer
        self._alarms = alarms
        self._clock = clock
        self._factory = factory
        self._settings = settings or RedialSettings()
        self._tls = tls
        self._pause_ns = self._settings.pause_ns
        self._complaint = ""
        self._waits_for: Dial | Alarm | None = None
        self._stopped = False

    def start(self) -> None:
        """Dial now."""
        self._waits_for = self._dialer.dial(
            self.address, self._connected, timeout_ns=self._settings.timeout_ns, failed=self.lost, tls=self._tls
        )

    def stop(self) -> None:
        """Dial no more. A connection that there is, is its gateway's to close."""
        self._stopped = True
        if self._waits_for is not None:
            self._waits_for.cancel()

    def settle(self) -> None:
        """The peer is what it should be: the next pause is a short one again."""
        if self._complaint:
            log.info("%s: connected again", self._name)
        self._complaint = ""
        self._pause_ns = self._settings.pause_ns

    def lost(self, reason: str) -> None:
        """There is no connection: dial again, after a pause."""
        if self._stopped:
            return
        if reason != self._complaint:
            log.warning("%s: %s; trying again", self._name, reason)
            self._complaint = reason
        self._waits_for = self._alarms.call_at(self._clock.monotonic_ns() + self._pause_ns, self.start)
        self._pause_ns = min(2 * self._pause_ns, self._settings.pause_ns_max)

    def _connected(self, peer: Peer) -> Gateway:
        self._waits_for = None
        return self._factory(peer)
