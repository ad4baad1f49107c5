"""One connection that has come in: TLS first if the client wants it, then RocketMQ; and what has to go with the connection.

Whether a client speaks TLS shows in its first byte: a handshake begins with 0x16, and no frame does, as it would be 369 MB long.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from polymq.gateways.effects import Close, Upgrade
from polymq.gateways.rocketmq.client import RocketmqClient
from polymq.gateways.rocketmq.gate import AclGate

if TYPE_CHECKING:
    from polymq.gateways.contract import Peer
    from polymq.gateways.effects import Effect
    from polymq.gateways.rocketmq.house import House

__all__ = ["RocketmqDoor"]

_TLS_FIRST_BYTE: Final = 0x16

log = logging.getLogger(__name__)


class RocketmqDoor(RocketmqClient):
    """The server's side of one connection."""

    def __init__(self, house: House, peer: Peer, *, own_host: str) -> None:
        super().__init__(house, peer, own_host=own_host)
        self._sniffs = house.make_tls is not None

    def feed(self, view: memoryview, effects: list[Effect]) -> int:
        """Look at the first byte, then carry out what comes."""
        if self._sniffs:
            self._sniffs = False
            make_tls = self.house.make_tls
            assert make_tls is not None
            if view[0] == _TLS_FIRST_BYTE:
                effects.append(Upgrade(make_tls()))
                return 0
            if self.house.tls_required:
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
        if isinstance(self.house.gate, AclGate):
            self.house.gate.departed(self)
