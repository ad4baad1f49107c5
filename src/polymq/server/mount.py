"""Something that listens, and how its port is opened: what every protocol's mounting gives to `mounts.py`.

This file knows no protocol, so that none is loaded for another one's sake.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from polymq.config_values import TcpAddress, format_address
from polymq.errors import ConfigError
from polymq.server.network import SocketListener

if TYPE_CHECKING:
    from polymq.config_values import Address
    from polymq.gateways.contract import GatewayFactory
    from polymq.gateways.nats.house import House
    from polymq.server.nats_cluster import RouteTls

__all__ = ["Mount", "listen", "port_of"]


@dataclass(frozen=True, slots=True)
class Mount:
    """Something that listens. `what` is for people; `answers` of HTTP are counted by status."""

    what: str
    listener: SocketListener
    factory: GatewayFactory
    answers: dict[int, int] | None = None
    house: House | None = None  # of NATS' clients: who can send them elsewhere
    route_tls: RouteTls | None = None  # of NATS' routes
    room: int = 0  # beyond `server.connections_max`, see `Shell.listen`


def listen(name: str, address: Address, backlog: int, *, tells_local: bool = False) -> SocketListener:
    """Open the port of a setting. Raises ConfigError."""
    try:
        return SocketListener(address, backlog=backlog, tells_local=tells_local)
    except OSError as error:
        raise ConfigError([f"{name}: cannot listen on {format_address(address)}: {error.strerror or error}"]) from error


def port_of(listener: SocketListener | None) -> int:
    """Give the port that was opened; -1 is none."""
    address = listener.bound if listener is not None else None
    return address.port if isinstance(address, TcpAddress) else -1
