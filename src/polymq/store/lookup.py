"""Finding batches in a partition for those who want them whole: the log's HTTP door, and questions about time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.errors import StoreFailed
from polymq.store.cold import describe
from polymq.store.index import IndexEntry
from polymq.store.reader import is_hot, request_window
from polymq.store.segment import SEGMENT_HEADER_SIZE_BYTES
from polymq.store.volume import is_passing
from polymq.store.workers import Lane
from polymq.wire.records import HEADER_SIZE_BYTES, parse_header
from polymq.wire.walk import pass_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.store.cold import WindowRequest
    from polymq.store.log import Log
    from polymq.store.segment import Segment
    from polymq.store.volume import Volume

__all__ = ["TimeSearch", "batches_from", "first_offset_at"]

_EMPTY: Final = memoryview(b"")
# Reads that wait to be collected, per partition: as many as a Spark job has tasks on one partition at a time. As many
# questions about time.
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
    return pass_whole(view, position, end, readable, start, start + size_bytes_max)[0]


def first_offset_at(log: Log, volume: Volume, searches: dict[int, TimeSearch], time_ns: int) -> int | None:
    """See `Log.offset_at`."""
    search = searches.get(time_ns)
    if search is None:
        while len(searches) >= _REQUESTS_MAX:
            # Whoever asked will ask again: what was found out so far is known to the segments by then.
            del searches[next(iter(searches))]
        search = searches[time_ns] = TimeSearch(time_ns)
    try:
        offset = search.step(log, volume)
    except StoreFailed:
        del searches[time_ns]
        raise
    if offset is not None:
        del searches[time_ns]
    return offset


class TimeSearch:
    """One question about time: goes as far as it can without the disk, and on from there when that was read.

    A segment's `created` time is neither after its first batch nor before an earlier one: these tell the segment, its
    index tells the place in it, and a few batches are looked at.
    """

    __slots__ = ("_failure", "_is_surveying", "_offset", "_request", "_segment", "time_ns")

    def __init__(self, time_ns: int) -> None:
        self.time_ns = time_ns
        self._is_surveying = False
        self._failure = ""
        # The segment that is looked through, the record that comes next in it, the read that is under way.
        self._segment: Segment | None = None
        self._offset = 0
        self._request: WindowRequest | None = None

    def step(self, log: Log, volume: Volume) -> int | None:
        """Go on; None if one has to wait for the disk. Raises StoreFailed."""
        if self._failure:
            raise StoreFailed(self._failure)
        if self._is_surveying:
            return None
        segments = log.chain.segments
        created = [segment.created_ns for segment in segments]
        index = _last_created_before(created, self.time_ns, lambda _: 0)
        if index is None:
            self._survey(log, volume, created)
            return None
        if index < 0:
            return log.start
        if segments[index] is not self._segment:
            self._segment, self._request = segments[index], None
            self._offset = self._segment.base_offset
        offset = self._look_through(log, volume, segments[index])
        return None if offset is None else min(offset, log.readable)

    def _survey(self, log: Log, volume: Volume, created: list[int]) -> None:
        """Have the worker look at the headers of segments of an earlier life, those that matter."""
        self._is_surveying = True
        segments = list(log.chain.segments)
        rows = [(segment.path, segment.base_offset) for segment in segments]
        files, number, time_ns = volume.files, log.number, self.time_ns

        def job() -> list[int]:
            _last_created_before(created, time_ns, lambda index: describe(files, rows[index][0], number, rows[index][1])[1])
            return created

        def done(result: object) -> None:
            self._is_surveying = False
            if isinstance(result, list):
                for segment, created_ns in zip(segments, result, strict=True):
                    segment.created_ns = segment.created_ns or created_ns
            elif not is_passing(result) and segments[0] in log.chain.segments[:1]:
                # Else retention has dropped segments meanwhile: another attempt will not look at them.
                self._failure = str(result) or type(result).__name__
            log.arrived()

        volume.worker.submit(job, done, lane=Lane.READ)

    def _look_through(self, log: Log, volume: Volume, segment: Segment) -> int | None:
        """Find the first batch of a segment that is not earlier than the time; the segment's end if there is none."""
        while True:
            if self._request is None:
                entry = segment.index.before_time(self.time_ns) if segment.index is not None else None
                self._offset = max(self._offset, entry.offset) if entry is not None else self._offset
                if self._offset >= segment.end_offset:
                    return segment.end_offset
                hint = segment.index.at_offset(self._offset) if segment.index is not None else None
                self._request = request_window(log, volume, segment, self._offset, hint, volume.settings.window_size_bytes)
            if not self._request.ready:
                return None
            request, self._request = self._request, None
            if request.failure:
                raise StoreFailed(request.failure)
            if request.window is None:
                # The process was short of something: asked again, it may be luckier.
                return None
            view = request.window.view
            position = 0
            while position < len(view):
                header = parse_header(view, position)
                if header.base_time_ns >= self.time_ns:
                    return header.base_offset
                position += header.size
                self._offset = header.base_offset + header.count


def _last_created_before(created: list[int], time_ns: int, look: Callable[[int], int]) -> int | None:
    """Give the index of the last segment that was created before a time, -1 if none was.

    `look` tells a time that is not known (0), and it is put down; None if it does not know either.
    """
    low, high = 0, len(created)
    while low < high:
        middle = (low + high) // 2
        created[middle] = created[middle] or look(middle)
        if not created[middle]:
            return None
        if created[middle] < time_ns:
            low = middle + 1
        else:
            high = middle
    return low - 1
