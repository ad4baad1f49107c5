"""The table of the product's own endpoints, for the server to mount: method, path, function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.admin.health import show_health, show_statistics
from polymq.admin.metrics import show_metrics
from polymq.admin.records import read_records
from polymq.admin.topics import list_topics, show_node, show_offset, show_topic
from polymq.core.access import Action

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.admin.door import Door
    from polymq.wire.exchange import Request, Response, Retry

__all__ = ["ENDPOINTS", "all_statistics"]

ENDPOINTS: Final[tuple[tuple[str, str, Callable[[Request, Door], Response | Retry]], ...]] = (
    ("GET", "/healthz", show_health),
    ("GET", "/metrics", show_metrics),
    ("GET", "/v1/stats", show_statistics),
    ("GET", "/v1/node", show_node),
    ("GET", "/v1/topics", list_topics),
    ("GET", "/v1/topics/{name}", show_topic),
    ("GET", "/v1/topics/{name}/{partition}/offset", show_offset),
    ("GET", "/v1/topics/{name}/{partition}/records", read_records),
)


def all_statistics(request: Request) -> Action | None:
    """Say what one must be allowed to do to all topics for a request that shows something of each."""
    return Action.READ if request.path == "/v1/stats" or not request.path.startswith("/v1/") else None
