"""nsqd's HTTP interface: the table of endpoints, and the two that say how the node is.

The answers are nsqd 1.3.0's, byte for byte where clients look; Go's own debug pages are not there. The endpoints are
plain functions from a request and a context to an answer. Read next: `http_publishing.py`, `http_topics.py`,
`stats.py`, `http_config.py`; polymq's own are in `http_streaming.py`, `http_policies.py`, `http_inspection.py`, `http_replay.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.core.access import Action
from polymq.gateways.nsq import http_answers, http_topics
from polymq.gateways.nsq.http_answers import refuse
from polymq.gateways.nsq.http_config import change_option, show_option
from polymq.gateways.nsq.http_debug import free_memory, set_block_rate
from polymq.gateways.nsq.http_inspection import cancel_deferred, list_channel_deferred, list_topic_deferred, peek_channel, peek_topic
from polymq.gateways.nsq.http_policies import set_channel_policy, set_topic_policy, show_channel_policy, show_topic_policy
from polymq.gateways.nsq.http_publishing import publish, publish_many
from polymq.gateways.nsq.http_replay import replay_channel
from polymq.gateways.nsq.http_streaming import finish, ready, requeue, subscribe, touch
from polymq.gateways.nsq.stats import show_statistics
from polymq.protocols.http.decode import BodyRule
from polymq.protocols.http.router import Route, Router
from polymq.wire.exchange import Response

if TYPE_CHECKING:
    from polymq.gateways.nsq.http_context import NsqHttp
    from polymq.protocols.nsq.settings import NsqSettings
    from polymq.wire.exchange import Request

__all__ = ["TlsRequired", "concerns_all", "nsq_router", "nsq_routes"]

_NS_PER_MS: Final = 1_000_000


def ping(_request: Request, context: NsqHttp) -> Response:
    """GET /ping: the one answer without `X-NSQ-Content-Type`."""
    health = context.health_text()
    return http_answers.plain(200 if health == "OK" else 500, health)


def info(_request: Request, context: NsqHttp) -> Response:
    """GET /info: what tools need to know of a node."""
    node, settings = context.node, context.settings
    return http_answers.json(
        {
            "version": settings.version,
            "broadcast_address": node.broadcast_address,
            "hostname": node.host_name,
            "http_port": node.http_port,
            "tcp_port": node.tcp_port,
            "start_time": node.started_at_ns // 1_000_000_000,
            "max_heartbeat_interval": settings.heartbeat_interval_ms_max * _NS_PER_MS,
            "max_output_buffer_size": settings.output_buffer_size_bytes_max,
            "max_output_buffer_timeout": settings.output_buffer_timeout_ms_max * _NS_PER_MS,
            "max_deflate_level": settings.deflate_level_max,
        }
    )


def log_door(_request: Request, context: NsqHttp) -> Response:
    """GET /log: where the log's own door is, on the address that nsqlookupd is told; polymq's own."""
    node = context.node
    return http_answers.json({"node": node.log_name, "broadcast_address": node.broadcast_address, "port": context.log_port()})


def concerns_all(request: Request) -> Action | None:
    """Say what one must be allowed to do to all topics for a request that is about the node."""
    if request.path.startswith("/debug"):
        return Action.MANAGE
    if request.path.startswith("/config/"):
        return Action.READ if request.method == "GET" else Action.MANAGE
    return None


class TlsRequired(Router["NsqHttp"]):
    """What the plain port answers where TLS is required: the same to everything.

    Source: nsqd/http.go, ServeHTTP, NSQ 1.3.0.
    """

    def __init__(self, https_port: int) -> None:
        super().__init__((), refuse=refuse)
        body = f'{{"message": "TLS_REQUIRED", "https_port": {https_port}}}'
        self._answer = Response(403, http_answers.json_headers(), body.encode())

    def answer(self, _request: Request, _context: NsqHttp) -> Response:
        """Refuse."""
        return self._answer


def nsq_router(settings: NsqSettings) -> Router[NsqHttp]:
    """Make the table, ready for looking up."""
    return Router(nsq_routes(settings), refuse=refuse)


def nsq_routes(settings: NsqSettings) -> list[Route[NsqHttp]]:
    """Give the table. The limits on bodies are the settings'."""
    message = BodyRule(settings.message_size_bytes_max, reads=True)
    body = BodyRule(settings.body_size_bytes_max, reads=True)
    settle = BodyRule(limits.HTTP_SETTLE_SIZE_BYTES_MAX, reads=True)
    return [
        Route("GET", "/ping", ping),
        Route("GET", "/info", info),
        Route("GET", "/log", log_door),
        Route("GET", "/stats", show_statistics, body),
        Route("POST", "/pub", publish, message),
        Route("POST", "/mpub", publish_many, body),
        Route("POST", "/topic/create", http_topics.create_topic),
        Route("POST", "/topic/delete", http_topics.delete_topic, body),
        Route("POST", "/topic/empty", http_topics.empty_topic, body),
        Route("POST", "/topic/pause", http_topics.pause_topic, body),
        Route("POST", "/topic/unpause", http_topics.unpause_topic, body),
        Route("POST", "/channel/create", http_topics.create_channel, body),
        Route("POST", "/channel/delete", http_topics.delete_channel, body),
        Route("POST", "/channel/empty", http_topics.empty_channel, body),
        Route("POST", "/channel/pause", http_topics.pause_channel, body),
        Route("POST", "/channel/unpause", http_topics.unpause_channel, body),
        Route("GET", "/config/{opt}", show_option),
        Route("PUT", "/config/{opt}", change_option, message),
        Route("GET", "/sub", subscribe),
        Route("POST", "/fin", finish, settle),
        Route("POST", "/req", requeue),
        Route("POST", "/touch", touch),
        Route("POST", "/rdy", ready),
        Route("GET", "/topic/policy", show_topic_policy),
        Route("POST", "/topic/policy", set_topic_policy),
        Route("GET", "/topic/peek", peek_topic),
        Route("GET", "/topic/deferred", list_topic_deferred),
        Route("POST", "/topic/cancel", cancel_deferred),
        Route("GET", "/channel/policy", show_channel_policy),
        Route("POST", "/channel/policy", set_channel_policy),
        Route("GET", "/channel/peek", peek_channel),
        Route("GET", "/channel/deferred", list_channel_deferred),
        Route("POST", "/channel/replay", replay_channel),
        Route("PUT", "/debug/setblockrate", set_block_rate),
        Route("POST", "/debug/freememory", free_memory),
    ]
