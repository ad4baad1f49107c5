"""NATS, put together: from nats-server's settings to a house, and the ports that lead into it."""

from __future__ import annotations

import logging
import os
import platform
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from polymq.config_values import TcpAddress, UnixAddress
from polymq.core.access import Action
from polymq.errors import ConfigError
from polymq.gateways.nats.client import NatsClient
from polymq.gateways.nats.house import House
from polymq.gateways.nats.imports import Imports
from polymq.protocols.nats.identity import SERVER_ID_SEED_SIZE_BYTES, make_server_id
from polymq.protocols.nats.info import ServerInfo
from polymq.protocols.nats.settings import NatsSettings
from polymq.server.mount import Mount, listen, port_of
from polymq.server.nats_bridge import bridge, work_groups_of
from polymq.server.nats_files import load
from polymq.server.nats_imports import import_rules
from polymq.server.nats_keys import parse_route
from polymq.server.nats_logins import make_nats_logins
from polymq.server.nats_monitoring import register_nats
from polymq.server.nats_settings import ClusterSettings, NatsServerSettings, RouteUrl
from polymq.server.nats_tls import make_client_tls
from polymq.server.shell import ROOM_KEPT, ROOM_TO_REFUSE

if TYPE_CHECKING:
    from polymq.config_sections import NatsSettings as NatsSection
    from polymq.config_sections import Settings
    from polymq.config_values import Address
    from polymq.server.node import Node

__all__ = ["NatsRole", "make_house", "mount_nats", "nats_role", "nats_settings", "tell_connections_max"]

_PROTOCOL_OF_CLIENTS: Final = 1
_ANY_NUMBER: Final = 1 << 31

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NatsRole:
    """What this node is to those who speak NATS."""

    settings: NatsServerSettings
    client: Address | None  # where clients come in: `settings.listen`, or a Unix socket, or nowhere


def nats_role(settings: Settings, given: NatsServerSettings | None = None) -> NatsRole | None:
    """Say what nats-server would be told: by the file that the section names, or by who has read one (`given`).

    What the section says itself wins. None: there is no NATS here. Raises ConfigError.
    """
    section = settings.nats
    base = given
    if base is None and section.config:
        base = _read_file(section.config)
    if base is None and section.client is None and section.http is None and section.cluster is None:
        return None
    client: Address | None = section.client if base is None or _is_said(settings, "nats.client") else base.listen
    told = base or NatsServerSettings()
    if isinstance(client, TcpAddress):
        told = replace(told, listen=client)
    if _is_said(settings, "nats.http"):
        told = replace(told, http=_tcp("nats.http", section.http))
    if _is_said(settings, "nats.cluster"):
        listen = _tcp("nats.cluster", section.cluster)
        told = replace(told, cluster=None if listen is None else replace(told.cluster or ClusterSettings(), listen=listen))
    return NatsRole(_with_cluster(told, section), client)


def _with_cluster(told: NatsServerSettings, section: NatsSection) -> NatsServerSettings:
    """Add what the section says of the cluster beside where it listens."""
    cluster = told.cluster
    if cluster is None or cluster.listen is None:
        if section.routes:
            raise ConfigError(["nats.routes: nobody is dialled without nats.cluster: say where other servers dial this one, HOST:PORT"])
        return told
    if " " in section.cluster_name:
        raise ConfigError(["nats.cluster_name: the name of a cluster has no blanks"])
    if section.cluster_name:
        cluster = replace(cluster, name=section.cluster_name)
    if section.routes:
        cluster = replace(cluster, routes=_routes(section.routes))
    return replace(told, cluster=cluster)


def _routes(texts: tuple[str, ...]) -> tuple[RouteUrl, ...]:
    problems: list[str] = []
    found: list[RouteUrl] = []
    for text in texts:
        try:
            found.append(parse_route(text))
        except ValueError as error:
            problems.append(f"nats.routes: {error}")
    if problems:
        raise ConfigError(problems)
    return tuple(found)


def _read_file(name: str) -> NatsServerSettings:
    """Read nats-server's file for `polymq serve`, which is a process of its own kind."""
    told = load(Path(name).expanduser(), environment=os.environ)
    process = (("pid_file", told.pid_file), ("log_file", told.log_file), ("debug", told.debug))
    notes = [f"{name}: {key} has no meaning for polymq serve" for key, value in process if value]
    return replace(told, notes=(*told.notes, *notes))


def _is_said(settings: Settings, name: str) -> bool:
    """Say whether the section has something of its own, be it "off"."""
    return name in settings.origins or getattr(settings.nats, name.partition(".")[2]) is not None


def _tcp(name: str, address: Address | None) -> TcpAddress | None:
    if isinstance(address, UnixAddress):
        raise ConfigError([f"{name}: expected HOST:PORT, not the path of a socket"])
    return address


