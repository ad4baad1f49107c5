"""Which name servers know of this node that the settings name: one connection to each, made again whenever it is lost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from polymq.config_values import parse_address
from polymq.errors import ConfigError
from polymq.gateways.rocketmq.registering import OwnTopics, RegisteringGateway
from polymq.server.redial import Redial, RedialSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polymq.config_values import Address
    from polymq.core.broker import Broker
    from polymq.core.ports import Clock
    from polymq.gateways.contract import Gateway, Peer
    from polymq.gateways.rocketmq.registering import NodeIdentity
    from polymq.protocols.rocketmq.settings import RocketmqSettings
    from polymq.server.ports import Alarms, Dialer

__all__ = ["NameServers", "parse_name_servers"]

_SECOND_NS: Final = 1_000_000_000
# RocketMQ's brokers wait for 3 s, and try again after 30; a name server that comes up is told sooner here.
_REDIAL: Final = RedialSettings(timeout_ns=3 * _SECOND_NS, pause_ns=1 * _SECOND_NS, pause_ns_max=15 * _SECOND_NS)
_NAME_SERVERS_MAX: Final = 16


def parse_name_servers(texts: Iterable[str]) -> tuple[Address, ...]:
    """Read `HOST:PORT` of each name server, each once. Raises ConfigError with every problem."""
    problems: list[str] = []
    found: dict[Address, None] = {}
    for text in texts:
        # RocketMQ's own settings have semicolons between them.
        for part in filter(None, text.split(";")):
            try:
                address = parse_address(part.strip())
            except ValueError as error:
                problems.append(f"rocketmq.name_servers: {part!r}: {error}")
                continue
            if address is not None:
                found[address] = None
    if len(found) > _NAME_SERVERS_MAX:
        problems.append(f"rocketmq.name_servers: at most {_NAME_SERVERS_MAX} of them")
    if problems:
        raise ConfigError(problems)
    return tuple(found)


@dataclass(slots=True)
class _NameServer:
    redial: Redial
    gateway: RegisteringGateway | None = None


class NameServers:
    """Every name server by its address. `identity` is what they are told of this node."""

    def __init__(
        self,
        dialer: Dialer,
        alarms: Alarms,
        clock: Clock,
        broker: Broker,
        identity: NodeIdentity,
        settings: RocketmqSettings,
        *,
        interval_ns: int,
    ) -> None:
        self._dialer = dialer
        self._alarms = alarms
        self._clock = clock
        self._settings = settings
        self._interval_ns = interval_ns
        self._own = OwnTopics(broker, clock, identity)
        self._servers: dict[Address, _NameServer] = {}

    def register_at(self, addresses: Iterable[Address]) -> None:
        """Be known to these name servers from now on."""
        for address in addresses:
            redial = Redial(
                self._dialer,
                self._alarms,
                self._clock,
                address,
                partial(self._connected, address),
                settings=_REDIAL,
                what="RocketMQ name server",
            )
            self._servers[address] = _NameServer(redial)
            redial.start()

    def stop(self) -> None:
        """Call nobody any more."""
        for server in self._servers.values():
            server.redial.stop()
            if server.gateway is not None:
                server.gateway.leave()
        self._servers.clear()

    def _connected(self, address: Address, _peer: Peer) -> Gateway:
        server = self._servers[address]
        server.gateway = RegisteringGateway(self._own, self._settings, server.redial, self._clock, interval_ns=self._interval_ns)
        return server.gateway
