"""Spools for the tests: writers over a disk in memory or a real one, and portions to put in."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from polymq.spool.notes import encode_note
from polymq.spool.portion import Portion, encode_records
from polymq.spool.segments import SpoolWriter
from polymq.spool.settings import SpoolSettings
from polymq.spool.window import salt_of
from polymq.store.files import RealFiles
from polymq.wire.records import Message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from polymq.store.files import Files

NOW_NS = 1_700_000_000_000_000_000
SMALL = SpoolSettings(segment_size_bytes_first=4096, segment_size_bytes_max=8192)
SALT = salt_of("server", b"topic")


def portion(bodies: Sequence[bytes], *, acknowledge: Callable[[], None] = lambda: None) -> Portion:
    """Messages whose ids are their bodies."""
    messages = [Message(body, encode_note(b"topic", body.rjust(16, b"."), attempts=1)) for body in bodies]
    data, end = encode_records(messages, NOW_NS)
    return Portion(data, end, count=len(bodies), received=len(bodies), salt=SALT, time_ns=NOW_NS, acknowledge=acknowledge)


def writer(files: Files, settings: SpoolSettings = SMALL, *, wall_ns: Callable[[], int] = lambda: NOW_NS) -> SpoolWriter:
    """A writer that is not open."""
    numbers = itertools.count(11)
    return SpoolWriter(files, "nsq", settings, wall_ns=wall_ns, random_u64=lambda: next(numbers))


def filled(path: Path, batches: Sequence[Sequence[bytes]], settings: SpoolSettings = SMALL) -> None:
    """Make a spool on the real disk, one append for each batch."""
    made = writer(RealFiles(path), settings)
    made.open()
    for bodies in batches:
        made.append([portion(bodies)])
    made.close()
