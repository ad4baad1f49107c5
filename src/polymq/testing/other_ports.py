"""The ports of RocketMQ and PHPMQ of one simulated process, as `server/mounts.py` makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.core.access import ANONYMOUS
from polymq.gateways.phpmq.house import House as PhpmqHouse
from polymq.gateways.phpmq.tcp import PhpmqGateway
from polymq.gateways.rocketmq.door import RocketmqDoor
from polymq.gateways.rocketmq.house import Facts, House
from polymq.protocols.phpmq.settings import PhpmqSettings
from polymq.protocols.rocketmq.settings import RocketmqSettings

if TYPE_CHECKING:
    from random import Random

    from polymq.core.broker import Broker
    from polymq.gateways.contract import Gateway, Peer
    from polymq.testing.clock import FakeClock

__all__ = ["OtherPorts"]

_SALT: Final = 0x5A17


class OtherPorts:
    """Gives the server's side of connections."""

    def __init__(self, broker: Broker, clock: FakeClock, random: Random) -> None:
        self._broker = broker
        self._rocketmq = House(broker, clock, random, RocketmqSettings(), Facts(host="192.0.2.1"))
        self._phpmq = PhpmqHouse(PhpmqSettings(salt=_SALT), clock)

    def gateway(self, port: str, peer: Peer) -> Gateway:
        """Make the server's side of a connection."""
        if port == "phpmq":
            return PhpmqGateway(self._broker.session(ANONYMOUS), peer, self._phpmq)
        return RocketmqDoor(self._rocketmq, peer, own_host="192.0.2.1")
