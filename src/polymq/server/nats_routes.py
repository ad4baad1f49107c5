"""Dialling other NATS servers: those that the configuration names for ever, those that others tell of a few times.

What is told and heard on a route is `gateways/nats/cluster.py`'s business; here is who is dialled when.
"""

from __future__ import annotations

import ipaddress
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.config_values import TcpAddress, format_address
from polymq.gateways.nats.route import RouteGateway
from polymq.limits import ROUTE_HEARSAY_MAX, ROUTES_MAX
from polymq.server.nats_keys import parse_route
from polymq.server.nats_settings import RouteUrl

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.ports import Clock, Random
    from polymq.gateways.contract import Gateway, Peer
    from polymq.gateways.nats.cluster import Cluster
    from polymq.protocols.nats.info import ServerInfo
    from polymq.server.nats_settings import ClusterSettings
    from polymq.server.ports import Alarms, ClientTls, Dial, Dialer
    from polymq.server.timers import Alarm

__all__ = ["RouteKeeper"]

_SECOND_NS: Final = 1_000_000_000
_DIAL_TIMEOUT_NS: Final = 1 * _SECOND_NS
_PAUSE_NS: Final = 1 * _SECOND_NS
_PAUSE_NS_MAX: Final = 30 * _SECOND_NS
# Two servers that dial each other at the same moment may each hang up on the other: the next time the moments differ.
_JITTER_NS: Final = 100_000_000
# A server that others told of and that was lost is tried for so many times, about a minute in all: the configuration's
# servers may be well connected meanwhile, so that nobody would ever tell of it again. nats-server tries once.
_LOST_TRIES: Final = 6

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Means:
    """What a route needs to be dialled. `tls` gives how, by the name that the server's certificate must have."""

    dialer: Dialer
    alarms: Alarms
    clock: Clock
    random: Random
    cluster: Cluster
    tls: Callable[[str], ClientTls] | None
    backs_off: bool
    retries: int
    forget: Callable[[_Wanted], None]


class _Wanted:
    """One server that is wanted: dialled, waited for, or routed to. The cluster's `Solicitor`."""

    def __init__(self, means: _Means, url: RouteUrl, *, explicit: bool, server_name: str, gossip_mode: int = 0) -> None:
        """`server_name` must be in its certificate, if there is TLS."""
        self._means = means
        self.address = TcpAddress(url.host, url.port)
        self.user = url.user
        self.password = url.password
        self.explicit = explicit
        self.gossip_mode = gossip_mode
        self._server_name = server_name
        self._server_id = ""
        self._pause_ns = _PAUSE_NS
        self._tries_left = means.retries
        self._complaint = ""
        self._waits_for: Dial | Alarm | None = None
        self._stopped = False

    @property
    def is_waiting(self) -> bool:
        """Whether it is being dialled, or is to be."""
        return self._waits_for is not None

    def doubt(self) -> None:
        """Another server is said to be at this address: find out whether the one that was found there still is. If not, its route ends."""
        route = self._means.cluster.routes.get(self._server_id)
        if route is not None:
            route.probe()

    def start(self) -> None:
        """Dial now, if it is not routed to by another connection."""
        means = self._means
        routed = means.cluster.routes.get(self._server_id)
        if routed is not None:
            self._waits_for = None
            routed.adopt([self])
            return
        tls = None if means.tls is None else means.tls(self._server_name)
        self._waits_for = means.dialer.dial(self.address, self._connected, timeout_ns=_DIAL_TIMEOUT_NS, failed=self._failed, tls=tls)

    def stop(self) -> None:
        """Dial no more."""
        self._stopped = True
        if self._waits_for is not None:
            self._waits_for.cancel()

    def settled(self, server_id: str) -> None:
        """There is a route: the next pause is a short one again."""
        if self._complaint:
            log.info("NATS route %s: there again", format_address(self.address))
        self._server_id = server_id
        self._complaint = ""
        self._pause_ns = _PAUSE_NS
        self._tries_left = max(self._means.retries, _LOST_TRIES)

    def lost(self, reason: str, *, refused: bool) -> None:
        """Dial again, after a pause: at first at once if there was a route and others had told of the server."""
        was_routed = bool(self._server_id) and not self._complaint
        self._retry(reason, at_once=was_routed and not self.explicit and not refused, slower=refused)

    def abandon(self) -> None:
        """Dial no more: this is our own address."""
        self.stop()
        self._means.forget(self)

    def _failed(self, reason: str) -> None:
        self._retry(reason, at_once=False, slower=bool(self._server_id) and not self.explicit)

    def _retry(self, reason: str, *, at_once: bool, slower: bool) -> None:
        means = self._means
        self._waits_for = None
        if self._stopped or means.cluster.stopping:
            return
        if not self.explicit:
            self._tries_left -= 1
            if self._tries_left < 0:
                text = "NATS route %s: %s; it is not in the configuration, and given up"
                means.cluster.complaints.say(logging.INFO, text, format_address(self.address), reason)
                means.forget(self)
                return
        if reason != self._complaint:
            self._complaint = reason
            text = "NATS route %s: %s; trying again"
            if self.explicit:
                log.warning(text, format_address(self.address), reason)
            else:
                means.cluster.complaints.say(logging.WARNING, text, format_address(self.address), reason)
        pause_ns = 0 if at_once else self._pause_ns
        if slower or means.backs_off:
            self._pause_ns = min(2 * self._pause_ns, _PAUSE_NS_MAX)
        due_ns = means.clock.monotonic_ns() + pause_ns + means.random.randrange(_JITTER_NS)
        self._waits_for = means.alarms.call_at(due_ns, self.start)

    def _connected(self, peer: Peer) -> Gateway:
        self._waits_for = None
        return RouteGateway(self._means.cluster, peer, self)


