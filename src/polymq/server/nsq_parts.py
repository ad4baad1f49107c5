"""What the NSQ section asks for beside listeners: how others find this node, options to be shown, and statistics to be sent to statsd."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Final

from polymq.config_values import format_address
from polymq.core.access import ANONYMOUS
from polymq.gateways.nsq.stats_memory import memory_of_this_process
from polymq.gateways.nsq.statsd import StatsdReport, statsd_prefix
from polymq.protocols.http.client import without_user
from polymq.protocols.nsqlookup.identify import Identity
from polymq.server.mount import port_of
from polymq.server.statsd import StatsdSender
from polymq.server.tls import http_requires_tls, tcp_requires_tls

if TYPE_CHECKING:
    from polymq import config_sections
    from polymq.server.mount import Mount
    from polymq.server.node import Node
    from polymq.server.tasks import Tasks

__all__ = ["NSQ_HTTP", "broadcast_address", "identity_of", "nsqd_options", "start_statsd", "statsd_sender"]

NSQ_HTTP: Final = "NSQ's HTTP"
# nsqd's default: messages between two syncs. Here they go by time, unless each publish is one.
_SYNC_EVERY: Final = 2500
# The numbers by which TLS calls its versions in handshakes.
_TLS_VERSIONS: Final = {"ssl3.0": 0x0300, "tls1.0": 0x0301, "tls1.1": 0x0302, "tls1.2": 0x0303, "tls1.3": 0x0304}


def nsqd_options(
    section: config_sections.NsqSettings, store: config_sections.StoreSettings, *, broadcast_address: str, http_port: int
) -> dict[str, object]:
    """Give the options of nsqd that the sections answer for, as `/config` shows them."""
    address = section.statsd_address
    return {
        "sync_every": 1 if store.durability == "fsync" else _SYNC_EVERY,
        "sync_timeout": store.sync_interval_ns,
        "tls_cert": section.tls_cert,
        "tls_key": section.tls_key,
        "tls_client_auth_policy": "" if section.tls_client_auth_policy == "none" else section.tls_client_auth_policy,
        "tls_root_ca_file": section.tls_root_ca_file,
        "tls_required": 2 if http_requires_tls(section) else 1 if tcp_requires_tls(section) else 0,
        "tls_min_version": _TLS_VERSIONS[section.tls_min_version],
        "auth_http_addresses": [without_user(address) for address in section.auth_http_addresses],
        "http_client_connect_timeout": section.http_client_connect_timeout_ns,
        "http_client_request_timeout": section.http_client_request_timeout_ns,
        "max_channel_consumers": section.max_channel_consumers,
        "statsd_address": "" if address is None else format_address(address),
        "statsd_prefix": statsd_prefix(section.statsd_prefix, broadcast_address=broadcast_address, http_port=http_port),
        "statsd_interval": section.statsd_interval_ns,
        "statsd_mem_stats": section.statsd_mem_stats,
        "statsd_udp_packet_size": section.statsd_udp_packet_size_bytes,
        "statsd_exclude_ephemeral": section.statsd_exclude_ephemeral,
        "e2e_processing_latency_window_time": section.e2e_processing_latency_window_time_ns,
        "e2e_processing_latency_percentiles": [1 if share == 1 else share for share in section.e2e_processing_latency_percentiles],
    }


def statsd_sender(node: Node, *, broadcast_address: str, http_port: int) -> StatsdSender | None:
    """Make what sends the statistics, if the section asks for it."""
    section = node.settings.nsq
    if section.statsd_address is None:
        return None
    report = StatsdReport(
        node.broker.session(ANONYMOUS),
        statsd_prefix(section.statsd_prefix, broadcast_address=broadcast_address, http_port=http_port),
        memory_of_this_process if section.statsd_mem_stats else None,
        exclude_ephemeral=section.statsd_exclude_ephemeral,
    )
    return StatsdSender(
        section.statsd_address,
        report.lines,
        interval_ns=section.statsd_interval_ns,
        packet_size_bytes=section.statsd_udp_packet_size_bytes,
    )


def start_statsd(node: Node, mounts: list[Mount], tasks: Tasks) -> None:
    """Send statistics to statsd, if the settings say where it is."""
    http = next((mount.listener for mount in mounts if mount.what == NSQ_HTTP), None)
    http_port = node.settings.nsq.broadcast_http_port or port_of(http)
    sender = statsd_sender(node, broadcast_address=broadcast_address(node), http_port=http_port)
    if sender is not None:
        tasks.start("statsd", sender.run())


def broadcast_address(node: Node) -> str:
    """Give the host that others are told."""
    return node.settings.server.advertise or socket.gethostname()


def identity_of(node: Node, tcp_port: int, http_port: int) -> Identity:
    """Say where others find this node, or its lookup role."""
    return Identity(broadcast_address(node), socket.gethostname(), http_port=http_port, tcp_port=tcp_port)
