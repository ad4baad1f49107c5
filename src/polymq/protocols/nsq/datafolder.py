r"""The small files of an nsqd's data folder: which topics and channels there are, and how far each disk queue was read.

    nsqd.dat                                      JSON: topics, their channels, what is paused
    <topic>.diskqueue.000000.dat                  messages that no channel was given yet (`diskqueue.py`)
    <topic>:<channel>.diskqueue.000000.dat        messages of a channel that were not in memory
    <topic>:<channel>.diskqueue.meta.dat          "depth\\nread file,position\\nwrite file,position\\n"
    <…>.dat.bad                                   a file that nsqd could not read and put aside

Nothing here touches a disk. Source: nsqd/nsqd.go (LoadMetadata), go-diskqueue 1.1.0, NSQ 1.3.0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import orjson

from polymq.errors import RemoteProtocolError
from polymq.protocols.nsq.names import is_ephemeral, is_valid_name

__all__ = [
    "METADATA_NAME",
    "ChannelEntry",
    "QueueFile",
    "QueueMeta",
    "TopicEntry",
    "file_name",
    "meta_name",
    "parse_file_name",
    "parse_meta",
    "parse_metadata",
]

METADATA_NAME: Final = "nsqd.dat"
_FILE: Final = re.compile(r"([^:]+?)(?::([^:]+))?\.diskqueue\.(\d{6,}|meta)\.dat(\.bad)?")
_META: Final = re.compile(rb"(-?\d{1,19})\n(\d{1,18}),(\d{1,18})\n(\d{1,18}),(\d{1,18})\n?")


@dataclass(frozen=True, slots=True)
class ChannelEntry:
    """A channel that nsqd would make at its start."""

    name: str
    paused: bool


@dataclass(frozen=True, slots=True)
class TopicEntry:
    """A topic that nsqd would make at its start."""

    name: str
    paused: bool
    channels: tuple[ChannelEntry, ...]


@dataclass(frozen=True, slots=True)
class QueueMeta:
    """Where a disk queue was read and written when it was synced last."""

    depth: int
    read_file: int
    read_position: int
    write_file: int
    write_position: int


@dataclass(frozen=True, slots=True)
class QueueFile:
    """What a file's name says: the queue (no channel: the topic's own), and the number; None is its meta file."""

    topic: str
    channel: str
    number: int | None
    bad: bool


def file_name(topic: str, channel: str, number: int) -> str:
    """Name a data file of a queue."""
    return f"{_queue_name(topic, channel)}.diskqueue.{number:06d}.dat"


def meta_name(topic: str, channel: str) -> str:
    """Name the file with a queue's positions."""
    return f"{_queue_name(topic, channel)}.diskqueue.meta.dat"


def _queue_name(topic: str, channel: str) -> str:
    return f"{topic}:{channel}" if channel else topic


def parse_file_name(name: str) -> QueueFile | None:
    """Say whose file this is; None if it is not one of a disk queue."""
    match = _FILE.fullmatch(name)
    if match is None:
        return None
    number = None if match[3] == "meta" else int(match[3])
    return QueueFile(match[1], match[2] or "", number, match[4] is not None)


def parse_meta(data: bytes) -> QueueMeta:
    """Read a queue's positions; raises RemoteProtocolError."""
    match = _META.fullmatch(data)
    if match is None:
        raise RemoteProtocolError("not three lines: a depth, a file and a position to read, a file and a position to write")
    depth, read_file, read_position, write_file, write_position = map(int, match.groups())
    return QueueMeta(depth, read_file, read_position, write_file, write_position)


def parse_metadata(data: bytes) -> tuple[tuple[TopicEntry, ...], tuple[str, ...]]:
    """Read nsqd.dat: the topics, and the names that are not valid, which nsqd leaves out too.

    Raises RemoteProtocolError with what is wrong. Ephemeral names, which nsqd does not write, are left out; so is a
    second entry of the same name.
    """
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise RemoteProtocolError(f"not JSON: {error}") from error
    if not isinstance(document, dict):
        raise RemoteProtocolError("not a JSON object")
    invalid: list[str] = []
    topics: dict[str, TopicEntry] = {}
    for name, entry in _named(document, "topics", invalid):
        channels: dict[str, ChannelEntry] = {}
        for channel, inner in _named(entry, "channels", invalid):
            channels.setdefault(channel, ChannelEntry(channel, _is_paused(inner)))
        topics.setdefault(name, TopicEntry(name, _is_paused(entry), tuple(channels.values())))
    return tuple(topics.values()), tuple(invalid)


def _named(holder: dict[str, Any], key: str, invalid: list[str]) -> list[tuple[str, dict[str, Any]]]:
    """List the entries under a key with their names."""
    entries = holder.get(key)
    if entries is None:
        return []
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise RemoteProtocolError(f"{key!r} is not a list of objects")
    found = []
    for entry in entries:
        name = entry.get("name")
        if not isinstance(name, str):
            raise RemoteProtocolError(f"an entry of {key!r} has no name")
        encoded = name.encode()
        if not is_valid_name(encoded):
            invalid.append(name)
        elif not is_ephemeral(encoded):
            found.append((name, entry))
    return found


def _is_paused(entry: dict[str, Any]) -> bool:
    paused = entry.get("paused")
    if paused is not None and not isinstance(paused, bool):
        raise RemoteProtocolError(f"'paused' of {entry['name']!r} is neither true nor false")
    return bool(paused)
