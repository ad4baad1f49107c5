"""What this server knows of its cluster: who it is on routes, the servers that it has routes to, what they are told.

No I/O: routes are gateways (`route.py`), and dialling is somebody else's (`server/nats_routes.py`), who is asked by
`Cluster.heard_of`. Every server has a route to every other one; a message goes one step, so nothing is relayed but word
of new servers.
"""

from __future__ import annotations

import hmac
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from polymq.gateways.login import PasswordCheck
from polymq.gateways.nats.account_names import SYSTEM_ACCOUNT
from polymq.gateways.nats.client_urls import urls_for_clients
from polymq.gateways.nats.complaints import Complaints
from polymq.gateways.nats.jetstream_api import JetStreamApi
from polymq.gateways.nats.route_accounts import RouteAccounts
from polymq.gateways.nats.route_rules import RouteRules
from polymq.limits import ROUTE_HEARSAY_MAX, ROUTES_MAX, ROUTES_WAITING_MAX
from polymq.protocols.nats.info import ServerInfo, write_info
from polymq.protocols.nats.problems import CloseReason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from polymq.core.live import LiveSpace
    from polymq.gateways.nats.house import House
    from polymq.gateways.nats.pings import PingPolicy
    from polymq.gateways.nats.route import RouteGateway
    from polymq.wire.tls import TlsLayer

__all__ = ["GOSSIP_OFF", "Cluster", "RouteFacts", "Solicitor"]

# What is said of this server on routes: the protocol with headers, without message tracing.
_PROTOCOL_OF_ROUTES: Final = 2
# INFO's `gossip_mode`: who dials because of gossip says so, and is not to be told of again.
GOSSIP_OFF: Final = 1
# What a password begins with that is kept as its bcrypt hash.
_HASHED: Final = "$2"
# Why a route ends whose server does not keep up.
_SLOW: Final = (CloseReason.SLOW_CONSUMER_PENDING.value, CloseReason.SLOW_CONSUMER_DEADLINE.value)

log = logging.getLogger(__name__)


class Solicitor(Protocol):
    """Whoever wants a route to a server, and dials it. A connection that it made tells it how it went."""

    explicit: bool  # the configuration names the server
    user: str
    password: str
    gossip_mode: int

    def settled(self, server_id: str) -> None:
        """There is a route to the server, by this connection or another one."""

    def lost(self, reason: str, *, refused: bool) -> None:
        """There is none, or none any more. `refused`: the other server does not want one."""

    def abandon(self) -> None:
        """The address is this server's own: dial it no more."""


@dataclass(frozen=True, slots=True)
class RouteFacts:
    """What is set for routes. `host` and `port` are told to others, who dial them."""

    host: str
    port: int
    advertised: bool = False  # host and port are not those that are listened on: they are told as a URL as well
    name: str = ""
    dynamic: bool = False  # the name is made up, and given up for another's
    user: str = ""
    password: str = field(default="", repr=False)
    connect_urls: tuple[str, ...] = ()  # where clients find this server
    tells_clients: bool = True  # where they find the others
    auth_timeout_ns: int = 2_000_000_000
    make_tls: Callable[[], TlsLayer] | None = None  # for who dials us
    rules: RouteRules = field(default_factory=RouteRules)


def _hear_nothing(_info: ServerInfo) -> None:
    """Stand in for whoever dials."""