class RouteKeeper:
    """Every server that is to be dialled."""

    def __init__(
        self,
        dialer: Dialer,
        alarms: Alarms,
        clock: Clock,
        random: Random,
        cluster: Cluster,
        settings: ClusterSettings,
        tls: Callable[[str], ClientTls] | None = None,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._means = _Means(dialer, alarms, clock, random, cluster, tls, settings.connect_backoff, settings.connect_retries, self._forget)
        self._named: list[_Wanted] = []
        self._hearsay: dict[TcpAddress, _Wanted] = {}
        cluster.heard_of = self.heard_of

    def start(self) -> None:
        """Dial those that the configuration names."""
        for url in self._settings.routes:
            if not url.user and self._settings.user:
                url = RouteUrl(url.host, url.port, self._settings.user, self._settings.password)
            wanted = _Wanted(self._means, url, explicit=True, server_name=url.host)
            self._named.append(wanted)
            wanted.start()

    def stop(self) -> None:
        """Dial nobody any more."""
        for wanted in (*self._named, *self._hearsay.values()):
            wanted.stop()

    def heard_of(self, info: ServerInfo) -> None:
        """Dial a server that another one has told of; not if the configuration names it, or if that has been done and is not over.

        So there is one connection to an address at most, whatever is told of it and how often.
        """
        try:
            url = parse_route(info.ip)
        except ValueError as error:
            self._cluster.complaints.say(logging.WARNING, "NATS cluster: told of a server at %r: %s", info.ip, error)
            return
        address = TcpAddress(url.host, url.port)
        told = TcpAddress(info.host, info.port)
        named = {(wanted.host, wanted.port) for wanted in self._settings.routes}
        if {(address.host, address.port), (told.host, told.port)} & named:
            return
        before = self._hearsay.get(address)
        if before is not None:
            before.doubt()
            return
        if not self._has_room_for(address):
            return
        if info.auth_required:
            url = RouteUrl(url.host, url.port, self._settings.user, self._settings.password)
        wanted = _Wanted(self._means, url, explicit=False, server_name=self._certified(url.host), gossip_mode=info.gossip_mode)
        self._hearsay[address] = wanted
        wanted.start()

    def _has_room_for(self, address: TcpAddress) -> bool:
        """Say whether one more address can be dialled. Connections to those who are silent are the cluster's to end (`Cluster.wait_for`)."""
        waiting_count = sum(wanted.is_waiting for wanted in self._hearsay.values())
        if waiting_count >= ROUTE_HEARSAY_MAX or len(self._hearsay) >= ROUTES_MAX:
            text = "NATS cluster: told of too many servers at a time, %s is not dialled"
            self._cluster.complaints.say(logging.ERROR, text, format_address(address))
            return False
        return True

    def _certified(self, host: str) -> str:
        """Say which name must be in the certificate of a server that others tell of: a name of the configuration if that is an address."""
        names = [host, *(wanted.host for wanted in self._settings.routes)]
        return next((name for name in names if not _is_address(name)), host)

    def _forget(self, wanted: _Wanted) -> None:
        if self._hearsay.get(wanted.address) is wanted:
            del self._hearsay[wanted.address]


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
