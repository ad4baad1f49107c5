"""What a disk holds, and what of it a power loss takes away: file contents by sector, folders by entry.

The page cache is what programs read: `Contents.data`. Beside it lies, for every sector written since the last sync,
what the sector held before. A power loss picks for each of these sectors one of its contents, in any combination:
disks reorder writes. A sync that failed is worse than one that never ran: the kernel takes the pages for clean, so a
later sync that succeeds does not cover them; those sectors stay doubtful until they are written and synced again.
Folder entries follow the same rule one by one: created, renamed and removed names may or may not have got there
until the folder is synced. The rules are those of POSIX, harsher than most file systems.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

__all__ = ["PAGE_SIZE_BYTES", "Contents", "Folder"]

# Older contents kept for a sector beside its synced one: enough for a tail that grew three times between syncs.
_VERSIONS_MAX: Final = 4
# What a map shows behind the end of a file that became shorter, where a real one would raise SIGBUS.
_POISON: Final = 0xDD
PAGE_SIZE_BYTES: Final = 4096


class Contents:
    """The bytes of one file: as programs see them, and as they might be after a power loss."""

    __slots__ = ("_doubtful", "_older", "_sector", "_sizes", "_views", "cold", "data", "linked")

    def __init__(self, sector_size_bytes: int) -> None:
        self.data = bytearray()
        self.cold: set[int] = set()  # page numbers that are not in the page cache
        self.linked = True
        self._sector = sector_size_bytes
        self._older: dict[int, list[bytes]] = {}
        self._doubtful: dict[int, list[bytes]] = {}
        self._sizes: list[int] = []
        self._views: list[bytearray] = []  # earlier buffers that maps still show; they get every write too

    @property
    def unsynced(self) -> bool:
        """Whether a power loss could take anything away."""
        return bool(self._older or self._doubtful or self._sizes)

    def write(self, data: memoryview, position: int) -> None:
        """Put bytes into the page cache; the file grows if it has to."""
        end = position + len(data)
        if end > len(self.data):
            self.resize(end)
        self._remember(position, end)
        self.data[position:end] = data
        for view in self._views:
            if position < len(view):
                view[position : min(end, len(view))] = data[: len(view) - position]
        if self.cold:
            self.cold.difference_update(range(position // PAGE_SIZE_BYTES, -(-end // PAGE_SIZE_BYTES)))

    def resize(self, size: int) -> None:
        """Make the file longer, with zeros, or shorter."""
        before = len(self.data)
        if size == before:
            return
        self._sizes.append(before)
        if size < before:
            self._remember(size, before)
            for view in self._views:
                view[size:] = bytes([_POISON]) * max(0, len(view) - size)
        try:
            self._fit(size)
        except BufferError:  # a map is open: the old buffer stays behind for it
            mapped = self.data
            self.data = bytearray(mapped[:size])
            self._fit(size)
            self._views.append(mapped)
            if size < before:
                mapped[size:] = bytes([_POISON]) * (before - size)
        for view in self._views:
            view[before:size] = bytes(len(view[before:size]))

    def _fit(self, size: int) -> None:
        """Change the length of the buffer; raises BufferError while it is mapped."""
        if size < len(self.data):
            del self.data[size:]
        else:
            self.data.extend(bytes(size - len(self.data)))

    def _remember(self, start: int, end: int) -> None:
        """Keep what the sectors of [start, end) hold before they change."""
        sector = self._sector
        for number in range(start // sector, -(-end // sector)):
            versions = self._older.setdefault(number, [])
            if len(versions) >= _VERSIONS_MAX:
                del versions[1]  # the synced one stays: it is always possible
            versions.append(bytes(self.data[number * sector : (number + 1) * sector]))

    def sync(self) -> None:
        """Make everything written so far survive, but for what an earlier failed sync left in doubt."""
        for number in self._older:
            self._doubtful.pop(number, None)
        self._older.clear()
        self._sizes.clear()

    def fail_sync(self) -> None:
        """Take the unsynced pages for clean without having written them, as kernels do after an I/O error."""
        for number, versions in self._older.items():
            self._doubtful.setdefault(number, []).extend(versions)
        self._older.clear()

    def lose_power(self, random: Random, keep: float) -> None:
        """Settle every doubtful sector on one of its contents; each keeps its newest with probability `keep`."""
        choices = {number: list(versions) for number, versions in self._doubtful.items()}
        for number, versions in self._older.items():
            choices.setdefault(number, []).extend(versions)
        sizes = self._sizes
        data = bytearray(self.data)
        if sizes and random.random() >= keep:
            size = random.choice(sizes)
            data = data[:size] + bytes(max(0, size - len(data)))
        for number in sorted(choices):
            if random.random() < keep:
                continue
            at = number * self._sector
            room = max(0, min(self._sector, len(data) - at))
            data[at : at + room] = random.choice(choices[number])[:room].ljust(room, b"\0")
        self.data = data
        self._older, self._doubtful, self._sizes, self._views = {}, {}, [], []
        self.chill()

    def unmap(self) -> None:
        """Let go of the maps of a process that has ended."""
        self.data = bytearray(self.data)
        self._views = []

    def chill(self) -> None:
        """Drop the file from the page cache, as memory pressure does: reading it needs the disk again."""
        self.cold = set(range(-(-len(self.data) // PAGE_SIZE_BYTES)))


class Folder:
    """Names, and which of the changes to them a power loss may undo."""

    __slots__ = ("_changes", "_synced", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Contents | Folder] = {}
        self._synced: dict[str, Contents | Folder] = {}
        self._changes: list[tuple[str | None, str | None, Contents | Folder]] = []  # (name gone, name there, what)

    def change(self, entry: Contents | Folder, *, gone: str | None = None, there: str | None = None) -> None:
        """Enter `entry` as `there`, or take it from `gone`, or both at once, which is a rename."""
        if gone is not None:
            del self.entries[gone]
        if there is not None:
            self.entries[there] = entry
        self._changes.append((gone, there, entry))

    def sync(self) -> None:
        """Make the names survive as they are."""
        self._synced = dict(self.entries)
        self._changes.clear()

    def lose_power(self, random: Random, keep: float) -> None:
        """Undo any subset of the unsynced changes, and go on in what is left."""
        entries = dict(self._synced)
        for gone, there, entry in self._changes:
            if random.random() >= keep:
                continue
            if gone is not None and entries.get(gone) is entry:
                del entries[gone]
            if there is not None:
                entries[there] = entry
        self.entries = entries
        self.sync()
        for name in sorted(entries):
            entries[name].lose_power(random, keep)

    def files(self) -> list[Contents]:
        """List every file below."""
        found: list[Contents] = []
        for entry in self.entries.values():
            if isinstance(entry, Folder):
                found.extend(entry.files())
            else:
                found.append(entry)
        return found
