"""The lookup role, put together: a directory of NSQ's nodes, behind nsqlookupd's ports."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from polymq.errors import ConfigError
from polymq.gateways.nsq.http_answers import refuse
from polymq.gateways.nsqlookup.http import OPEN_METHODS, LookupHttp, concerns_every_node, lookup_router
from polymq.gateways.nsqlookup.registry import Registry
from polymq.gateways.nsqlookup.tcp import LookupGateway
from polymq.protocols.nsqlookup.settings import LookupSettings
from polymq.server.http_mount import guard, mount_http
from polymq.server.mount import Mount, listen, port_of
from polymq.server.nsq_parts import identity_of

if TYPE_CHECKING:
    from polymq.server.network import SocketListener
    from polymq.server.node import Node

__all__ = ["mount_lookup"]

log = logging.getLogger(__name__)


def mount_lookup(node: Node, backlog: int, mounts: list[Mount]) -> Registry | None:
    """Open the lookup role, and give what it will know."""
    section = node.settings.nsq
    listeners = _lookup_listeners(node, backlog)
    if not listeners:
        return None
    tcp, http = listeners.get("nsq.lookup_tcp"), listeners.get("nsq.lookup_http")
    settings = LookupSettings(
        inactive_producer_timeout_ns=section.lookup_inactive_producer_timeout_ns,
        tombstone_lifetime_ns=section.lookup_tombstone_lifetime_ns,
    )
    registry = Registry(node.clock.monotonic_ns, settings)
    identity = identity_of(node, port_of(tcp), port_of(http))
    if tcp is not None:
        mounts.append(Mount("NSQ lookup", tcp, lambda peer: LookupGateway(registry, identity, peer, node.clock.monotonic_ns)))
    if http is not None:
        guarded = guard(
            node, lookup_router(), lambda context, _session: context, refuse, "/ping", concerns_every_node, open_methods=OPEN_METHODS
        )
        mounts.append(mount_http(node, "NSQ lookup's HTTP", http, guarded, LookupHttp(registry, node.clock)))
    return registry


def _lookup_listeners(node: Node, backlog: int) -> dict[str, SocketListener]:
    """Open the lookup role's ports: all of them or none.

    A machine needs one directory, and it may have one already, another polymq's or nsqlookupd. So a port that nobody
    asked for is no reason not to start.
    """
    section = node.settings.nsq
    wanted = {"nsq.lookup_tcp": section.lookup_tcp, "nsq.lookup_http": section.lookup_http}
    addresses = {name: address for name, address in wanted.items() if address is not None}
    listeners: dict[str, SocketListener] = {}
    try:
        for name, address in addresses.items():
            listeners[name] = listen(name, address, backlog)
    except ConfigError as error:
        for listener in listeners.values():
            listener.close()
        if any(name in node.settings.origins for name in addresses):
            raise
        log.warning("%s; going on without the lookup role (off says so, another address insists)", error)
        return {}
    return listeners
