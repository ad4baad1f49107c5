"""Reading what may not be in memory: a window of whole, checked batches, copied out of the page cache or off the disk.

The loop's thread tries the page cache; when that has not got all of it, the same code runs in the worker. A window is
a copy, so once it is there it stays readable, whatever the page cache does, and a reader is sure to get on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.errors import CorruptRecord
from polymq.store.index import INDEX_SUFFIX, IndexEntry, SparseIndex
from polymq.store.runs import Walk, scan
from polymq.store.segment import (
    MAGIC_LOG,
    SEGMENT_HEADER_SIZE_BYTES,
    Segment,
    check_segment_header,
    parse_segment_header,
)
from polymq.store.volume import is_passing
from polymq.store.workers import Lane

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.store.files import File, Files
    from polymq.store.volume import Volume

__all__ = ["ColdRead", "Window", "WindowRequest", "describe"]


# What the loop's thread reads out of the page cache for one batch: checking it takes 0.1 ms.
_CACHED_SIZE_BYTES_MAX: Final = 512 * 1024


class NotCachedError(Exception):
    """Some of what is to be read is not in the page cache. Never leaves this file."""


@dataclass(slots=True)
class Window:
    """Whole batches of one segment: `view` shows bytes `position` to `end` of the file; the first batch holds the offset asked for."""

    view: memoryview
    position: int
    end: int
    # First record of the first batch.
    offset: int
    # What the read found out about the segment; `used` is 0 unless the whole of it was walked through.
    segment_id: int
    created_ns: int
    used: int
    index: SparseIndex | None
    volume: Volume | None = None

    @property
    def size_bytes(self) -> int:
        """How much memory it takes: what was read, of which `view` may be a part."""
        return len(self.view.obj)  # type: ignore[arg-type]  # bytes, which the view keeps

    def count_in(self, volume: Volume) -> None:
        """Count the copy against the volume's limit as long as it lives."""
        self.volume = volume
        volume.windows_size_bytes += self.size_bytes

    def __del__(self) -> None:
        if self.volume is not None:
            self.volume.windows_size_bytes -= self.size_bytes

    def teach(self, segment: Segment, *, active: bool) -> None:
        """Keep what was found out about the segment."""
        if not segment.segment_id:
            segment.segment_id = self.segment_id
        if not segment.created_ns:
            segment.created_ns = self.created_ns
        if self.index is not None and segment.index is None:
            segment.index = self.index
        elif self.index is not None and segment.index is not None and segment.index.complete_from > SEGMENT_HEADER_SIZE_BYTES:
            segment.index.put_before(self.index)
        if not active:
            segment.used = segment.used or self.used
            segment.size_bytes = segment.size_bytes or segment.used
            segment.known = True


def describe(files: Files, path: str, number: int, base_offset: int) -> tuple[int, int, int]:
    """Look at a segment's header: (segment id, created, file size). Raises OSError, CorruptRecord."""
    file = files.open(path)
    try:
        data = file.pread(SEGMENT_HEADER_SIZE_BYTES, 0)
        size = file.size()
    finally:
        file.close()
    wrong = check_segment_header(data, MAGIC_LOG, number, base_offset)
    if wrong is not None:
        raise CorruptRecord(path, position=0, expected="the header of this segment", found=wrong)
    header = parse_segment_header(data)
    return header.segment_id, header.created_ns, size


