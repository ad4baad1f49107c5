"""Reading nats-server's configuration again while the server runs (SIGHUP): what can change is changed, all of it or nothing.

A file with an error changes nothing. What would need a restart is named in the log and stays as it is, and what is beside it
in the file holds. Read next: `gateways/nats/relogin.py`, which says what becomes of clients that are connected.
"""

from __future__ import annotations

import logging
from collections import deque
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Final

from polymq.errors import ConfigError
from polymq.limits import NATS_RECONSIDERED_PER_CLIENT, NATS_RECONSIDERED_PER_TURN_MAX
from polymq.protocols.nats.problems import CloseReason
from polymq.server.nats_cluster import make_route_tls
from polymq.server.nats_logins import remake_nats_logins
from polymq.server.nats_mount import nats_settings, tell_connections_max
from polymq.server.nats_settings import LIMIT_FIELDS, NatsServerSettings
from polymq.server.nats_tls import make_client_tls

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.gateways.nats.client import NatsClient
    from polymq.gateways.nats.house import House
    from polymq.server.nats_cluster import RouteTls
    from polymq.server.nats_settings import TlsSettings

__all__ = ["NatsReload"]

# Who may come in. They are of accounts: where those have changed, they stay as they are as well.
_LOGINS: Final = ("authorization", "users", "no_auth_user")
# What these fields are called in the file.
_CALLED: Final = {
    "connections_max": "max_connections",
    "subscriptions_max": "max_subscriptions",
    "subscription_tokens_max": "max_subscription_tokens",
    "control_line_size_bytes_max": "max_control_line",
    "payload_size_bytes_max": "max_payload",
    "pending_size_bytes_max": "max_pending",
    "ping_interval_ns": "ping_interval",
    "write_deadline_ns": "write_deadline",
    "lame_duck_duration_ns": "lame_duck_duration",
    "lame_duck_grace_period_ns": "lame_duck_grace_period",
}

log = logging.getLogger(__name__)


class NatsReload:
    """The configuration in force, and how another one takes its place. `reread` gives what is written by now; it raises ConfigError."""

    def __init__(
        self,
        house: House,
        settings: NatsServerSettings,
        reread: Callable[[], NatsServerSettings],
        call_at: Callable[[int, Callable[[], None]], object],
        *,
        route_tls: RouteTls | None = None,
    ) -> None:
        self._house = house
        self._settings = settings
        self._reread = reread
        self._call_at = call_at
        self._route_tls = route_tls
        self._doubted: deque[NatsClient] = deque()  # who has not been asked yet whether he may stay

    def begin(self) -> None:
        """Read it again, and do what it says."""
        before = self._settings
        try:
            told = self._reread()
            changed, kept, settings = _compare(before, told)
            logins = remake_nats_logins(settings, before, self._house.logins)
            tls, route_tls = make_client_tls(settings), make_route_tls(settings)
        except ConfigError as error:
            for problem in error.problems:
                log.error("%s", problem)
            log.error("the configuration is not reloaded, and all stays as it was: see above")
            return
        for note in told.notes:
            if note not in before.notes:
                log.warning("%s", note)
        house = self._house
        self._settings = settings
        house.settings = nats_settings(settings)
        house.tls = tls
        house.reloaded_at_ns = house.clock.wall_ns()
        if self._route_tls is not None and route_tls is not None:
            self._route_tls.become(route_tls)
        again = any(name in changed for name in _LOGINS)
        if again:
            house.logins = logins
        for client in house.clients.values():
            client.limit_anew()
        if again:
            idle = not self._doubted
            self._doubted = deque(house.clients.values())
            if idle:
                self._reconsider_some()
        if "connections_max" in changed:
            tell_connections_max(house)
            _dismiss_surplus(house)
        info = replace(
            house.info,
            auth_required=house.logins.told,
            tls_verify=tls is not None and tls.verified,
            max_payload=house.settings.payload_size_bytes_max,
        )
        if info != house.info:
            house.tell(info)
        certificates = ["certificates"] if tls is not None or route_tls is not None else []
        log.info("reloaded: %s", ", ".join([_CALLED.get(name, name) for name in changed] + certificates) or "nothing has changed")
        if kept:
            log.warning("needs a restart, and stays as it was: %s", ", ".join(_CALLED.get(name, name) for name in kept))

    def _reconsider_some(self) -> None:
        """Have some clients see whether they may stay and what they may do, and more in the next turn."""
        left = NATS_RECONSIDERED_PER_TURN_MAX
        while self._doubted and left > 0:
            client = self._doubted.popleft()
            client.reconsider()
            left -= NATS_RECONSIDERED_PER_CLIENT + len(client.subscriptions)
        if self._doubted:
            self._call_at(self._house.clock.monotonic_ns(), self._reconsider_some)


def _dismiss_surplus(house: House) -> None:
    """Close those who came last, where there are more than there may be; nats-server closes any."""
    surplus = len(house.clients) - house.settings.connections_max
    if surplus > 0:
        for client in list(house.clients.values())[-surplus:]:
            client.send_away(CloseReason.CONNECTIONS_EXCEEDED)
        log.info("%d NATS clients are closed, for max_connections is %d now", surplus, house.settings.connections_max)


def _compare(before: NatsServerSettings, told: NatsServerSettings) -> tuple[list[str], list[str], NatsServerSettings]:
    """Say which fields change, which would but for a restart, and what the settings come to."""
    differing = [each.name for each in fields(NatsServerSettings) if getattr(before, each.name) != getattr(told, each.name)]
    changed = [name for name in differing if name in LIMIT_FIELDS]
    kept = [name for name in differing if name not in (*LIMIT_FIELDS, *_LOGINS, "tls", "cluster", "notes")]
    logins = [name for name in differing if name in _LOGINS]
    if "accounts" in kept or "system_account" in kept:
        kept += logins
    else:
        changed += logins
    if "tls" in differing:
        (changed if _is_alike(before.tls, told.tls) and before.allow_non_tls == told.allow_non_tls else kept).append("tls")
    settings = replace(told, **{name: getattr(before, name) for name in kept})
    if "cluster" in differing:
        cluster = before.cluster
        if cluster is not None and told.cluster is not None and cluster.tls is not None and told.cluster.tls is not None:
            cluster = replace(cluster, tls=told.cluster.tls)
        (changed if cluster == told.cluster else kept).append("cluster")
        settings = replace(settings, cluster=cluster)
    return changed, kept, settings


def _is_alike(one: TlsSettings | None, other: TlsSettings | None) -> bool:
    """Say whether clients begin in the same way with both."""
    if one is None or other is None:
        return False
    return (one.handshake_first, one.fallback_delay_ns) == (other.handshake_first, other.fallback_delay_ns)
