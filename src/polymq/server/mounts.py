"""What listens where: one function per protocol, from settings to listeners with the factories of their gateways."""

from __future__ import annotations

import logging
import platform
import secrets
import socket
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from polymq.admin.door import Door, refuse
from polymq.admin.endpoints import ENDPOINTS, all_statistics
from polymq.admin.tails import Tails
from polymq.config_values import TcpAddress, format_address
from polymq.core.access import ANONYMOUS, STRANGER, Action
from polymq.errors import ConfigError
from polymq.gateways.http.gateway import HttpGateway
from polymq.gateways.http.guard import GuardedDoor, GuardedRouter
from polymq.gateways.nats.client import NatsClient
from polymq.gateways.nats.monitoring import monitoring_router
from polymq.gateways.nats.monitoring import refuse as refuse_nats
from polymq.gateways.nats.route import RouteGateway
from polymq.gateways.nsq.http import TlsRequired, concerns_all, nsq_router
from polymq.gateways.nsq.http_answers import refuse as refuse_nsq
from polymq.gateways.nsq.http_context import NsqChanging, NsqHttp, NsqNode
from polymq.gateways.nsq.tcp import NsqGateway
from polymq.gateways.nsqlookup.http import OPEN_METHODS, LookupHttp, concerns_every_node, lookup_router
from polymq.gateways.nsqlookup.registry import Registry
from polymq.gateways.nsqlookup.tcp import LookupGateway
from polymq.protocols.http.router import Route, Router
from polymq.protocols.nsq.settings import NsqSettings
from polymq.protocols.nsqlookup.identify import Identity
from polymq.protocols.nsqlookup.settings import LookupSettings
from polymq.server.discovery import Discovery
from polymq.server.nats_bridge import bridge
from polymq.server.nats_cluster import RouteTls, make_cluster, make_route_tls
from polymq.server.nats_monitoring import make_monitored, register_nats
from polymq.server.nats_mount import make_house
from polymq.server.network import SocketListener
from polymq.server.nsq_parts import nsqd_options, statsd_sender
from polymq.server.phpmq_mount import open_phpmq
from polymq.server.rocketmq_mount import ROLES, make_parts, wanted_addresses
from polymq.server.shell import ROOM_KEPT, ROOM_TO_REFUSE
from polymq.server.statistics import register_answers, register_connections
from polymq.server.tls import http_requires_tls, server_context, tcp_requires_tls
from polymq.wire.tls import TlsLayer

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq import config_sections
    from polymq.config_values import Address
    from polymq.core.session import Session
    from polymq.gateways.contract import Gateway, GatewayFactory, Peer
    from polymq.gateways.http.gateway import Answering
    from polymq.gateways.nats.house import House
    from polymq.server.node import Node
    from polymq.server.tasks import Tasks
    from polymq.wire.exchange import Request, Response

__all__ = ["Mount", "mount_all", "nsq_settings", "start_statsd"]

Context = TypeVar("Context")

_NS_PER_MS: Final = 1_000_000
# 128 bits: whoever has such a token may settle a stream's messages.
_TOKEN_SIZE_BYTES: Final = 16
# nsqd's names for levels that Python calls otherwise.
_LEVELS: Final = {"warn": "WARNING", "fatal": "CRITICAL"}
_NSQ: Final = "NSQ"
_NSQ_HTTP: Final = "NSQ's HTTP"
_NSQ_LEVELS: Final = {"warning": "warn"}

log = logging.getLogger(__name__)


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


