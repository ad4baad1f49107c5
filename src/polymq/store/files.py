"""The port to the disk: all that the store asks of an operating system, and the real one.

The simulator implements the same two classes over memory, with sectors that a power loss may drop. Errors are
`OSError` on both sides; the store translates them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["File", "Files"]


class File(Protocol):
    """One open file. All positions and sizes are bytes."""

    def size(self) -> int: ...
    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data`; raises OSError (ENOSPC, EIO)."""

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""

    def pread_cached(self, size: int, position: int) -> bytes | None:
        """Read like `pread` but only out of the page cache; None when any of it would need the disk."""

    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long with real blocks that read as zeros; raises OSError(ENOSPC)."""

    def truncate(self, size: int) -> None: ...
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

    def exists(self, path: str) -> bool: ...
    def list(self, folder: str) -> Sequence[str]:
        """Names in a folder, unsorted; empty if there is no such folder."""

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents; no error if it exists."""

    def rename(self, source: str, target: str) -> None: ...
    def remove(self, path: str) -> None: ...
    def sync_folder(self, path: str) -> None:
        """Make creations, renames and removals in this folder survive a power loss."""

    def free_bytes(self) -> int: ...
    def total_bytes(self) -> int: ...
    def lock(self) -> None:
        """Take the folder for this process; raises OSError(EWOULDBLOCK) when another one has it."""

    def close(self) -> None:
        """Give the lock back."""
