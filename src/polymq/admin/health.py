"""How the broker is: for whoever restarts it, and for whoever draws curves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from polymq.admin.door import JSON, endpoint, json
from polymq.wire.exchange import Response

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polymq.admin.door import Door
    from polymq.core.statistics import Registry
    from polymq.wire.exchange import Request

__all__ = ["show_health", "show_statistics"]

# A sample of a group is about 100 bytes.
_PIECE_SIZE_BYTES: Final = 32 * 1024


@endpoint
def show_health(_request: Request, door: Door) -> Response:
    """GET /healthz: 200 when well, 503 with what is wrong."""
    problems = door.session.health()
    return json({"health": "failing" if problems else "ok", "problems": problems}, 503 if problems else 200)


@endpoint
def show_statistics(_request: Request, door: Door) -> Response:
    """GET /v1/stats: every family of the registry, made while it is sent."""
    return Response(headers=(JSON,), body=_pieces(door.statistics))


def _pieces(statistics: Registry) -> Iterator[bytes]:
    separator = b'{"families":['
    for family in statistics:
        described: dict[str, object] = {"name": family.name, "kind": family.kind.value, "help": family.help, "samples": []}
        piece = separator + orjson.dumps(described)[: -len(b"]}")]
        separator = b""
        for sample in family.collect():
            piece += separator + orjson.dumps({"labels": dict(sample.labels), "value": sample.value})
            separator = b","
            if len(piece) >= _PIECE_SIZE_BYTES:
                yield piece
                piece = b""
        yield piece + b"]}"
        separator = b","
    yield (b"" if separator == b"," else separator) + b"]}\n"
