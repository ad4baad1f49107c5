"""What listens: each protocol that the settings ask for, mounted by a module of its own.

Such a module is imported when something of its protocol is to listen, and no earlier: loading all that polymq speaks
takes longer than everything else that a start does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.errors import ConfigError
from polymq.server.statistics import register_answers, register_connections

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.gateways.nsqlookup.registry import Registry
    from polymq.server.mount import Mount
    from polymq.server.node import Node

__all__ = ["mount_all"]


def mount_all(node: Node, *, backlog: int) -> list[Mount]:
    """Open everything that the settings ask for. Raises ConfigError, and leaves nothing open then."""
    mounts: list[Mount] = []
    try:
        discover = _mount_protocols(node, backlog, mounts)
    except ConfigError:
        for mount in mounts:
            mount.listener.close()
        raise
    pump = node.pump
    listeners = {mount.listener.address: mount.what for mount in mounts}
    register_answers(node.broker.statistics, {mount.what: mount.answers for mount in mounts if mount.answers is not None})
    register_connections(node.broker.statistics, lambda: pump.connections, lambda: pump.opened_count, listeners)
    discover()
    return mounts


def _mount_protocols(node: Node, backlog: int, mounts: list[Mount]) -> Callable[[], None]:
    """Open the listeners; returns what has NSQ's consumers find this node, to be called when everything is open."""
    settings = node.settings
    nsq, phpmq, rocketmq = settings.nsq, settings.phpmq, settings.rocketmq
    begin: Callable[[Registry | None], None] | None = None
    registry: Registry | None = None
    if nsq.tcp or nsq.http or nsq.https:
        from polymq.server.nsq_mount import mount_nsq

        begin = mount_nsq(node, backlog, mounts)
    if nsq.lookup_tcp or nsq.lookup_http:
        from polymq.server.lookup_mount import mount_lookup

        registry = mount_lookup(node, backlog, mounts)
    if node.nats is not None:
        from polymq.server.nats_mount import mount_nats

        mount_nats(node, node.nats, backlog, mounts)
    if phpmq.tcp or phpmq.tls or phpmq.unix or phpmq.maintenance:
        from polymq.server.phpmq_mount import mount_phpmq

        mount_phpmq(node, backlog, mounts)
    if rocketmq.broker or rocketmq.vip or rocketmq.namesrv:
        from polymq.server.rocketmq_mount import mount_rocketmq

        mount_rocketmq(node, backlog, mounts)
    if settings.server.http:
        from polymq.server.door_mount import mount_door

        mounts.append(mount_door(node, settings.server.http, backlog))

    def discover() -> None:
        if begin is not None:
            begin(registry)

    return discover
