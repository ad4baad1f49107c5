"""`/pub` and `/mpub`: the checks in nsqd's order, then one publish. A topic is made as soon as its name is known."""

from __future__ import annotations

import re
from array import array
from typing import TYPE_CHECKING, Final

from polymq.gateways.nsq.http_answers import ApiError, endpoint, ok
from polymq.gateways.nsq.http_bodies import split_binary, split_lines
from polymq.protocols.nsq.names import is_ephemeral, is_valid_name
from polymq.wire.batch import Message
from polymq.wire.exchange import BodyState
from polymq.wire.slices import MessageBatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.gateways.nsq.http_context import NsqHttp
    from polymq.wire.exchange import Request, Response

__all__ = ["ORIGIN_NSQ", "described", "publish", "publish_many", "topic_of"]

# The origin of a batch: docs/INTERNALS.md, section 2.
ORIGIN_NSQ: Final = 1
_NS_PER_MS: Final = 1_000_000
_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_OURS: Final = b"polymq-"
_KEY: Final = b"polymq-key"
_HEADER: Final = b"polymq-header-"
_NOT_BINARY: Final = ("false", "0")


@endpoint
def publish(request: Request, context: NsqHttp) -> Response:
    """POST /pub?topic=&defer=: one message, the body; its key and headers, which nsqd does not know, in HTTP headers."""
    if request.body_state is BodyState.TOO_LARGE:
        raise ApiError(413, "MSG_TOO_BIG")
    if request.body_state is BodyState.BROKEN:
        raise ApiError(500, "INTERNAL_ERROR")
    size_bytes = len(request.body_view)
    if size_bytes == 0:
        raise ApiError(400, "MSG_EMPTY")
    topic, given = topic_of(request, context)
    delay_ns = _delay_ns(given, context.settings.http_delay_ms_max)
    key, headers = described(request)
    if key is not None or headers:
        message = Message(bytes(request.body_view), key=key, headers=headers)
        return ok(context.session.publish_messages(topic, (message,), origin=ORIGIN_NSQ, delay_ns=delay_ns))
    batch = MessageBatch(
        request.body_view,
        memoryview(array("q", (0,))),
        memoryview(array("q", (size_bytes,))),
        first=0,
        count=1,
        size_bytes=size_bytes,
    )
    return ok(context.session.publish(topic, batch, origin=ORIGIN_NSQ, delay_ns=delay_ns))


@endpoint
def publish_many(request: Request, context: NsqHttp) -> Response:
    """POST /mpub?topic=&binary=: a message a line, or nsqd's binary format; all of them or none."""
    settings = context.settings
    declared = request.content_length
    if declared is not None and declared > settings.body_size_bytes_max:
        raise ApiError(413, "BODY_TOO_BIG")
    topic, given = topic_of(request, context)
    if described(request) != (None, ()):
        raise ApiError(400, "HEADERS_OF_MANY")
    # Anything but a plain "no" means binary, even nothing: observed on nsqd 1.3.0.
    binary = "binary" in given and given["binary"] not in _NOT_BINARY
    if request.body_state is BodyState.BROKEN and not binary:
        raise ApiError(500, "INTERNAL_ERROR")
    if request.body_state is BodyState.TOO_LARGE:
        raise ApiError(413, "BODY_TOO_BIG")
    size_bytes_max = settings.message_size_bytes_max
    if binary:
        count_max = settings.multi_publish_count_max
        batch = split_binary(request.body_view, size_bytes_max=size_bytes_max, count_max=count_max)
    else:
        batch = split_lines(request.body_view, size_bytes_max=size_bytes_max)
    if isinstance(batch, str):
        raise ApiError(413, batch)
    if batch.count == 0:
        return ok(None)
    return ok(context.session.publish(topic, batch, origin=ORIGIN_NSQ))


def described(request: Request) -> tuple[bytes | None, tuple[tuple[bytes, bytes], ...]]:
    """Give the message's key and headers: `Polymq-Key`, and `Polymq-Header-<name>` in the order in which they came.

    Names are in lower case, as HTTP knows no other; values are the bytes between the spaces.
    """
    key: bytes | None = None
    headers: list[tuple[bytes, bytes]] = []
    for name, value in request.headers:
        if name.startswith(_OURS):
            if name == _KEY:
                key = value
            elif name.startswith(_HEADER) and len(name) > len(_HEADER):
                headers.append((name[len(_HEADER) :], value))
    return key, tuple(headers)


def topic_of(request: Request, context: NsqHttp) -> tuple[str, Mapping[str, str]]:
    """Give the topic of the query, made if it was not there, and the query's arguments; raises ApiError."""
    given = request.arguments
    if given is None:
        raise ApiError(400, "INVALID_REQUEST")
    topic = given.get("topic")
    if topic is None:
        raise ApiError(400, "MISSING_ARG_TOPIC")
    name = topic.encode("utf-8")
    if not is_valid_name(name):
        raise ApiError(400, "INVALID_TOPIC")
    context.session.ensure_topic(topic, ephemeral=is_ephemeral(name))
    return topic, given


def _delay_ns(given: Mapping[str, str], delay_ms_max: int) -> int:
    delay = given.get("defer")
    if delay is None:
        return 0
    if not _INTEGER.fullmatch(delay) or not 0 <= int(delay) <= delay_ms_max:
        raise ApiError(400, "INVALID_DEFER")
    return int(delay) * _NS_PER_MS
