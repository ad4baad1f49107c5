"""Prepared batches over HTTP: a task writes what nobody sees, its query's commit makes it visible.

`POST …/parts/{part}?request=n` has a body of u32 size · JSON of that size · record batches, one behind the other. The
JSON's `frames` say of each batch where it belongs: [topic, partition or -1, flags], 1: its records' own times are when
they are due, 2: some of its records end at a time. The batches' own time is 0, and they have no extras.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import orjson

from polymq import limits
from polymq.admin.door import JSON, Problem, endpoint, json, number, problem
from polymq.wire.batch import HEADER_SIZE_BYTES, parse_header
from polymq.wire.exchange import BodyState, Response, Retry
from polymq.wire.records import check
from polymq.wire.rows import has_extras

if TYPE_CHECKING:
    from polymq.admin.door import Door
    from polymq.core.prepared import Named, Staged
    from polymq.wire.exchange import Request

__all__ = ["abort", "commit", "prepare", "show_prepared_topics"]

_LATER: Final = 1
_EXPIRES: Final = 2
_U32: Final = struct.Struct("<I")
# A commit takes two syncs: it is looked at so often whether it is done.
_LOOK_NS: Final = 2_000_000
_TOPICS_MAX: Final = 1000


@endpoint
def prepare(request: Request, door: Door) -> Response:
    """POST /v1/prepared/{sink}/parts/{part}?request=: store record batches, answered once they are synced."""
    _whole(request)
    ticket = door.session.prepare(
        request.parameters["sink"], request.parameters["part"], number(request, "request"), _staged(request.body_view)
    )
    return Response(headers=(JSON,), body=b"{}\n", ticket=ticket, failure=_not_stored)


@endpoint
def show_prepared_topics(request: Request, door: Door) -> Response:
    """POST /v1/prepared/topics: how many partitions topics have; those that are not there are made."""
    names = _listed(_object(request).get("topics"), str, _TOPICS_MAX, "topics")
    counts = {name: door.session.prepared_topic(name) for name in names}
    body = orjson.dumps({"topics": counts}) + b"\n"
    return Response(headers=(JSON,), body=body, ticket=door.session.journaled(), failure=_not_stored)


@endpoint
def commit(request: Request, door: Door) -> Response | Retry:
    """POST /v1/prepared/{sink}/commit: make the parts of a batch visible, answered once that is durable.

    202: it is not done yet, ask again. Asked again, it looks how far it is; a batch that was committed stays so.
    """
    given = _object(request)
    batch = given.get("batch")
    if not isinstance(batch, int) or not _is_number(batch):
        raise Problem(400, "INVALID_ARGUMENT", "batch is a number, not negative")
    rows = _listed(given.get("parts"), list, limits.PREPARED_PARTS_PER_SINK_MAX, "parts")
    named: list[Named] = []
    for row in rows:
        if len(row) != 3 or not isinstance(row[0], str) or not _is_number(row[1]) or not _is_number(row[2]):
            raise Problem(400, "INVALID_ARGUMENT", "parts are [name, requests, records]")
        named.append((row[0], row[1], row[2]))
    give_up_ns = door.clock.monotonic_ns() + limits.HTTP_WAIT_NS_MAX
    sink = request.parameters["sink"]
    return _look(door, partial(door.session.commit_prepared, sink, batch, named, once=given.get("once") is True), give_up_ns)


def _look(door: Door, is_done: partial[bool], give_up_ns: int) -> Response | Retry:
    if is_done():
        return Response(headers=(JSON,), body=b'{"state":"committed"}\n', ticket=door.session.journaled(), failure=_not_stored)
    now_ns = door.clock.monotonic_ns()
    if now_ns >= give_up_ns:
        return json({"state": "committing"}, 202)
    return Retry(now_ns + _LOOK_NS, partial(_look, door, is_done, give_up_ns))


@endpoint
def abort(request: Request, door: Door) -> Response:
    """POST /v1/prepared/{sink}/abort: drop parts that will not be committed."""
    names = _listed(_object(request).get("parts"), str, limits.PREPARED_PARTS_PER_SINK_MAX, "parts")
    door.session.abort_prepared(request.parameters["sink"], names)
    return Response(headers=(JSON,), body=b"{}\n", ticket=door.session.journaled(), failure=_not_stored)


def _not_stored(reason: str) -> Response:
    return problem(503, "STORE_FAILED", reason)


def _whole(request: Request) -> None:
    if request.body_state is BodyState.TOO_LARGE:
        raise Problem(413, "BATCH_TOO_LARGE", "the body is larger than a request may be")
    if request.body_state is not BodyState.WHOLE:
        raise Problem(400, "INVALID_ARGUMENT", "the body is not complete")


def _object(request: Request) -> dict[str, Any]:
    """Read a body that is a JSON object."""
    _whole(request)
    return _parsed(bytes(request.body_view))


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        given = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise Problem(400, "INVALID_ARGUMENT", f"no JSON: {error}") from error
    if not isinstance(given, dict):
        raise Problem(400, "INVALID_ARGUMENT", "no JSON object")
    return given


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def _listed(value: Any, kind: type, count_max: int, what: str) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(each, kind) for each in value):
        raise Problem(400, "INVALID_ARGUMENT", f"{what} is no list, or of other things")
    if len(value) > count_max:
        raise Problem(413, "LIMIT_REACHED", f"{what} has more than {count_max}")
    return value


def _staged(view: memoryview) -> list[Staged]:
    """Take the frames of a request apart; every byte of them is checked."""
    at = _U32.size + (_U32.unpack_from(view)[0] if len(view) >= _U32.size else len(view))
    if at > len(view) or at > limits.PREPARED_HEAD_SIZE_BYTES_MAX:
        raise Problem(400, "INVALID_ARGUMENT", "the body does not begin with the size of a JSON object, and the object")
    rows = _listed(_parsed(bytes(view[_U32.size : at])).get("frames"), list, limits.PREPARED_FRAMES_PER_REQUEST_MAX, "frames")
    staged: list[Staged] = []
    for row in rows:
        topic, partition, flags = _place(row)
        wrong = check(view, at, len(view))
        if wrong is not None:
            raise Problem(400, "INVALID_ARGUMENT", f"no valid batch at byte {at}: {wrong}")
        header = parse_header(view, at)
        end = at + header.size
        if header.base_time_ns or header.attributes or has_extras(view[:end], at + HEADER_SIZE_BYTES, header.count):
            raise Problem(400, "INVALID_ARGUMENT", f"the batch at byte {at} has a time, attributes or extras")
        staged.append((topic, partition, bool(flags & _LATER), bool(flags & _EXPIRES), view[at:end]))
        at = end
    if at != len(view):
        raise Problem(400, "INVALID_ARGUMENT", "there is more than the frames say")
    return staged


def _place(row: list[Any]) -> tuple[str, int, int]:
    if len(row) == 3 and isinstance(row[0], str) and _is_number(row[2]) and row[2] <= (_LATER | _EXPIRES):
        partition = row[1]
        if partition == -1 or (_is_number(partition) and partition < limits.PARTITIONS_PER_TOPIC_MAX):
            return row[0], partition, row[2]
    raise Problem(400, "INVALID_ARGUMENT", "frames are [topic, partition, flags]")