@dataclass(slots=True)
class ColdRead:
    """One read, as values: it may run on any thread. `limit` is where the segment's written bytes end (0: not known)."""

    files: Files
    path: str
    number: int
    base_offset: int
    end_offset: int
    segment_id: int
    limit: int
    offset: int
    # Where to begin; None if the index has to be consulted, which then has to be loaded.
    hint: IndexEntry | None
    size_bytes: int
    interval_bytes: int
    created_ns: int = 0
    used: int = 0
    index: SparseIndex | None = None

    def run(self, *, cached: bool) -> Window:
        """Read. Raises NotCachedError (only if `cached`), CorruptRecord, OSError."""
        file = self.files.open(self.path)
        try:
            # Windows are the read-ahead. The system's own would leave marks in the page cache, and whoever comes to one, the
            # loop too, would have to make room for what follows: where memory is short, 100 ms at a time.
            file.expect_random_reads()
            read = _cached(file) if cached else file.pread
            self._identify(read)
            limit = self.limit or file.size()
            if self.hint is None:
                if cached:
                    raise NotCachedError
                limit = self._load_index(file, limit)
            return self._window(read, limit, cached=cached)
        finally:
            file.close()

    def _identify(self, read: Callable[[int, int], bytes]) -> None:
        """Find out the segment's id if this process has not seen it yet."""
        if self.segment_id and self.hint is not None:
            return
        data = read(SEGMENT_HEADER_SIZE_BYTES, 0)
        wrong = check_segment_header(data, MAGIC_LOG, self.number, self.base_offset)
        header = parse_segment_header(data) if wrong is None else None
        if header is not None and self.segment_id not in (0, header.segment_id):
            wrong = "it is another segment of the same name"
        if header is None or wrong is not None:
            raise CorruptRecord(self.path, position=0, expected="the header of this segment", found=wrong or "")
        self.segment_id, self.created_ns = header.segment_id, header.created_ns

    def _load_index(self, file: File, limit: int) -> int:
        """Find out where to begin, from the index file or by walking through the segment; return where that ends."""
        loaded = None
        try:
            index_file = self.files.open(f"{self.path[: self.path.rindex('.')]}{INDEX_SUFFIX}")
        except FileNotFoundError:
            pass
        else:
            try:
                loaded = SparseIndex.decode(
                    index_file.pread(index_file.size(), 0),
                    segment_id=self.segment_id,
                    base_offset=self.base_offset,
                    interval_bytes=self.interval_bytes,
                )
            finally:
                index_file.close()
        if loaded is not None and loaded[1] == self.end_offset:
            self.index, _, self.used = loaded
            limit = min(limit, self.used)
        else:
            self.index = SparseIndex(self.interval_bytes)
            walk = Walk(self.segment_id, self.base_offset, index=self.index)
            end = scan(file.pread, walk, SEGMENT_HEADER_SIZE_BYTES, limit)
            # Where it is damaged, the index ends; who reads there is told by the window.
            if walk.offset == self.end_offset:
                self.used = limit = end
        self.hint = self.index.at_offset(self.offset)
        return limit

    def _window(self, read: Callable[[int, int], bytes], limit: int, *, cached: bool) -> Window:
        """Read and check batches until the one that holds the offset is there, and whatever came along with it."""
        hint = self.hint or IndexEntry(self.base_offset, SEGMENT_HEADER_SIZE_BYTES, 0)
        position, size = hint.position, self.size_bytes
        walk = Walk(self.segment_id, hint.offset)
        longest = _CACHED_SIZE_BYTES_MAX if cached else size << 40
        while True:
            data = read(min(size, limit - position), position)
            walk.until = self.offset
            passed = walk.run(data, 0, position)
            offset = walk.offset
            if not walk.problem and not walk.ended:
                # The next batch has the record, if it is there as a whole.
                walk.until = self.end_offset
                end = walk.run(data, passed, position + passed)
                if end > passed:
                    break
            if walk.problem or walk.ended or (passed == 0 and len(data) < size):
                raise CorruptRecord(
                    self.path,
                    position=position + passed,
                    expected=f"a batch with record {walk.offset}",
                    found=walk.problem or "zeros",
                )
            position += passed
            size = size if passed else size * 2
            if size > longest:
                # A batch that is so large is not read and checked where everybody waits for it.
                raise NotCachedError
        view = memoryview(data)[passed:end]
        return Window(view, position + passed, position + end, offset, self.segment_id, self.created_ns, self.used, self.index)


def _cached(file: File) -> Callable[[int, int], bytes]:
    """Read like `File.pread`, but only out of the page cache."""

    def read(size: int, position: int) -> bytes:
        data = file.pread_cached(size, position)
        if data is None:
            raise NotCachedError
        return data

    return read


class WindowRequest:
    """A window that is there, or on its way: `ready` says which. Then `window` is set, or `failure` if there is no hope."""

    __slots__ = ("failure", "ready", "segment", "size_bytes", "window")

    def __init__(self, volume: Volume, segment: Segment, cold: ColdRead, *, active: bool, changed: Callable[[], None]) -> None:
        self.segment = segment
        self.window: Window | None = None
        self.failure = ""
        self.ready = False
        self.size_bytes = 0  # of what is kept, or was asked for
        if segment.known or segment.segment_id:
            try:
                self._take(cold.run(cached=True), volume, active=active)
            except NotCachedError:
                pass
            except (OSError, CorruptRecord) as error:
                self._fail(error)
            if self.ready:
                return
        settings = volume.settings
        # Off the disk, a larger piece costs little more than a small one, as long as there is memory for it.
        if volume.windows_size_bytes < settings.windows_size_bytes_max:
            cold.size_bytes = max(cold.size_bytes, settings.read_ahead_size_bytes)
        # A batch may be much larger than what is asked for: until it is known, it counts as one that is.
        self.size_bytes = max(cold.size_bytes, settings.read_ahead_size_bytes)

        def done(result: object) -> None:
            if isinstance(result, Window):
                self._take(result, volume, active=active)
            else:
                self._fail(result)
            changed()

        volume.worker.submit(lambda: cold.run(cached=False), done, lane=Lane.READ)

    def _take(self, window: Window, volume: Volume, *, active: bool) -> None:
        """Take what was read."""
        volume.heat += len(window.view)
        window.count_in(volume)
        self.size_bytes = window.size_bytes
        window.teach(self.segment, active=active)
        self.window = window
        self.ready = True

    def _fail(self, error: object) -> None:
        """Take note that it cannot be read; `failure` stays empty if another attempt may be luckier."""
        if not is_passing(error):
            self.failure = str(error) or type(error).__name__
        self.ready = True
