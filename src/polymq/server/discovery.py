"""How NSQ's consumers find this node: told to directories elsewhere, listed in the lookup role, and ready when they come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.core.access import ANONYMOUS
from polymq.gateways.nsq.prepare import ChannelPreparer
from polymq.gateways.nsqlookup.own import OwnNode
from polymq.server.announcer import Announcer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from polymq.gateways.nsqlookup.registry import Registry
    from polymq.protocols.nsqlookup.identify import Identity
    from polymq.server.node import Node

__all__ = ["Discovery"]

_AT_ONCE: Final = 0  # a due time that is always past


class Discovery:
    """Everything that follows the broker's catalogue for NSQ's sake. Does nothing before `start`."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._announcer: Announcer | None = None

    def start(self, identity: Identity, registry: Registry | None) -> None:
        """Begin, now that it is known where this node is to be found; `registry` is the lookup role's, if there is one."""
        node = self._node
        if registry is not None:
            own = OwnNode(registry, identity, f"{identity.broadcast_address}:{identity.tcp_port}")
            node.broker.tell(own)
            node.broker.follow(own)
        self._announcer = announcer = Announcer(node.dialer, node.pump, node.clock, node.broker, identity)
        announcer.announce_to(node.settings.nsq.lookupd_tcp_addresses)

        def soon(function: Callable[[], None]) -> None:
            node.pump.call_at(_AT_ONCE, function)

        def own_channels(topic: str) -> list[str]:
            return registry.channels(topic) if registry is not None else []

        session = node.broker.session(ANONYMOUS)
        node.broker.follow(ChannelPreparer(session, announcer.known, node.outside.ask, soon, own_channels))

    def announce_to(self, addresses: Iterable[str]) -> None:
        """Be known to these directories from now on, and to no others."""
        if self._announcer is not None:
            self._announcer.announce_to(addresses)