def nsq_settings(settings: config_sections.NsqSettings) -> NsqSettings:
    """Turn the section of the configuration into what the protocol knows."""
    return NsqSettings(
        message_size_bytes_max=settings.max_msg_size_bytes,
        body_size_bytes_max=settings.max_body_size_bytes,
        ready_count_max=settings.max_rdy_count,
        requeue_delay_ms_max=settings.max_req_timeout_ns // _NS_PER_MS,
        http_delay_ms_max=(settings.max_http_defer_ns or settings.max_req_timeout_ns) // _NS_PER_MS,
        heartbeat_interval_ms_max=settings.max_heartbeat_interval_ns // _NS_PER_MS,
        message_timeout_ms=settings.msg_timeout_ns // _NS_PER_MS,
        message_timeout_ms_max=settings.max_msg_timeout_ns // _NS_PER_MS,
        output_buffer_size_bytes_max=settings.max_output_buffer_size_bytes,
        output_buffer_timeout_ms=settings.output_buffer_timeout_ns // _NS_PER_MS,
        output_buffer_timeout_ms_min=settings.min_output_buffer_timeout_ns // _NS_PER_MS,
        output_buffer_timeout_ms_max=settings.max_output_buffer_timeout_ns // _NS_PER_MS,
        deflate_level_max=settings.max_deflate_level,
        tls=bool(settings.tls_cert or settings.tls_key),
        tls_required=tcp_requires_tls(settings),
        deflate=settings.deflate,
        snappy=settings.snappy,
    )


def mount_all(node: Node, *, backlog: int) -> list[Mount]:
    """Open everything that the settings ask for. Raises ConfigError, and leaves nothing open then."""
    mounts: list[Mount] = []
    discovery = Discovery(node)
    try:
        mount_nsq(node, backlog, mounts, discovery)
        registry = mount_lookup(node, backlog, mounts)
        mount_nats(node, backlog, mounts)
        mounts += [Mount(each.what, each.listener, each.factory, room=each.room) for each in open_phpmq(node, backlog)]
        mount_rocketmq(node, backlog, mounts)
        mount_door(node, backlog, mounts)
    except ConfigError:
        for mount in mounts:
            mount.listener.close()
        raise
    pump = node.pump
    listeners = {mount.listener.address: mount.what for mount in mounts}
    register_answers(node.broker.statistics, {mount.what: mount.answers for mount in mounts if mount.answers is not None})
    register_connections(node.broker.statistics, lambda: pump.connections, lambda: pump.opened_count, listeners)
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
    door = Door(node.broker.session(ANONYMOUS), node.clock, node.broker.statistics, Tails(node.pump.call_at, node.clock))
    listener = _listen("server.http", address, backlog)
    guarded = _guarded(node, router, lambda door, session: replace(door, session=session), refuse, "/healthz", all_statistics)
    answers: dict[int, int] = {}
    mounts.append(
        Mount(
            "HTTP",
            listener,
            lambda peer: HttpGateway(guarded(peer, None), door, node.clock, peer, answers=answers),
            answers,
            room=ROOM_KEPT,
        )
    )


def mount_nsq(node: Node, backlog: int, mounts: list[Mount], discovery: Discovery) -> None:
    """Open what the NSQ section asks for."""
    section = node.settings.nsq
    settings = replace(nsq_settings(section), auth_required=node.logins is not None)
    whoever = ANONYMOUS if node.logins is None else STRANGER
    tcp = None
    tls = server_context(section)
    make_tls = None if tls is None else partial(TlsLayer, tls)
    if section.tcp is not None:
        tcp = _listen("nsq.tcp", section.tcp, backlog)

        def nsq(peer: Peer) -> Gateway:
            return NsqGateway(node.broker.session(whoever), peer, settings, node.clock.monotonic_ns, make_tls, node.logins)

        mounts.append(Mount(_NSQ, tcp, nsq))
    http, https = _http_listeners(node, backlog, has_tls=make_tls is not None)
    context = _nsq_context(node, settings, discovery, tcp_port=_port(tcp), http_port=_port(http))
    _mount_nsq_http(node, mounts, context, http, https, make_tls)


def _http_listeners(node: Node, backlog: int, *, has_tls: bool) -> tuple[SocketListener | None, SocketListener | None]:
    """Open the ports of nsqd's HTTP interface, plain and within TLS: both or none."""
    section = node.settings.nsq
    if section.https is not None and not has_tls:
        raise ConfigError(["nsq.https: HTTPS needs a certificate and its key: nsq.tls_cert and nsq.tls_key"])
    http = None if section.http is None else _listen("nsq.http", section.http, backlog)
    try:
        return http, None if section.https is None else _listen("nsq.https", section.https, backlog)
    except ConfigError:
        if http is not None:
            http.close()
        raise


