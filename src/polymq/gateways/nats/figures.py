"""What there is to say of clients' connections: of those that are open, of the last ones that were, and of all together."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Final, Protocol

from polymq.core.access import ANONYMOUS, STRANGER
from polymq.limits import NATS_DEPARTED_MAX, NATS_DEPARTED_SUBSCRIPTIONS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable

    from polymq.gateways.contract import Peer
    from polymq.gateways.nats.client import NatsClient
    from polymq.protocols.nats.info import ServerInfo
    from polymq.protocols.nats.problems import CloseReason

__all__ = ["ConnectionFigures", "Departed", "RouteFigures", "SubscriptionFigures", "Totals", "figures_of", "subscriptions_of", "user_of"]

_NOBODY: Final = (ANONYMOUS, STRANGER)


@dataclass(frozen=True, slots=True)
class SubscriptionFigures:
    """One subscription. `limit` 0: none."""

    subject: bytes
    queue: bytes
    sid: bytes
    given: int
    limit: int
    client_id: int


@dataclass(frozen=True, slots=True)
class ConnectionFigures:
    """One connection. `stopped_at_ns` 0: it is open. `subscriptions` may be fewer than there are, or were."""

    client_id: int
    host: str
    port: int
    started_at_ns: int
    heard_at_ns: int
    rtt_ns: int
    in_message_count: int
    in_size_bytes: int
    out_message_count: int
    out_size_bytes: int
    stall_count: int
    subscription_count: int
    name: str
    lang: str
    version: str
    tls_version: str
    tls_cipher_suite: str
    user: str
    namespace: str
    pending_size_bytes: int = 0
    stopped_at_ns: int = 0
    reason: str = ""
    subscriptions: tuple[SubscriptionFigures, ...] = ()


class RouteFigures(Protocol):
    """What a route tells of itself."""

    id: int
    peer: Peer
    info: ServerInfo  # of the other server
    connected_at_ns: int
    heard_at_ns: int
    in_message_count: int
    in_size_bytes: int
    out_message_count: int
    out_size_bytes: int
    dialled: bool

    @property
    def explicit(self) -> bool:
        """Whether it is in our configuration."""

    @property
    def rtt_ns(self) -> int:
        """Of the last PING that was answered."""

    @property
    def subscription_count(self) -> int:
        """What the other server wants."""


def user_of(client: NatsClient) -> str:
    """Name who has logged in; nothing if nobody has."""
    principal = client.session.principal
    return "" if principal in _NOBODY else principal.name


def subscriptions_of(client: NatsClient, count_max: int) -> tuple[SubscriptionFigures, ...]:
    """List a client's subscriptions, so many at most."""
    return tuple(
        SubscriptionFigures(entry.pattern, entry.queue, sid, entry.given, entry.limit, client.id)
        for sid, entry in islice(client.subscriptions.items(), count_max)
    )


def figures_of(
    client: NatsClient, *, pending_size_bytes: int = 0, stopped_at_ns: int = 0, reason: str = "", subscriptions_max: int = 0
) -> ConnectionFigures:
    """Say how a client is, with so many of its subscriptions at most."""
    principal, connect, tls = client.session.principal, client.connect, client.tls
    return ConnectionFigures(
        client_id=client.id,
        host=client.peer.host,
        port=client.peer.port,
        started_at_ns=client.connected_at_ns,
        heard_at_ns=client.heard_at_ns,
        rtt_ns=client.rtt_ns,
        in_message_count=client.in_message_count,
        in_size_bytes=client.in_size_bytes,
        out_message_count=client.out_message_count,
        out_size_bytes=client.out_size_bytes,
        stall_count=client.stall_count,
        subscription_count=len(client.subscriptions),
        name=connect.name,
        lang=connect.lang,
        version=connect.version,
        tls_version=tls.version.removeprefix("TLSv") if tls is not None else "",
        tls_cipher_suite=tls.cipher_suite if tls is not None else "",
        user=user_of(client),
        namespace=principal.namespace,
        pending_size_bytes=pending_size_bytes,
        stopped_at_ns=stopped_at_ns,
        reason=reason,
        subscriptions=subscriptions_of(client, subscriptions_max),
    )


@dataclass(slots=True)
class Totals:
    """Messages and bytes, in and out."""

    in_message_count: int = 0
    in_size_bytes: int = 0
    out_message_count: int = 0
    out_size_bytes: int = 0

    def add(self, each: NatsClient | RouteFigures) -> None:
        """Add what a connection has seen."""
        self.in_message_count += each.in_message_count
        self.in_size_bytes += each.in_size_bytes
        self.out_message_count += each.out_message_count
        self.out_size_bytes += each.out_size_bytes

    def with_those(self, others: Iterable[NatsClient | RouteFigures]) -> Totals:
        """Give the sum of these and of connections."""
        total = Totals(self.in_message_count, self.in_size_bytes, self.out_message_count, self.out_size_bytes)
        for each in others:
            total.add(each)
        return total


@dataclass(slots=True)
class Departed:
    """Those who have gone: the last of them one by one, and what all of them have left behind."""

    last: deque[ConnectionFigures] = field(default_factory=lambda: deque(maxlen=NATS_DEPARTED_MAX))
    totals: Totals = field(default_factory=Totals)
    slow_consumer_count: int = 0
    slow_route_count: int = 0
    stale_count: int = 0

    def add(self, client: NatsClient, reason: CloseReason, *, now_ns: int) -> None:
        """Remember who goes, and why."""
        self.totals.add(client)
        self.slow_consumer_count += reason in (reason.SLOW_CONSUMER_PENDING, reason.SLOW_CONSUMER_DEADLINE)
        self.stale_count += reason is reason.STALE_CONNECTION
        self.last.append(figures_of(client, stopped_at_ns=now_ns, reason=reason.value, subscriptions_max=NATS_DEPARTED_SUBSCRIPTIONS_MAX))
