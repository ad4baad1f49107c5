"""A stopped nsqd's data folder, opened for reading: which queues there are, and which parts of which files are theirs.

Nothing in the folder is changed. What is wrong with it is collected as `Problem`s, by file and position: whoever takes
over a folder wants to know everything at once, and to have what can be read. Read next: `takeover.py`.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.errors import ConfigError, RemoteProtocolError
from polymq.protocols.nsq.datafolder import (
    METADATA_NAME,
    ChannelEntry,
    QueueMeta,
    TopicEntry,
    file_name,
    meta_name,
    parse_file_name,
    parse_meta,
    parse_metadata,
)
from polymq.protocols.nsq.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Maps", "NsqdFolder", "Part", "Problem", "QueueFiles"]

# Files mapped at the same time: a descriptor each, and the usual limit is 1,024.
_MAPS_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that could not be read. `position` is in bytes from the file's start; −1 is the whole file."""

    path: Path
    position: int
    text: str

    def __str__(self) -> str:
        place = f" at byte {self.position}" if self.position >= 0 else ""
        return f"{self.path}{place}: {self.text}"


@dataclass(frozen=True, slots=True)
class Part:
    """The bytes of one file that belong to a queue."""

    path: Path
    start: int
    end: int


@dataclass(slots=True)
class QueueFiles:
    """One disk queue: of a topic (no channel), or of a channel."""

    topic: str
    channel: str
    parts: list[Part] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """How much there is to read."""
        return sum(part.end - part.start for part in self.parts)


