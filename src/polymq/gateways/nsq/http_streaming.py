"""Consuming over HTTP, which nsqd does not have: `/sub` streams messages, `/fin`, `/req`, `/touch` and `/rdy` answer them.

The answer to `GET /sub?topic=&channel=` does not end: one line of JSON for each message, as it is delivered. Its first
line names the stream by a token that nobody can guess; the other endpoints take that token and the ids of messages, on
any connection. The stream is a consumer like any other: when its connection ends, what it has not finished comes back
once its time is over. With `auto_fin` a message is finished when it has been handed to the connection.
"""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import orjson

from polymq import limits
from polymq.core.views import PeerView
from polymq.errors import Refusal, RefusalCode
from polymq.gateways.nsq.http_answers import REFUSALS, ApiError, arguments, endpoint, error, json_headers, ok
from polymq.gateways.nsq.http_arguments import NS_PER_MS, argument, number, read_message_id, read_truth
from polymq.gateways.nsq.http_messages import described, hex_id
from polymq.gateways.nsq.http_topics import topic_and_channel
from polymq.protocols.nsq.names import is_ephemeral
from polymq.wire.batch import read_messages
from polymq.wire.exchange import BodyState, Response

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.core.group import Delivery, Subscription
    from polymq.core.session import Session
    from polymq.gateways.nsq.http_context import NsqHttp
    from polymq.wire.batch import Message
    from polymq.wire.exchange import Request

__all__ = ["Stream", "finish", "ready", "requeue", "subscribe", "touch"]

_LINES: Final = ("Content-Type", "application/x-ndjson")
_V1: Final = json_headers()[1]


class Stream:
    """One answer to `/sub`: a session of its own, with one subscription."""

    beat = b"\n"

    def __init__(self, context: NsqHttp, session: Session, connection: Any, *, auto_finish: bool) -> None:
        self.token = context.make_token()
        self.session = session
        self.subscription: Subscription
        self._context = context
        self._connection = connection
        self._auto_finish = auto_finish
        self._delivered = array("q")

    def begin(self, subscription: Subscription) -> None:
        """Be there for the other endpoints."""
        self.subscription = subscription
        self._context.changing.streams[self.token] = self

    def take(self, delivery: Delivery) -> bytes:
        """Write a line for each message."""
        piece = delivery.slice
        messages = read_messages(piece.view, piece.position, piece.batch_left, piece.base_time_ns, piece.count, piece.end)
        first = message_id(piece.partition, piece.offset)
        if self._auto_finish:
            self._delivered.extend(range(first, first + piece.count))
            self._connection.ring()
        return b"".join([line(message, first + index, delivery.attempts) for index, message in enumerate(messages)])

    def hold(self, *, held: bool) -> None:
        """Pass on that the peer cannot take more, or can again."""
        self.session.hold(self.subscription, held=held)

    def woken(self) -> None:
        """Finish what was delivered, if that is what was asked for."""
        delivered, self._delivered = self._delivered, array("q")
        if delivered:
            self.session.settle(self.subscription, memoryview(delivered), 0, len(delivered))

    def ended(self) -> None:
        """Leave."""
        self._context.changing.streams.pop(self.token, None)
        self.session.close()


def message_id(partition: int, offset: int) -> int:
    """Name a message as the core does."""
    return partition << limits.OFFSET_BITS | offset


def line(message: Message, number: int, attempts: int) -> bytes:
    """Write one message as a line of JSON."""
    return orjson.dumps(described(message, number, attempts), option=orjson.OPT_APPEND_NEWLINE)