class Cluster:
    """The core's `InterestWatcher` for other servers. `routes` has the established ones, by the other server's id."""

    def __init__(
        self,
        house: House,
        facts: RouteFacts,
        pings: PingPolicy,
        accounts: Iterable[str] = (),
        *,
        system: str = SYSTEM_ACCOUNT,
        jetstream: Iterable[str] = (),
    ) -> None:
        """`jetstream`: the accounts that may ask JetStream of other servers, by `system`, the servers' own account."""
        self.house = house
        self.facts = facts
        self.pings = pings
        self.name = facts.name
        self.dynamic = facts.dynamic
        asking = tuple(jetstream)
        self.accounts = RouteAccounts(house.broker.live, accounts, system if asking else "")
        self.routes: dict[str, RouteGateway] = {}
        # All connections, routes already or not: each has a number of its own.
        self.connections: dict[int, RouteGateway] = {}
        # Those of them that have not said who they are, the oldest first: who has come in, and who was dialled because of gossip.
        self._waiting: dict[int, RouteGateway] = {}
        self._waiting_dialled: dict[int, RouteGateway] = {}
        self.connection_count = 0
        self.stopping = False
        self.complaints = Complaints(log, house.clock.monotonic_ns)
        self.heard_of: Callable[[ServerInfo], None] = _hear_nothing
        self._lame_duck = False
        house.broker.live.watchers.append(self)
        if asking:
            JetStreamApi(house, self.accounts, asking)  # the accounts have it

    # -- this server -----------------------------------------------------------------------------------------------

    def info(self, *, gossip_mode: int = 0) -> ServerInfo:
        """Say who this server is, on a route."""
        house, facts = self.house, self.facts
        told = house.info
        return ServerInfo(
            server_id=told.server_id,
            server_name=told.server_name,
            version=told.version,
            proto=_PROTOCOL_OF_ROUTES,
            go=told.go,
            host=facts.host,
            port=facts.port,
            headers=True,
            auth_required=bool(facts.user),
            tls_required=facts.make_tls is not None,
            tls_verify=facts.make_tls is not None,
            max_payload=told.max_payload,
            ip=route_url(facts.host, facts.port) if facts.advertised else "",
            cluster=self.name,
            cluster_dynamic=self.dynamic,
            connect_urls=facts.connect_urls,
            ldm=self._lame_duck,
            permissions_import=facts.rules.imports,
            permissions_export=facts.rules.exports,
            gossip_mode=gossip_mode,
            polymq=True,
        )

    def admits(self, user: str, password: str) -> bool | PasswordCheck:
        """Say whether a server that dials us may, by what it says in CONNECT; or what is to be looked at for that."""
        facts = self.facts
        if not facts.user:
            return True
        right = hmac.compare_digest(_encoded(user), _encoded(facts.user))
        if facts.password.startswith(_HASHED):
            return PasswordCheck(_encoded(password), _encoded(facts.password)) if right else False
        return hmac.compare_digest(_encoded(password), _encoded(facts.password)) and right

    def agree(self, name: str, *, dynamic: bool, route: RouteGateway) -> bool:
        """Compare names of clusters. One that was made up gives way to one that was not, and to a greater one."""
        if name == self.name:
            return True
        if not name or not self.dynamic or (dynamic and name < self.name):
            return False
        log.info("NATS cluster: %s is called %s from now on", self.name, name)
        self.name, self.dynamic = name, dynamic
        for other in list(self.connections.values()):
            if other is not route:
                other.leave(CloseReason.CLUSTER_NAME_CONFLICT)
        self.house.tell(replace(self.house.info, cluster=name))
        return True

    def lame_duck(self) -> None:
        """Tell the others that this server is about to go, so that they send no clients here."""
        self._lame_duck = True
        for route in self.routes.values():
            route.say(write_info(self.info()))

    # -- other servers ---------------------------------------------------------------------------------------------

    def admit(self, route: RouteGateway) -> int:
        """Give a new connection its number, from 1 on."""
        self.connection_count += 1
        self.connections[self.connection_count] = route
        return self.connection_count

    def wait_for(self, route: RouteGateway) -> None:
        """Give a connection time to say who it is. If too many of its sort are silent, the one that has been for longest goes.

        So nobody is kept out by them: a server says who it is at once. Those that the configuration names are as many as it names.
        """
        if route.explicit:
            return
        waiting, count_max = (self._waiting_dialled, ROUTE_HEARSAY_MAX) if route.dialled else (self._waiting, ROUTES_WAITING_MAX)
        waiting[route.id] = route
        if len(waiting) > count_max:
            waiting.pop(next(iter(waiting))).leave(CloseReason.CONNECTIONS_EXCEEDED, at_once=True)

    def wait_no_more(self, route: RouteGateway) -> None:
        """Note that a connection has said who it is, or ends."""
        self._waiting.pop(route.id, None)
        self._waiting_dialled.pop(route.id, None)

    def register(self, route: RouteGateway, info: ServerInfo) -> CloseReason | None:
        """Take a connection that has said who it is for the route to that server; or say why not."""
        own = self.house.info
        if not info.server_id:
            return CloseReason.PROTOCOL_VIOLATION
        if info.server_id == own.server_id:
            self.complaints.say(logging.INFO, "NATS route %s: leads to this server itself", route.peer.address)
            for solicitor in route.take_solicitors():
                solicitor.abandon()
            return CloseReason.DUPLICATE_ROUTE
        if info.server_name == own.server_name:
            text = "NATS route %s: a server with this one's name, %r; give each its own"
            self.complaints.say(logging.ERROR, text, route.peer.address, own.server_name)
            return CloseReason.DUPLICATE_SERVER_NAME
        before = self.routes.get(info.server_id)
        if before is not None and not self._gives_way(before, route):
            text = "NATS route %s: there is a route to %s already, at %s"
            self.complaints.say(logging.INFO, text, route.peer.address, info.server_id, before.peer.address)
            return CloseReason.DUPLICATE_ROUTE
        if before is None and len(self.routes) >= ROUTES_MAX:
            self.complaints.say(logging.ERROR, "NATS route %s: there are %d already", route.peer.address, ROUTES_MAX)
            return CloseReason.CONNECTIONS_EXCEEDED
        self.routes[info.server_id] = route
        self.wait_no_more(route)
        log.info("NATS route to %s (%s) at %s", info.server_name, info.server_id, route.peer.address)
        for solicitor in route.solicitors:
            solicitor.settled(info.server_id)
        if before is None:
            self._spread_word(route, info)
        self.tell_clients()
        return None

    def _gives_way(self, before: RouteGateway, route: RouteGateway) -> bool:
        """See whether the route that there is has been dead for a while; else find out, and go on with it."""
        if before.is_silent():
            log.warning("NATS route %s: does not answer, and a new connection takes its place", before.peer.address)
            route.solicitors += before.take_solicitors()
            before.leave(CloseReason.STALE_CONNECTION, at_once=True)
            return True
        before.adopt(route.take_solicitors())
        before.probe()
        return False

    def _spread_word(self, route: RouteGateway, info: ServerInfo) -> None:
        """Tell all others of a new server: they dial it."""
        if GOSSIP_OFF in (info.gossip_mode, route.gossip_mode) or not (info.ip or info.port):
            return
        url = info.ip or route_url(route.peer.host, info.port)
        line = write_info(replace(info, nonce="", ip=url, gossip_mode=0), gossip=True)
        for other in self.routes.values():
            if other is not route:
                other.say(line)

    def hear(self, info: ServerInfo) -> None:
        """Another server tells of a third one."""
        if info.server_id and info.server_id != self.house.info.server_id and info.server_id not in self.routes and info.ip:
            self.heard_of(info)

    def left(self, route: RouteGateway) -> None:
        """A connection has ended."""
        self.connections.pop(route.id, None)
        self.wait_no_more(route)
        info = route.info
        if route.overdue:
            route.end_reason = CloseReason.SLOW_CONSUMER_DEADLINE.value
        slow = route.end_reason in _SLOW
        self.house.departed.slow_route_count += slow
        if self.routes.get(info.server_id) is route:
            del self.routes[info.server_id]
            level = logging.WARNING if slow else logging.INFO
            log.log(level, "NATS route to %s (%s) has ended: %s", info.server_name, info.server_id, route.end_reason)
            self.tell_clients()

    def tell_clients(self) -> None:
        """Say where clients find the others, if that has changed. A server that stands alone says nothing of itself either."""
        if not self.facts.tells_clients:
            return
        telling = [route for route in self.routes.values() if route.connect_urls()]
        urls, left_out = urls_for_clients(self.facts.connect_urls, [route.connect_urls() for route in telling])
        for route, count in zip(telling, left_out, strict=True):
            if count:
                text = "NATS route %s: %d of its addresses for clients are not passed on to them: they are none, too long, or too many"
                self.complaints.say(logging.WARNING, text, route.peer.address, count)
        if not telling:
            urls = ()
        if urls != self.house.info.connect_urls:
            self.house.tell(replace(self.house.info, connect_urls=urls))

    # -- interest --------------------------------------------------------------------------------------------------

    def interest_changed(self, space: LiveSpace, pattern: bytes, queue: bytes) -> None:
        """Tell the others that listeners here have come or gone; see `core.live.InterestWatcher`."""
        account = self.accounts.by_namespace.get(space.namespace)
        if account is None:
            return
        line = account.change(pattern, queue, self.facts.rules)
        if line:
            for route in self.routes.values():
                route.say(line)


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def route_url(host: str, port: int) -> str:
    """Write where a server is dialled, as INFO has it."""
    return f"nats-route://[{host}]:{port}/" if ":" in host else f"nats-route://{host}:{port}/"
