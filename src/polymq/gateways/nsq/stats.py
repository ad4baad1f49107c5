"""`/stats`: the core's views under nsqd's names, as JSON or as text, made topic by topic while it is being sent.

Which topics and channels are shown, and when a list is null instead of empty, follows nsqd 1.3.0 to the letter,
because its tools do. A deferred publish waits with its topic here and in each channel there, so it is shown where
nsqd would have it. Read next: `stats_text.py` for the text, `core/views.py` for where the figures come from.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from polymq.gateways.nsq import http_format, stats_text
from polymq.gateways.nsq.http_answers import arguments, endpoint, json_headers, text_headers
from polymq.gateways.nsq.stats_model import ChannelStats, TopicStats, clients_of, producers_of, topic_stats
from polymq.wire.exchange import Response

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polymq.core.views import PeerView, TopicView
    from polymq.gateways.nsq.http_context import NsqHttp
    from polymq.gateways.nsq.stats_model import ClientStats
    from polymq.wire.exchange import Request

__all__ = ["show_statistics"]

_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}
# Pieces are gathered until they are worth a write; a topic without consumers is about 600 bytes.
_PIECE_SIZE_BYTES: Final = 32 * 1024


@dataclass(frozen=True, slots=True)
class Selection:
    """What the query asks for; no topic or channel means all of them."""

    topic: str
    channel: str
    include_clients: bool
    include_memory: bool


@endpoint
def show_statistics(request: Request, context: NsqHttp) -> Response:
    """GET /stats?format=&topic=&channel=&include_clients=&include_mem=."""
    given = arguments(request)
    selection = Selection(
        topic=given.get("topic", ""),
        channel=given.get("channel", ""),
        include_clients=_TRUTH.get(given.get("include_clients", ""), True),
        include_memory=_TRUTH.get(given.get("include_mem", ""), True),
    )
    if given.get("format") == "json":
        return Response(headers=json_headers(), body=_gathered(_json_pieces(context, selection)))
    return Response(headers=text_headers(), body=_gathered(_text_pieces(context, selection)))


def _json_pieces(context: NsqHttp, selection: Selection) -> Iterator[bytes]:
    started_s = context.node.started_at_ns // http_format.NS_PER_SECOND
    opening = {"version": context.settings.version, "health": context.health_text(), "start_time": started_s}
    yield http_format.json(opening)[:-1] + b',"topics":'
    names = _topic_names(context, selection)
    if names is None:
        yield b"null"
    else:
        separator = b"["
        for topic in _topics(context, selection, names):
            yield separator + http_format.json(_topic_json(topic))
            separator = b","
        yield b"[]" if separator == b"[" else b"]"
    if selection.include_memory:
        yield b',"memory":' + http_format.json(asdict(context.memory()))
    producers = _producers(context, selection) if names is not None else []
    yield b',"producers":' + http_format.json([client.json() for client in producers] or None) + b"}"


def _topic_json(topic: TopicStats) -> dict[str, object]:
    return {
        "topic_name": topic.name,
        "channels": [_channel_json(channel) for channel in topic.channels],
        "depth": topic.depth,
        "backend_depth": 0,
        "message_count": topic.message_count,
        "message_bytes": topic.message_bytes,
        "paused": topic.paused,
        "e2e_processing_latency": topic.latency.json(),
    }


def _channel_json(channel: ChannelStats) -> dict[str, object]:
    return {
        "channel_name": channel.name,
        "depth": channel.depth,
        "backend_depth": 0,
        "in_flight_count": channel.in_flight_count,
        "deferred_count": channel.deferred_count,
        "message_count": channel.message_count,
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "client_count": channel.client_count,
        "clients": None if channel.clients is None else [client.json() for client in channel.clients],
        "paused": channel.paused,
        "e2e_processing_latency": channel.latency.json(),
    }


def _text_pieces(context: NsqHttp, selection: Selection) -> Iterator[bytes]:
    now_ns = context.clock.wall_ns()
    memory = context.memory() if selection.include_memory else None
    yield stats_text.opening(
        version=context.settings.version,
        runtime=context.node.runtime,
        started_at_ns=context.node.started_at_ns,
        now_ns=now_ns,
        health=context.health_text(),
        memory=memory,
    ).encode("utf-8")
    names = _topic_names(context, selection)
    is_first = True
    for topic in _topics(context, selection, names or []):
        yield ((stats_text.TOPICS if is_first else "") + stats_text.topic(topic, now_ns)).encode("utf-8")
        is_first = False
    producers = _producers(context, selection) if names is not None else []
    yield ((stats_text.NO_TOPICS if is_first else "") + stats_text.producers(producers, now_ns)).encode("utf-8")


def _topic_names(context: NsqHttp, selection: Selection) -> list[str] | None:
    """Name the topics to show; None if the one that is asked for does not exist."""
    if not selection.topic:
        return context.session.topic_names()
    return [selection.topic] if _view(context, selection, selection.topic) is not None else None


def _topics(context: NsqHttp, selection: Selection, names: list[str]) -> Iterator[TopicStats]:
    """Describe topics one by one; what is gone by then, or has no such channel, is left out."""
    published = _published(context) if selection.include_clients else {}
    for name in names:
        view = _view(context, selection, name)
        if view is None:
            continue
        clients = clients_of(published, selection.topic) if selection.include_clients else None
        topic = topic_stats(view, clients)
        if selection.channel:
            chosen = [channel for channel in topic.channels if channel.name == selection.channel]
            if not chosen:
                continue
            topic = topic.only(chosen)
        yield topic


def _view(context: NsqHttp, selection: Selection, name: str) -> TopicView | None:
    return context.session.topic(name, groups=True, consumers=selection.include_clients)


def _published(context: NsqHttp) -> dict[PeerView, tuple[tuple[str, int], ...]]:
    """What each session that has published has published, by its peer."""
    return {producer.peer: producer.published for producer in context.session.producers()}


def _producers(context: NsqHttp, selection: Selection) -> list[ClientStats]:
    return producers_of(context.session.producers(), selection.topic) if selection.include_clients else []


def _gathered(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Put small pieces together, so that each is worth a chunk."""
    gathered: list[bytes] = []
    size_bytes = 0
    for piece in pieces:
        gathered.append(piece)
        size_bytes += len(piece)
        if size_bytes >= _PIECE_SIZE_BYTES:
            yield b"".join(gathered)
            gathered.clear()
            size_bytes = 0
    if gathered:
        yield b"".join(gathered)
