"""What listens where: one function per protocol, from settings to listeners with the factories of their gateways."""

from __future__ import annotations

import logging
import platform
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from polymq.admin.door import Door, refuse
from polymq.admin.endpoints import ENDPOINTS, all_statistics
from polymq.config_values import TcpAddress, format_address
from polymq.core.access import ANONYMOUS, STRANGER
from polymq.errors import ConfigError
from polymq.gateways.http.gateway import HttpGateway
from polymq.gateways.http.guard import GuardedDoor, GuardedRouter
from polymq.gateways.nsq import http as nsq_http
from polymq.gateways.nsq.http import nsq_router
from polymq.gateways.nsq.http_answers import refuse as refuse_nsq
from polymq.gateways.nsq.http_context import NsqHttp, NsqNode
from polymq.gateways.nsq.tcp import NsqGateway
from polymq.gateways.nsqlookup.http import LookupHttp, lookup_router
from polymq.gateways.nsqlookup.registry import Registry
from polymq.gateways.nsqlookup.tcp import LookupGateway
from polymq.protocols.http.router import Route, Router
from polymq.protocols.nsq.settings import NsqSettings
from polymq.protocols.nsqlookup.identify import Identity
from polymq.protocols.nsqlookup.settings import LookupSettings
from polymq.server.discovery import Discovery
from polymq.server.network import SocketListener

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq import config_sections
    from polymq.config_values import Address
    from polymq.core.access import Action
    from polymq.core.session import Session
    from polymq.gateways.contract import Gateway, GatewayFactory, Peer
    from polymq.gateways.http.gateway import Answering
    from polymq.server.node import Node
    from polymq.wire.exchange import Request, Response

__all__ = ["Mount", "mount_all", "nsq_settings"]

Context = TypeVar("Context")

_NS_PER_MS: Final = 1_000_000
# nsqd's names for levels that Python calls otherwise.
_LEVELS: Final = {"warn": "WARNING", "fatal": "CRITICAL"}
_NSQ: Final = "NSQ"
_NSQ_HTTP: Final = "NSQ's HTTP"
_NSQ_LEVELS: Final = {"warning": "warn"}

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Mount:
    """Something that listens. `what` is for people."""

    what: str
    listener: SocketListener
    factory: GatewayFactory


def nsq_settings(settings: config_sections.NsqSettings) -> NsqSettings:
    """Turn the section of the configuration into what the protocol knows."""
    return NsqSettings(
        message_size_bytes_max=settings.max_msg_size_bytes,
        body_size_bytes_max=settings.max_body_size_bytes,
        ready_count_max=settings.max_rdy_count,
        requeue_delay_ms_max=settings.max_req_timeout_ns // _NS_PER_MS,
        heartbeat_interval_ms_max=settings.max_heartbeat_interval_ns // _NS_PER_MS,
        message_timeout_ms=settings.msg_timeout_ns // _NS_PER_MS,
        message_timeout_ms_max=settings.max_msg_timeout_ns // _NS_PER_MS,
        output_buffer_size_bytes_max=settings.max_output_buffer_size_bytes,
        output_buffer_timeout_ms=settings.output_buffer_timeout_ns // _NS_PER_MS,
        output_buffer_timeout_ms_min=settings.min_output_buffer_timeout_ns // _NS_PER_MS,
        output_buffer_timeout_ms_max=settings.max_output_buffer_timeout_ns // _NS_PER_MS,
    )


def mount_all(node: Node, *, backlog: int) -> list[Mount]:
    """Open everything that the settings ask for. Raises ConfigError, and leaves nothing open then."""
    mounts: list[Mount] = []
    discovery = Discovery(node)
    try:
        mount_nsq(node, backlog, mounts, discovery)
        registry = mount_lookup(node, backlog, mounts)
        mount_door(node, backlog, mounts)
    except ConfigError:
        for mount in mounts:
            mount.listener.close()
        raise
    ports = {mount.what: _port(mount.listener) for mount in mounts}
    if _NSQ in ports:
        section = node.settings.nsq
        told = _identity(node, section.broadcast_tcp_port or ports[_NSQ], section.broadcast_http_port or ports.get(_NSQ_HTTP, -1))
        discovery.start(told, registry)
    return mounts


def mount_door(node: Node, backlog: int, mounts: list[Mount]) -> None:
    """Open the product's own HTTP door: the log, statistics, health."""
    address = node.settings.server.http
    if address is None:
        return
    router = Router([Route(method, path, function) for method, path, function in ENDPOINTS], refuse=refuse)
    door = Door(node.broker.session(ANONYMOUS), node.clock, node.broker.statistics)
    listener = _listen("server.http", address, backlog)
    guarded = _guarded(node, router, lambda door, session: replace(door, session=session), refuse, "/healthz", all_statistics)
    mounts.append(Mount("HTTP", listener, lambda peer: HttpGateway(guarded(peer), door, node.clock)))


