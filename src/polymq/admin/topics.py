"""The catalogue over HTTP: which topics there are, where their partitions begin and end, what was when."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from polymq import limits
from polymq.admin.door import JSON, Problem, digits, endpoint, json, number
from polymq.errors import Refusal, RefusalCode
from polymq.wire.exchange import Response, Retry

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polymq.admin.door import Door
    from polymq.core.ports import Log
    from polymq.core.views import TopicView
    from polymq.wire.exchange import Request

__all__ = ["list_topics", "log_of", "show_node", "show_offset", "show_topic"]

# A topic of one partition is about 150 bytes.
_PIECE_SIZE_BYTES: Final = 32 * 1024


@endpoint
def list_topics(request: Request, door: Door) -> Response:
    """GET /v1/topics[?namespace=]: every topic, made while it is being sent."""
    if request.arguments is None:
        raise Problem(400, "INVALID_ARGUMENT", "the query cannot be decoded")
    return Response(headers=(JSON,), body=_pieces(door, request.arguments.get("namespace")))


@endpoint
def show_topic(request: Request, door: Door) -> Response:
    """GET /v1/topics/{name}."""
    view = door.session.topic(request.parameters["name"], groups=False, consumers=False)
    if view is None:
        raise Refusal(RefusalCode.TOPIC_NOT_FOUND)
    return json(_described(view, door.node))


@endpoint
def show_node(_request: Request, door: Door) -> Response:
    """GET /v1/node: what the log is called, under whatever address."""
    return json({"node": door.node})


@endpoint
def show_offset(request: Request, door: Door) -> Response | Retry:
    """GET /v1/topics/{name}/{partition}/offset?time_ns=: the first offset that was appended then or later.

    What is on the disk is asked for again until it is there.
    """
    time_ns = number(request, "time_ns")

    def answer() -> Response | Retry:
        offset = log_of(request, door).offset_at(time_ns)
        if offset is None:
            return Retry(door.clock.monotonic_ns() + limits.HTTP_POLL_INTERVAL_NS, answer)
        return json({"offset": offset})

    return answer()


def log_of(request: Request, door: Door) -> Log:
    """Give the partition that the path names; raises Problem or Refusal."""
    partition = digits(request.parameters["partition"], "partition")
    return door.session.log(request.parameters["name"], partition)


def _described(view: TopicView, node: str) -> dict[str, object]:
    return {
        "node": node,
        "namespace": view.namespace,
        "name": view.name,
        "partitions": [
            {
                "partition": partition.partition,
                "number": partition.number,
                "epoch": partition.epoch,
                "epochs": partition.epochs,
                "start": partition.start,
                "end": partition.end,
                "readable": partition.readable,
                "size_bytes": partition.size_bytes,
            }
            for partition in view.partitions
        ],
    }


def _pieces(door: Door, namespace: str | None) -> Iterator[bytes]:
    """Describe topics one by one; what is gone by then is left out."""
    gathered = bytearray(b'{"topics":[')
    separator = b""
    for name in door.session.topic_names():
        view = door.session.topic(name, groups=False, consumers=False)
        if view is None or (namespace is not None and view.namespace != namespace):
            continue
        gathered += separator + orjson.dumps(_described(view, door.node))
        separator = b","
        if len(gathered) >= _PIECE_SIZE_BYTES:
            yield bytes(gathered)
            gathered.clear()
    yield bytes(gathered + b"]}\n")
