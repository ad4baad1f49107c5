"""The reader's side of a spool: which records are there, in which bytes of which files, and those bytes, checked.

Works from the files alone, beside a spooler or without one, and writes nothing. The driver plans pieces (`Catalogue`),
executors read them (`read_piece`). What was durable when a piece was planned does not change any more; it may be gone.
"""

from __future__ import annotations

import itertools
import os
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.errors import CorruptRecord, StoreFailed
from polymq.spool import folder as files
from polymq.spool.settings import ORIGINS
from polymq.store.files import RealFile
from polymq.store.segment import MAGIC_LOG, SEGMENT_HEADER_SIZE_BYTES, check_segment_header
from polymq.wire.live_records import skip_origin
from polymq.wire.records import HEADER_SIZE_BYTES, MAGIC, check, parse_header

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Catalogue", "Piece", "Stretch", "read_piece"]

# What an executor has of a file in memory at a time, unless one batch is larger.
_CHUNK_SIZE_BYTES: Final = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Piece:
    """Records `first` to `end` (exclusive): in the bytes from `at` to `until` of the segment `base`, whole batches."""

    base: int
    at: int
    until: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Stretch:
    """Whole, checked batches in memory, of which the records from `first` to `end` (exclusive) are wanted."""

    data: bytes
    size: int
    first: int
    end: int


@contextmanager
def _opened(path: Path) -> Iterator[RealFile]:
    """Open a segment for reading; raises StoreFailed, FileNotFoundError."""
    try:
        file = RealFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreFailed(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        yield file
    finally:
        file.close()


class Catalogue:
    """What is in a spool, as the files say at each call.

    Raises:  StoreFailed when there is no spool, or it is for another protocol.
    """

    def __init__(self, folder: Path, protocol: str) -> None:
        self._folder = folder
        self._protocol = protocol
        # Where the last piece ended: the next one usually begins there.
        self._last = (-1, 0, 0)

    def number(self) -> int:
        """Say which spool this is."""
        found = files.identity(self._folder)
        if found is None:
            raise StoreFailed(f"there is no spool in {self._folder}: start a spooler for it, or let the source receive (receiver=thread)")
        if found.protocol != self._protocol:
            raise StoreFailed(f"the spool in {self._folder} is for {found.protocol}, not for {self._protocol}")
        return found.number

    def end(self) -> int:
        """Say which record would be the next one to become durable."""
        number = self.number()
        found = files.position(self._folder)
        if found is None or found.number != number:
            raise StoreFailed(f"nothing says how far the spool in {self._folder} is durable; start its spooler, which looks")
        return found.end

    def start(self) -> int:
        """Say which is the oldest record that is there; the end if none is."""
        end = self.end()
        bases = files.segments(self._folder)
        return min(bases[0], end) if bases else end

    def pieces(self, first: int, end: int) -> list[Piece]:
        """Find the bytes of records `first` to `end`, which are below `end()`; those that are gone are left out."""
        bases = [*files.segments(self._folder), 1 << 62]
        found = []
        for base, after in itertools.pairwise(bases):
            begin, stop = max(first, base), min(end, after)
            if begin < stop:
                try:
                    piece = self._piece(base, begin, stop)
                except FileNotFoundError:
                    continue
                found.append(piece)
        return found

    def _piece(self, base: int, first: int, end: int) -> Piece:
        path = self._folder / files.segment_name(base)
        with _opened(path) as file:
            size = file.size()
            wrong = check_segment_header(file.pread(SEGMENT_HEADER_SIZE_BYTES, 0), MAGIC_LOG, 0, base)
            if wrong is not None:
                raise CorruptRecord(str(path), position=0, expected="a segment's header", found=wrong)
            view = file.map(size)
            try:
                known_base, known_offset, known_at = self._last
                is_known = known_base == base and known_offset <= first
                at, offset = (known_at, known_offset) if is_known else (SEGMENT_HEADER_SIZE_BYTES, base)
                at, offset = self._walk(view, at, offset, first, path)
                until, after = self._walk(view, at, offset, end, path)
                self._last = (base, after, until)
                if after < end:
                    until += self._header_size(view, until, path)
            finally:
                view.release()
        return Piece(base, at, until, first, end)

    def _walk(self, view: memoryview, at: int, offset: int, wanted: int, path: Path) -> tuple[int, int]:
        """Step over whole batches before record `wanted`; gives where the one begins that has it, and its first record."""
        while offset < wanted:
            passed, position = skip_origin(view, at, len(view), ORIGINS[self._protocol], wanted - offset)
            if not passed:
                self._header_size(view, at, path)
                break
            at, offset = position, offset + passed
        return at, offset

    @staticmethod
    def _header_size(view: memoryview, at: int, path: Path) -> int:
        if len(view) - at >= HEADER_SIZE_BYTES:
            header = parse_header(view, at)
            if header.magic == MAGIC and HEADER_SIZE_BYTES < header.size <= len(view) - at:
                return header.size
        raise CorruptRecord(str(path), position=at, expected="a record batch", found="something else")


def read_piece(folder: Path, piece: Piece) -> Iterator[Stretch]:
    """Read a piece, some whole batches at a time, in order, with every checksum looked at.

    Raises:  FileNotFoundError when the segment is gone; CorruptRecord, StoreFailed.
    """
    path = folder / files.segment_name(piece.base)
    with _opened(path) as file:
        at = piece.at
        while at < piece.until:
            data = file.pread(min(_CHUNK_SIZE_BYTES, piece.until - at), at)
            if len(data) >= HEADER_SIZE_BYTES and (needed := parse_header(data, 0).size) > len(data) and needed <= piece.until - at:
                data = file.pread(needed, at)
            size = _checked(data, path, at)
            yield Stretch(data, size, piece.first, piece.end)
            at += size


def _checked(data: bytes, path: Path, at: int) -> int:
    """Say where the last whole batch ends; raises CorruptRecord when the first one is not whole, or one is damaged."""
    size = 0
    while len(data) - size >= HEADER_SIZE_BYTES:
        header = parse_header(data, size)
        if size and header.magic == MAGIC and header.size > len(data) - size:
            break
        wrong = check(data, size, len(data))
        if wrong is not None:
            raise CorruptRecord(str(path), position=at + size, expected="a record batch", found=wrong)
        size += header.size
    if not size:
        raise CorruptRecord(str(path), position=at, expected="a record batch", found=f"{len(data)} bytes")
    return size
