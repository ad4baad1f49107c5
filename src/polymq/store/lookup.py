"""Finding batches in a partition for those who want them whole: the log's HTTP door, and questions about time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.store.cold import ColdRead, describe
from polymq.store.index import IndexEntry
from polymq.store.reader import is_hot, request_window
from polymq.store.segment import SEGMENT_HEADER_SIZE_BYTES
from polymq.wire.records import HEADER_SIZE_BYTES, parse_header

if TYPE_CHECKING:
    from polymq.store.cold import WindowRequest
    from polymq.store.log import Log
    from polymq.store.segment import Segment
    from polymq.store.volume import Volume

__all__ = ["batches_from", "first_offset_at"]

_EMPTY: Final = memoryview(b"")
# Reads that wait to be collected, per partition: as many as a Spark job has tasks on one partition at a time.
_REQUESTS_MAX: Final = 8


def batches_from(log: Log, volume: Volume, requests: dict[int, WindowRequest], offset: int, size_bytes_max: int) -> memoryview | None:
    """See `Log.batches`."""
    offset = max(offset, log.start)
    segment = log.segment_of(offset)
    if segment is None or offset >= log.readable:
        return _EMPTY
    hint = segment.index.at_offset(offset) if segment.index is not None else None
    if hint is None and offset == segment.base_offset:
        hint = IndexEntry(offset, SEGMENT_HEADER_SIZE_BYTES, 0)
    view = volume.map(segment) if hint is not None and is_hot(volume, segment, hint.position) else None
    if hint is not None and view is not None:
        start = _batch_with(view, hint.position, offset, segment.used)
        return view[start : _end_of_batches(view, start, segment.used, log.readable, size_bytes_max, segment)]
    request = requests.get(offset)
    if request is None:
        while len(requests) >= _REQUESTS_MAX:
            del requests[next(iter(requests))]
        # The batch looked for may lie up to one index entry behind where reading begins.
        size_bytes = size_bytes_max + volume.settings.index_interval_bytes
        request = requests[offset] = request_window(log, volume, segment, offset, hint, size_bytes)
    if not request.ready:
        return None
    del requests[offset]
    window = request.window
    if window is None:
        if not request.failure:
            return None
        log.fence(request.failure)
        return _EMPTY
    return window.view[: _end_of_batches(window.view, 0, len(window.view), log.readable, size_bytes_max, None)]


def _batch_with(view: memoryview, position: int, offset: int, end: int) -> int:
    """Walk from the beginning of a batch to the one that holds a record."""
    while end - position >= HEADER_SIZE_BYTES:
        header = parse_header(view, position)
        if offset < header.base_offset + header.count:
            break
        position += header.size
    return position


def _end_of_batches(view: memoryview, start: int, end: int, readable: int, size_bytes_max: int, segment: Segment | None) -> int:
    """Tell where a run of whole readable batches ends that is at most so large, but has at least one."""
    position = start
    if segment is not None and segment.index is not None:
        # Jump: an entry is the beginning of a batch, so what lies before it is whole.
        entry = segment.index.before_position(min(start + size_bytes_max, end))
        if entry is not None and entry.position > start and entry.offset <= readable:
            position = entry.position
    while end - position >= HEADER_SIZE_BYTES:
        header = parse_header(view, position)
        after = position + header.size
        if header.base_offset >= readable or (position > start and after - start > size_bytes_max):
            break
        position = after
    return position


def first_offset_at(log: Log, volume: Volume, time_ns: int) -> int:
    """See `Log.offset_at`. A segment's `created` time is neither after its first batch nor before an earlier one."""
    segments = log.chain.segments
    low, high = 0, len(segments)
    while low < high:
        middle = (low + high) // 2
        segment = segments[middle]
        if not segment.created_ns:
            _, segment.created_ns, _ = describe(volume.files, segment.path, log.number, segment.base_offset)
        if segment.created_ns < time_ns:
            low = middle + 1
        else:
            high = middle
    if low == 0:
        return log.start
    return min(_offset_in(log, volume, segments[low - 1], time_ns), log.readable)


def _offset_in(log: Log, volume: Volume, segment: Segment, time_ns: int) -> int:
    """Find the first batch of one segment that is not earlier than a time; the segment's end if there is none."""
    offset = segment.base_offset
    if segment.index is not None:
        entry = segment.index.before_time(time_ns)
        offset = offset if entry is None else entry.offset
    while offset < segment.end_offset:
        hint = segment.index.at_offset(offset) if segment.index is not None else None
        size = volume.settings.window_size_bytes
        cold = ColdRead(
            volume.files,
            segment.path,
            log.number,
            segment.base_offset,
            segment.end_offset,
            segment.segment_id,
            segment.used,
            offset,
            hint,
            size,
            volume.settings.index_interval_bytes,
        )
        window = cold.run(cached=False)
        window.teach(segment, active=segment is log.chain.active)
        position = 0
        while position < len(window.view):
            header = parse_header(window.view, position)
            if header.base_time_ns >= time_ns:
                return header.base_offset
            position += header.size
            offset = header.base_offset + header.count
        entry = segment.index.before_time(time_ns) if segment.index is not None else None
        offset = max(offset, entry.offset) if entry is not None else offset
    return segment.end_offset
