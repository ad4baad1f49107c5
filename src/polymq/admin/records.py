"""Records over HTTP: whole batches as they lie in the log, a chunk at a time, so that no turn is held.

The broker decodes nothing but batch headers here; whoever reads drops the records of the first batch that lie below
`offset`, and of the last that lie at or above `end`. Data that has to come from the disk is asked for again until it
is there. A body that cannot be completed (the topic was deleted, the records were dropped by retention meanwhile) is
cut off, which the reader sees from the missing last chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from polymq import limits
from polymq.admin.door import endpoint, number, problem
from polymq.admin.topics import log_of
from polymq.errors import Refusal, RefusalCode
from polymq.wire.exchange import Response, Retry
from polymq.wire.walk import pass_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from polymq.admin.door import Door
    from polymq.core.ports import Log
    from polymq.wire.exchange import Request

__all__ = ["read_records"]

_BATCHES: Final = ("Content-Type", "application/vnd.polymq.batches")
_NS_PER_MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Reading:
    """One request for records: from `offset`, before `end`, until `size_bytes` have been sent to `connection`."""

    connection: Any
    open_log: Callable[[], Log]
    offset: int
    end: int
    size_bytes: int
    give_up_ns: int


@endpoint
def read_records(request: Request, door: Door) -> Response | Retry:
    """GET /v1/topics/{name}/{partition}/records?offset=&end=&max_bytes=&wait_ms=."""
    wait_ns = number(request, "wait_ms", 0) * _NS_PER_MS
    reading = Reading(
        connection=request.connection,
        open_log=lambda: log_of(request, door),
        offset=number(request, "offset"),
        end=number(request, "end", limits.OFFSET_MAX),
        size_bytes=min(number(request, "max_bytes", limits.HTTP_RECORDS_SIZE_BYTES), limits.HTTP_RECORDS_SIZE_BYTES_MAX),
        give_up_ns=door.clock.monotonic_ns() + min(wait_ns, limits.HTTP_WAIT_NS_MAX),
    )
    return _answer(reading, door)


def _answer(reading: Reading, door: Door) -> Response | Retry:
    log = reading.open_log()
    start, readable = log.start, log.readable
    if not start <= reading.offset <= readable:
        text = f"offset {reading.offset} is not within {start} … {readable}"
        return problem(416, RefusalCode.OFFSET_OUT_OF_RANGE.name, text, start=start, readable=readable)
    now_ns = door.clock.monotonic_ns()
    at_end = reading.offset == readable and reading.offset < reading.end
    if at_end and not log.failed and now_ns < reading.give_up_ns:
        return _wait(reading, door, log, now_ns)
    headers = (
        _BATCHES,
        ("Polymq-Epoch", str(log.epoch)),
        ("Polymq-Start", str(start)),
        ("Polymq-Readable", str(readable)),
        ("Polymq-Number", str(log.number)),
        ("Polymq-Node", door.node),
    )
    return Response(headers=headers, body=_chunks(reading, log, min(reading.end, readable)))


def _wait(reading: Reading, door: Door, log: Log, now_ns: int) -> Retry:
    """Answer when there is something to read, or the time is over."""
    tails = door.tails
    if tails is None:
        return Retry(min(now_ns + limits.HTTP_POLL_INTERVAL_NS, reading.give_up_ns), lambda: _answer(reading, door))
    tails.wait(log, reading.connection)
    leave = partial(tails.leave, log, reading.connection)

    def again() -> Response | Retry:
        leave()
        return _answer(reading, door)

    return Retry(min(now_ns + limits.HTTP_NET_INTERVAL_NS, reading.give_up_ns), again, leave)


def _chunks(reading: Reading, log: Log, end: int) -> Iterator[bytes]:
    """Yield whole batches until one holds the last offset before `end`, or enough has been sent; b"" to wait."""
    offset, left_bytes = reading.offset, reading.size_bytes
    is_first = True
    while offset < end and (left_bytes > 0 or is_first):
        if reading.open_log() is not log:
            raise Refusal(RefusalCode.TOPIC_NOT_FOUND, "the topic was deleted while it was being read")
        if offset < log.start:
            raise Refusal(RefusalCode.OFFSET_OUT_OF_RANGE, f"offset {offset} was dropped while it was being read")
        view = log.batches(offset, max(1, min(left_bytes, limits.HTTP_CHUNK_SIZE_BYTES_MAX)))
        if view is None:
            yield b""
            continue
        size_bytes, next_offset = _measured(view, end)
        if size_bytes == 0 or (size_bytes > left_bytes and not is_first):
            return
        offset = next_offset
        left_bytes -= size_bytes
        is_first = False
        # A batch may be much larger than a chunk: what a slow reader has not taken stays in the log's own pages.
        for at in range(0, size_bytes, limits.HTTP_CHUNK_SIZE_BYTES_MAX):
            yield bytes(view[at : min(at + limits.HTTP_CHUNK_SIZE_BYTES_MAX, size_bytes)])


def _measured(view: memoryview, end: int) -> tuple[int, int]:
    """Give the size of the whole batches in `view` that begin before `end`, and the offset behind them."""
    return pass_whole(view, 0, len(view), end, 0, len(view))
