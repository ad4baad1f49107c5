"""A chain of preallocated segment files, of which the last is written: what a partition and the journal have in common.

The next segment is made ready by the worker, with zeros written into real blocks, before it is needed: a write into
pages that the page cache has costs a fraction of one into fresh pages, and its sync carries no new block. It waits
under the name `next` and gets its real one when the chain rolls over to it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from polymq.errors import StoreFull
from polymq.store.segment import SEGMENT_HEADER_SIZE_BYTES, Segment, encode_segment_header
from polymq.store.volume import is_no_room, store_error
from polymq.store.workers import Lane

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.store.files import Files
    from polymq.store.volume import Volume

__all__ = ["Chain"]

_PAGE: Final = 4096


def _power_of_two(size_bytes: int) -> int:
    """Give the smallest power of two that is no less, and no less than a page."""
    return max(_PAGE, 1 << (size_bytes - 1).bit_length())


def prepare(files: Files, path: str, size_bytes: int) -> None:
    """Make a segment ready, or leave nothing. Runs in the worker; raises OSError."""
    try:
        files.prepare(path, size_bytes)
    except OSError:
        with suppress(FileNotFoundError):
            files.remove(path)
        raise


class Chain:
    """The segments of one partition, or of the journal. `active` is None until something is written."""

    __slots__ = (
        "_closed",
        "_largest_bytes",
        "_next_size_bytes",
        "_not_before_ns",
        "_preparing",
        "active",
        "dirty",
        "folder",
        "folder_dirty",
        "folder_made",
        "magic",
        "partition",
        "reserve",
        "segments",
        "suffix",
        "volume",
    )

    def __init__(self, volume: Volume, folder: str, *, magic: int, partition: int, suffix: str, reserve: bool = False) -> None:
        self.volume = volume
        # Whether it may use the room that is kept free: the journal may, so that what is full can be emptied.
        self.reserve = reserve
        self.folder = folder
        self.magic = magic
        self.partition = partition
        self.suffix = suffix
        self.active: Segment | None = None
        # Oldest first, the active one last.
        self.segments: list[Segment] = []
        # What has been written and not been synced.
        self.dirty: list[Segment] = []
        # Names in the folder changed; the folder's own name is new.
        self.folder_dirty = False
        self.folder_made = False
        self._next_size_bytes = 0
        self._largest_bytes = 0
        self._preparing = False
        # When the next segment may be tried to be made ready again, after it could not be.
        self._not_before_ns = 0
        self._closed = False

    @property
    def next_path(self) -> str:
        """The name of the segment that is being made ready."""
        return f"{self.folder}/next{self.suffix}"

    def path(self, base_offset: int) -> str:
        """The name of a segment."""
        return f"{self.folder}/{base_offset:020d}{self.suffix}"

    def attach(self, segment: Segment) -> None:
        """Make a segment of an earlier life, already in `segments`, the one that is written."""
        self.active = segment
        segment.own_from = segment.used
        self.volume.reserved_bytes += segment.size_bytes - segment.used

    def roll(self, base_offset: int, *, room_bytes: int, now_ns: int, epoch: int, grow: bool = True) -> Segment:
        """Make a new active segment with room for `room_bytes` behind its header, which is written.

        Without `grow` it is no larger than it has to be, and the next ones double from there.
        An active segment that holds nothing yet would have the same name: that one is made larger instead, in place,
        since a checkpoint may speak of it. Raises StoreFull when there is no room, StoreFailed for other errors; then
        the active one stays.
        """
        volume = self.volume
        if self.active is not None and self.active.base_offset == base_offset:
            return self._grow(self.active, SEGMENT_HEADER_SIZE_BYTES + room_bytes)
        segment = Segment(self.path(base_offset), base_offset)
        segment.segment_id = volume.random_u64()
        segment.created_ns = now_ns
        try:
            self._place(segment, SEGMENT_HEADER_SIZE_BYTES + room_bytes, grow=grow)
            header = encode_segment_header(
                self.magic,
                self.partition,
                segment_id=segment.segment_id,
                base_offset=base_offset,
                created_ns=now_ns,
                size_bytes=segment.size_bytes,
                epoch=epoch,
            )
            volume.file(segment).pwrite(header, 0)
        except OSError as error:
            segment.release()
            raise store_error(error, f"segment {segment.path}") from error
        if self.active is not None:
            volume.reserved_bytes -= self.active.size_bytes - self.active.used
        volume.reserved_bytes += segment.size_bytes
        size_bytes = min(segment.size_bytes, volume.settings.segment_size_bytes_max)
        self._largest_bytes = max(self._largest_bytes, size_bytes) if grow else size_bytes
        segment.known = True
        self.segments.append(segment)
        self.active = segment
        self.folder_dirty = True
        self.wrote(segment, len(header))
        return segment

    def _grow(self, segment: Segment, need_bytes: int) -> Segment:
        """Give the active segment, which holds nothing but its header, more room."""
        if self.volume.full and not self.reserve:
            raise StoreFull("free space on the disk is below the mark")
        size_bytes = max(segment.size_bytes, self.volume.settings.segment_size_bytes_first)
        while size_bytes < need_bytes:
            size_bytes *= 2
        try:
            self.volume.file(segment).allocate(size_bytes)
        except OSError as error:
            raise store_error(error, f"segment {segment.path}") from error
        self.volume.reserved_bytes += size_bytes - segment.size_bytes
        segment.size_bytes = size_bytes
        segment.view = None
        if segment not in self.dirty:
            self.dirty.append(segment)
        return segment

    def _place(self, segment: Segment, need_bytes: int, *, grow: bool) -> None:
        """Put a file of zeros in a segment's place: the one that is ready, or one made here and now."""
        files = self.volume.files
        if self._next_size_bytes >= need_bytes:
            files.rename(self.next_path, segment.path)
            segment.size_bytes = self._next_size_bytes
            self.volume.reserved_bytes -= self._next_size_bytes
            self._next_size_bytes = 0
            return
        if self.volume.full and not self.reserve:
            raise StoreFull("free space on the disk is below the mark")
        if not self.segments:
            files.make_folder(self.folder)
            self.folder_made = True
        segment.size_bytes = self._size_of_next(need_bytes, grow=grow)
        file = self.volume.create(segment.path)
        try:
            file.truncate(0)
            try:
                file.allocate(segment.size_bytes)
            except OSError as error:
                least = _power_of_two(need_bytes)
                if not is_no_room(error) or least >= segment.size_bytes:
                    raise
                # There may be room for what is needed, if not for being generous. What was allocated so far goes first.
                file.truncate(0)
                file.allocate(least)
                segment.size_bytes = least
        except OSError:
            file.close()
            files.remove(segment.path)
            raise
        self.volume.adopt(segment, file)

    def _size_of_next(self, need_bytes: int, *, grow: bool = True) -> int:
        """Double the size from segment to segment, as long as there is room to be generous with."""
        settings = self.volume.settings
        size = settings.segment_size_bytes_first
        if grow and self.active is not None:
            # Doubled from the largest so far: one that was made ready long ago may be smaller than the one before it.
            size = max(size, min(2 * max(self._largest_bytes, self.active.size_bytes), settings.segment_size_bytes_max))
        if self.volume.reserved_bytes + size > self.volume.reserved_bytes_max:
            size = settings.segment_size_bytes_first
        while size < need_bytes:
            size *= 2
        return size

    def prepare_next(self) -> None:
        """Have the next segment made ready if the active one is half full. Cheap to call whenever something was written."""
        active = self.active
        if active is None or self._preparing or self._next_size_bytes or active.used * 2 < active.size_bytes:
            return
        volume = self.volume
        if self._not_before_ns > volume.clock.monotonic_ns():
            return
        size = self._size_of_next(0)
        if (volume.full and not self.reserve) or volume.reserved_bytes + size > volume.reserved_bytes_max:
            return
        self._preparing = True
        volume.reserved_bytes += size
        files, path = volume.files, self.next_path

        def done(result: object) -> None:
            self._preparing = False
            # An error comes again, to somebody who is owed it, when the chain has to roll over.
            if isinstance(result, BaseException):
                volume.reserved_bytes -= size
                self._not_before_ns = volume.clock.monotonic_ns() + volume.settings.sync_interval_ns
            elif self._closed:
                volume.reserved_bytes -= size
                volume.worker.submit(lambda: files.remove(path), lambda _: None, lane=Lane.PREPARE)
            else:
                self._next_size_bytes = size

        volume.worker.submit(lambda: prepare(files, path, size), done, lane=Lane.PREPARE)

    def wrote(self, segment: Segment, size_bytes: int) -> None:
        """Account for bytes that were just written behind `segment.used`."""
        volume = self.volume
        segment.used += size_bytes
        volume.reserved_bytes -= size_bytes
        volume.heat += size_bytes
        segment.heat = volume.heat
        if not self.dirty or self.dirty[-1] is not segment:
            self.dirty.append(segment)

    def take_back(self, paths: Sequence[str], folders: Sequence[str]) -> None:
        """Have files that a sync was to cover, and could not begin with, count as unsynced again; those that have gone do not matter."""
        unsynced = set(paths)
        self.dirty = [segment for segment in self.segments if segment.path in unsynced and segment not in self.dirty] + self.dirty
        self.folder_dirty = self.folder_dirty or self.folder in folders

    def close(self) -> None:
        """Give back what is reserved: the segment that is ready is removed."""
        self._closed = True
        volume = self.volume
        if self.active is not None:
            volume.reserved_bytes -= self.active.size_bytes - self.active.used
        if self._next_size_bytes:
            volume.reserved_bytes -= self._next_size_bytes
            self._next_size_bytes = 0
            with suppress(OSError):
                volume.files.remove(self.next_path)
