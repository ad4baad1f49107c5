"""polymq's own HTTP door, put together: the log, statistics, health."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from polymq.admin.door import Door, refuse
from polymq.admin.endpoints import ENDPOINTS, all_statistics
from polymq.admin.tails import Tails
from polymq.core.access import ANONYMOUS
from polymq.protocols.http.router import Route, Router
from polymq.server.http_mount import guard, mount_http
from polymq.server.mount import Mount, listen, port_of
from polymq.server.shell import ROOM_KEPT

if TYPE_CHECKING:
    from polymq.config_values import Address
    from polymq.server.node import Node

__all__ = ["mount_door"]


def mount_door(node: Node, address: Address, backlog: int) -> Mount:
    """Open the product's own HTTP door."""
    router = Router([Route(method, path, function) for method, path, function in ENDPOINTS], refuse=refuse)
    tails = Tails(node.pump.call_at, node.clock)
    door = Door(node.broker.session(ANONYMOUS), node.clock, node.broker.statistics, tails, node.folder_id)
    listener = listen("server.http", address, backlog)
    node.door_port = max(0, port_of(listener))
    guarded = guard(node, router, lambda door, session: replace(door, session=session), refuse, "/healthz", all_statistics)
    return mount_http(node, "HTTP", listener, guarded, door, room=ROOM_KEPT)
