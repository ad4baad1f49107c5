"""nsqlookupd's HTTP interface: who has what, and what operators do about it.

The answers are nsqlookupd 1.3.0's, byte for byte where clients look, but lists are sorted: there they come in another
order every time. The old wrapping in `status_code` and `data` is no more there, whatever a client accepts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final, TypeVar

from polymq.core.access import Action
from polymq.gateways.nsq import http_answers, http_format
from polymq.gateways.nsq.http_answers import DONE, ApiError, arguments, endpoint, json_headers, refuse
from polymq.limits import HTTP_BODY_DISCARDED_BYTES_MAX
from polymq.protocols.http.decode import BodyRule
from polymq.protocols.http.router import Route, Router
from polymq.protocols.nsq.names import is_valid_name
from polymq.protocols.nsqlookup.settings import VERSION
from polymq.wire.exchange import Response

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from polymq.core.ports import Clock
    from polymq.gateways.nsqlookup.registry import Node, Producer, Registry
    from polymq.wire.exchange import Request

__all__ = ["OPEN_METHODS", "LookupHttp", "concerns_every_node", "lookup_router"]

# What is shown of a producer that was never hidden: Go's zero time.
_NEVER_NS: Final = -6795364578871345152
_PIECE_SIZE_BYTES: Final = 32 * 1024
_ITEMS_PER_CALL: Final = 64
# Answered to anybody, wherever else secrets are wanted: consumers look up who has a topic, and no client of NSQ's can
# send a secret with that.
OPEN_METHODS: Final = frozenset({"GET"})

Item = TypeVar("Item")


@dataclass(slots=True)
class LookupHttp:
    """The context of every endpoint here."""

    registry: Registry
    clock: Clock


def ping(_request: Request, _context: LookupHttp) -> Response:
    """GET /ping: the one answer without `X-NSQ-Content-Type`."""
    return Response(body=b"OK")


def info(_request: Request, _context: LookupHttp) -> Response:
    """GET /info."""
    return http_answers.json({"version": VERSION})


def topics(_request: Request, context: LookupHttp) -> Response:
    """GET /topics."""
    return Response(headers=json_headers(), body=_listed(b'{"topics":[', _written(context.registry.topics()), b"]}"))


@endpoint
def channels(request: Request, context: LookupHttp) -> Response:
    """GET /channels?topic=."""
    names = context.registry.channels(_argument(request, "topic"))
    return Response(headers=json_headers(), body=_listed(b'{"channels":[', _written(names), b"]}"))


@endpoint
def lookup(request: Request, context: LookupHttp) -> Response:
    """GET /lookup?topic=: whom a consumer has to connect to."""
    topic = _argument(request, "topic")
    producers = context.registry.lookup(topic)
    if producers is None:
        raise ApiError(404, "TOPIC_NOT_FOUND")
    names = _listed(b'{"channels":[', _written(context.registry.channels(topic)), b'],"producers":')
    return Response(headers=json_headers(), body=chain(names, _listed(b"[", _written(producers, _node), b"]}")))


def nodes(_request: Request, context: LookupHttp) -> Response:
    """GET /nodes: everybody who is alive, with topics; written node by node."""
    return Response(headers=json_headers(), body=_listed(b'{"producers":[', _nodes(context.registry), b"]}"))


def debug(_request: Request, context: LookupHttp) -> Response:
    """GET /debug: the registry as it is."""
    return Response(headers=json_headers(), body=_listed(b"{", _registrations(context), b"}"))


@endpoint
def create_topic(request: Request, context: LookupHttp) -> Response:
    """POST /topic/create?topic=."""
    topic = _argument(request, "topic")
    if not is_valid_name(topic.encode("utf-8")):
        raise ApiError(400, "INVALID_ARG_TOPIC")
    context.registry.create_topic(topic)
    return DONE


@endpoint
def delete_topic(request: Request, context: LookupHttp) -> Response:
    """POST /topic/delete?topic=: whether there is one or not."""
    context.registry.delete_topic(_argument(request, "topic"))
    return DONE


@endpoint
def tombstone(request: Request, context: LookupHttp) -> Response:
    """POST /topic/tombstone?topic=&node=."""
    topic = _argument(request, "topic")
    context.registry.tombstone(topic, _argument(request, "node"))
    return DONE


@endpoint
def create_channel(request: Request, context: LookupHttp) -> Response:
    """POST /channel/create?topic=&channel=: and its topic."""
    context.registry.create_channel(*_topic_and_channel(request))
    return DONE


@endpoint
def delete_channel(request: Request, context: LookupHttp) -> Response:
    """POST /channel/delete?topic=&channel=."""
    if not context.registry.delete_channel(*_topic_and_channel(request)):
        raise ApiError(404, "CHANNEL_NOT_FOUND")
    return DONE


def concerns_every_node(_request: Request) -> Action:
    """Say what one must be allowed to do to all topics for a request that changes the directory."""
    return Action.MANAGE


def lookup_router() -> Router[LookupHttp]:
    """Make the table."""
    body = BodyRule(HTTP_BODY_DISCARDED_BYTES_MAX, reads=True)
    routes = [
        Route("GET", "/ping", ping),
        Route("GET", "/info", info),
        Route("GET", "/debug", debug),
        Route("GET", "/lookup", lookup, body),
        Route("GET", "/topics", topics),
        Route("GET", "/channels", channels, body),
        Route("GET", "/nodes", nodes),
        Route("POST", "/topic/create", create_topic, body),
        Route("POST", "/topic/delete", delete_topic, body),
        Route("POST", "/topic/tombstone", tombstone, body),
        Route("POST", "/channel/create", create_channel, body),
        Route("POST", "/channel/delete", delete_channel, body),
    ]
    return Router(routes, refuse=refuse)


def _argument(request: Request, name: str) -> str:
    value = arguments(request).get(name)
    if value is None:
        raise ApiError(400, f"MISSING_ARG_{name.upper()}")
    return value


def _topic_and_channel(request: Request) -> tuple[str, str]:
    names = []
    for parameter in ("topic", "channel"):
        name = _argument(request, parameter)
        if not is_valid_name(name.encode("utf-8")):
            raise ApiError(400, f"INVALID_ARG_{parameter.upper()}")
        names.append(name)
    return names[0], names[1]


def _node(node: Node) -> dict[str, object]:
    identity = node.identity
    return {
        "remote_address": node.remote_address,
        "hostname": identity.hostname,
        "broadcast_address": identity.broadcast_address,
        "tcp_port": identity.tcp_port,
        "http_port": identity.http_port,
        "version": identity.version,
    }


def _written(items: Sequence[Item], describe: Callable[[Item], object] = lambda item: item) -> Iterator[bytes]:
    """Write what stands in a list, some at a time: a call for each would take several times as long."""
    for at in range(0, len(items), _ITEMS_PER_CALL):
        yield http_format.json([describe(item) for item in items[at : at + _ITEMS_PER_CALL]])[1:-1]


def _nodes(registry: Registry) -> Iterator[bytes]:
    for node in registry.nodes():
        found = registry.topics_of(node)
        described = _node(node) | {"tombstones": [hidden for _, hidden in found], "topics": [topic for topic, _ in found]}
        yield http_format.json(described)


def _registrations(context: LookupHttp) -> Iterator[bytes]:
    now_ns, wall_ns = context.clock.monotonic_ns(), context.clock.wall_ns()
    for key, producers in context.registry.registrations():
        shown = [_registration(producer, wall_ns, wall_ns - now_ns) for producer in producers]
        yield http_format.json(key) + b":" + http_format.json(shown)


def _registration(producer: Producer, wall_ns: int, to_wall_ns: int) -> dict[str, object]:
    """Times are shown on the wall clock and kept on the other one."""
    node, hidden_ns = producer.node, producer.tombstoned_ns
    return {
        "broadcast_address": node.identity.broadcast_address,
        "hostname": node.identity.hostname,
        "http_port": node.identity.http_port,
        "id": node.remote_address,
        "last_update": wall_ns if node.heard_ns is None else node.heard_ns + to_wall_ns,
        "tcp_port": node.identity.tcp_port,
        "tombstoned": hidden_ns is not None,
        "tombstoned_at": _NEVER_NS if hidden_ns is None else hidden_ns + to_wall_ns,
        "version": node.identity.version,
    }


def _listed(opening: bytes, items: Iterator[bytes], closing: bytes) -> Iterator[bytes]:
    """Write a list, in pieces that are worth a write."""
    piece = bytearray(opening)
    separator = b""
    for item in items:
        piece += separator
        piece += item
        separator = b","
        if len(piece) >= _PIECE_SIZE_BYTES:
            yield bytes(piece)
            piece.clear()
    piece += closing
    yield bytes(piece)
