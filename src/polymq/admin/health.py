"""How the broker is: for whoever restarts it, and for whoever draws curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from polymq.admin.door import JSON, endpoint, json
from polymq.wire.exchange import Response

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polymq.admin.door import Door
    from polymq.core.statistics import Registry
    from polymq.wire.exchange import Request

__all__ = ["show_health", "show_statistics"]


@endpoint
def show_health(_request: Request, door: Door) -> Response:
    """GET /healthz: 200 when well, 503 with what is wrong."""
    problems = door.session.health()
    return json({"health": "failing" if problems else "ok", "problems": problems}, 503 if problems else 200)


@endpoint
def show_statistics(_request: Request, door: Door) -> Response:
    """GET /v1/stats: every family of the registry, made one by one while they are sent."""
    return Response(headers=(JSON,), body=_pieces(door.statistics))


def _pieces(statistics: Registry) -> Iterator[bytes]:
    separator = b'{"families":['
    for family in statistics:
        described = {
            "name": family.name,
            "kind": family.kind.value,
            "help": family.help,
            "samples": [{"labels": dict(sample.labels), "value": sample.value} for sample in family.collect()],
        }
        yield separator + orjson.dumps(described)
        separator = b","
    yield (b"" if separator == b"," else separator) + b"]}\n"
