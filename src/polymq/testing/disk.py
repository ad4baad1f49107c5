"""The disk port over memory: everything the store asks of an operating system, with faults on request.

`FakeFiles` is the folder tree as one process sees it. `crash()` ends that process and gives the next one its view:
all that was written is still there after a kill, and after a power loss any subset of the unsynced sectors and names
is gone (`sectors.py`). Faults come three ways: a limited capacity, `DiskFault`s that make matching operations fail,
and `kill_at`, which ends the process in the middle of its n-th operation, so a test can kill at every write and every
sync. Which sectors survive and how much of a failing write arrives is drawn from `random`.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from polymq.testing.sectors import PAGE_SIZE_BYTES, Contents, Folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["DiskFault", "FakeFile", "FakeFiles", "SimulatedKill"]

_CAPACITY_BYTES: Final = 1 << 40
# How likely a doubtful sector keeps its newest content; drawn per power loss, so that "all gone" and "all there but
# one" both happen and not only an even mix.
_KEEP: Final = (0.0, 0.1, 0.5, 0.9, 0.98)


class SimulatedKill(BaseException):
    """SIGKILL: the process is gone in the middle of whatever it was doing."""


@dataclass(slots=True)
class DiskFault:
    """Makes operations fail: the next `count` ones of `kind` on paths that start with `path`, after `skip` others.

    Kinds: "write", "open", "sync", "allocate", "read", "truncate", "create", "rename", "remove", "sync_folder".
    """

    kind: str
    errno: int = errno.EIO
    path: str = ""
    skip: int = 0
    count: int = 1


class _Disk:
    """What outlives a process: the tree, the faults, the capacity."""

    __slots__ = ("capacity_bytes", "faults", "random", "root", "sector_size_bytes", "used_bytes")

    def __init__(self, random: Random, *, sector_size_bytes: int, capacity_bytes: int) -> None:
        self.random = random
        self.root = Folder()
        self.faults: list[DiskFault] = []
        self.sector_size_bytes = sector_size_bytes
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0

    def find(self, path: str) -> Contents | Folder | None:
        """Follow a path; None if nothing is there."""
        entry: Contents | Folder | None = self.root
        for name in _names(path):
            if not isinstance(entry, Folder):
                return None
            entry = entry.entries.get(name)
        return entry

    def folder(self, path: str) -> Folder:
        """Follow a path to a folder that has to be there."""
        entry = self.find(path)
        if entry is None:
            raise _error(errno.ENOENT, path)
        if not isinstance(entry, Folder):
            raise _error(errno.ENOTDIR, path)
        return entry

    def take_fault(self, kind: str, path: str) -> DiskFault | None:
        """Use up the fault that this operation runs into, if there is one."""
        for fault in self.faults:
            if fault.kind != kind or not path.startswith(fault.path):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.count -= 1
            if not fault.count:
                self.faults.remove(fault)
            return fault
        return None

    def take_room(self, contents: Contents, size: int, path: str) -> None:
        """Account for a file that becomes `size` bytes long; raises OSError(ENOSPC)."""
        more = size - len(contents.data)
        if more > 0 and more > self.capacity_bytes - self.used_bytes:
            raise _error(errno.ENOSPC, path)
        if contents.linked:
            self.used_bytes += more


class _Process:
    """One life of one process on the disk: counts its operations and ends in the middle of one if told to."""

    __slots__ = ("dead", "disk", "kill_at", "locked", "on_fault", "on_operation", "operations")

    def __init__(self, disk: _Disk) -> None:
        self.disk = disk
        self.dead = False
        self.locked = False
        self.operations = 0
        self.kill_at: int | None = None
        self.on_operation: Callable[[str, str], None] | None = None
        self.on_fault: Callable[[str, str], None] | None = None

    def check(self) -> None:
        """Find out whether a process that should be gone goes on."""
        assert not self.dead, "a process that was killed touches the disk"

    def open(self, path: str) -> None:
        """Let the opening of a file fail if that was asked for. Not counted: it does nothing to the disk."""
        fault = self.disk.take_fault("open", path) if self.disk.faults else None
        if fault is not None:
            raise _error(fault.errno, path)

    def operate(self, kind: str, path: str, arrives: Callable[[float], None] | None = None) -> None:
        """Count one operation; let it fail or kill if its turn has come, after `arrives(share)` has done a part."""
        self.check()
        if self.on_operation is not None:
            self.on_operation(kind, path)
        number = self.operations
        self.operations += 1
        killed = self.kill_at is not None and number >= self.kill_at
        fault = None if killed or not self.disk.faults else self.disk.take_fault(kind, path)
        if not killed and fault is None:
            return
        if arrives is not None:
            arrives(self.disk.random.random())
        if fault is not None:
            if self.on_fault is not None:
                self.on_fault(kind, path)
            raise _error(fault.errno, path)
        self.dead = True
        raise SimulatedKill


class FakeFiles:
    """The `Files` port over memory, for one life of one process."""

    __slots__ = ("_disk", "_process")

    def __init__(
        self,
        random: Random | int = 0,
        *,
        sector_size_bytes: int = 512,
        capacity_bytes: int = _CAPACITY_BYTES,
    ) -> None:
        generator = Random(random) if isinstance(random, int) else random
        self._disk = _Disk(generator, sector_size_bytes=sector_size_bytes, capacity_bytes=capacity_bytes)
        self._process = _Process(self._disk)

    @property
    def faults(self) -> list[DiskFault]:
        """The failures to come; they outlive the process."""
        return self._disk.faults

    @property
    def capacity_bytes(self) -> int:
        """Room for files in all; set it low to fill the disk."""
        return self._disk.capacity_bytes

    @capacity_bytes.setter
    def capacity_bytes(self, value: int) -> None:
        self._disk.capacity_bytes = value

    @property
    def used_bytes(self) -> int:
        """What the files take."""
        return self._disk.used_bytes

    @property
    def operations(self) -> int:
        """How many writes, syncs and other changes this process has made; reads of the disk count too."""
        return self._process.operations

    @property
    def kill_at(self) -> int | None:
        """The operation (counted as in `operations`) in the middle of which the process is killed."""
        return self._process.kill_at

    @kill_at.setter
    def kill_at(self, value: int | None) -> None:
        self._process.kill_at = value

    def watch(
        self,
        on_operation: Callable[[str, str], None] | None = None,
        on_fault: Callable[[str, str], None] | None = None,
    ) -> None:
        """Have `on_operation(kind, path)` called before each operation, `on_fault(kind, path)` when one fails on request."""
        self._process.on_operation = on_operation
        self._process.on_fault = on_fault

    def crash(self, *, power_loss: bool = False) -> FakeFiles:
        """End this process: it can touch nothing any more. Gives the next process its view of the same disk."""
        self._process.dead = True
        disk = self._disk
        for contents in disk.root.files():
            contents.unmap()
        if power_loss:
            disk.root.lose_power(disk.random, disk.random.choice(_KEEP))
            disk.used_bytes = sum(len(contents.data) for contents in disk.root.files())
        heir = object.__new__(FakeFiles)
        heir._disk = disk
        heir._process = _Process(disk)
        return heir

    def evict(self) -> None:
        """Drop everything from the page cache."""
        for contents in self._disk.root.files():
            contents.chill()

    def open(self, path: str, *, create: bool = False) -> FakeFile:
        """Open for reading and writing; raises FileNotFoundError unless `create`."""
        folder_path, name = _split(path)
        entry = self._disk.find(path)
        if isinstance(entry, Folder):
            raise _error(errno.EISDIR, path)
        self._process.open(path)
        if entry is None:
            if not create:
                raise _error(errno.ENOENT, path)
            self._process.operate("create", path)
            entry = Contents(self._disk.sector_size_bytes)
            self._disk.folder(folder_path).change(entry, there=name)
        else:
            self._process.check()
        return FakeFile(self._process, entry, path)

    def exists(self, path: str) -> bool:
        """Tell whether a file or folder is there."""
        self._process.check()
        return self._disk.find(path) is not None

    def list(self, folder: str) -> Sequence[str]:
        """Names in a folder, in an order of the seed's; empty if there is no such folder."""
        self._process.check()
        entry = self._disk.find(folder)
        if not isinstance(entry, Folder):
            return []
        names = sorted(entry.entries)
        self._disk.random.shuffle(names)
        return names

    def make_folder(self, path: str) -> None:
        """Make a folder and its parents; no error if it exists."""
        self._process.check()
        parent = self._disk.root
        for name in _names(path):
            entry = parent.entries.get(name)
            if entry is None:
                entry = Folder()
                parent.change(entry, there=name)
            elif not isinstance(entry, Folder):
                raise _error(errno.EEXIST, path)
            parent = entry

    def rename(self, source: str, target: str) -> None:
        """Give a file another name, replacing what had it."""
        source_folder_path, source_name = _split(source)
        target_folder_path, target_name = _split(target)
        entry = self._disk.find(source)
        if entry is None:
            raise _error(errno.ENOENT, source)
        self._process.operate("rename", source)
        self._unlink(self._disk.find(target))
        if isinstance(entry, Contents):
            entry.linked = True
        if source_folder_path == target_folder_path:
            self._disk.folder(source_folder_path).change(entry, gone=source_name, there=target_name)
        else:
            self._disk.folder(target_folder_path).change(entry, there=target_name)
            self._disk.folder(source_folder_path).change(entry, gone=source_name)

    def remove(self, path: str) -> None:
        """Remove a file or an empty folder."""
        folder_path, name = _split(path)
        entry = self._disk.find(path)
        if entry is None:
            raise _error(errno.ENOENT, path)
        if isinstance(entry, Folder) and entry.entries:
            raise _error(errno.ENOTEMPTY, path)
        self._process.operate("remove", path)
        self._unlink(entry)
        self._disk.folder(folder_path).change(entry, gone=name)

    def sync_folder(self, path: str) -> None:
        """Make creations, renames and removals in this folder survive a power loss."""
        self._process.operate("sync_folder", path)
        self._disk.folder(path).sync()

    def sync_files(self, paths: Sequence[str]) -> Sequence[int]:
        """See `Files`."""
        return [self._sync_file(path) for path in paths]

    def _sync_file(self, path: str) -> int:
        try:
            file = self.open(path)
        except OSError as error:
            return -(error.errno or errno.EIO)
        try:
            file.sync()
        except OSError as error:
            return error.errno or errno.EIO
        finally:
            file.close()
        return 0

    def prepare(self, path: str, size: int) -> None:
        """See `Files`."""
        file = self.open(path, create=True)
        try:
            file.truncate(0)
            file.allocate(size)
            file.pwrite(bytes(size), 0)
        finally:
            file.close()

    def hasten(self, paths: Sequence[str]) -> None:
        """See `Files`. Does nothing, as it may: what is safe is decided by `sync` alone."""

    def free_bytes(self) -> int:
        """Room that is left."""
        self._process.check()
        return max(0, self._disk.capacity_bytes - self._disk.used_bytes)

    def total_bytes(self) -> int:
        """Room in all."""
        return self._disk.capacity_bytes

    def lock(self) -> None:
        """Take the folder; a second call without `close` fails as it would for a second process."""
        self._process.check()
        if self._process.locked:
            raise BlockingIOError(errno.EWOULDBLOCK, "the folder belongs to another process")
        self._process.locked = True

    def close(self) -> None:
        """Give the lock back."""
        self._process.locked = False

    def _unlink(self, entry: Contents | Folder | None) -> None:
        """Free the room of a file whose name goes away; open handles go on."""
        if isinstance(entry, Contents) and entry.linked:
            entry.linked = False
            self._disk.used_bytes -= len(entry.data)


