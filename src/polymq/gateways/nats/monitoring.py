"""The monitoring pages of nats-server, for the tools that read them: /varz, /connz, /routez, /subsz, /healthz, and what leads to them.

Keys, their order and their types are those of nats-server 2.15; what is left out is listed in the documentation. Each page is a
function of a request and of what is `Monitored`. Read next: `monitoring_connz.py`, `monitoring_subsz.py`, `monitoring_format.py`.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any, Final

from polymq.gateways.nats.monitoring_connz import connz
from polymq.gateways.nats.monitoring_format import (
    BadArgument,
    arguments,
    boolean,
    complaint,
    duration,
    json,
    number,
    page,
    rfc3339,
    text,
    uptime,
)
from polymq.gateways.nats.monitoring_subsz import subsz
from polymq.protocols.http.router import Route, Router
from polymq.wire.exchange import Response

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.core.ports import Clock
    from polymq.gateways.contract import Gateway
    from polymq.gateways.nats.figures import RouteFigures, Totals
    from polymq.gateways.nats.house import House
    from polymq.wire.exchange import Request

__all__ = ["Monitored", "Process", "monitoring_router", "refuse"]

_NS_PER_SECOND: Final = 1_000_000_000
_METHODS: Final = ("GET", "HEAD", "POST")


@dataclass(frozen=True, slots=True)
class Process:
    """How the process is: `memory` gives resident bytes, `cpu_percent` what part of one core it has used since the start."""

    memory: Callable[[], int]
    cpu_percent: Callable[[], float]
    problems: Callable[[], list[str]]  # what is wrong, in words; none: all is well


@dataclass(frozen=True, slots=True)
class Monitored:
    """What the pages are about. `cluster` is the block of that name in /varz."""

    house: House
    clock: Clock
    process: Process
    pending_size_bytes: Callable[[Gateway], int]
    started_at_ns: int
    http_host: str = ""
    http_port: int = 0
    system_account: str = "$SYS"
    cluster: Mapping[str, Any] = field(default_factory=dict)
    requests: Counter[str] = field(default_factory=Counter)  # by path


def varz(_request: Request, context: Monitored) -> Response:
    """Say how the server is set up, and how it does."""
    return page(json(_varz(context)))


def _varz(context: Monitored) -> dict[str, Any]:
    house, info, settings = context.house, context.house.info, context.house.settings
    document: dict[str, Any] = {
        "server_id": info.server_id,
        "server_name": info.server_name,
        "version": info.version,
        "proto": info.proto,
        "go": info.go,
        "host": info.host,
        "port": info.port,
    }
    told = {
        "auth_required": info.auth_required,
        "tls_required": info.tls_required,
        "tls_verify": info.tls_verify,
        "connect_urls": list(info.connect_urls),
    }
    document |= {name: value for name, value in told.items() if value}
    document["max_connections"] = settings.connections_max
    if settings.subscriptions_max:
        document["max_subscriptions"] = settings.subscriptions_max
    document |= {
        "ping_interval": settings.ping_interval_ns,
        "ping_max": settings.pings_unanswered_max,
        "http_host": context.http_host,
        "http_port": context.http_port,
        "http_base_path": "",
        "https_port": 0,
        "auth_timeout": number(settings.auth_timeout_ns / _NS_PER_SECOND),
        "max_control_line": settings.line_size_bytes_max,
        "max_payload": settings.payload_size_bytes_max,
        "max_pending": settings.pending_size_bytes_max,
        "cluster": dict(context.cluster) | ({} if house.cluster is None else {"name": house.cluster.name}),
        "gateway": {},
        "leaf": {},
        "mqtt": {},
        "websocket": {},
        "jetstream": {},
        "tls_timeout": number(settings.tls_timeout_ns / _NS_PER_SECOND),
        "write_deadline": settings.write_deadline_ns,
    }
    return document | _state(context, house)


def _state(context: Monitored, house: House) -> dict[str, Any]:
    """Give the figures that change."""
    now_ns = context.clock.wall_ns()
    routes = list(house.routes())
    of_clients = house.totals()
    total = of_clients.with_those(routes)
    departed = house.departed
    nothing = {"routes": 0, "gateways": 0, "leafs": 0}
    return {
        "start": rfc3339(context.started_at_ns),
        "now": rfc3339(now_ns),
        "uptime": uptime(now_ns - context.started_at_ns),
        "mem": context.process.memory(),
        "cores": os.cpu_count() or 1,
        "gomaxprocs": 1,  # all is done on one core
        "cpu": number(round(context.process.cpu_percent(), 1)),
        "connections": len(house.clients),
        "total_connections": house.client_count,
        "routes": len(routes),
        "remotes": len({each.info.server_id for each in routes}),
        "leafnodes": 0,
        **_traffic(total, of_clients),
        "slow_consumers": departed.slow_consumer_count + departed.slow_route_count,
        "stale_connections": departed.stale_count,
        "stalled_clients": house.stall_count,
        "subscriptions": sum(space.listening_count for space in house.broker.live.spaces.values()),
        "http_req_stats": dict(sorted(context.requests.items())),
        "config_load_time": rfc3339(house.reloaded_at_ns or context.started_at_ns),
        "config_digest": "",
        "system_account": context.system_account,
        "slow_consumer_stats": {"clients": departed.slow_consumer_count, **nothing, "routes": departed.slow_route_count},
        "stale_connection_stats": {"clients": departed.stale_count, **nothing},
    }


def _traffic(total: Totals, of_clients: Totals) -> dict[str, int]:
    return {
        "in_msgs": total.in_message_count,
        "in_bytes": total.in_size_bytes,
        "in_client_msgs": of_clients.in_message_count,
        "in_client_bytes": of_clients.in_size_bytes,
        "out_msgs": total.out_message_count,
        "out_bytes": total.out_size_bytes,
        "out_client_msgs": of_clients.out_message_count,
        "out_client_bytes": of_clients.out_size_bytes,
    }


def routez(request: Request, context: Monitored) -> Response:
    """List the other servers of the cluster. What each of them wants is not listed, only counted."""
    if arguments(request).get("subs", "").lower() != "detail":
        boolean(request, "subs")
    now_ns = context.clock.wall_ns()
    rows = [_route(each, context, now_ns) for each in context.house.routes()]
    info = context.house.info
    document = {
        "server_id": info.server_id,
        "server_name": info.server_name,
        "now": rfc3339(now_ns),
        "num_routes": len(rows),
        "routes": rows,
    }
    return page(json(document))


def _route(each: RouteFigures, context: Monitored, now_ns: int) -> dict[str, Any]:
    row: dict[str, Any] = {
        "rid": each.id,
        "remote_id": each.info.server_id,
        "remote_name": text(each.info.server_name),
        "did_solicit": each.dialled,
        "is_configured": each.explicit,
        "ip": each.peer.host,
        "port": each.peer.port,
        "start": rfc3339(each.connected_at_ns),
        "last_activity": rfc3339(each.heard_at_ns),
        "rtt": duration(each.rtt_ns),
        "uptime": uptime(now_ns - each.connected_at_ns),
        "idle": uptime(now_ns - each.heard_at_ns),
    }
    for name, rules in (("import", each.info.permissions_import), ("export", each.info.permissions_export)):
        if rules is not None:
            row[name] = {key: list(names) for key, names in (("allow", rules.allow), ("deny", rules.deny)) if names}
    return row | {
        "pending_size": context.pending_size_bytes(each),  # type: ignore[arg-type]  # a route is a gateway
        "in_msgs": each.in_message_count,
        "out_msgs": each.out_message_count,
        "in_bytes": each.in_size_bytes,
        "out_bytes": each.out_size_bytes,
        "subscriptions": each.subscription_count,
    }


def healthz(request: Request, context: Monitored) -> Response:
    """Say whether the server is well; all that is asked about JetStream is true of a server without it."""
    for name in ("js-enabled", "js-enabled-only", "js-server-only", "details"):
        boolean(request, name)
    problems = context.process.problems()
    if problems:
        return page(json({"status": "unavailable", "error": "; ".join(problems)}, indented=False), 503)
    return page(json({"status": "ok"}, indented=False))


def root(_request: Request, context: Monitored) -> Response:
    """Lead to the pages."""
    links = "".join(f'<li><a href=".{path}">{title}</a> <code>{path}</code></li>\n' for path, title in _TITLES.items())
    name = escape(text(context.house.info.server_name))
    body = (
        f'<!DOCTYPE html>\n<html lang="en">\n<head><meta charset="utf-8"><title>polymq: NATS</title></head>\n<body>\n'
        f"<h1>polymq</h1>\n<p>The NATS server <code>{name}</code></p>\n<ul>\n{links}</ul>\n</body>\n</html>\n"
    )
    return Response(200, (("Content-Type", "text/html; charset=utf-8"),), body.encode())


_TITLES: Final = {
    "/varz": "General",
    "/connz": "Connections",
    "/subsz": "Subscriptions",
    "/routez": "Routes",
    "/healthz": "Health probe",
}
_PAGES: Final[Mapping[str, Callable[[Request, Monitored], Response]]] = {
    "/": root,
    "/varz": varz,
    "/connz": connz,
    "/subsz": subsz,
    "/subscriptionsz": subsz,
    "/routez": routez,
    "/healthz": healthz,
}


def monitoring_router() -> Router[Monitored]:
    """Make the table of pages."""
    return Router(
        [Route(method, path, partial(_answer, function)) for path, function in _PAGES.items() for method in _METHODS], refuse=refuse
    )


def _answer(function: Callable[[Request, Monitored], Response], request: Request, context: Monitored) -> Response:
    """Count the request, and show the page or say what is wrong with the question."""
    context.requests[request.path] += 1
    try:
        return function(request, context)
    except BadArgument as error:
        return complaint(error)


def refuse(status: int) -> Response:
    """Answer where there is no page."""
    text_of = {401: "401 unauthorized", 403: "403 forbidden", 404: "404 page not found", 405: "405 method not allowed"}
    headers = (("Content-Type", "text/plain; charset=utf-8"), ("X-Content-Type-Options", "nosniff"))
    return Response(status, headers, text_of.get(status, str(status)).encode() + b"\n")
