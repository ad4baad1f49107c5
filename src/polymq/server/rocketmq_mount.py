"""RocketMQ, put together: from the section of the configuration to a house, the gateways that lead into it, and who is told of it."""

from __future__ import annotations

import ipaddress
import logging
import random
import socket
import ssl
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from polymq.config_values import TcpAddress, format_address
from polymq.core.statistics import Family, Kind, Sample
from polymq.errors import ConfigError
from polymq.gateways.rocketmq.delays import Delays, parse_levels
from polymq.gateways.rocketmq.door import RocketmqDoor
from polymq.gateways.rocketmq.house import Facts, House
from polymq.gateways.rocketmq.registering import NodeIdentity
from polymq.protocols.rocketmq.names import AUTO_CREATE_TOPIC, is_valid_topic
from polymq.protocols.rocketmq.registration import TopicConfig
from polymq.protocols.rocketmq.settings import RocketmqSettings
from polymq.server.mount import Mount, listen
from polymq.server.network import own_addresses
from polymq.server.rocketmq_acl import make_gate
from polymq.server.rocketmq_names import NameServers, parse_name_servers
from polymq.server.tls import no_password, tls_reason
from polymq.wire.tls import TlsLayer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq import config_sections
    from polymq.config_values import Address
    from polymq.gateways.contract import Gateway, Peer
    from polymq.server.network import SocketListener
    from polymq.server.node import Node

__all__ = ["ROLES", "RocketmqParts", "make_parts", "make_tls", "mount_rocketmq", "wanted_addresses"]

# The settings that say where to listen, and what is there. All answer to everything.
ROLES: Final = {"broker": "RocketMQ", "vip": "RocketMQ VIP channel", "namesrv": "RocketMQ name server"}
_ANY: Final = ("", "0.0.0.0", "::")  # noqa: S104  # compared with, not listened on
_LOOPBACK: Final = "127.0.0.1"
_PERM_TEMPLATE: Final = 7
_PORT_OF_NOBODY: Final = 10911
_VIP_DISTANCE: Final = 2

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RocketmqParts:
    """What listeners need: the house, and the gateway of one connection."""

    house: House
    factory: Callable[[Peer], Gateway]


def wanted_addresses(section: config_sections.RocketmqSettings) -> dict[str, Address]:
    """Say where to listen, by role; nothing: there is no RocketMQ here."""
    wanted = {role: getattr(section, role) for role in ROLES}
    return {role: address for role, address in wanted.items() if address is not None}


def mount_rocketmq(node: Node, backlog: int, mounts: list[Mount]) -> None:
    """Open what RocketMQ's section asks for: the same house behind every port."""
    listeners: dict[str, SocketListener] = {}
    try:
        for role, address in wanted_addresses(node.settings.rocketmq).items():
            listeners[role] = listen(f"rocketmq.{role}", address, backlog, tells_local=True)
        if not listeners:
            return
        parts = make_parts(node, {role: listener.bound for role, listener in listeners.items()})
    except ConfigError:
        for listener in listeners.values():
            listener.close()
        raise
    mounts += [Mount(ROLES[role], listener, parts.factory) for role, listener in listeners.items()]


def make_parts(node: Node, bound: Mapping[str, Address]) -> RocketmqParts:
    """Make the broker that clients see, and have it told to name servers; `bound` is what was opened, by role. Raises ConfigError."""
    section = node.settings.rocketmq
    delays = _delays(section)
    gate = make_gate(section.acl_file)
    layer = make_tls(section)
    addresses = parse_name_servers(section.name_servers)
    facts = make_facts(node, bound)
    settings = RocketmqSettings(
        cluster_name=facts.cluster, broker_name=facts.broker_name, body_size_bytes_max=section.max_message_size_bytes
    )
    # Chooses queues, nothing secret.
    house = House(node.broker, node.clock, random.Random(), settings, facts)  # noqa: S311
    house.delays = delays
    house.gate = gate
    house.auto_create_topics = section.auto_create_topics
    house.auto_create_on_route = section.auto_create_topics and section.auto_create_on_route
    house.make_tls, house.tls_required = layer, section.tls_required
    house.idle_ns = section.channel_idle_ns
    if gate is not None and layer is None:
        log.info("RocketMQ: requests are signed, but what they say can be read on the way: rocketmq.tls_cert encrypts it")
    _tell_vip(bound)
    _register_statistics(node, house)
    if addresses:
        _register_at(node, house, settings, addresses, bound)

    def factory(peer: Peer) -> Gateway:
        return RocketmqDoor(house, peer, own_host=_own_host(peer, bound))

    return RocketmqParts(house, factory)


def _delays(section: config_sections.RocketmqSettings) -> Delays:
    try:
        levels = parse_levels(section.delay_levels)
    except ValueError as error:
        raise ConfigError([f"rocketmq.delay_levels: {error}"]) from error
    return Delays(levels, timer_ns_max=section.timer_max_delay_ns)


