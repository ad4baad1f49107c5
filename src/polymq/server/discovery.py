"""How NSQ's consumers find this node: told to directories elsewhere, listed in the lookup role, and ready when they come."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.core.access import ANONYMOUS
from polymq.core.statistics import Family, Kind, Sample
from polymq.gateways.nsq.prepare import ChannelPreparer
from polymq.gateways.nsqlookup.own import OwnNode
from polymq.server.announcer import Announcer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from polymq.gateways.nsqlookup.registry import Registry
    from polymq.protocols.nsqlookup.identify import Identity
    from polymq.server.node import Node
    from polymq.server.timers import Alarm

__all__ = ["Discovery"]


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
        surroundings = _Surroundings(node, announcer, registry)
        node.broker.follow(ChannelPreparer(node.broker.session(ANONYMOUS), surroundings))
        self._register("polymq_nsq_directories_connected", "Directories that know of this node.", lambda: len(announcer.known()))
        if registry is not None:
            self._register("polymq_nsq_lookup_nodes", "Nodes that the lookup role shows.", lambda: len(registry.nodes()))
            self._register("polymq_nsq_lookup_registrations", "Names in the lookup role, and nodes that have them.", lambda: registry.size)

    def announce_to(self, addresses: Iterable[str]) -> None:
        """Be known to these directories from now on, and to no others."""
        if self._announcer is not None:
            self._announcer.announce_to(addresses)

    def _register(self, name: str, text: str, value: Callable[[], float]) -> None:
        self._node.broker.statistics.register(Family(name, Kind.GAUGE, text, lambda: [Sample({}, value())]))


class _Surroundings:
    """What a `ChannelPreparer` has around it."""

    def __init__(self, node: Node, announcer: Announcer, registry: Registry | None) -> None:
        self.directories = announcer.known
        self.ask = node.directories_outside.ask
        self.connect_timeout_ns = node.settings.nsq.http_client_connect_timeout_ns
        self.timeout_ns = node.settings.nsq.http_client_request_timeout_ns
        self._node = node
        self._registry = registry

    def own_channels(self, topic: str) -> list[str]:
        """List the channels that the lookup role knows."""
        return self._registry.channels(topic) if self._registry is not None else []

    def call_after(self, delay_ns: int, function: Callable[[], None]) -> Alarm:
        """Call `function` in a later turn."""
        return self._node.pump.call_at(self._node.clock.monotonic_ns() + delay_ns, function)