def _mount_nsq_http(
    node: Node,
    mounts: list[Mount],
    context: NsqHttp,
    http: SocketListener | None,
    https: SocketListener | None,
    make_tls: Callable[[], TlsLayer] | None,
) -> None:
    """Have nsqd's HTTP interface answer: the same endpoints behind both ports."""
    router: Router[NsqHttp] = nsq_router(context.settings)
    guarded = _guarded(node, router, lambda context, session: replace(context, session=session), refuse_nsq, "/ping", concerns_all)
    tls_required = TlsRequired(max(0, _port(https))) if http_requires_tls(node.settings.nsq) else None
    if http is not None:
        plain: dict[int, int] = {}

        def answer_plain(peer: Peer) -> Gateway:
            return HttpGateway(tls_required or guarded(peer, None), context, node.clock, peer, answers=plain)

        mounts.append(Mount(_NSQ_HTTP, http, answer_plain, plain))
    if https is not None:
        within: dict[int, int] = {}

        def answer_within(peer: Peer) -> Gateway:
            assert make_tls is not None  # or there would be no such port
            tls = make_tls()
            return HttpGateway(guarded(peer, tls), context, node.clock, peer, lambda: tls, within)

        mounts.append(Mount("NSQ's HTTPS", https, answer_within, within))


def _guarded(
    node: Node,
    router: Router[Context],
    with_session: Callable[[Context, Session], Context],
    refuse: Callable[[int], Response],
    open_path: str,
    concerns_all: Callable[[Request], Action | None],
    *,
    open_methods: frozenset[str] = frozenset(),
) -> Callable[[Peer, TlsLayer | None], Answering[Context]]:
    """Have requests of a connection answered: by the router, or by a guard in front of it if the settings ask for that.

    What is made wants to know the connection's TLS, if it has that, for authentication servers may judge by it.
    """
    if node.guests is None:
        return lambda _peer, _tls: router
    door = GuardedDoor(
        router,
        node.guests,
        with_session=with_session,
        refuse=refuse,
        open_paths=frozenset({open_path}),
        concerns_all=concerns_all,
        open_methods=open_methods,
    )
    return lambda peer, tls: GuardedRouter(door, peer, node.clock, tls)


def _nsq_context(node: Node, settings: NsqSettings, discovery: Discovery, *, tcp_port: int, http_port: int) -> NsqHttp:
    """Say what nsqd's endpoints know."""
    section = node.settings.nsq
    level = _NSQ_LEVELS.get(node.settings.server.log_level, node.settings.server.log_level)
    told_http_port = section.broadcast_http_port or http_port
    return NsqHttp(
        session=node.broker.session(ANONYMOUS),
        clock=node.clock,
        node=NsqNode(
            broadcast_address=_broadcast_address(node),
            host_name=socket.gethostname(),
            tcp_port=tcp_port,
            http_port=http_port,
            started_at_ns=node.started_at_ns,
            tcp_address=_option(section.tcp),
            http_address=_option(section.http),
            https_address=_option(section.https),
            data_path=str(node.settings.server.data),
            broadcast_tcp_port=section.broadcast_tcp_port or tcp_port,
            broadcast_http_port=told_http_port,
            runtime=f"python{platform.python_version()}",
        ),
        make_token=partial(secrets.token_hex, _TOKEN_SIZE_BYTES),
        settings=settings,
        options=nsqd_options(section, node.settings.store, broadcast_address=_broadcast_address(node), http_port=told_http_port),
        change_log_level=_change_log_level,
        change_lookupd_addresses=discovery.announce_to,
        changing=NsqChanging(level, list(section.lookupd_tcp_addresses)),
    )


