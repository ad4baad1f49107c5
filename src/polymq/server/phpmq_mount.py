"""PHPMQ, put together: from its section of the settings to a house, and the ports that lead into it."""

from __future__ import annotations

import logging
import secrets
import ssl
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from polymq.config_values import UnixAddress, format_address
from polymq.core.access import ANONYMOUS, STRANGER
from polymq.core.statistics import Family, Kind, Sample
from polymq.errors import ConfigError
from polymq.gateways.phpmq.console import ConsoleGateway
from polymq.gateways.phpmq.house import House
from polymq.gateways.phpmq.tcp import PhpmqGateway
from polymq.protocols.phpmq.settings import PhpmqSettings
from polymq.server.mount import Mount, listen
from polymq.server.shell import ROOM_KEPT
from polymq.server.statistics import memory_bytes
from polymq.server.tls import no_password, tls_reason
from polymq.wire.tls import TlsLayer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from polymq.config_sections import PhpmqSettings as Section
    from polymq.config_values import Address
    from polymq.core.statistics import Registry
    from polymq.gateways.contract import Gateway, GatewayFactory, Peer
    from polymq.server.node import Node

__all__ = ["SALT_NAME", "folder_salt", "mount_phpmq", "phpmq_settings"]

_NS_PER_S: Final = 1_000_000_000
# In the data folder: what goes into the check of message ids, 16 hex digits.
SALT_NAME: Final = "phpmq-ids"
_SALT_BITS: Final = 64

log = logging.getLogger(__name__)


def phpmq_settings(section: Section, *, salt: int) -> PhpmqSettings:
    """Turn the section of the configuration into what the protocol knows."""
    return PhpmqSettings(
        content_size_bytes_max=section.max_message_size_bytes,
        window_max=section.max_window,
        ttl_s_max=section.max_ttl_ns // _NS_PER_S,
        salt=salt,
        legacy=section.dialect == "legacy",
        group=section.group,
        lease_ns=section.lease_ns,
        message_ns=section.message_timeout_ns,
        copy_dead=section.dead_letter == "copy",
    )


def folder_salt(folder: Path) -> int:
    """Give what tells this data folder's message ids from others', made at the first start.

    It is no secret and nothing depends on it but who is meant by an id: without the file there is another one, and ids that
    clients remember are nobody's.
    """
    path = folder.expanduser() / SALT_NAME
    try:
        return int(path.read_text(encoding="ascii"), 16) % (1 << _SALT_BITS)
    except (OSError, ValueError):
        salt = secrets.randbits(_SALT_BITS)
    try:
        fresh = path.with_suffix(".new")
        fresh.write_text(f"{salt:016x}\n", encoding="ascii")
        fresh.replace(path)
    except OSError as error:
        log.warning("%s cannot be written, so ids of PHPMQ messages hold until the next start only: %s", path, error.strerror or error)
    return salt


def mount_phpmq(node: Node, backlog: int, mounts: list[Mount]) -> None:
    """Open what PHPMQ's settings ask for. Raises ConfigError."""
    section = node.settings.phpmq
    if not section.group:
        raise ConfigError(["phpmq.group: a queue is a group of its topic: give it a name"])
    if section.unix is not None and not isinstance(section.unix, UnixAddress):
        raise ConfigError([f"phpmq.unix: expected unix:PATH, not {format_address(section.unix)}"])
    make_tls = _make_tls(section)
    house = House(phpmq_settings(section, salt=folder_salt(node.settings.server.data)), node.clock)
    principal = STRANGER if node.logins is not None and section.access == "closed" else ANONYMOUS
    if principal is STRANGER:
        log.warning("clients of PHPMQ may do nothing: keys are asked for, and they have no way to show one (phpmq.access)")

    def client(make_tls: Callable[[], TlsLayer] | None, peer: Peer) -> Gateway:
        return PhpmqGateway(node.broker.session(principal), peer, house, make_tls)

    def console(peer: Peer) -> Gateway:
        return ConsoleGateway(node.broker.session(principal), peer, house, process)

    def process() -> tuple[float, int]:
        return (node.clock.wall_ns() - node.started_at_ns) / _NS_PER_S, memory_bytes()[1]

    wanted: tuple[tuple[str, str, Address | None, GatewayFactory, int], ...] = (
        ("phpmq.tcp", "PHPMQ", section.tcp, partial(client, None), 0),
        ("phpmq.tls", "PHPMQ over TLS", section.tls, partial(client, make_tls), 0),
        ("phpmq.unix", "PHPMQ (unix)", section.unix, partial(client, None), 0),
        ("phpmq.maintenance", "PHPMQ maintenance", section.maintenance, console, ROOM_KEPT),
    )
    for name, what, address, factory, room in wanted:
        if address is not None:
            mounts.append(Mount(what, listen(name, address, backlog), factory, room=room))
    register_phpmq(node.broker.statistics, house)


def register_phpmq(registry: Registry, house: House) -> None:
    """Register what clients did that the protocol has no words for."""

    def closed() -> Iterable[Sample]:
        return [Sample({"reason": reason}, count) for reason, count in sorted(house.closed.items())]

    registry.register(
        Family("polymq_phpmq_closed_total", Kind.COUNTER, "Connections of PHPMQ closed for what they sent or asked for.", closed)
    )
    registry.register(
        Family(
            "polymq_phpmq_foreign_ids_total",
            Kind.COUNTER,
            "Message ids of PHPMQ clients that this server has not given out.",
            lambda: [Sample({}, house.foreign_ids)],
        )
    )


def _make_tls(section: Section) -> Callable[[], TlsLayer] | None:
    """Read certificate and key, if there is a port that needs them. Raises ConfigError."""
    if section.tls is None:
        return None
    if not section.tls_cert or not section.tls_key:
        raise ConfigError(["phpmq.tls: TLS needs a certificate and its key: phpmq.tls_cert and phpmq.tls_key"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    try:
        context.load_cert_chain(Path(section.tls_cert).expanduser(), Path(section.tls_key).expanduser(), password=no_password)
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        raise ConfigError([f"phpmq.tls_cert, phpmq.tls_key: {tls_reason(error)}"]) from error
    return partial(TlsLayer, context)
