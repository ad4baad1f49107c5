"""Looking at single messages over HTTP, which nsqd does not have: what waits, what lies in a topic, what is deferred.

Nothing is consumed. Answers are pages of at most 250 messages and 1 MiB of bodies, `{"messages":[…],"next":…}`; `next`
is where the next page begins, null behind the last. What has to be read from the disk is asked for again until it is
there, without holding a turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from polymq import limits
from polymq.gateways.nsq.http_answers import ApiError, arguments, done, endpoint
from polymq.gateways.nsq.http_arguments import argument, number, page, read_message_id, topic_argument
from polymq.gateways.nsq.http_messages import described, hex_id, page_of
from polymq.gateways.nsq.http_topics import topic_and_channel
from polymq.wire.exchange import Response, Retry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.core.views import DeferredView, PeekedView, ScheduledView
    from polymq.gateways.nsq.http_context import NsqHttp
    from polymq.wire.exchange import Request

__all__ = ["cancel_deferred", "list_channel_deferred", "list_topic_deferred", "peek_channel", "peek_topic", "until_there"]

T = TypeVar("T")


def until_there(context: NsqHttp, look: Callable[[], T | None], answer: Callable[[T], Response]) -> Response | Retry:
    """Answer with what `look` gives; while it gives None, the disk is being read, and it is called again."""

    def again() -> Response | Retry:
        found = look()
        if found is None:
            return Retry(context.clock.monotonic_ns() + limits.HTTP_POLL_INTERVAL_NS, again)
        return answer(found)

    return again()


@endpoint
def peek_topic(request: Request, context: NsqHttp) -> Response | Retry:
    """GET /topic/peek?topic=&partition=&offset=&count=: what lies in a partition, whoever has had it."""
    topic, given = topic_argument(request)
    partition = number(given, "partition", 0)
    offset = number(given, "offset", 0)
    _after, count = page(given)
    session = context.session
    if partition >= session.partition_count(topic):
        raise ApiError(400, "INVALID_PARTITION")

    def shown(found: Sequence[PeekedView]) -> Response:
        rows = ({**_peeked(view), "offset": view.offset} for view in found)
        return page_of(rows, found[-1].offset + 1 if found else None)

    return until_there(context, lambda: session.browse(topic, partition, offset, count_max=count), shown)


@endpoint
def peek_channel(request: Request, context: NsqHttp) -> Response | Retry:
    """GET /channel/peek?topic=&channel=&after=&count=: what waits for a channel's consumers, in order of ids."""
    topic, channel = topic_and_channel(request)
    after, count = page(arguments(request))
    session = context.session

    def shown(found: Sequence[PeekedView]) -> Response:
        return page_of((_peeked(view) for view in found), _behind(found))

    return until_there(context, lambda: session.peek(topic, channel, after=after, count_max=count), shown)


@endpoint
def list_topic_deferred(request: Request, context: NsqHttp) -> Response | Retry:
    """GET /topic/deferred?topic=&after=&count=: deferred publishes that wait, in order of ids."""
    topic, given = topic_argument(request)
    after, count = page(given)
    session = context.session

    def shown(found: Sequence[ScheduledView]) -> Response:
        rows = ({"id": hex_id(view.id), "due": view.due_ns, "timestamp": view.time_ns, "size": view.size_bytes} for view in found)
        return page_of(rows, _behind(found))

    return until_there(context, lambda: session.scheduled(topic, after=after, count_max=count), shown)


@endpoint
def list_channel_deferred(request: Request, context: NsqHttp) -> Response:
    """GET /channel/deferred?topic=&channel=&after=&count=: what consumers have given back for later, in order of ids."""
    topic, channel = topic_and_channel(request)
    after, count = page(arguments(request))
    found = context.session.deferred(topic, channel, after=after, count_max=count)
    return page_of(({"id": hex_id(view.id), "due": view.due_ns, "attempts": view.attempts} for view in found), _behind(found))


@endpoint
def cancel_deferred(request: Request, context: NsqHttp) -> Response:
    """POST /topic/cancel?topic=&id=: drop a deferred publish, by the id under which it is listed."""
    topic, given = topic_argument(request)
    context.session.cancel_scheduled(topic, argument(given, "id", read_message_id))
    return done(context.session.journaled())


def _peeked(view: PeekedView) -> dict[str, object]:
    return {**described(view.message, view.id, view.attempts), "partition": view.partition}


def _behind(found: Sequence[PeekedView] | Sequence[ScheduledView] | Sequence[DeferredView]) -> str | None:
    return hex_id(found[-1].id) if found else None