@endpoint
def subscribe(request: Request, context: NsqHttp) -> Response:
    """GET /sub?topic=&channel=&max_in_flight=&msg_timeout=&auto_fin=: the times in ms, as everywhere in nsqd."""
    topic, channel = topic_and_channel(request)
    given, settings = arguments(request), context.settings
    max_in_flight = number(given, "max_in_flight", 1, low=1, high=settings.ready_count_max)
    timeout_ms = number(given, "msg_timeout", settings.message_timeout_ms, low=1, high=settings.message_timeout_ms_max)
    auto_finish = argument(given, "auto_fin", read_truth, False)
    session = context.session.another()
    stream = Stream(context, session, request.connection, auto_finish=auto_finish)
    session.describe(_peer(request, context))
    try:
        subscription = session.subscribe(
            topic,
            channel,
            listener=request.connection,
            lease_ns=timeout_ms * NS_PER_MS,
            ephemeral_topic=is_ephemeral(topic.encode("utf-8")),
            ephemeral_group=is_ephemeral(channel.encode("utf-8")),
        )
    except Refusal as refusal:
        session.close()
        if refusal.code is RefusalCode.GROUP_FULL:
            raise ApiError(409, "TOO_MANY_CONSUMERS") from refusal
        raise
    stream.begin(subscription)
    session.credit(subscription, max_in_flight)
    opening = {"stream": stream.token, "topic": topic, "channel": channel, "max_in_flight": max_in_flight, "msg_timeout": timeout_ms}
    return Response(
        headers=(_LINES, _V1),
        body=orjson.dumps(opening, option=orjson.OPT_APPEND_NEWLINE),
        ticket=session.journaled(),
        failure=lambda _reason: error(*REFUSALS[RefusalCode.STORE_FAILED]),
        close=True,
        consumer=stream,
    )


@endpoint
def finish(request: Request, context: NsqHttp) -> Response:
    """POST /fin?stream=&id=: one message, or those whose ids are the lines of the body. Those that cannot be are named."""
    stream, given = _stream(request, context)
    if request.body_state is not BodyState.WHOLE:
        raise ApiError(413, "BODY_TOO_BIG")
    texts = [given["id"]] if "id" in given else bytes(request.body_view).decode("ascii", "replace").split()
    try:
        ids = array("q", map(read_message_id, texts))
    except ValueError as problem:
        raise ApiError(400, "INVALID_ID") from problem
    if not ids:
        raise ApiError(400, "MISSING_ARG_ID")
    failures = stream.session.settle(stream.subscription, memoryview(ids), 0, len(ids))
    done = ok(stream.session.journaled())
    if not failures:
        return done
    # This says of the others that they are finished, so it waits for that as well.
    failed = [hex_id(ids[index]) for index, _code in failures]
    return replace(done, status=409, headers=json_headers(), body=orjson.dumps({"message": "FIN_FAILED", "failed": failed}))


@endpoint
def requeue(request: Request, context: NsqHttp) -> Response:
    """POST /req?stream=&id=&timeout=: give a message back, to be delivered again after so many ms."""
    stream, given = _stream(request, context)
    delay_ms = number(given, "timeout", 0, high=context.settings.http_delay_ms_max)
    message = _one_id(given)
    try:
        stream.session.requeue(stream.subscription, message, delay_ns=delay_ms * NS_PER_MS)
    except Refusal as refusal:
        raise ApiError(409, "REQ_FAILED") from refusal
    return ok(stream.session.journaled())


@endpoint
def touch(request: Request, context: NsqHttp) -> Response:
    """POST /touch?stream=&id=: have a message's time begin anew."""
    stream, given = _stream(request, context)
    message = _one_id(given)
    subscription = stream.subscription
    lease_ns_max = context.settings.message_timeout_ms_max * NS_PER_MS
    try:
        stream.session.extend(subscription, message, lease_ns=subscription.lease_ns, lease_ns_max=lease_ns_max)
    except Refusal as refusal:
        raise ApiError(409, "TOUCH_FAILED") from refusal
    return ok(None)


@endpoint
def ready(request: Request, context: NsqHttp) -> Response:
    """POST /rdy?stream=&count=: how many messages the stream may have out from now on."""
    stream, given = _stream(request, context)
    stream.session.credit(stream.subscription, number(given, "count", None, high=context.settings.ready_count_max))
    return ok(None)


def _peer(request: Request, context: NsqHttp) -> PeerView:
    """Describe who is at the other end, for statistics."""
    peer = request.connection.peer
    agent = next((value for name, value in request.headers if name == b"user-agent"), b"")
    return PeerView(
        protocol="http",
        protocol_version="HTTP",
        remote_address=peer.address,
        connected_at_ns=context.clock.wall_ns(),
        client_id=peer.host,
        host_name=peer.host,
        user_agent=agent.decode("latin-1"),
    )


def _stream(request: Request, context: NsqHttp) -> tuple[Stream, Mapping[str, str]]:
    given = arguments(request)
    if "stream" not in given:
        raise ApiError(400, "MISSING_ARG_STREAM")
    stream = context.changing.streams.get(given["stream"])
    if stream is None:
        raise ApiError(404, "STREAM_NOT_FOUND")
    return stream, given


def _one_id(given: Mapping[str, str]) -> int:
    return argument(given, "id", read_message_id)