def mount_nats(node: Node, backlog: int, mounts: list[Mount]) -> None:
    """Open what NATS's settings ask for."""
    role = node.nats
    if role is None:
        return
    if role.client is None:
        if role.settings.cluster is not None and role.settings.cluster.listen is not None:
            raise ConfigError(["nats.cluster: a member of a cluster has clients: say where they come in, nats.client"])
        return
    listener = _listen("nats.client", role.client, backlog)
    house = make_house(node, role.settings, port=_port(listener))
    register_nats(node.broker.statistics, house)
    mounts.append(Mount("NATS", listener, lambda peer: NatsClient(house, peer), house=house, room=ROOM_TO_REFUSE))
    cluster = role.settings.cluster
    if cluster is not None and cluster.listen is not None:
        routes = _listen("nats.cluster", cluster.listen, backlog)
        route_tls = make_route_tls(role.settings)
        member = make_cluster(node, house, role.settings, port=_port(routes), tls=route_tls)
        mounts.append(Mount("NATS routes", routes, lambda peer: RouteGateway(member, peer), route_tls=route_tls, room=ROOM_KEPT))
    if role.settings.http is not None:
        pages = _listen("nats.http", role.settings.http, backlog)
        monitored = make_monitored(node, house, role.settings, port=_port(pages))
        guarded = _guarded(node, monitoring_router(), lambda context, _: context, refuse_nats, "/healthz", lambda _: Action.READ)
        answers: dict[int, int] = {}
        mounts.append(
            Mount(
                "NATS monitoring",
                pages,
                lambda peer: HttpGateway(guarded(peer, None), monitored, node.clock, peer, answers=answers),
                answers,
                room=ROOM_KEPT,
            )
        )
    # Whoever tells other servers what is wanted here is there by now.
    bridge(node.broker, node.settings.nats)


def mount_rocketmq(node: Node, backlog: int, mounts: list[Mount]) -> None:
    """Open what RocketMQ's section asks for: the same house behind every port."""
    listeners: dict[str, SocketListener] = {}
    try:
        for role, address in wanted_addresses(node.settings.rocketmq).items():
            listeners[role] = _listen(f"rocketmq.{role}", address, backlog, tells_local=True)
        if not listeners:
            return
        parts = make_parts(node, {role: listener.bound for role, listener in listeners.items()})
    except ConfigError:
        for listener in listeners.values():
            listener.close()
        raise
    mounts += [Mount(ROLES[role], listener, parts.factory) for role, listener in listeners.items()]


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
        context = LookupHttp(registry, node.clock)
        guarded = _guarded(
            node, lookup_router(), lambda context, _session: context, refuse_nsq, "/ping", concerns_every_node, open_methods=OPEN_METHODS
        )
        answers: dict[int, int] = {}
        mounts.append(
            Mount(
                "NSQ lookup's HTTP",
                http,
                lambda peer: HttpGateway(guarded(peer, None), context, node.clock, peer, answers=answers),
                answers,
            )
        )
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


def start_statsd(node: Node, mounts: list[Mount], tasks: Tasks) -> None:
    """Send statistics to statsd, if the settings say where it is."""
    http = next((mount.listener for mount in mounts if mount.what == _NSQ_HTTP), None)
    http_port = node.settings.nsq.broadcast_http_port or _port(http)
    sender = statsd_sender(node, broadcast_address=_broadcast_address(node), http_port=http_port)
    if sender is not None:
        tasks.start("statsd", sender.run())


def _broadcast_address(node: Node) -> str:
    return node.settings.server.advertise or socket.gethostname()


def _identity(node: Node, tcp_port: int, http_port: int) -> Identity:
    """Say where others find this node, or its lookup role."""
    return Identity(_broadcast_address(node), socket.gethostname(), http_port=http_port, tcp_port=tcp_port)


def _option(address: Address | None) -> str:
    """Write an address as nsqd's options do: nothing is nothing."""
    return "" if address is None else format_address(address)


def _change_log_level(level: str) -> None:
    logging.getLogger("polymq").setLevel(_LEVELS.get(level, level.upper()))


def _listen(name: str, address: Address, backlog: int, *, tells_local: bool = False) -> SocketListener:
    try:
        return SocketListener(address, backlog=backlog, tells_local=tells_local)
    except OSError as error:
        raise ConfigError([f"{name}: cannot listen on {format_address(address)}: {error.strerror or error}"]) from error


def _port(listener: SocketListener | None) -> int:
    """Give the port that was opened; -1 is none."""
    address = listener.bound if listener is not None else None
    return address.port if isinstance(address, TcpAddress) else -1
