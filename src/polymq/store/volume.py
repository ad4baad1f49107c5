"""What all chains of one data folder share: the disk, the worker, room on the disk, and the segments that are open."""

from __future__ import annotations

import errno
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol

from polymq.errors import StoreFailed, StoreFull

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.errors import StoreError
    from polymq.store.files import File, Files
    from polymq.store.segment import Segment
    from polymq.store.settings import StoreSettings
    from polymq.store.workers import Worker

__all__ = ["Clock", "Volume", "is_no_room", "is_passing", "lacks_descriptor", "store_error"]

_NO_ROOM: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
_PASSING: Final = _NO_DESCRIPTOR | {errno.ENOMEM, errno.EINTR, errno.EAGAIN}
_FREE_PART_MIN: Final = 0.05
_FREE_BYTES_FLOOR: Final = 256 * 1024 * 1024
# Staging buffers that stay warm between turns; a buffer that one huge publish made larger than this is given back.
_BUFFERS_KEPT_MAX: Final = 64
_BUFFER_SIZE_BYTES_FIRST: Final = 8 * 1024
_BUFFER_SIZE_BYTES_KEPT_MAX: Final = 4 * 1024 * 1024


class Clock(Protocol):
    """Time, in nanoseconds: one that never goes backwards, and the one on the wall."""

    def monotonic_ns(self) -> int:
        """Time since some moment."""

    def wall_ns(self) -> int:
        """Time since 1970."""


def store_error(error: OSError, what: str) -> StoreError:
    """Translate an error of the operating system: no room is StoreFull, anything else StoreFailed."""
    if is_no_room(error):
        return StoreFull(f"no room for {what}: {error.strerror or error}")
    return StoreFailed(f"{what}: {error.strerror or error}")


def is_no_room(error: OSError) -> bool:
    """Whether the disk, or what this user may have of it, is full."""
    return error.errno in _NO_ROOM


def is_passing(error: object) -> bool:
    """Whether an error is the process's or the moment's, and says nothing about the disk."""
    return isinstance(error, OSError) and error.errno in _PASSING


def lacks_descriptor(error: OSError) -> bool:
    """Whether a file could not be opened because too many are open: whatever was to be done with it has not begun."""
    return error.errno in _NO_DESCRIPTOR


class Volume:
    """The data folder as a place with limits.

    `heat` counts bytes that went through the page cache on our account: a segment that was written less than
    `settings.hot_size_bytes` of heat ago is taken to be in memory. `reserved_bytes` counts what is preallocated and
    holds nothing yet. `free_bytes` is what was free at the last look.
    """

    __slots__ = (
        "_buffers",
        "_open",
        "clock",
        "files",
        "free_bytes",
        "free_bytes_min",
        "full",
        "heat",
        "random_u64",
        "reserved_bytes",
        "reserved_bytes_max",
        "settings",
        "windows_size_bytes",
        "worker",
    )

    def __init__(self, files: Files, worker: Worker, *, clock: Clock, random_u64: Callable[[], int], settings: StoreSettings) -> None:
        total = files.total_bytes()
        self.files = files
        self.worker = worker
        self.clock = clock
        self.random_u64 = random_u64
        self.settings = settings
        self.heat = 0
        self.reserved_bytes = 0
        self.reserved_bytes_max = int(total * settings.reserved_part_max)
        self.windows_size_bytes = 0
        minimum = settings.free_bytes_min
        self.free_bytes_min = max(_FREE_BYTES_FLOOR, int(total * _FREE_PART_MIN)) if minimum is None else minimum
        self.free_bytes = 0
        self.full = False
        self._open: deque[Segment] = deque()
        self._buffers: list[bytearray] = []
        self.check_room()

    def check_room(self) -> None:
        """Look how much room is left; below the mark no publisher gets any, so that the rest of the system can go on."""
        self.free_bytes = self.files.free_bytes()
        self.full = self.free_bytes < self.free_bytes_min

    def file(self, segment: Segment) -> File:
        """Give the open file of a segment. Raises OSError."""
        segment.touched = True
        file = segment.file
        if file is None:
            file = segment.file = self._opened(segment.path, create=False)
            self._entered(segment)
        return file

    def create(self, path: str) -> File:
        """Create or open a file outside the books. Raises OSError."""
        return self._opened(path, create=True)

    def map(self, segment: Segment) -> memoryview | None:
        """Give a read-only view of a segment, whole as it is preallocated; None if the system has no map to spare."""
        view = segment.view
        if view is None:
            try:
                view = segment.view = self.file(segment).map(segment.size_bytes)
            except OSError:
                return None
        segment.touched = True
        return view

    def adopt(self, segment: Segment, file: File) -> None:
        """Take an open file into the books as that of a segment."""
        segment.file = file
        segment.touched = True
        self._entered(segment)

    def _opened(self, path: str, *, create: bool) -> File:
        """Open a file; when the process has no descriptor left, close what can be opened again."""
        try:
            return self.files.open(path, create=create)
        except OSError as error:
            if error.errno not in _NO_DESCRIPTOR or not self._open:
                raise
        self._evict(len(self._open) // 2)
        return self.files.open(path, create=create)

    def _entered(self, segment: Segment) -> None:
        """Put a segment that was opened into the queue, and close others if there are too many."""
        self._open.append(segment)
        if len(self._open) > self.settings.open_segments_max:
            self._evict(self.settings.open_segments_max)

    def _evict(self, keep: int) -> None:
        """Close the segments that were not used since they were last looked at (a clock, nearly an LRU)."""
        passes = 2 * len(self._open)
        while len(self._open) > keep and passes:
            passes -= 1
            segment = self._open.popleft()
            if segment.file is None:
                continue
            if segment.touched:
                segment.touched = False
                self._open.append(segment)
            else:
                segment.release()

    def take_buffer(self) -> bytearray:
        """Give a staging buffer; its content is whatever it was."""
        return self._buffers.pop() if self._buffers else bytearray(_BUFFER_SIZE_BYTES_FIRST)

    def give_buffer(self, buffer: bytearray) -> None:
        """Take a staging buffer back."""
        if len(self._buffers) < _BUFFERS_KEPT_MAX and len(buffer) <= _BUFFER_SIZE_BYTES_KEPT_MAX:
            self._buffers.append(buffer)

    def close(self) -> None:
        """Close every open segment."""
        while self._open:
            self._open.popleft().release()
