"""What an executor does: fetch a range of one partition in large pieces, check it, and hand it on as Arrow.

Runs in Spark's Python workers. A worker is used for many tasks and may get any range, so it keeps one connection for
each broker it has talked to. That nothing was lost or replaced is checked here as well as where the query was planned:
the broker may have been restarted in between.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from polymq.clients.log import LogClient, OffsetOutOfRange
from polymq.errors import Refusal, RefusalCode, RemoteProtocolError
from polymq.spark.log.arrow import record_batch
from polymq.spark.log.offsets import Position, resume
from polymq.spark.losses import Patience, report_loss
from polymq.wire.records import columns

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa

    from polymq.clients.log import Chunk, PartitionInfo
    from polymq.spark.log.offsets import Range
    from polymq.spark.log.options import Options

__all__ = ["client_of", "read_range"]

# Of several nodes, one that neither answers nor refuses costs so much of the driver's time whenever it is asked.
_TIMEOUT_SECONDS: Final = 30.0
_TIMEOUT_SECONDS_PLANNING: Final = 5.0

# One client for each (broker, secret, patience, timeout) in this process.
_clients: Final[dict[tuple[str, str, float, float], LogClient]] = {}


def client_of(options: Options, address: str, *, planning: bool = False) -> LogClient:
    """Give this process's client of a broker. In planning, nobody waits for one of several that is away."""
    waits = not planning or bool(options.server)
    retry_seconds, timeout_seconds = (options.retry_seconds, _TIMEOUT_SECONDS) if waits else (0.0, _TIMEOUT_SECONDS_PLANNING)
    key = (address, options.secret, retry_seconds, timeout_seconds)
    if key not in _clients:
        _clients[key] = LogClient(address, secret=options.secret, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds)
    return _clients[key]


def read_range(
    client: LogClient,
    wanted: Range,
    options: Options,
    *,
    sleep: Callable[[float], None] = time.sleep,
    monotonic: Callable[[], float] = time.monotonic,
) -> Iterator[pa.RecordBatch]:
    """Fetch a range and give it as Arrow record batches, in order and with no offset missing.

    What the log holds but may not show yet is waited for, as long as a broker that is away would be. Where records were
    written again the range ends: the query's next batch begins there, and would read them a second time.

    Raises: DataLoss if records of the range are gone or have been replaced, unless `fail_on_data_loss` is off;
            DeadlineExceeded if the log holds records of the range, but has not shown them in time.
    """
    place = wanted.place
    at = wanted.start
    patience = Patience(options.retry_seconds, sleep, monotonic)
    while at < wanted.end:
        chunk = _fetch(client, wanted, at, options)
        if chunk is None:
            begin = _begin_again(client, wanted, at, options)
            if begin is None:
                return
            if begin == at:
                patience.pause(f"{place} holds offset {at}, but it cannot be read yet")
            at = begin
            continue
        patience.renew()
        first, after = _extent(chunk)
        end = _end_of_epoch(chunk, wanted, options)
        if first > at:
            report_loss(f"{place} has offset {first} where {at} was asked for", options)
        found = columns(chunk.data, 0, len(chunk.data), at, max(at, end))
        if found.count:
            yield record_batch(options.columns, place.topic, wanted.partition, wanted.log, chunk.data, found)
        if end < wanted.end:
            return
        at = after


def _fetch(client: LogClient, wanted: Range, at: int, options: Options) -> Chunk | None:
    """Fetch what the wanted log has from `at` on; None if that is nothing, for whatever reason."""
    try:
        chunk = client.records(wanted.place.topic, wanted.place.partition, at, end=wanted.end, size_bytes_max=options.fetch_size_bytes)
    except OffsetOutOfRange:
        return None
    except Refusal as error:
        if error.code is not RefusalCode.TOPIC_NOT_FOUND:
            raise
        return None
    _check_node(chunk.node, wanted)
    return chunk if chunk.number == wanted.log and _extent(chunk)[1] > at else None


def _begin_again(client: LogClient, wanted: Range, at: int, options: Options) -> int | None:
    """Find out why there was nothing from `at` on, and report it if that is a loss.

    Gives the offset to go on from: `at` itself when the log holds it and it is only a matter of time until it may be
    read; None when no more of the range will come.
    """
    info = _partition(client, wanted)
    if info is None:
        report_loss(f"{wanted.place} is no longer there", options)
        return None
    begin, loss = resume(wanted.place, Position(at, wanted.epoch, wanted.log), info)
    if loss is None and at == info.end:
        loss = f"{wanted.place} ends at offset {at}, before {wanted.end}"
    if loss is None:
        return at
    report_loss(loss, options)
    return begin if info.number == wanted.log and begin > at else None


def _check_node(name: str, wanted: Range) -> None:
    """Make sure that the node is still where it was when the range was planned: others have partitions of the same names."""
    if wanted.place.node and name != wanted.place.node:
        raise RemoteProtocolError(f"at {wanted.address} there is node {name or 'without a name'} now, not {wanted.place.node}")


def _partition(client: LogClient, wanted: Range) -> PartitionInfo | None:
    """Describe a partition; None if it is not there."""
    place = wanted.place
    try:
        topic = client.topic(place.topic)
    except Refusal as error:
        if error.code is not RefusalCode.TOPIC_NOT_FOUND:
            raise
        if place.node:
            _check_node(client.node(), wanted)
        return None
    _check_node(topic.node, wanted)
    return next((info for info in topic.partitions if info.partition == place.partition), None)


def _extent(chunk: Chunk) -> tuple[int, int]:
    """Tell the first offset in a chunk and the one behind its last; (-1, -1) for an empty one."""
    first, after = -1, -1
    for _, _, header in chunk.batches():
        first = header.base_offset if first < 0 else first
        after = header.base_offset + header.count
    return first, after


def _end_of_epoch(chunk: Chunk, wanted: Range, options: Options) -> int:
    """Tell where the range ends as far as this chunk shows: before the first record that was written again, if any."""
    for _, _, header in chunk.batches():
        if header.epoch > wanted.epoch and header.base_offset < wanted.end:
            report_loss(
                f"{wanted.place} lost records when the broker's machine failed: offset {header.base_offset} was written in epoch {header.epoch}, "
                f"the query was planned for epoch {wanted.epoch}",
                options,
            )
            return header.base_offset
    return wanted.end
