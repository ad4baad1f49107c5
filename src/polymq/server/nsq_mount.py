"""NSQ, put together: from its section of the settings to the gateways behind nsqd's ports."""

from __future__ import annotations

import logging
import platform
import secrets
import socket
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from polymq.config_values import format_address
from polymq.core.access import ANONYMOUS, STRANGER
from polymq.errors import ConfigError
from polymq.gateways.nsq.http import TlsRequired, concerns_all, nsq_router
from polymq.gateways.nsq.http_answers import refuse
from polymq.gateways.nsq.http_context import NsqChanging, NsqHttp, NsqNode
from polymq.gateways.nsq.tcp import NsqGateway
from polymq.protocols.nsq.settings import NsqSettings
from polymq.server.discovery import Discovery
from polymq.server.http_mount import guard, mount_http
from polymq.server.mount import Mount, listen, port_of
from polymq.server.nsq_parts import NSQ_HTTP, broadcast_address, identity_of, nsqd_options
from polymq.server.tls import http_requires_tls, server_context, tcp_requires_tls
from polymq.wire.tls import TlsLayer

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq import config_sections
    from polymq.config_values import Address
    from polymq.gateways.contract import Gateway, Peer
    from polymq.gateways.nsqlookup.registry import Registry
    from polymq.protocols.http.router import Router
    from polymq.server.network import SocketListener
    from polymq.server.node import Node

__all__ = ["mount_nsq", "nsq_settings"]

_NS_PER_MS: Final = 1_000_000
# 128 bits: whoever has such a token may settle a stream's messages.
_TOKEN_SIZE_BYTES: Final = 16
# nsqd's names for levels that Python calls otherwise.
_LEVELS: Final = {"warn": "WARNING", "fatal": "CRITICAL"}
_NSQ_LEVELS: Final = {"warning": "warn"}


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


def mount_nsq(node: Node, backlog: int, mounts: list[Mount]) -> Callable[[Registry | None], None]:
    """Open what the NSQ section asks for. Returns what begins discovery once the lookup role is there, if there is to be one."""
    section = node.settings.nsq
    settings = replace(nsq_settings(section), auth_required=node.logins is not None)
    whoever = ANONYMOUS if node.logins is None else STRANGER
    discovery = Discovery(node)
    tcp = None
    tls = server_context(section)
    make_tls = None if tls is None else partial(TlsLayer, tls)
    if section.tcp is not None:
        tcp = listen("nsq.tcp", section.tcp, backlog)

        def nsq(peer: Peer) -> Gateway:
            return NsqGateway(node.broker.session(whoever), peer, settings, node.clock.monotonic_ns, make_tls, node.logins)

        mounts.append(Mount("NSQ", tcp, nsq))
    http, https = _http_listeners(node, backlog, has_tls=make_tls is not None)
    tcp_port, http_port = port_of(tcp), port_of(http)
    _mount_http(node, mounts, _http_context(node, settings, discovery, tcp_port=tcp_port, http_port=http_port), http, https, make_tls)

    def begin(registry: Registry | None) -> None:
        if tcp is not None:
            told = identity_of(node, section.broadcast_tcp_port or tcp_port, section.broadcast_http_port or http_port)
            discovery.start(told, registry)

    return begin


def _http_listeners(node: Node, backlog: int, *, has_tls: bool) -> tuple[SocketListener | None, SocketListener | None]:
    """Open the ports of nsqd's HTTP interface, plain and within TLS: both or none."""
    section = node.settings.nsq
    if section.https is not None and not has_tls:
        raise ConfigError(["nsq.https: HTTPS needs a certificate and its key: nsq.tls_cert and nsq.tls_key"])
    http = None if section.http is None else listen("nsq.http", section.http, backlog)
    try:
        return http, None if section.https is None else listen("nsq.https", section.https, backlog)
    except ConfigError:
        if http is not None:
            http.close()
        raise


def _mount_http(
    node: Node,
    mounts: list[Mount],
    context: NsqHttp,
    http: SocketListener | None,
    https: SocketListener | None,
    make_tls: Callable[[], TlsLayer] | None,
) -> None:
    """Have nsqd's HTTP interface answer: the same endpoints behind both ports."""
    router: Router[NsqHttp] = nsq_router(context.settings)
    guarded = guard(node, router, lambda context, session: replace(context, session=session), refuse, "/ping", concerns_all)
    tls_required = TlsRequired(max(0, port_of(https))) if http_requires_tls(node.settings.nsq) else None
    if http is not None:
        mounts.append(mount_http(node, NSQ_HTTP, http, guarded if tls_required is None else lambda _peer, _tls: tls_required, context))
    if https is not None:
        mounts.append(mount_http(node, "NSQ's HTTPS", https, guarded, context, make_tls=make_tls))


def _http_context(node: Node, settings: NsqSettings, discovery: Discovery, *, tcp_port: int, http_port: int) -> NsqHttp:
    """Say what nsqd's endpoints know."""
    section = node.settings.nsq
    level = _NSQ_LEVELS.get(node.settings.server.log_level, node.settings.server.log_level)
    told_http_port = section.broadcast_http_port or http_port
    return NsqHttp(
        session=node.broker.session(ANONYMOUS),
        clock=node.clock,
        node=NsqNode(
            broadcast_address=broadcast_address(node),
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
            log_name=node.folder_id,
        ),
        make_token=partial(secrets.token_hex, _TOKEN_SIZE_BYTES),
        settings=settings,
        options=nsqd_options(section, node.settings.store, broadcast_address=broadcast_address(node), http_port=told_http_port),
        change_log_level=_change_log_level,
        change_lookupd_addresses=discovery.announce_to,
        log_port=lambda: node.door_port,
        changing=NsqChanging(level, list(section.lookupd_tcp_addresses)),
    )


def _option(address: Address | None) -> str:
    """Write an address as nsqd's options do: nothing is nothing."""
    return "" if address is None else format_address(address)


def _change_log_level(level: str) -> None:
    logging.getLogger("polymq").setLevel(_LEVELS.get(level, level.upper()))
