"""What all NATS connections of a server share: who it is, what it allows, and who is connected.

Read next: `client.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from polymq.gateways.nats.figures import Departed, Totals
from polymq.protocols.nats.info import write_info

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from polymq.core.access import Principal
    from polymq.core.broker import Broker
    from polymq.core.ports import Clock
    from polymq.gateways.contract import Peer
    from polymq.gateways.login import Denied, Login
    from polymq.gateways.nats.client import NatsClient
    from polymq.gateways.nats.cluster import Cluster
    from polymq.gateways.nats.figures import RouteFigures
    from polymq.gateways.nats.sharing import WorkGroups
    from polymq.protocols.nats.info import ClientConnect, ServerInfo
    from polymq.protocols.nats.problems import CloseReason
    from polymq.protocols.nats.settings import NatsSettings
    from polymq.wire.tls import TlsLayer

__all__ = ["ClientTls", "House", "NatsAttempt", "NatsLogins"]


class NatsAttempt(Protocol):
    """A login that has to be asked for; see `gateways.login.Attempt`."""

    @property
    def question(self) -> object:
        """What is to be asked now."""

    def take(self, answer: object) -> Login | Denied | None:
        """Take the answer to the question (None: there was none). None: `question` is another one now, ask that."""


class NatsLogins(Protocol):
    """Who may come in, and as whom."""

    required: bool  # whoever says nothing at all is given up after `timeout_ns`
    told: bool  # INFO says so
    signed: bool  # somebody may log in with a key: INFO has a nonce to sign
    timeout_ns: int  # from the connection to a login
    nobody: Principal | None  # who says nothing of himself is this one; None: CONNECT has to come first, and to say it

    def begin(self, connect: ClientConnect, nonce: str, peer: Peer, tls: TlsLayer | None) -> Principal | Denied | NatsAttempt:
        """Find out who that is. What cannot be known at once is an attempt."""


@dataclass(frozen=True, slots=True)
class ClientTls:
    """How clients' connections are encrypted. `make` gives the layer of one connection."""

    make: Callable[[], TlsLayer]
    required: bool = True  # else a client may do without
    optional: bool = False  # clients are told that they may do without
    verified: bool = False  # a certificate of the client's is asked for
    first: bool = False  # the handshake comes before INFO
    fallback_ns: int = 0  # with `first`: INFO comes in plain if no handshake begins within this; 0: never
    timeout_ns: int = 2_000_000_000  # of a handshake


@dataclass(slots=True, eq=False)
class House:
    """One server. `info` is what every client is told, but for what is about its connection; change it by `tell`."""

    broker: Broker
    clock: Clock
    settings: NatsSettings
    info: ServerInfo
    logins: NatsLogins
    random_bytes: Callable[[int], bytes]
    tls: ClientTls | None = None
    cluster: Cluster | None = None
    clients: dict[int, NatsClient] = field(default_factory=dict)
    client_count: int = 0  # ever
    # The process's connections of all kinds, and how many of them may be served: the rest has room only to be told so.
    taken: Callable[[], int] = lambda: 0
    taken_max: int = 1 << 31
    # Queue groups whose members share a work group with other protocols'; None: there are none.
    work_groups: WorkGroups | None = None
    reloaded_at_ns: int = 0  # when the configuration was read again; 0: never
    departed: Departed = field(default_factory=Departed)
    # Somebody who has just been given a message has more waiting than is good: whoever publishes had better wait.
    pressed: bool = False
    stall_count: int = 0  # how often somebody waited

    def admit(self, client: NatsClient) -> int:
        """Give a new client its number, from 1 on."""
        self.client_count += 1
        self.clients[self.client_count] = client
        return self.client_count

    def is_full(self) -> bool:
        """Say whether somebody is there who is too many: by the configuration, or for the process."""
        return len(self.clients) > self.settings.connections_max or self.taken() > self.taken_max

    def dismiss(self, client: NatsClient, reason: CloseReason) -> None:
        """Take leave of a client."""
        if self.clients.pop(client.id, None) is not None:
            self.departed.add(client, reason, now_ns=self.clock.wall_ns())

    def routes(self) -> Collection[RouteFigures]:
        """List the connections to other servers."""
        return () if self.cluster is None else self.cluster.routes.values()

    def totals(self) -> Totals:
        """Add up what clients have sent and got, those who have gone as well."""
        return self.departed.totals.with_those(self.clients.values())

    def info_line(self, *, client_id: int, peer: Peer, nonce: str = "", connect_info: bool = False) -> bytes:
        """Write INFO for one connection."""
        return write_info(replace(self.info, client_id=client_id, client_ip=peer.remote_host, nonce=nonce, connect_info=connect_info))

    def tell(self, info: ServerInfo) -> None:
        """Say something else to clients from now on, also to those who are connected and understand it."""
        self.info = info
        for client in self.clients.values():
            client.tell_info()
