"""One connection that has come in: TLS first if the client wants it, then RocketMQ; and what has to go with the connection.

Whether a client speaks TLS shows in its first byte: a handshake begins with 0x16, and no frame does, as it would be 369 MB long.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from polymq.gateways.effects import Close, Upgrade
from polymq.gateways.rocketmq.client import RocketmqClient
from polymq.gateways.rocketmq.guard import AclGuard

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.gateways.contract import Peer
    from polymq.gateways.effects import Effect
    from polymq.gateways.rocketmq.house import House
    from polymq.wire.tls import TlsLayer

__all__ = ["RocketmqDoor"]

_TLS_FIRST_BYTE: Final = 0x16

log = logging.getLogger(__name__)


class RocketmqDoor(RocketmqClient):
    """The server's side of one connection. `make_tls` gives a layer for it; None: there is no TLS here."""

    def __init__(
        self,
        house: House,
        peer: Peer,
        *,
        own_host: str,
        make_tls: Callable[[], TlsLayer] | None = None,
        tls_required: bool = False,
    ) -> None:
        super().__init__(house, peer, own_host=own_host)
        self._make_tls = make_tls
        self._tls_required = tls_required
        self._sniffs = make_tls is not None

    def feed(self, view: memoryview, effects: list[Effect]) -> int:
        """Look at the first byte, then carry out what comes."""
        if self._sniffs:
            self._sniffs = False
            assert self._make_tls is not None
            if view[0] == _TLS_FIRST_BYTE:
                effects.append(Upgrade(self._make_tls()))
                return 0
            if self._tls_required:
                effects.append(Close("TLS is required here"))
                return len(view)
        return super().feed(view, effects)

    def upgrade_failed(self, reason: str, effects: list[Effect]) -> None:
        """Say nothing: whoever shakes hands in vain would not understand."""
        log.info("RocketMQ client %s: TLS failed: %s", self.peer.address, reason)

    def ended(self) -> None:
        """Forget brokers that have registered by this connection, and everybody who has signed requests on it."""
        super().ended()
        self.house.registry.disconnected(self)
        if isinstance(self.house.guard, AclGuard):
            self.house.guard.departed(self)
