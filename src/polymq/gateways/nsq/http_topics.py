"""`/topic/…` and `/channel/…`: making, removing, emptying and pausing, with nsqd's checks in nsqd's order.

The checks differ from endpoint to endpoint in nsqd, and clients see that: an invalid topic name is INVALID_TOPIC,
INVALID_ARG_TOPIC or TOPIC_NOT_FOUND, depending on who is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.gateways.nsq.http_answers import ApiError, arguments, done, endpoint
from polymq.gateways.nsq.http_arguments import argument, number, topic_argument
from polymq.gateways.nsq.http_publishing import topic_of
from polymq.protocols.nsq.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from polymq.gateways.nsq.http_context import NsqHttp
    from polymq.wire.exchange import Request, Response

__all__ = [
    "create_channel",
    "create_topic",
    "delete_channel",
    "delete_topic",
    "empty_channel",
    "empty_topic",
    "pause_channel",
    "pause_topic",
    "topic_and_channel",
    "unpause_channel",
    "unpause_topic",
]

# As the setting `store.durability` has them.
_DURABILITIES: Final = frozenset({"cache", "fsync"})


@endpoint
def create_topic(request: Request, context: NsqHttp) -> Response:
    """POST /topic/create?topic=; beyond nsqd, with `partitions=` or `durability=`, which a topic that is there keeps as they are."""
    given = request.arguments or {}
    if "partitions" not in given and "durability" not in given:
        topic_of(request, context)
        return done(context.session.journaled())
    topic, given = topic_argument(request)
    partitions = number(given, "partitions", 0, low=1, high=limits.PARTITIONS_PER_TOPIC_MAX)
    durability = argument(given, "durability", _read_durability, "")
    context.session.create_topic(
        topic,
        partitions=partitions or None,
        sync=durability == "fsync" if durability else None,
        ephemeral=is_ephemeral(topic.encode()),
    )
    return done(context.session.journaled())


def _read_durability(text: str) -> str:
    if text not in _DURABILITIES:
        raise ValueError(text)
    return text


@endpoint
def delete_topic(request: Request, context: NsqHttp) -> Response:
    """POST /topic/delete?topic=."""
    context.session.delete_topic(_topic(request))
    return done(context.session.journaled())


@endpoint
def empty_topic(request: Request, context: NsqHttp) -> Response:
    """POST /topic/empty?topic=."""
    topic = _topic(request)
    if not is_valid_name(topic.encode("utf-8")):
        raise ApiError(400, "INVALID_TOPIC")
    context.session.empty_topic(topic)
    return done(context.session.journaled())


@endpoint
def pause_topic(request: Request, context: NsqHttp) -> Response:
    """POST /topic/pause?topic=."""
    context.session.pause_topic(_topic(request), paused=True)
    return done(context.session.journaled())


@endpoint
def unpause_topic(request: Request, context: NsqHttp) -> Response:
    """POST /topic/unpause?topic=."""
    context.session.pause_topic(_topic(request), paused=False)
    return done(context.session.journaled())


@endpoint
def create_channel(request: Request, context: NsqHttp) -> Response:
    """POST /channel/create?topic=&channel=: of a topic that exists."""
    topic, channel = topic_and_channel(request)
    context.session.create_group(topic, channel, ephemeral=is_ephemeral(channel.encode("utf-8")))
    return done(context.session.journaled())


@endpoint
def delete_channel(request: Request, context: NsqHttp) -> Response:
    """POST /channel/delete?topic=&channel=."""
    context.session.delete_group(*topic_and_channel(request))
    return done(context.session.journaled())


@endpoint
def empty_channel(request: Request, context: NsqHttp) -> Response:
    """POST /channel/empty?topic=&channel=."""
    context.session.empty_group(*topic_and_channel(request))
    return done(context.session.journaled())


@endpoint
def pause_channel(request: Request, context: NsqHttp) -> Response:
    """POST /channel/pause?topic=&channel=."""
    context.session.pause_group(*topic_and_channel(request), paused=True)
    return done(context.session.journaled())


@endpoint
def unpause_channel(request: Request, context: NsqHttp) -> Response:
    """POST /channel/unpause?topic=&channel=."""
    context.session.pause_group(*topic_and_channel(request), paused=False)
    return done(context.session.journaled())


def _topic(request: Request) -> str:
    topic = arguments(request).get("topic")
    if topic is None:
        raise ApiError(400, "MISSING_ARG_TOPIC")
    return topic


def topic_and_channel(request: Request) -> tuple[str, str]:
    """Give the names in the query; raises ApiError."""
    given = arguments(request)
    names = []
    for parameter in ("topic", "channel"):
        name = given.get(parameter)
        if name is None:
            raise ApiError(400, f"MISSING_ARG_{parameter.upper()}")
        if not is_valid_name(name.encode("utf-8")):
            raise ApiError(400, f"INVALID_ARG_{parameter.upper()}")
        names.append(name)
    return names[0], names[1]
