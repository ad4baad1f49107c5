"""What an executor does: fetch a range of one partition in large pieces, check it, and hand it on as Arrow.

Runs in Spark's Python workers. A worker is used for many tasks and may get any range, so it keeps one connection for
each broker it has talked to. That nothing was lost or replaced is checked here as well as where the query was planned:
the broker may have been restarted in between.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Final

from polymq.clients.log import LogClient, OffsetOutOfRange
from polymq.spark.arrow import record_batch
from polymq.spark.offsets import DataLoss
from polymq.wire.records import columns

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from polymq.clients.log import Chunk
    from polymq.spark.offsets import Range
    from polymq.spark.options import Options

__all__ = ["client_of", "read_range", "report_loss"]

# One client for each (broker, patience) in this process.
_clients: Final[dict[tuple[str, float], LogClient]] = {}


def client_of(options: Options) -> LogClient:
    """Give this process's client of a broker."""
    key = (options.server, options.retry_seconds)
    if key not in _clients:
        _clients[key] = LogClient(options.server, retry_seconds=options.retry_seconds)
    return _clients[key]


def report_loss(text: str, options: Options) -> None:
    """Fail for lost records, or warn if the query is to go on."""
    if options.fail_on_data_loss:
        raise DataLoss(f"{text}. Some records cannot be read any more; set failOnDataLoss to false to go on without them.")
    warnings.warn(text, RuntimeWarning, stacklevel=2)


def read_range(client: LogClient, wanted: Range, options: Options) -> Iterator[pa.RecordBatch]:
    """Fetch a range and give it as Arrow record batches, in order and with no offset missing.

    Raises: DataLoss if records of the range are gone or have been replaced, unless `fail_on_data_loss` is off.
    """
    place = wanted.place
    at = wanted.start
    while at < wanted.end:
        try:
            chunk = client.records(place.topic, place.partition, at, end=wanted.end, size_bytes_max=options.fetch_size_bytes)
        except OffsetOutOfRange as error:
            report_loss(f"{place.topic}/{place.partition} holds offsets {error.start} to {error.readable}, not {at}", options)
            if error.start <= at:
                return
            at = error.start
            continue
        first, after = _extent(chunk, wanted, options)
        if after <= at:
            report_loss(f"{place.topic}/{place.partition} ends at offset {at}, before {wanted.end}", options)
            return
        if first > at:
            report_loss(f"{place.topic}/{place.partition} has offset {first} where {at} was asked for", options)
        found = columns(chunk.data, 0, len(chunk.data), at, wanted.end)
        if found.count:
            yield record_batch(place.topic, place.partition, found)
        at = after


def _extent(chunk: Chunk, wanted: Range, options: Options) -> tuple[int, int]:
    """Tell the first offset in a chunk and the one behind its last; notice records that were written again."""
    first, after = -1, -1
    for _, _, header in chunk.batches():
        first = header.base_offset if first < 0 else first
        after = header.base_offset + header.count
        if header.epoch > wanted.epoch and header.base_offset < wanted.end:
            name = f"{wanted.place.topic}/{wanted.place.partition}"
            report_loss(
                f"{name} lost records when the broker's machine failed: offset {header.base_offset} was written in epoch {header.epoch}, "
                f"the query was planned for epoch {wanted.epoch}",
                options,
            )
    return first, after