class FakeFile:
    """The `File` port: one open file of a `FakeFiles`."""

    __slots__ = ("_contents", "_open", "_process", "path")

    def __init__(self, process: _Process, contents: Contents, path: str) -> None:
        self._process = process
        self._contents = contents
        self._open = True
        self.path = path

    def size(self) -> int:
        """Bytes from start to end."""
        self._check()
        return len(self._contents.data)

    def pwrite(self, data: bytes | bytearray | memoryview, position: int) -> None:
        """Write all of `data`, or a part of it and raise."""
        self._check()
        view = memoryview(data).cast("B")
        end = position + len(view)

        def arrives(share: float) -> None:
            part = view[: int(len(view) * share)]
            self._contents.write(part[: max(0, len(self._contents.data) - position)], position)

        self._process.operate("write", self.path, arrives)
        if end > len(self._contents.data):
            self._process.disk.take_room(self._contents, end, self.path)
        self._contents.write(view, position)

    def pread(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes; afterwards they are in the page cache."""
        self._check()
        self._process.operate("read", self.path)
        self._contents.cold.difference_update(_pages(size, position))
        return bytes(self._contents.data[position : position + size])

    def pread_cached(self, size: int, position: int) -> bytes | None:
        """Read like `pread` but only out of the page cache."""
        self._check()
        if not self._contents.cold.isdisjoint(_pages(size, position)):
            return None
        return bytes(self._contents.data[position : position + size])

    def expect_random_reads(self) -> None:
        """Nothing is read ahead here."""

    def allocate(self, size: int) -> None:
        """Make the file at least `size` bytes long with blocks that read as zeros."""
        self._check()
        self._process.operate("allocate", self.path)
        if size > len(self._contents.data):
            self._process.disk.take_room(self._contents, size, self.path)
            self._contents.resize(size)

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros."""
        self._check()
        self._process.operate("truncate", self.path)
        self._process.disk.take_room(self._contents, size, self.path)
        self._contents.resize(size)

    def sync(self) -> None:
        """Make the contents survive a power loss."""
        self._check()
        try:
            self._process.operate("sync", self.path)
        except OSError:
            self._contents.fail_sync()
            raise
        self._contents.sync()

    def map(self, size: int) -> memoryview:
        """A read-only view of the first `size` bytes that shows later writes."""
        self._check()
        return memoryview(self._contents.data).toreadonly()[:size]

    def close(self) -> None:
        """Close it; maps stay readable."""
        self._open = False

    def _check(self) -> None:
        self._process.check()
        assert self._open, f"{self.path} is closed"


def _names(path: str) -> list[str]:
    return [name for name in path.split("/") if name not in ("", ".")]


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def _split(path: str) -> tuple[str, str]:
    names = _names(path)
    return "/".join(names[:-1]), names[-1]


def _pages(size: int, position: int) -> range:
    return range(position // PAGE_SIZE_BYTES, -(-(position + size) // PAGE_SIZE_BYTES))