def mount_nsq(node: Node, backlog: int, mounts: list[Mount], discovery: Discovery) -> None:
    """Open what the NSQ section asks for."""
    section = node.settings.nsq
    settings = replace(nsq_settings(section), auth_required=node.logins is not None)
    whoever = ANONYMOUS if node.logins is None else STRANGER
    tcp = http = None
    if section.tcp is not None:
        tcp = _listen("nsq.tcp", section.tcp, backlog)

        def nsq(peer: Peer) -> Gateway:
            return NsqGateway(node.broker.session(whoever), peer, settings, node.clock.monotonic_ns, node.logins)

        mounts.append(Mount(_NSQ, tcp, nsq))
    if section.http is not None:
        http = _listen("nsq.http", section.http, backlog)
        host_name = socket.gethostname()
        context = NsqHttp(
            session=node.broker.session(ANONYMOUS),
            clock=node.clock,
            node=NsqNode(
                broadcast_address=node.settings.server.advertise or host_name,
                host_name=host_name,
                tcp_port=_port(tcp),
                http_port=_port(http),
                started_at_ns=node.started_at_ns,
                tcp_address=_option(section.tcp),
                http_address=_option(section.http),
                https_address=_option(section.https),
                data_path=str(node.settings.server.data),
                broadcast_tcp_port=section.broadcast_tcp_port or _port(tcp),
                broadcast_http_port=section.broadcast_http_port or _port(http),
                runtime=f"python{platform.python_version()}",
            ),
            settings=settings,
            change_log_level=_change_log_level,
            change_lookupd_addresses=discovery.announce_to,
            lookupd_addresses=list(section.lookupd_tcp_addresses),
            log_level=_NSQ_LEVELS.get(node.settings.server.log_level, node.settings.server.log_level),
        )
        router = nsq_router(settings)
        guarded = _guarded(
            node, router, lambda context, session: replace(context, session=session), refuse_nsq, "/ping", nsq_http.concerns_all
        )
        mounts.append(Mount(_NSQ_HTTP, http, lambda peer: HttpGateway(guarded(peer), context, node.clock)))


def _guarded(
    node: Node,
    router: Router[Context],
    with_session: Callable[[Context, Session], Context],
    refuse: Callable[[int], Response],
    open_path: str,
    concerns_all: Callable[[Request], Action | None],
) -> Callable[[Peer], Answering[Context]]:
    """Have requests of a connection answered: by the router, or by a guard in front of it if the settings ask for that."""
    if node.guests is None:
        return lambda _peer: router
    door = GuardedDoor(
        router, node.guests, with_session=with_session, refuse=refuse, open_paths=frozenset({open_path}), concerns_all=concerns_all
    )
    return lambda peer: GuardedRouter(door, peer, node.clock)


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
    identity = _identity(node, _port(tcp), _port(http))
    if tcp is not None:
        mounts.append(Mount("NSQ lookup", tcp, lambda peer: LookupGateway(registry, identity, peer, node.clock.monotonic_ns)))
    if http is not None:
        router, context = lookup_router(), LookupHttp(registry, node.clock)
        mounts.append(Mount("NSQ lookup's HTTP", http, lambda _peer: HttpGateway(router, context, node.clock)))
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
            listeners[name] = _listen(name, address, backlog)
    except ConfigError as error:
        for listener in listeners.values():
            listener.close()
        if any(name in node.settings.origins for name in addresses):
            raise
        log.warning("%s; going on without the lookup role (off says so, another address insists)", error)
        return {}
    return listeners


def _identity(node: Node, tcp_port: int, http_port: int) -> Identity:
    """Say where others find this node, or its lookup role."""
    host_name = socket.gethostname()
    return Identity(node.settings.server.advertise or host_name, host_name, http_port=http_port, tcp_port=tcp_port)


def _option(address: Address | None) -> str:
    """Write an address as nsqd's options do: nothing is nothing."""
    return "" if address is None else format_address(address)


def _change_log_level(level: str) -> None:
    logging.getLogger("polymq").setLevel(_LEVELS.get(level, level.upper()))


def _listen(name: str, address: Address, backlog: int) -> SocketListener:
    try:
        return SocketListener(address, backlog=backlog)
    except OSError as error:
        raise ConfigError([f"{name}: cannot listen on {format_address(address)}: {error.strerror or error}"]) from error


def _port(listener: SocketListener | None) -> int:
    """Give the port that was opened; -1 is none."""
    address = listener.bound if listener is not None else None
    return address.port if isinstance(address, TcpAddress) else -1
