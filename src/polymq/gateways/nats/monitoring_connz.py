"""/connz: who is connected, and who was."""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from polymq.gateways.nats.account_names import account_name, namespace_of
from polymq.gateways.nats.figures import ConnectionFigures, figures_of, user_of
from polymq.gateways.nats.monitoring_format import (
    ROWS_AT_ONCE,
    BadArgument,
    arguments,
    boolean,
    described_subscription,
    duration,
    integer,
    lazily,
    rfc3339,
    rows_max,
    text,
    unsigned,
    uptime,
)
from polymq.limits import NATS_ROW_SUBSCRIPTIONS_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.gateways.nats.client import NatsClient
    from polymq.gateways.nats.monitoring import Monitored
    from polymq.wire.exchange import Request, Response

__all__ = ["connz"]

_OPEN, _CLOSED, _ALL = "open", "closed", "all"
_STATES: Final = {"": _OPEN, "open": _OPEN, "closed": _CLOSED, "any": _ALL, "all": _ALL}
# By what may be sorted, those who are connected and those who were, and whether the largest come first.
_SORTS: Final[Mapping[str, tuple[Callable[[NatsClient, Monitored], Any], Callable[[ConnectionFigures], Any], bool]]] = {
    "cid": (lambda each, _: each.id, lambda gone: gone.client_id, False),
    "start": (lambda each, _: each.id, lambda gone: gone.client_id, False),
    "subs": (lambda each, _: len(each.subscriptions), lambda gone: gone.subscription_count, True),
    "pending": (lambda each, context: context.pending_size_bytes(each), lambda gone: gone.pending_size_bytes, True),
    "msgs_to": (lambda each, _: each.out_message_count, lambda gone: gone.out_message_count, True),
    "msgs_from": (lambda each, _: each.in_message_count, lambda gone: gone.in_message_count, True),
    "bytes_to": (lambda each, _: each.out_size_bytes, lambda gone: gone.out_size_bytes, True),
    "bytes_from": (lambda each, _: each.in_size_bytes, lambda gone: gone.in_size_bytes, True),
    "last": (lambda each, _: each.heard_at_ns, lambda gone: gone.heard_at_ns, True),
    # Who has been idle for longest was heard of first.
    "idle": (lambda each, _: each.heard_at_ns, lambda gone: gone.heard_at_ns, False),
    "uptime": (
        lambda each, context: context.clock.wall_ns() - each.connected_at_ns,
        lambda gone: gone.stopped_at_ns - gone.started_at_ns,
        False,
    ),
    "stop": (lambda _each, _: 0, lambda gone: gone.stopped_at_ns, True),
    "reason": (lambda _each, _: "", lambda gone: gone.reason, False),
    "rtt": (lambda each, _: each.rtt_ns, lambda gone: gone.rtt_ns, True),
}
_SORTS_OF_CLOSED: Final = ("stop", "reason")
# To show all where some are asked for would mislead.
_NOT_SERVED: Final = ("filter_subject", "mqtt_client")


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a request asks for."""

    state: str
    sort: str
    offset: int
    limit: int
    client_id: int
    auth: bool
    subscriptions: bool
    details: bool
    user: str
    account: str


def _read(request: Request) -> _Wanted:
    """Read the arguments, in the order in which nats-server complains about them."""
    given = arguments(request)
    sort = given.get("sort", "")
    auth = boolean(request, "auth")
    details = given.get("subs", "").lower() == "detail"
    subscriptions = not details and boolean(request, "subs")
    offset, limit, client_id = integer(request, "offset"), integer(request, "limit"), unsigned(request, "cid")
    state = _STATES.get(given.get("state", "").lower())
    if state is None:
        raise BadArgument(f"Error decoding state for {given['state']}")
    if sort and sort not in _SORTS:
        raise BadArgument(f"invalid sorting option: {sort}")
    for name in _NOT_SERVED:
        if given.get(name):
            raise BadArgument(f"{name} is not served by polymq: leave it out, or ask with acc, user or cid")
    if sort in _SORTS_OF_CLOSED and state != _CLOSED:
        raise BadArgument(f"sort by {sort} only valid on closed connections")
    return _Wanted(
        state=state,
        sort=sort or "cid",
        offset=max(offset, 0),
        limit=1 if client_id else rows_max(limit),
        client_id=client_id,
        auth=auth,
        subscriptions=subscriptions,
        details=details,
        user=given.get("user", ""),
        account=given.get("acc", ""),
    )


def connz(request: Request, context: Monitored) -> Response:
    """List connections; see nats-server's documentation for the arguments."""
    wanted = _read(request)
    now_ns = context.clock.wall_ns()
    found, total = _found(wanted, context)
    shown = found[wanted.offset : wanted.offset + wanted.limit]
    head = {
        "server_id": context.house.info.server_id,
        "now": rfc3339(now_ns),
        "num_connections": len(shown),
        "total": total,
        "offset": wanted.offset,
        "limit": wanted.limit,
    }
    rows = (_described(_figures(each, wanted, context), wanted, now_ns) for each in shown)
    # Where subscriptions are listed a single row may be long.
    at_once = 1 if wanted.subscriptions or wanted.details else ROWS_AT_ONCE
    return lazily(head, "connections", rows, len(shown), at_once=at_once)


