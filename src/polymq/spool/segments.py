"""The files that a spooler writes: segments of record batches, with one number after the other from 0 on.

A segment is a header (`store/segment.py`, that of the log) and whole batches (`wire/records.py`) behind it, then zeros: it is
preallocated, so that a disk without room is noticed before anything is written, and a sync has no file size to bring along.
An append is one write and one sync, all in one segment; only when it is synced does the position that readers go by
move, and is anything acknowledged. So only the last segment can have a torn end, and nobody has been told of what is cut off.

All calls come from one thread at a time but `prepare_next`. Read next: `folder.py`, `spooler.py`.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.errors import CorruptRecord, StoreFailed
from polymq.spool.folder import (
    IDENTITY,
    POSITION,
    POSITION_SIZE_BYTES,
    STATUS,
    Identity,
    Position,
    bases,
    make_identity,
    pack_position,
    parse_identity,
    parse_position,
    segment_name,
)
from polymq.spool.intake import remember
from polymq.spool.settings import ORIGINS
from polymq.store.segment import (
    MAGIC_LOG,
    SEGMENT_HEADER_SIZE_BYTES,
    check_segment_header,
    encode_segment_header,
    parse_segment_header,
    write_again,
)
from polymq.store.volume import is_no_room, store_error
from polymq.wire.records import HEADER_SIZE_BYTES, MAGIC, BatchHeader, check, parse_header, seal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polymq.spool.portion import Portion
    from polymq.spool.settings import SpoolSettings
    from polymq.spool.window import IdWindow
    from polymq.store.files import File, Files

__all__ = ["SpoolLocked", "SpoolWriter"]

_NEXT: Final = "next"
_BUSY: Final = frozenset({errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES})
_SMALL_SIZE_BYTES_MAX: Final = 64 * 1024
_NS_PER_SECOND: Final = 10**9


class SpoolLocked(StoreFailed):
    """Another process writes this spool."""


@dataclass(slots=True)
class _Segment:
    """One file. `used` counts its bytes that are durable, header included."""

    base: int
    created_ns: int
    segment_id: int
    size: int
    used: int


class SpoolWriter:
    """The one writer of a spool. `start` and `end` are the first record that is there and the number of the next one.

    Raises (all methods): StoreFull when there is no room, after which the same call may be tried again; StoreFailed and
    CorruptRecord, after which nothing may.
    """

    def __init__(
        self, files: Files, protocol: str, settings: SpoolSettings, *, wall_ns: Callable[[], int], random_u64: Callable[[], int]
    ) -> None:
        self.start = 0
        self.end = 0
        self.number = 0
        self._files = files
        self._protocol = protocol
        self._origin = ORIGINS[protocol]
        self._settings = settings
        self._wall_ns = wall_ns
        self._random_u64 = random_u64
        self._segments: list[_Segment] = []
        self._active: File | None = None
        self._position: File | None = None
        self._next_size = 0
        self._preparing = False
        # What is durable and could not be published: it must not be written once more.
        self._unpublished: list[Portion] = []

    # --- Beginning and ending -----------------------------------------------------------------------------------------

    def open(self) -> None:
        """Take the spool for this process, or make it, and find out what is in it."""
        try:
            self._files.lock()
        except OSError as error:
            if error.errno in _BUSY:
                raise SpoolLocked(self._locked_text()) from error
            raise store_error(error, "the spool's lock") from error
        try:
            self._identify()
            self._recover()
            self._publish()
        except OSError as error:
            self.close()
            raise store_error(error, "the spool") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go of the files and of the lock."""
        for file in (self._active, self._position):
            if file is not None:
                file.close()
        self._active = self._position = None
        self._files.close()

    def _locked_text(self) -> str:
        said = self._small(STATUS) if self._files.exists(STATUS) else b""
        who = f"; the last to say something about it was {said[:200].decode('utf-8', 'replace').strip()}" if said else ""
        return f"another process writes this spool: a spooler, or a query that is still running{who}"

    def _small(self, name: str) -> bytes:
        file = self._files.open(name)
        try:
            return file.pread(_SMALL_SIZE_BYTES_MAX, 0)
        finally:
            file.close()

    def _identify(self) -> None:
        if self._files.exists(IDENTITY):
            found = parse_identity(self._small(IDENTITY), IDENTITY)
            if found.protocol != self._protocol:
                raise StoreFailed(f"this spool is for {found.protocol}; {self._protocol} needs one of its own")
            self.number = found.number
            return
        if bases(list(self._files.list(""))):
            raise StoreFailed(f"there are segments and no {IDENTITY}: part of a spool; put it back, or begin with an empty folder")
        self.number = self._random_u64()
        beside = f".{IDENTITY}"
        file = self._files.open(beside, create=True)
        try:
            file.truncate(0)
            file.pwrite(make_identity(Identity(self.number, self._protocol)).encode(), 0)
            file.sync()
        finally:
            file.close()
        self._files.rename(beside, IDENTITY)
        self._files.sync_folder("")

    def _recover(self) -> None:
        """Find the end: behind the last whole batch of the last segment that has any."""
        with suppress(FileNotFoundError):
            self._files.remove(f"{_NEXT}.seg")
        known = self._known()
        for base in bases(list(self._files.list(""))):
            self._segments.append(self._look_at(base))
        # Without a segment the numbers go on where it is known that they were.
        self.end = known.end if known is not None and not self._segments else 0
        while self._segments and not self._recover_last(known):
            last = self._segments.pop()
            self.end = last.base
            if known is None or known.end <= last.base:
                self._files.remove(segment_name(last.base))
        self.start = self._segments[0].base if self._segments else self.end
        if known is not None and self.end < known.end:
            raise _damage(known, self.end)

    def _known(self) -> Position | None:
        if not self._files.exists(POSITION):
            return None
        found = parse_position(self._small(POSITION)[:POSITION_SIZE_BYTES])
        return found if found is not None and found.number == self.number else None

    def _look_at(self, base: int) -> _Segment:
        """Read the header of a segment; one that has none yet, which only the last may not, is empty."""
        file = self._files.open(segment_name(base))
        try:
            data, size = file.pread(SEGMENT_HEADER_SIZE_BYTES, 0), file.size()
        finally:
            file.close()
        if check_segment_header(data, MAGIC_LOG, 0, base) is not None:
            return _Segment(base, 0, 0, size, 0)
        header = parse_segment_header(data)
        return _Segment(base, header.created_ns, header.segment_id, size, size)

    def _recover_last(self, known: Position | None) -> bool:
        """Check the last segment and cut off what is not whole; False if nothing is left of it."""
        segment = self._segments[-1]
        if not segment.used:
            return False
        file = self._files.open(segment_name(segment.base))
        try:
            view = file.map(segment.size)
            try:
                used, end = sound_part(view, segment.segment_id, segment.base)
            finally:
                view.release()
            if known is not None and end < known.end:
                # Damage, not a torn end: it stays as it is, for people to look at.
                raise _damage(known, end)
            if end == segment.base and len(self._segments) > 1:
                file.close()
                return False
            segment.used, self.end = used, end
            if known is None or known.base != segment.base or known.used < used:
                # A sync that failed may have left these pages clean and the disk without them.
                write_again(file, used)
            # What is behind the cut must not be taken for a batch at the next start.
            file.truncate(used)
            file.allocate(segment.size)
            file.sync()
        except BaseException:
            file.close()
            raise
        self._active = file
        return True

    def fill(self, window: IdWindow) -> int:
        """Put the ids of the newest records into a window, as many as it has room for; says how many were read."""
        if not self._segments:
            return 0
        oldest_ns = self._wall_ns() - int(self._settings.window_seconds * _NS_PER_SECOND)
        first = len(self._segments) - 1
        while first > 0 and self.end - self._segments[first].base < window.count_max and self._segments[first].created_ns >= oldest_ns:
            first -= 1
        return sum(self._fill_from(segment, window) for segment in self._segments[first:])

    def _fill_from(self, segment: _Segment, window: IdWindow) -> int:
        file = self._files.open(segment_name(segment.base))
        try:
            view = file.map(min(segment.used, file.size()))
            try:
                used, _ = sound_part(view, segment.segment_id, segment.base)
                return remember(view, SEGMENT_HEADER_SIZE_BYTES, used, window)
            finally:
                view.release()
        finally:
            file.close()

    # --- Writing ------------------------------------------------------------------------------------------------------

    def append(self, portions: Sequence[Portion]) -> None:
        """Write all of these and make them durable: on return they may be acknowledged, and readers see them.

        After StoreFull nothing of it may be acknowledged, and the same portions may be tried again: what of that is durable
        already is not written twice.
        """
        need = sum(portion.end for portion in portions if portion.count)
        if not need:
            return
        try:
            if self._unpublished != list(portions):
                self._append(portions, self._room_for(need))
                self._unpublished = list(portions)
            self._publish()
            self._unpublished = []
        except OSError as error:
            raise store_error(error, "the spool") from error

    def _append(self, portions: Sequence[Portion], segment: _Segment) -> None:
        assert self._active is not None
        at, offset = segment.used, self.end
        for portion in portions:
            if portion.count:
                header = BatchHeader(
                    origin=self._origin,
                    segment_id=segment.segment_id,
                    count=portion.count,
                    base_offset=offset,
                    base_time_ns=portion.time_ns,
                    producer_id=portion.salt,
                )
                seal(portion.data, 0, portion.end, header)
                with memoryview(portion.data) as whole, whole[: portion.end] as batch:
                    self._active.pwrite(batch, at)
                at += portion.end
                offset += portion.count
        self._active.sync()
        segment.used, self.end = at, offset

    def _room_for(self, need: int) -> _Segment:
        """Give the segment that this goes to: the one that is written, or another one."""
        segment = self._segments[-1] if self._segments else None
        if segment is not None and segment.size - segment.used >= need:
            return segment
        if segment is not None and segment.base == self.end:
            # It holds nothing yet: another one would have the same name.
            assert self._active is not None
            self._active.allocate(segment.used + need)
            segment.size = segment.used + need
            return segment
        return self._roll(need)

    def _roll(self, need: int) -> _Segment:
        name = segment_name(self.end)
        size = max(self._size_of_next(), SEGMENT_HEADER_SIZE_BYTES + need)
        if self._next_size >= size:
            size, self._next_size = self._next_size, 0
            self._files.rename(f"{_NEXT}.seg", name)
        else:
            self._make(name, size)
        made = _Segment(self.end, self._wall_ns(), self._random_u64(), size, SEGMENT_HEADER_SIZE_BYTES)
        file = self._files.open(name)
        try:
            header = encode_segment_header(
                MAGIC_LOG, 0, segment_id=made.segment_id, base_offset=made.base, created_ns=made.created_ns, size_bytes=size, epoch=0
            )
            file.pwrite(header, 0)
            self._files.sync_folder("")
        except BaseException:
            file.close()
            raise
        if self._active is not None:
            with suppress(OSError):  # it only costs room
                self._active.truncate(self._segments[-1].used)
                self._segments[-1].size = self._segments[-1].used
            self._active.close()
        self._segments.append(made)
        self._active = file
        return made

    def _size_of_next(self) -> int:
        settings = self._settings
        last = self._segments[-1].size if self._segments else 0
        return min(max(settings.segment_size_bytes_first, 2 * last), settings.segment_size_bytes_max)

    def _make(self, name: str, size: int) -> None:
        """Make a file of zeros, or leave nothing."""
        try:
            self._files.prepare(name, size)
        except OSError:
            with suppress(FileNotFoundError):
                self._files.remove(name)
            raise

    @property
    def wants_next(self) -> bool:
        """Whether it is time for `prepare_next`."""
        if not self._segments or self._next_size or self._preparing:
            return False
        return 2 * self._segments[-1].used > self._segments[-1].size

    def prepare_next(self) -> None:
        """Have the next segment ready before it is needed; may run beside `append`. What goes wrong comes again there."""
        self._preparing = True
        try:
            size = self._size_of_next()
            self._make(f"{_NEXT}.seg", size)
            self._next_size = size
        except OSError as error:
            if not is_no_room(error):
                raise store_error(error, "the spool's next segment") from error
        finally:
            self._preparing = False

    def _publish(self) -> None:
        """Tell readers how far it is durable."""
        if self._position is None:
            self._position = self._files.open(POSITION, create=True)
        segment = self._segments[-1] if self._segments else None
        base, used = (segment.base, segment.used) if segment is not None else (0, 0)
        self._position.pwrite(pack_position(Position(self.number, self.end, base, used)), 0)

    # --- Dropping -----------------------------------------------------------------------------------------------------

    def trim(self, committed: int) -> int:
        """Remove segments that the reader has committed and that need not be kept any longer; says how many."""
        now_ns = self._wall_ns()
        keep_ns = int(self._settings.keep_seconds * _NS_PER_SECOND)
        kept = sum(each.used for each, after in self._pairs() if after.base <= committed)
        dropped = 0
        for segment, after in self._pairs():
            if after.base > committed or (now_ns - after.created_ns < keep_ns and kept <= self._settings.keep_size_bytes):
                break
            try:
                self._files.remove(segment_name(segment.base))
            except FileNotFoundError:
                pass
            except OSError as error:
                raise store_error(error, segment_name(segment.base)) from error
            kept -= segment.used
            dropped += 1
        del self._segments[:dropped]
        if self._segments:
            self.start = self._segments[0].base
        return dropped

    def _pairs(self) -> list[tuple[_Segment, _Segment]]:
        return list(zip(self._segments, self._segments[1:], strict=False))

    @property
    def size_bytes(self) -> int:
        """What the segments take, as far as they are written."""
        return sum(segment.used for segment in self._segments)


def _damage(known: Position, end: int) -> CorruptRecord:
    return CorruptRecord(
        "the spool", position=known.used, expected=f"records up to {known.end}, which were durable", found=f"an end at {end}"
    )


def sound_part(view: memoryview, segment_id: int, base: int) -> tuple[int, int]:
    """Say where the whole and valid batches of a segment end, and which record would be the next one.

    Looks at every byte of them. What does not belong to this segment, or does not continue, is not sound.
    """
    at, offset, end = SEGMENT_HEADER_SIZE_BYTES, base, len(view)
    while end - at >= HEADER_SIZE_BYTES:
        header = parse_header(view, at)
        if (header.magic, header.segment_id, header.base_offset) != (MAGIC, segment_id, offset) or check(view, at, end) is not None:
            break
        at += header.size
        offset += header.count
    return at, offset
