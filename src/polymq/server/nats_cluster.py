"""A member of a cluster, put together from the settings of nats-server: names, addresses, TLS, who is dialled."""

from __future__ import annotations

import random
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from polymq.config_values import TcpAddress, format_address
from polymq.gateways.nats.account_names import GLOBAL_ACCOUNT
from polymq.gateways.nats.cluster import Cluster, RouteFacts
from polymq.gateways.nats.pings import PingPolicy
from polymq.gateways.nats.route_rules import RouteRules
from polymq.protocols.nats.info import Permissions
from polymq.server.nats_routes import RouteKeeper
from polymq.server.nats_tls import accepting_context, dialling_context
from polymq.server.network import own_addresses
from polymq.server.ports import ClientTls
from polymq.wire.tls import TlsLayer

if TYPE_CHECKING:
    from polymq.gateways.nats.house import House
    from polymq.server.nats_settings import NatsServerSettings, SubjectRules, TlsSettings
    from polymq.server.node import Node

__all__ = ["RouteTls", "make_cluster", "make_route_tls"]

_ANY: Final = ("", "0.0.0.0", "::")  # noqa: S104  # compared with, not listened on
_NAME_RANDOM_BYTES: Final = 16
_EVERYTHING: Final = ">"


def make_cluster(node: Node, house: House, settings: NatsServerSettings, *, port: int, tls: RouteTls | None = None) -> Cluster:
    """Make the member that other servers see, and begin to dial them; `port` is the one that was opened for routes.

    Must come before anybody listens to live messages. Raises ConfigError.
    """
    cluster = settings.cluster
    assert cluster is not None
    assert cluster.listen is not None
    host, told_port = cluster.listen.host, port
    if cluster.advertise is not None:
        host, told_port = cluster.advertise.host, cluster.advertise.port or port
    facts = RouteFacts(
        host=host,
        port=told_port,
        advertised=cluster.advertise is not None,
        name=cluster.name or secrets.token_hex(_NAME_RANDOM_BYTES),
        dynamic=not cluster.name,
        user=cluster.user,
        password=cluster.password,
        connect_urls=() if cluster.no_advertise else _client_urls(settings, house.info.port),
        tells_clients=not cluster.no_advertise,
        auth_timeout_ns=cluster.auth_timeout_ns,
        make_tls=None if tls is None else tls.accept,
        rules=RouteRules(_permissions(cluster.imports), _permissions(cluster.exports)),
    )
    pings = PingPolicy.of_routes(house.settings, interval_ns=cluster.ping_interval_ns, unanswered_max=cluster.ping_max)
    accounts = [account for account in settings.accounts if account.name != settings.system_account]
    made = Cluster(
        house,
        facts,
        pings,
        [account.name for account in accounts],
        system=settings.system_account,
        # As nats-server: where there are no accounts but everybody's, that one may.
        jetstream=[account.name for account in accounts if account.jetstream] if accounts else [GLOBAL_ACCOUNT],
    )
    house.cluster = made
    house.info = replace(house.info, cluster=made.name)
    keeper = RouteKeeper(
        node.dialer,
        node.pump,
        node.clock,
        random.Random(),  # noqa: S311 - moments, nothing secret
        made,
        cluster,
        None if tls is None else tls.dial,
    )
    keeper.start()
    return made


def make_route_tls(settings: NatsServerSettings) -> RouteTls | None:
    """Read what routes need for TLS; None: they have none. Raises ConfigError."""
    if settings.cluster is None or settings.cluster.listen is None or settings.cluster.tls is None:
        return None
    return RouteTls(settings.cluster.tls)


class RouteTls:
    """Routes within TLS: both ends show a certificate, and the one that is dialled must have the name that was dialled."""

    def __init__(self, settings: TlsSettings) -> None:
        """Read what there is. Raises ConfigError."""
        self._server = accepting_context(settings, verify=True, name="cluster.tls")
        self._client = dialling_context(settings, name="cluster.tls")

    def become(self, other: RouteTls) -> None:
        """Have what another one has read, for connections from here on."""
        self._server, self._client = other._server, other._client

    def accept(self) -> TlsLayer:
        """Give the layer of a connection that has come in."""
        return TlsLayer(self._server)

    def dial(self, name: str) -> ClientTls:
        """Say how a server is dialled whose certificate must have a name."""
        return ClientTls(self._client, name)


def _permissions(rules: SubjectRules) -> Permissions | None:
    """Say in INFO's words what may pass; None: everything. Nothing is what denies everything."""
    if rules.allow is None and not rules.deny:
        return None
    if rules.allow is not None and not rules.allow:
        return Permissions(deny=(_EVERYTHING,))
    return Permissions(tuple(rule.subject for rule in rules.allow or ()), tuple(rule.subject for rule in rules.deny))


def _client_urls(settings: NatsServerSettings, port: int) -> tuple[str, ...]:
    """Say where clients find this server: as is advertised, or where it listens, which may be on all addresses of this machine."""
    told = settings.client_advertise
    if told is not None:
        return (format_address(TcpAddress(told.host, told.port or port)),)
    hosts = (settings.listen.host,) if settings.listen.host not in _ANY else own_addresses()
    return tuple(format_address(TcpAddress(host, port)) for host in hosts)
