"""What listens where: one function per protocol, from settings to listeners with the factories of their gateways."""

from __future__ import annotations

import logging
import platform
import secrets
import socket
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from polymq.admin.door import Door, refuse
from polymq.admin.endpoints import ENDPOINTS
from polymq.config_values import TcpAddress, format_address
from polymq.core.access import ANONYMOUS
from polymq.errors import ConfigError
from polymq.gateways.http.gateway import HttpGateway
from polymq.gateways.nsq.http import TlsRequired, nsq_router
from polymq.gateways.nsq.http_context import NsqHttp, NsqNode
from polymq.gateways.nsq.tcp import NsqGateway
from polymq.protocols.http.router import Route, Router
from polymq.protocols.nsq.settings import NsqSettings
from polymq.server.network import SocketListener
from polymq.server.nsq_parts import nsqd_options, statsd_sender
from polymq.server.statistics import register_answers, register_connections
from polymq.server.tls import http_requires_tls, server_context, tcp_requires_tls
from polymq.wire.tls import TlsLayer

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq import config_sections
    from polymq.config_values import Address
    from polymq.gateways.contract import Gateway, GatewayFactory, Peer
    from polymq.server.node import Node
    from polymq.server.tasks import Tasks
    from polymq.wire.layers import Layer

__all__ = ["Mount", "mount_all", "nsq_settings", "start_statsd"]

_NS_PER_MS: Final = 1_000_000
# 128 bits: whoever has such a token may settle a stream's messages.
_TOKEN_SIZE_BYTES: Final = 16
# nsqd's names for levels that Python calls otherwise.
_LEVELS: Final = {"warn": "WARNING", "fatal": "CRITICAL"}
_NSQ_HTTP: Final = "NSQ's HTTP"
_NSQ_LEVELS: Final = {"warning": "warn"}


@dataclass(frozen=True, slots=True)
class Mount:
    """Something that listens. `what` is for people; `answers` of HTTP are counted by status."""

    what: str
    listener: SocketListener
    factory: GatewayFactory
    answers: dict[int, int] | None = None


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
        deflate_level_max=settings.max_deflate_level,
        tls=bool(settings.tls_cert or settings.tls_key),
        tls_required=tcp_requires_tls(settings),
        deflate=settings.deflate,
        snappy=settings.snappy,
    )


def mount_all(node: Node, *, backlog: int) -> list[Mount]:
    """Open everything that the settings ask for. Raises ConfigError, and leaves nothing open then."""
    mounts: list[Mount] = []
    try:
        mount_nsq(node, backlog, mounts)
        mount_door(node, backlog, mounts)
    except ConfigError:
        for mount in mounts:
            mount.listener.close()
        raise
    pump = node.pump
    listeners = {mount.listener.address: mount.what for mount in mounts}
    register_answers(node.broker.statistics, {mount.what: mount.answers for mount in mounts if mount.answers is not None})
    register_connections(node.broker.statistics, lambda: pump.connections, lambda: pump.opened_count, listeners)
    return mounts


def mount_door(node: Node, backlog: int, mounts: list[Mount]) -> None:
    """Open the product's own HTTP door: the log, statistics, health."""
    address = node.settings.server.http
    if address is None:
        return
    router = Router([Route(method, path, function) for method, path, function in ENDPOINTS], refuse=refuse)
    door = Door(node.broker.session(ANONYMOUS), node.clock, node.broker.statistics)
    listener = _listen("server.http", address, backlog)
    answers: dict[int, int] = {}
    mounts.append(Mount("HTTP", listener, lambda peer: HttpGateway(router, door, node.clock, peer, answers=answers), answers))


def mount_nsq(node: Node, backlog: int, mounts: list[Mount]) -> None:
    """Open what the NSQ section asks for."""
    section, settings = node.settings.nsq, nsq_settings(node.settings.nsq)
    tcp = None
    tls = server_context(section)
    make_tls = None if tls is None else partial(TlsLayer, tls)
    if section.tcp is not None:
        tcp = _listen("nsq.tcp", section.tcp, backlog)

        def nsq(peer: Peer) -> Gateway:
            return NsqGateway(node.broker.session(ANONYMOUS), peer, settings, node.clock.monotonic_ns, make_tls)

        mounts.append(Mount("NSQ", tcp, nsq))
    mount_nsq_http(node, backlog, mounts, tcp_port=_port(tcp), make_tls=make_tls)


def mount_nsq_http(node: Node, backlog: int, mounts: list[Mount], *, tcp_port: int, make_tls: Callable[[], Layer] | None) -> None:
    """Open nsqd's HTTP interface, plain and within TLS: the same endpoints behind both."""
    section, settings = node.settings.nsq, nsq_settings(node.settings.nsq)
    if section.https is not None and make_tls is None:
        raise ConfigError(["nsq.https: HTTPS needs a certificate and its key: nsq.tls_cert and nsq.tls_key"])
    listeners: dict[str, SocketListener | None] = {}
    try:
        for name, address in (("nsq.http", section.http), ("nsq.https", section.https)):
            listeners[name] = None if address is None else _listen(name, address, backlog)
    except ConfigError:
        for opened in listeners.values():
            if opened is not None:
                opened.close()
        raise
    http, https = listeners["nsq.http"], listeners["nsq.https"]
    context = _nsq_context(node, settings, tcp_port=tcp_port, http_port=_port(http))
    router: Router[NsqHttp] = nsq_router(settings)
    plain = TlsRequired(max(0, _port(https))) if http_requires_tls(section) else router
    if http is not None:
        answers: dict[int, int] = {}
        mounts.append(Mount(_NSQ_HTTP, http, lambda peer: HttpGateway(plain, context, node.clock, peer, None, answers), answers))
    if https is not None:
        within: dict[int, int] = {}
        mounts.append(Mount("NSQ's HTTPS", https, lambda peer: HttpGateway(router, context, node.clock, peer, make_tls, within), within))


def _nsq_context(node: Node, settings: NsqSettings, *, tcp_port: int, http_port: int) -> NsqHttp:
    """Say what nsqd's endpoints know."""
    section = node.settings.nsq
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
            runtime=f"python{platform.python_version()}",
        ),
        make_token=partial(secrets.token_hex, _TOKEN_SIZE_BYTES),
        settings=settings,
        options=nsqd_options(section, broadcast_address=_broadcast_address(node), http_port=http_port),
        change_log_level=_change_log_level,
        log_level=_NSQ_LEVELS.get(node.settings.server.log_level, node.settings.server.log_level),
    )


def start_statsd(node: Node, mounts: list[Mount], tasks: Tasks) -> None:
    """Send statistics to statsd, if the settings say where it is."""
    http = next((mount.listener for mount in mounts if mount.what == _NSQ_HTTP), None)
    sender = statsd_sender(node, broadcast_address=_broadcast_address(node), http_port=_port(http))
    if sender is not None:
        tasks.start("statsd", sender.run())


def _broadcast_address(node: Node) -> str:
    return node.settings.server.advertise or socket.gethostname()


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