def _found(wanted: _Wanted, context: Monitored) -> tuple[list[NatsClient | ConnectionFigures], int]:
    """Choose and sort; say also how many there are to choose from. What there is to say of each comes later: most are not shown."""
    house, state = context.house, wanted.state
    clients = list(house.clients.values()) if state != _CLOSED else []
    gone = list(house.departed.last) if state != _OPEN else []
    total = len(clients) + len(gone)
    if wanted.client_id:
        clients = [each for each in clients if each.id == wanted.client_id]
        gone = [each for each in gone if each.client_id == wanted.client_id]
    if wanted.account:
        namespace = namespace_of(wanted.account)
        clients = [each for each in clients if each.session.principal.namespace == namespace]
        gone = [each for each in gone if each.namespace == namespace]
        total = len(clients) + len(gone)
    if wanted.user:
        clients = [each for each in clients if user_of(each) == wanted.user]
        gone = [each for each in gone if each.user == wanted.user]
        total = len(clients) + len(gone) or total
    of_client, of_gone, reverse = _SORTS[wanted.sort]
    found: list[tuple[Any, NatsClient | ConnectionFigures]] = [(of_client(each, context), each) for each in clients]
    found += [(of_gone(each), each) for each in gone]
    found.sort(key=itemgetter(0), reverse=reverse)
    return [each for _, each in found], total


def _figures(each: NatsClient | ConnectionFigures, wanted: _Wanted, context: Monitored) -> ConnectionFigures:
    """Say how somebody is, who may have gone since he was chosen."""
    if isinstance(each, ConnectionFigures):
        return each
    listed = (wanted.subscriptions or wanted.details) and each.id in context.house.clients
    return figures_of(
        each,
        pending_size_bytes=context.pending_size_bytes(each),
        subscriptions_max=NATS_ROW_SUBSCRIPTIONS_MAX if listed else 0,
    )


def _described(each: ConnectionFigures, wanted: _Wanted, now_ns: int) -> dict[str, Any]:
    """Make a row, with the keys in nats-server's order; what is empty is left out as there."""
    row: dict[str, Any] = {
        "cid": each.client_id,
        "kind": "Client",
        "type": "nats",
        "ip": each.host,
        "port": each.port,
        "start": rfc3339(each.started_at_ns),
        "last_activity": rfc3339(each.heard_at_ns),
    }
    if each.stopped_at_ns:
        row |= {"stop": rfc3339(each.stopped_at_ns), "reason": each.reason}
    until_ns = each.stopped_at_ns or now_ns
    row |= {
        "rtt": duration(each.rtt_ns),
        "uptime": uptime(until_ns - each.started_at_ns),
        "idle": uptime(until_ns - each.heard_at_ns),
        "pending_bytes": each.pending_size_bytes,
        "in_msgs": each.in_message_count,
        "out_msgs": each.out_message_count,
        "in_bytes": each.in_size_bytes,
        "out_bytes": each.out_size_bytes,
    }
    optional: dict[str, Any] = {"stalls": each.stall_count}
    row |= {name: value for name, value in optional.items() if value}
    row["subscriptions"] = each.subscription_count
    optional = {
        "name": text(each.name),
        "lang": text(each.lang),
        "version": text(each.version),
        "tls_version": each.tls_version,
        "tls_cipher_suite": each.tls_cipher_suite,
    }
    if wanted.auth:
        optional |= {"authorized_user": text(each.user), "account": each.namespace}
    if wanted.subscriptions:
        optional["subscriptions_list"] = [text(listed.subject) for listed in each.subscriptions]
    if wanted.details:
        optional["subscriptions_list_detail"] = [described_subscription(listed) for listed in each.subscriptions]
    if wanted.auth:
        optional["name_tag"] = account_name(each.namespace)
    return row | {name: value for name, value in optional.items() if value}
