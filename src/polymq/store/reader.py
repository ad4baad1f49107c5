"""Handing out the records of a partition, slice by slice, without a copy where they are in memory.

The hot end, what this process wrote a short while ago, is read from a map of the segment. Everything else is read
through windows (`cold.py`). A reader that has to wait for the disk says so and is asked again after `Store.poll`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq.store.cold import ColdRead, WindowRequest
from polymq.store.index import IndexEntry
from polymq.store.segment import SEGMENT_HEADER_SIZE_BYTES
from polymq.wire.live_records import skip_origin
from polymq.wire.records import skip
from polymq.wire.slices import Slice

if TYPE_CHECKING:
    from polymq.store.cold import Window
    from polymq.store.log import Log
    from polymq.store.segment import Segment
    from polymq.store.volume import Volume

__all__ = ["Reader", "is_hot"]

_EVERYTHING: Final = (1 << 62) - 1


def is_hot(volume: Volume, segment: Segment, position: int) -> bool:
    """Whether the bytes at a position were written by this process so lately that they are in memory."""
    return segment.own_from <= position and volume.heat - segment.heat < volume.settings.hot_size_bytes and bool(segment.heat)


class Reader:
    """A position in one partition. `offset` is the next record; `waiting`: the disk is being read for it.

    A reader that has fallen behind the partition's start goes on at the start.
    """

    __slots__ = ("_at", "_left", "_log", "_request", "_segment", "_stopped_at", "_time_ns", "_volume", "_window", "offset", "waiting")

    def __init__(self, log: Log, volume: Volume, offset: int) -> None:
        self.offset = offset
        self.waiting = False
        self._log = log
        self._volume = volume
        # Where the next record lies, if `_segment` is set: at byte `_at`, with `_left` records of its batch to come.
        self._segment: Segment | None = None
        self._at = 0
        self._left = 0
        self._time_ns = 0
        self._window: Window | None = None
        self._request: WindowRequest | None = None
        # Where damage was found: it is not looked at again, however often the reader is asked.
        self._stopped_at = -1

    def seek(self, offset: int) -> None:
        """Go on at another record; one that lies a little before, in the window at hand, costs no reading."""
        window, segment, came_to = self._window, self._segment, self.offset
        self.offset = offset
        if window is not None and segment is not None and window.offset <= offset < came_to:
            self._go_to(segment, window.view, IndexEntry(window.offset, window.position, 0), window.position, window.end)
            return
        self.waiting = False
        self._segment = None
        self._window = None
        self._request = None

    def take(self, count_max: int, size_bytes_max: int) -> Slice | None:
        """Hand out the next records and move behind them: at most that many, and bytes unless the first is larger.

        None: there is nothing readable; or, if `waiting`, the disk is being read, and a later turn will have it.
        """
        log = self._log
        offset = self.offset
        readable = log.readable - offset
        if readable <= 0:
            self.waiting = False
            self._window = self._request = None
            return None
        place = self._here()
        if place is None:
            return None
        view, shift, end = place
        offset, at = self.offset, self._at
        readable = log.readable - offset
        position = at - shift
        left, time_ns = self._left, self._time_ns
        count, after, self._left, self._time_ns = skip(
            view, position, left, time_ns, count_max if count_max < readable else readable, size_bytes_max, end - shift
        )
        if not count:
            self._stop(f"record {offset} of partition {log.number} cannot be read")
            return None
        self._at = after + shift
        self.offset = offset + count
        return Slice(
            view,
            partition=log.number,
            position=position,
            end=after,
            offset=offset,
            count=count,
            batch_left=left,
            base_time_ns=time_ns,
        )

    @property
    def is_stalled(self) -> bool:
        """Whether it waits for the disk, and would still do so if it were asked again."""
        return self._request is not None and not self._request.ready

    @property
    def keeps_copy(self) -> bool:
        """Whether it keeps a piece of the log in memory, or has asked for one: `seek` lets go of it."""
        return self._window is not None or self._request is not None

    @property
    def copy_size_bytes(self) -> int:
        """How much memory the piece takes that it keeps, or has asked for: what comes may be larger, if a batch is."""
        size = 0 if self._window is None else self._window.size_bytes
        return size if self._request is None else size + self._request.size_bytes

    def skip_origin(self, origin: int) -> int:
        """Move behind the next batches that have come from one protocol, or that all pass over; returns how many records that is.

        Nothing is passed in the midst of a batch. Cost: that of the headers, not of what is in the batches; 10,000 batches at most.
        """
        if self._left or self.offset >= self._log.readable:
            return 0
        place = self._here()
        if place is None or self._left:
            return 0
        view, shift, end = place
        count, after = skip_origin(view, self._at - shift, end - shift, origin, self._log.readable - self.offset)
        self._at = after + shift
        self.offset += count
        return count

    def _here(self) -> tuple[memoryview, int, int] | None:
        """Show the bytes that the next record is in: a view, where in the segment it begins, and where in the segment it ends.

        None: one has to wait, if `waiting`, or there is nothing.
        """
        window, segment, at = self._window, self._segment, self._at
        if window is not None and segment is not None and at < window.end:
            return window.view, window.position, window.end
        if (
            window is None
            and segment is not None
            and at < segment.used
            and is_hot(self._volume, segment, at)
            and (mapped := segment.view or self._volume.map(segment)) is not None
        ):
            segment.touched = True
            return mapped, 0, segment.used
        return self._find()

    def _stop(self, reason: str) -> None:
        """Fence the partition: what is stored there is damaged."""
        self.waiting = False
        self._segment = self._window = self._request = None
        self._stopped_at = self.offset
        self._log.fence(reason)

    def _find(self) -> tuple[memoryview, int, int] | None:
        """Find the next record, in a map or in a window, and set `_at` to it; None if there is none or one has to wait."""
        log = self._log
        if self.offset < log.start:
            self.seek(log.start)
        segment = log.segment_of(self.offset)
        if segment is None or self.offset >= log.readable or self.offset == self._stopped_at:
            self.waiting = False
            return None
        request = self._request
        if request is not None and request.segment is segment:
            if not request.ready:
                self.waiting = True
                return None
            return self._enter(request)
        if segment is not self._segment:
            # Only the first record of a segment has a place that is known without looking.
            known = self.offset == segment.base_offset
            self._segment = segment if known else None
            self._at, self._left = SEGMENT_HEADER_SIZE_BYTES, 0
        self._window = None
        if self._segment is not None and is_hot(self._volume, segment, self._at):
            view = self._volume.map(segment)
            if view is not None:
                return view, 0, segment.used
        return self._look_up(segment)

    def _look_up(self, segment: Segment) -> tuple[memoryview, int, int] | None:
        """Find a record by the index: in the map if it is hot, else in a window."""
        hint = None
        if self._segment is not None and self._left == 0:
            hint = IndexEntry(self.offset, self._at, 0)
        elif segment.index is not None:
            hint = segment.index.at_offset(self.offset)
        view = self._volume.map(segment) if hint is not None and is_hot(self._volume, segment, hint.position) else None
        if hint is not None and view is not None:
            self._go_to(segment, view, hint, 0, segment.used)
            return view, 0, segment.used
        # Where the record lies is not known before the window is there, whatever happens to the segment meanwhile.
        self._segment = None
        self._request = request = request_window(
            self._log, self._volume, segment, self.offset, hint, self._volume.settings.window_size_bytes
        )
        if not request.ready:
            self.waiting = True
            return None
        return self._enter(request)

    def _enter(self, request: WindowRequest) -> tuple[memoryview, int, int] | None:
        """Go on in a window that has arrived."""
        self._request = None
        self.waiting = False
        window = request.window
        if window is None:
            if request.failure:
                self._stop(request.failure)
            # Else the process was short of something: asked again, it may be luckier.
            self.waiting = not request.failure
            return None
        self._window = window
        self._go_to(request.segment, window.view, IndexEntry(window.offset, window.position, 0), window.position, window.end)
        return window.view, window.position, window.end

    def _go_to(self, segment: Segment, view: memoryview, entry: IndexEntry, shift: int, end: int) -> None:
        """Walk from the beginning of a batch to the record that comes next."""
        before = self.offset - entry.offset
        self._segment = segment
        self._at, self._left, self._time_ns = entry.position, 0, 0
        if before:
            _, after, self._left, self._time_ns = skip(view, entry.position - shift, 0, 0, before, _EVERYTHING, end - shift)
            self._at = after + shift


def request_window(log: Log, volume: Volume, segment: Segment, offset: int, hint: IndexEntry | None, size_bytes: int) -> WindowRequest:
    """Ask for the batches of a segment from the one that holds `offset` on."""
    active = segment is log.chain.active
    end_offset = segment.end_offset
    cold = ColdRead(
        volume.files,
        segment.path,
        log.number,
        segment.base_offset,
        end_offset,
        segment.segment_id,
        segment.used,
        offset,
        hint,
        size_bytes,
        volume.settings.index_interval_bytes,
    )
    return WindowRequest(volume, segment, cold, active=active, changed=log.arrived)
