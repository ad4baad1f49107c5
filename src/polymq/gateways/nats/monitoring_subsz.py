"""/subsz: how many subscriptions there are, which, and how they are found."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from polymq.gateways.nats.account_names import account_name, namespace_of
from polymq.gateways.nats.figures import SubscriptionFigures
from polymq.gateways.nats.monitoring_format import (
    BadArgument,
    arguments,
    boolean,
    described_subscription,
    integer,
    json,
    lazily,
    number,
    page,
    rfc3339,
    rows_max,
    text,
)
from polymq.protocols.nats.subjects import is_valid_literal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polymq.core.interest.targets import Entry
    from polymq.core.live import LiveSpace
    from polymq.gateways.nats.client import NatsClient
    from polymq.gateways.nats.monitoring import Monitored
    from polymq.wire.exchange import Request, Response

__all__ = ["subsz"]


def subsz(request: Request, context: Monitored) -> Response:
    """Count subscriptions, and list them if `subs` says so: all, or those that a message to `test` would reach."""
    given = arguments(request)
    listed = boolean(request, "subs")
    offset, limit = integer(request, "offset"), integer(request, "limit")
    test = given.get("test", "").encode("utf-8", "surrogateescape")
    if test and not is_valid_literal(test):
        raise BadArgument(f"invalid test subject, must be valid publish subject: {text(test)}")
    spaces = context.house.broker.live.spaces
    if "acc" in given:
        namespace = namespace_of(given["acc"])
        chosen = [spaces[namespace]] if namespace in spaces else []
    else:
        chosen = list(spaces.values())
    offset, limit = max(offset, 0), rows_max(limit)
    now_ns = context.clock.wall_ns()
    head = {"server_id": context.house.info.server_id, "now": rfc3339(now_ns), **_figures(chosen)}
    found = _matching(chosen, test, offset) if test else _subscriptions(chosen, context, offset)
    rows = list(islice(found, limit)) if listed else []
    head |= {"total": len(rows), "offset": offset, "limit": limit}
    if not rows:
        return page(json(head))
    return lazily(head, "subscriptions_list", (_described(*row) for row in rows), len(rows))


def _figures(spaces: list[LiveSpace]) -> dict[str, Any]:
    """Add up what the spaces say of themselves."""
    figures = [space.interest.figures() for space in spaces]
    hits, misses = sum(each.hits for each in figures), sum(each.misses for each in figures)
    return {
        "num_subscriptions": sum(space.listening_count for space in spaces),
        "num_cache": sum(each.cached for each in figures),
        "num_inserts": sum(each.inserted for each in figures),
        "num_removes": sum(each.removed for each in figures),
        "num_matches": hits + misses,
        "cache_hit_rate": number(hits / (hits + misses)) if hits else 0,
        # How many a message reaches on average is not counted.
        "max_fanout": 0,
        "avg_fanout": 0,
    }


# One subscription: namespace, the client's number, what he calls it.
_Row = tuple[str, int, bytes, "Entry"]


def _subscriptions(spaces: list[LiveSpace], context: Monitored, offset: int) -> Iterator[_Row]:
    """Go through the clients' subscriptions of these spaces, from number `offset` on; a client that is before that costs nothing."""
    for space in spaces:
        for client in context.house.clients.values():
            if client.session.principal.namespace != space.namespace:
                continue
            count = len(client.subscriptions)
            if count > offset:
                for sid, entry in islice(client.subscriptions.items(), offset, None):
                    yield space.namespace, client.id, sid, entry
            offset = max(offset - count, 0)


def _matching(spaces: list[LiveSpace], test: bytes, offset: int) -> Iterator[_Row]:
    """Go through those that a message to `test` would reach, from number `offset` on."""
    return islice((row for space in spaces for row in _reached(space, test)), offset, None)


def _reached(space: LiveSpace, test: bytes) -> Iterator[_Row]:
    match = space.interest.match(test)
    for entry in chain(match.plain(), *match.queues().values()):
        if not entry.target.remote and not entry.target.closed:
            owner: NatsClient | Any = entry.target.owner
            # What listens within the broker has no numbers.
            name, sid = (owner.id, owner.sid_of(entry)) if hasattr(owner, "sid_of") else (0, b"")
            yield space.namespace, name, sid, entry


def _described(namespace: str, client_id: int, sid: bytes, entry: Entry) -> dict[str, Any]:
    account = account_name(namespace)
    figures = SubscriptionFigures(entry.pattern, entry.queue, sid, entry.given, entry.limit, client_id)
    return {"account": account, "account_tag": account, **described_subscription(figures)}
