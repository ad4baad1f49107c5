"""The port to the disk: all that the store asks of an operating system, and the real one.

The simulator implements the same two classes over memory, with sectors that a power loss may drop. Errors are
`OSError` on both sides; the store translates them.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import sys
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from polymq.store.bulk import hasten_each, in_cache, prepare_one, sync_each

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["File", "Files", "RealFiles"]

# Linux: read what the page cache has and nothing else. Elsewhere the flag does not exist, and nothing counts as cached.
_READ_NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
_ADVISE_RANDOM: Final[int | None] = getattr(os, "POSIX_FADV_RANDOM", None)
# EAGAIN: not in the page cache. The others: this file system or kernel does not know the flag.
_NOT_CACHED: Final = frozenset({errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS})
_LOCK_NAME: Final = "LOCK"


class File(Protocol):
    """One open file. All positions and sizes are bytes."""

    def size(self) -> int:
        """Length of the file, preallocated bytes included."""

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data`; raises OSError (ENOSPC, EIO)."""

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""

    def pread_cached(self, size: int, position: int) -> bytes | None:
        """Read like `pread` but only out of the page cache; None when any of it would need the disk.

        None is always a right answer: who gets it reads through the worker, and has the bytes afterwards.
        """

    def expect_random_reads(self) -> None:
        """Have the system bring in what is asked for and nothing ahead of it, as long as this file is open. May do nothing."""

    def allocate(self, size: int) -> None:
        """Make the file at least `size` bytes long with real blocks; new ones read as zeros; raises OSError(ENOSPC)."""

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with a hole of zeros."""

    def sync(self) -> None:
        """Make the contents survive a power loss (fdatasync); raises OSError(EIO). Blocks, releases the GIL."""

    def map(self, size: int) -> memoryview:
        """A read-only view of the first `size` bytes that shows later `pwrite`s; stays valid until released."""

    def close(self) -> None:
        """Close the descriptor; a map that is still in use stays readable."""


class Files(Protocol):
    """A folder tree. Paths are relative to the data folder and use `/`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; raises FileNotFoundError unless `create`."""

    def exists(self, path: str) -> bool:
        """Whether there is a file or folder of this name."""

    def list(self, folder: str) -> Sequence[str]:
        """Names in a folder, unsorted; empty if there is no such folder."""

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents; no error if it exists."""

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, in place of any file that had it; readers see the one or the other."""

    def remove(self, path: str) -> None:
        """Remove a file or an empty folder; raises FileNotFoundError, or OSError(ENOTEMPTY)."""

    def sync_files(self, paths: Sequence[str]) -> Sequence[int]:
        """Make the contents of many files survive a power loss, each whatever becomes of the others (fdatasync).

        Gives a code for each: 0 it is safe, an errno the sync failed, a negative errno it could not be opened. Blocks,
        releases the GIL once for all of them.
        """

    def prepare(self, path: str, size: int) -> None:
        """Make a file of `size` zeros in real blocks, with pages in the page cache, whatever it was before; raises OSError. Like `sync_files`."""

    def sync_folder(self, path: str) -> None:
        """Make creations, renames and removals in this folder survive a power loss."""

    def hasten(self, paths: Sequence[str]) -> None:
        """Have the disk begin to write these files, so that the `sync` calls after it wait for all of them at once.

        Promises nothing, reports nothing: only `sync` says that a file is safe. May do nothing. Waits for nobody.
        """

    def free_bytes(self) -> int:
        """Bytes that this user may still allocate."""

    def total_bytes(self) -> int:
        """Size of the file system."""

    def lock(self) -> None:
        """Take the folder for this process; raises OSError(EWOULDBLOCK) when another one has it."""

    def close(self) -> None:
        """Give the lock back."""


class RealFile:
    """One open descriptor. Reads, writes and syncs release the GIL while the system call runs."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def size(self) -> int:
        """See `File`."""
        return os.fstat(self._descriptor).st_size

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """See `File`. The system may write less than asked for when a disk fills up, so the rest is tried again."""
        written = os.pwrite(self._descriptor, data, position)
        if written == len(data):
            return
        view = memoryview(data)
        while written < len(view):
            written += os.pwrite(self._descriptor, view[written:], position + written)

    def pread(self, size: int, position: int) -> bytes:
        """See `File`. One call is the rule; the loop is for systems that return less than asked for."""
        data = os.pread(self._descriptor, size, position)
        while 0 < len(data) < size:
            more = os.pread(self._descriptor, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def pread_cached(self, size: int, position: int) -> bytes | None:
        """See `File`.

        Looked up first: a read with NOWAIT that finds nothing makes room for the pages and has them read after all, and
        where memory is short that room may be 100 ms away (Linux 6, `filemap_get_pages`).
        """
        if _READ_NOWAIT is None or not in_cache(self._descriptor, position, size):
            return None
        buffer = bytearray(size)
        try:
            count = os.preadv(self._descriptor, [buffer], position, _READ_NOWAIT)
        except OSError as error:
            if error.errno in _NOT_CACHED:
                return None
            raise
        if count == size:
            return bytes(buffer)
        # Fewer bytes: the file ends there, or the page cache does.
        return bytes(memoryview(buffer)[:count]) if position + count >= self.size() else None

    def expect_random_reads(self) -> None:
        """See `File`."""
        if _ADVISE_RANDOM is not None:
            os.posix_fadvise(self._descriptor, 0, 0, _ADVISE_RANDOM)

    def allocate(self, size: int) -> None:
        """See `File`."""
        os.posix_fallocate(self._descriptor, 0, size)

    def truncate(self, size: int) -> None:
        """See `File`."""
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """See `File`."""
        os.fdatasync(self._descriptor)

    def map(self, size: int) -> memoryview:
        """See `File`. The memory goes when the last view of it goes. Before Python 3.13 a map costs a descriptor."""
        if sys.version_info >= (3, 13):
            return memoryview(mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ, trackfd=False))
        return memoryview(mmap.mmap(self._descriptor, size, access=mmap.ACCESS_READ))

    def close(self) -> None:
        """See `File`. A second close does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def _names(root: str, paths: Sequence[str]) -> bytes:
    """Spell paths of the port for `bulk`."""
    names = b"".join([os.fsencode(f"{root}/{path}") + b"\0" for path in paths])
    assert names.count(0) == len(paths)
    return names


class RealFiles:
    """The data folder on a real disk. `root` is made if it is not there."""

    __slots__ = ("_lock", "_root")

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._root = os.fspath(root)
        self._lock = -1
        Path(self._root).mkdir(parents=True, exist_ok=True)

    def _path(self, path: str) -> str:
        """Spell a path of the port for the operating system. Plain joining: this runs for every segment."""
        return f"{self._root}/{path}" if path else self._root

    def open(self, path: str, *, create: bool = False) -> RealFile:
        """See `Files`."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(os.open(self._path(path), flags, 0o640))

    def exists(self, path: str) -> bool:
        """See `Files`."""
        return Path(self._path(path)).exists()

    def list(self, folder: str) -> Sequence[str]:
        """See `Files`."""
        try:
            with os.scandir(self._path(folder)) as entries:
                return [entry.name for entry in entries]
        except FileNotFoundError:
            return ()

    def make_folder(self, path: str) -> None:
        """See `Files`."""
        Path(self._path(path)).mkdir(parents=True, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """See `Files`."""
        Path(self._path(source)).replace(self._path(target))

    def remove(self, path: str) -> None:
        """See `Files`."""
        target = Path(self._path(path))
        if target.is_dir():
            target.rmdir()
        else:
            target.unlink()

    def sync_files(self, paths: Sequence[str]) -> Sequence[int]:
        """See `Files`."""
        codes = array("i", bytes(4 * len(paths)))
        if paths:
            sync_each(_names(self._root, paths), codes)
        return codes.tolist()

    def hasten(self, paths: Sequence[str]) -> None:
        """See `Files`. What other programs have not written yet is left alone (docs/adr/0011)."""
        hasten_each(_names(self._root, paths), len(paths))

    def prepare(self, path: str, size: int) -> None:
        """See `Files`."""
        code = prepare_one(_names(self._root, [path]), size)
        if code:
            raise OSError(abs(code), os.strerror(abs(code)), path)

    def sync_folder(self, path: str) -> None:
        """See `Files`."""
        descriptor = os.open(self._path(path), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self) -> int:
        """See `Files`."""
        status = os.statvfs(self._root)
        return status.f_bavail * status.f_frsize

    def total_bytes(self) -> int:
        """See `Files`."""
        status = os.statvfs(self._root)
        return status.f_blocks * status.f_frsize

    def lock(self) -> None:
        """See `Files`. The lock is the process's: it goes with `kill -9` as well."""
        descriptor = os.open(self._path(_LOCK_NAME), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        self._lock = descriptor

    def close(self) -> None:
        """See `Files`."""
        descriptor, self._lock = self._lock, -1
        if descriptor >= 0:
            os.close(descriptor)