def make_facts(node: Node, bound: Mapping[str, Address]) -> Facts:
    """Say what this broker is called and where clients find it. Raises ConfigError."""
    section = node.settings.rocketmq
    name = section.broker_name or _plain(socket.gethostname())
    problems = [
        f"rocketmq.{key}: {text!r} is no name; letters, digits, - and _ are"
        for key, text in (("broker_name", name), ("cluster_name", section.cluster_name))
        if not is_valid_topic(text)
    ]
    if problems:
        raise ConfigError(problems)
    told = section.advertised_host or node.settings.server.advertise
    return Facts(
        cluster=section.cluster_name,
        broker_name=name,
        host=told,
        port=section.advertised_port or _port(bound),
        store_host=ipaddress.IPv4Address(_number_of(told)).packed if told else b"",
        queues=section.default_queues,
    )


def _plain(host: str) -> str:
    """Make a machine's name one that queues can have."""
    return "".join(each if is_valid_topic(each) and each not in "%|" else "-" for each in host) or "polymq"


def _number_of(host: str) -> str:
    """Find the IPv4 address that messages' ids have for a host; where there is none, one of this machine's."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        pass
    else:
        return host if isinstance(found, ipaddress.IPv4Address) else own_addresses()[0]
    try:
        return str(socket.getaddrinfo(host, None, family=socket.AF_INET, type=socket.SOCK_STREAM)[0][4][0])
    except OSError:
        fallback = own_addresses()[0]
        log.warning("rocketmq.advertised_host: the address of %s is not known here; messages' ids have %s", host, fallback)
        return fallback


def _port(bound: Mapping[str, Address]) -> int:
    """Give the port that clients send to: the broker's, else whatever is open."""
    for role in ROLES:
        address = bound.get(role)
        if isinstance(address, TcpAddress):
            return address.port
    return _PORT_OF_NOBODY


def _own_host(peer: Peer, bound: Mapping[str, Address]) -> str:
    """Say by which IPv4 address of ours a peer has come; if by none, where others would come."""
    if "." in peer.local_host:
        return peer.local_host
    return _reached(bound)


def _reached(bound: Mapping[str, Address]) -> str:
    """Say which address of this machine others reach."""
    for role in ROLES:
        address = bound.get(role)
        if isinstance(address, TcpAddress):
            return own_addresses()[0] if address.host in _ANY else address.host if "." in address.host else _LOOPBACK
    return _LOOPBACK


def _tell_vip(bound: Mapping[str, Address]) -> None:
    broker, vip = bound.get("broker"), bound.get("vip")
    if isinstance(broker, TcpAddress) and isinstance(vip, TcpAddress) and vip.port != broker.port - _VIP_DISTANCE:
        log.warning(
            "rocketmq.vip: clients look for it at the broker's port - 2, which is %d, not %d", broker.port - _VIP_DISTANCE, vip.port
        )


def make_tls(section: config_sections.RocketmqSettings) -> Callable[[], TlsLayer] | None:
    """Read certificate and key; None without them. Raises ConfigError."""
    if not section.tls_cert and not section.tls_key:
        if section.tls_required:
            raise ConfigError(["rocketmq.tls_required: TLS cannot be required without rocketmq.tls_cert and rocketmq.tls_key"])
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(Path(section.tls_cert).expanduser(), Path(section.tls_key).expanduser(), password=no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError([f"rocketmq.tls_cert, rocketmq.tls_key: {tls_reason(error)}"]) from error
    return partial(TlsLayer, context)


def _register_at(
    node: Node, house: House, settings: RocketmqSettings, addresses: tuple[Address, ...], bound: Mapping[str, Address]
) -> None:
    """Have other name servers told of this node."""
    facts = house.facts
    fixed = [TopicConfig(name, 1, 1) for name in (facts.cluster, facts.broker_name, f"{facts.cluster}_REPLY_TOPIC")]
    if house.auto_create_topics:
        fixed.append(TopicConfig(AUTO_CREATE_TOPIC, facts.queues, facts.queues, _PERM_TEMPLATE))
    address = format_address(TcpAddress(facts.host or _reached(bound), facts.port))
    identity = NodeIdentity(facts.broker_name, facts.cluster, address, tuple(fixed))
    interval_ns = node.settings.rocketmq.register_interval_ns
    NameServers(node.dialer, node.pump, node.clock, node.broker, identity, settings, interval_ns=interval_ns).register_at(addresses)


def _register_statistics(node: Node, house: House) -> None:
    """Show how much the name server knows of others, and how many are connected."""
    figures: tuple[tuple[str, str, Callable[[], float]], ...] = (
        ("polymq_rocketmq_connections", "Connections of RocketMQ's clients.", lambda: len(house.clients)),
        ("polymq_rocketmq_named_brokers", "Other brokers that have registered here.", lambda: len(house.registry.brokers())),
        ("polymq_rocketmq_named_topics", "Their topics, once for each of them.", lambda: house.registry.size),
    )
    for name, text, value in figures:
        node.broker.statistics.register(Family(name, Kind.GAUGE, text, partial(_sample, value)))


def _sample(value: Callable[[], float]) -> list[Sample]:
    return [Sample({}, value())]