class NsqdFolder:
    """A data folder that no nsqd has open, and that none can open meanwhile. Raises ConfigError.

    `problems` is what could not be read, `notes` what is worth knowing. Cost: lists the folder, reads its small files.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self._lock = self._take()
        try:
            self._names = sorted(entry.name for entry in path.iterdir() if entry.is_file())
            self._numbers = self._list_numbers()
            self.topics = self._read_metadata()
        except OSError as error:
            self.close()
            raise ConfigError([f"{path} cannot be read: {error.strerror or error}"]) from error
        except BaseException:
            self.close()
            raise

    @property
    def size_bytes(self) -> int:
        """How many bytes the data files of all queues have, read ones included."""
        names = (file_name(topic, channel, number) for (topic, channel), numbers in self._numbers.items() for number in numbers)
        return sum((self.path / name).stat().st_size for name in names)

    def close(self) -> None:
        """Give the folder back to whoever wants it."""
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def _take(self) -> int:
        """Lock the folder as nsqd does: the lock of either keeps the other out."""
        try:
            lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise ConfigError([f"{self.path} is not a folder that can be read: {error.strerror or error}"]) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise ConfigError(
                [f"{self.path} is in use: stop that nsqd first (SIGTERM, so that it writes out what it has in memory)"]
            ) from error
        return lock

    # -- what there is ---------------------------------------------------------------------------------------------

    def _list_numbers(self) -> dict[tuple[str, str], list[int]]:
        """Sort the data files by queue."""
        numbers: dict[tuple[str, str], list[int]] = {}
        for name in self._names:
            found = parse_file_name(name)
            if found is None:
                continue
            if found.bad:
                self.notes.append(f"{self.path / name}: nsqd could not read this file and put it aside; it is not imported")
            elif all(map(_is_lasting, filter(None, (found.topic, found.channel)))):
                queue = numbers.setdefault((found.topic, found.channel), [])
                if found.number is not None:
                    queue.append(found.number)
        for queue in numbers.values():
            queue.sort()
        return numbers

    def _read_metadata(self) -> tuple[TopicEntry, ...]:
        """Read nsqd.dat; if that cannot be done, go by the names of the files."""
        path = self.path / METADATA_NAME
        try:
            topics, invalid = parse_metadata(path.read_bytes())
        except FileNotFoundError:
            if not self._numbers:
                raise ConfigError(
                    [f"{self.path} is not the data folder of an nsqd: it has neither {METADATA_NAME} nor a disk queue"]
                ) from None
            self.problems.append(Problem(path, -1, "is missing: topics and channels are those that have disk queues, and none is paused"))
            return self._guess_topics()
        except RemoteProtocolError as error:
            self.problems.append(Problem(path, -1, f"{error}; topics and channels are those that have disk queues, and none is paused"))
            return self._guess_topics()
        self.notes += [f"{path}: {name!r} is not a valid name; left out, as nsqd does" for name in invalid]
        known = {(topic.name, "") for topic in topics} | {(topic.name, channel.name) for topic in topics for channel in topic.channels}
        for topic, channel in sorted(self._numbers.keys() - known):
            if self.queue(topic, channel).size_bytes:
                files = self.path / file_name(topic, channel, self._numbers[topic, channel][0])  # it has bytes, so it has a file
                self.problems.append(
                    Problem(files, -1, f"belongs to no topic or channel of {METADATA_NAME}, so nsqd would not read it; not imported")
                )
        return topics

    def _guess_topics(self) -> tuple[TopicEntry, ...]:
        """Make out topics and channels from the names of their files."""
        channels: dict[str, list[ChannelEntry]] = {}
        for topic, channel in sorted(self._numbers):
            found = channels.setdefault(topic, [])
            if channel:
                found.append(ChannelEntry(channel, paused=False))
        return tuple(TopicEntry(topic, False, tuple(found)) for topic, found in channels.items())

    # -- what belongs to a queue -----------------------------------------------------------------------------------

    def queue(self, topic: str, channel: str = "") -> QueueFiles:
        """Find the unread parts of a queue's files, oldest first."""
        found = QueueFiles(topic, channel)
        numbers = self._numbers.get((topic, channel))
        if numbers is None:
            return found
        meta = self._read_meta(topic, channel)
        if meta is None:
            first, start = numbers[0], 0
        else:
            first, start = meta.read_file, meta.read_position
            self._look_for_gaps(topic, channel, meta, numbers)
        for number in numbers:
            if number < first:
                continue
            path = self.path / file_name(topic, channel, number)
            size = path.stat().st_size
            begin = start if number == first else 0
            if meta is not None and number == meta.write_file:
                self._compare_sizes(path, size, meta)
            if begin > size:
                self.problems.append(Problem(path, size, f"ends here, but nsqd had read up to byte {begin}"))
            elif begin < size:
                found.parts.append(Part(path, begin, size))
        return found

    def _read_meta(self, topic: str, channel: str) -> QueueMeta | None:
        """Read where a queue was read and written; None if that is not known: then everything counts as unread."""
        path = self.path / meta_name(topic, channel)
        try:
            return parse_meta(path.read_bytes())
        except FileNotFoundError:
            # nsqd was killed before its first sync. It would not even look at the data files.
            self.notes.append(f"{path} is missing: the whole queue is imported, what consumers have finished of it included")
        except RemoteProtocolError as error:
            self.problems.append(Problem(path, 0, f"{error}; the whole queue is imported, what consumers have finished of it included"))
        return None

    def _look_for_gaps(self, topic: str, channel: str, meta: QueueMeta, numbers: list[int]) -> None:
        """Say which files there should be and are not."""
        expected = meta.read_file
        # A queue that was read to its end needs no file; one that has been written to since does.
        last = meta.write_file if (meta.read_file, meta.read_position) < (meta.write_file, meta.write_position) else meta.read_file - 1
        for number in [*(each for each in numbers if meta.read_file <= each), last + 1]:
            if number > expected and (number <= last or meta.write_position or number - 1 > expected):
                name = file_name(topic, channel, expected)
                others = "" if number == expected + 1 else f", and so are all up to number {number - 1}"
                self.problems.append(Problem(self.path / name, -1, f"is missing{others}"))
            expected = max(expected, number + 1)

    def _compare_sizes(self, path: Path, size: int, meta: QueueMeta) -> None:
        """Compare the file that was written to last with what nsqd noted about it."""
        if size < meta.write_position:
            self.problems.append(Problem(path, size, f"ends here, but nsqd had written up to byte {meta.write_position}"))
        elif size > meta.write_position:
            self.notes.append(
                f"{path}: nsqd was killed after its last sync; what it wrote since is imported, and some messages may have been finished"
            )


def _is_lasting(name: str) -> bool:
    """Whether a name is one that outlives an nsqd; files of others are left over, and nsqd ignores them."""
    return is_valid_name(name.encode()) and not is_ephemeral(name.encode())


class Maps:
    """The files of a topic's queues as views of their bytes; numbered from 0 in the order of `parts`."""

    def __init__(self, parts: list[Part]) -> None:
        self.parts = parts
        self._open: dict[int, tuple[mmap.mmap, memoryview]] = {}

    def view(self, number: int) -> memoryview:
        """Give a file's bytes; valid until `close`, or until many others have been asked for. Raises OSError."""
        found = self._open.get(number)
        if found is not None:
            return found[1]
        if len(self._open) >= _MAPS_MAX:
            self._release(next(iter(self._open)))
        with self.parts[number].path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), self.parts[number].end, access=mmap.ACCESS_READ)
        view = memoryview(mapped)
        self._open[number] = (mapped, view)
        return view

    def _release(self, number: int) -> None:
        mapped, view = self._open.pop(number)
        view.release()
        mapped.close()

    def close(self) -> None:
        """Let go of every file."""
        for number in list(self._open):
            self._release(number)

    def __enter__(self) -> Maps:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts)
