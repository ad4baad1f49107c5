"""Data folders as a stopped nsqd leaves them, made by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from polymq.protocols.nsq.datafolder import file_name, meta_name
from tests.unit.protocols.nsq.queues import Stored, record

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["TIME_NS", "message", "write_metadata", "write_queue"]

TIME_NS = 1_700_000_000_000_000_000


def message(number: int, attempts: int = 0) -> Stored:
    return Stored(number << 12 | 7, TIME_NS + number, b"m%d" % number, attempts)


def write_metadata(folder: Path, topics: dict[str, list[str]], *, paused: tuple[str, ...] = ()) -> None:
    """`topics` gives the channels; `paused` names topics ("t") and channels ("t:c")."""
    folder.mkdir(exist_ok=True)
    document = {
        "topics": [
            {
                "name": topic,
                "paused": topic in paused,
                "channels": [{"name": channel, "paused": f"{topic}:{channel}" in paused} for channel in channels] or None,
            }
            for topic, channels in topics.items()
        ],
        "version": "1.3.0",
    }
    (folder / "nsqd.dat").write_text(json.dumps(document))


def write_queue(folder: Path, queue: str, *files: list[Stored], read: int = 0, first: int = 0, meta: bool = True) -> None:
    """Write a queue ("t" or "t:c"): its files, of which the first `read` messages of the first file were read."""
    topic, _, channel = queue.partition(":")
    contents = [b"".join(map(record, stored)) for stored in files]
    for number, data in enumerate(contents, first):
        (folder / file_name(topic, channel, number)).write_bytes(data)
    if meta:
        position = len(b"".join(map(record, files[0][:read])))
        depth = sum(map(len, files)) - read
        last = first + len(files) - 1
        (folder / meta_name(topic, channel)).write_text(f"{depth}\n{first},{position}\n{last},{len(contents[-1])}\n")
