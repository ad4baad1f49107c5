"""Keeps a connection to each of the directories that are to know of this node, whose list can change at any time."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from polymq.config_values import parse_address
from polymq.gateways.nsq.announce import AnnouncingGateway
from polymq.server.redial import Redial, RedialSettings

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polymq.config_values import Address
    from polymq.core.ports import Clock
    from polymq.gateways.contract import Gateway, Peer
    from polymq.gateways.nsq.announce import Catalogue
    from polymq.protocols.nsqlookup.identify import Identity
    from polymq.server.ports import Alarms, Dialer

__all__ = ["Announcer"]

_SECOND_NS: Final = 1_000_000_000
# nsqd tries again with every PING.
_REDIAL: Final = RedialSettings(timeout_ns=2 * _SECOND_NS, pause_ns=1 * _SECOND_NS, pause_ns_max=15 * _SECOND_NS)

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Directory:
    redial: Redial
    gateway: AnnouncingGateway | None = None


class Announcer:
    """Every directory by its address, as it was given. `identity` is what they are told of this node."""

    def __init__(self, dialer: Dialer, alarms: Alarms, clock: Clock, catalogue: Catalogue, identity: Identity) -> None:
        self._dialer = dialer
        self._alarms = alarms
        self._clock = clock
        self.identity = identity
        self._catalogue = catalogue
        self._directories: dict[str, _Directory] = {}

    def announce_to(self, addresses: Iterable[str]) -> None:
        """Be known to these directories and to no others. One that is no address is passed over, with a word."""
        wanted = dict.fromkeys(addresses)
        for address in [known for known in self._directories if known not in wanted]:
            self._forget(self._directories.pop(address))
        for address in wanted:
            if address not in self._directories:
                self._add(address)

    def stop(self) -> None:
        """Call nobody any more."""
        self.announce_to(())

    def known(self) -> list[Identity]:
        """List the directories that have answered, as they call themselves."""
        gateways = [directory.gateway for directory in self._directories.values()]
        return [gateway.directory for gateway in gateways if gateway is not None and gateway.directory is not None]

    def _add(self, address: str) -> None:
        try:
            parsed = _parsed(address)
        except ValueError as error:
            log.error("nsqlookupd %r cannot be told of this node: %s", address, error)
            return
        self._directories[address] = directory = _Directory(self._redial(address, parsed))
        directory.redial.start()

    def _redial(self, name: str, address: Address) -> Redial:
        return Redial(self._dialer, self._alarms, self._clock, address, partial(self._connected, name), settings=_REDIAL, what="nsqlookupd")

    def _connected(self, name: str, _peer: Peer) -> Gateway:
        directory = self._directories[name]
        directory.gateway = AnnouncingGateway(self._catalogue, self.identity, directory.redial, self._clock.monotonic_ns)
        return directory.gateway

    def _forget(self, directory: _Directory) -> None:
        directory.redial.stop()
        if directory.gateway is not None:
            directory.gateway.leave()


def _parsed(address: str) -> Address:
    parsed = parse_address(address)
    if parsed is None:
        raise ValueError("expected HOST:PORT or unix:PATH")
    return parsed