def nats_settings(settings: NatsServerSettings) -> NatsSettings:
    """Turn what nats-server is told into what the protocol knows."""
    return NatsSettings(
        payload_size_bytes_max=settings.payload_size_bytes_max,
        line_size_bytes_max=settings.control_line_size_bytes_max,
        connections_max=settings.connections_max or _ANY_NUMBER,
        subscriptions_max=settings.subscriptions_max or 0,
        subscription_tokens_max=settings.subscription_tokens_max or 0,
        pending_size_bytes_max=settings.pending_size_bytes_max,
        write_deadline_ns=settings.write_deadline_ns,
        ping_interval_ns=settings.ping_interval_ns,
        pings_unanswered_max=settings.ping_max,
        auth_timeout_ns=settings.authorization.timeout_ns,
        tls_timeout_ns=settings.tls.timeout_ns if settings.tls is not None else NatsSettings().tls_timeout_ns,
        lame_duck_duration_ns=settings.lame_duck_duration_ns,
        lame_duck_grace_period_ns=settings.lame_duck_grace_period_ns,
    )


def mount_nats(node: Node, role: NatsRole, backlog: int, mounts: list[Mount]) -> None:
    """Open what NATS's settings ask for. Raises ConfigError."""
    cluster = role.settings.cluster
    if role.client is None:
        if cluster is not None and cluster.listen is not None:
            raise ConfigError(["nats.cluster: a member of a cluster has clients: say where they come in, nats.client"])
        return
    listener = listen("nats.client", role.client, backlog)
    house = make_house(node, role.settings, port=port_of(listener))
    register_nats(node.broker.statistics, house)
    mounts.append(Mount("NATS", listener, lambda peer: NatsClient(house, peer), house=house, room=ROOM_TO_REFUSE))
    if cluster is not None and cluster.listen is not None:
        mounts.append(_mount_routes(node, role.settings, cluster.listen, backlog, house))
    if role.settings.http is not None:
        mounts.append(_mount_monitoring(node, role.settings, role.settings.http, backlog, house))
    # Whoever tells other servers what is wanted here is there by now.
    bridge(node.broker, node.settings.nats)


def _mount_routes(node: Node, settings: NatsServerSettings, address: Address, backlog: int, house: House) -> Mount:
    from polymq.gateways.nats.route import RouteGateway
    from polymq.server.nats_cluster import make_cluster, make_route_tls

    routes = listen("nats.cluster", address, backlog)
    route_tls = make_route_tls(settings)
    member = make_cluster(node, house, settings, port=port_of(routes), tls=route_tls)
    return Mount("NATS routes", routes, lambda peer: RouteGateway(member, peer), route_tls=route_tls, room=ROOM_KEPT)


def _mount_monitoring(node: Node, settings: NatsServerSettings, address: Address, backlog: int, house: House) -> Mount:
    from polymq.gateways.nats.monitoring import monitoring_router, refuse
    from polymq.server.http_mount import guard, mount_http
    from polymq.server.nats_monitoring import make_monitored

    pages = listen("nats.http", address, backlog)
    monitored = make_monitored(node, house, settings, port=port_of(pages))
    guarded = guard(node, monitoring_router(), lambda context, _: context, refuse, "/healthz", lambda _: Action.READ)
    return mount_http(node, "NATS monitoring", pages, guarded, monitored, room=ROOM_KEPT)


def make_house(node: Node, settings: NatsServerSettings, *, port: int) -> House:
    """Make the server that clients see; `port` is the one that was opened for them."""
    known = nats_settings(settings)
    server_id = make_server_id(secrets.token_bytes(SERVER_ID_SEED_SIZE_BYTES))
    logins, tls = make_nats_logins(settings), make_client_tls(settings)
    info = ServerInfo(
        server_id=server_id,
        server_name=settings.server_name or server_id,
        version=known.version,
        proto=_PROTOCOL_OF_CLIENTS,
        go=f"python{platform.python_version()}",
        host=settings.listen.host,
        port=port,
        headers=True,
        auth_required=logins.told,
        tls_required=tls is not None and tls.required,
        tls_verify=tls is not None and tls.verified,
        tls_available=tls is not None and tls.optional,
        max_payload=known.payload_size_bytes_max,
    )
    if rules := import_rules(settings):
        Imports(node.broker.live, rules, node.clock.monotonic_ns, secrets.token_bytes)  # the core's spaces have it
    house = House(node.broker, node.clock, known, info, logins, secrets.token_bytes, tls)
    house.taken, house.taken_max = (lambda: len(node.pump.connections)), node.connections_max
    house.work_groups = work_groups_of(node.broker, node.settings.nats)
    tell_connections_max(house)
    return house


def tell_connections_max(house: House) -> None:
    """Have it logged where the process takes fewer connections than `max_connections` allows."""
    wanted, there = house.settings.connections_max, house.taken_max
    if wanted > there:
        # Nobody may have asked for so many: that is nothing to be warned of.
        level = logging.INFO if wanted in (NatsSettings().connections_max, _ANY_NUMBER) else logging.WARNING
        text = "max_connections is %d, but this process serves %d connections of all kinds at a time: raise server.connections_max for more"
        log.log(level, text, wanted, there)
