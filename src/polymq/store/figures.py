"""What the store can tell in numbers, at one moment: for the metrics."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["StoreFigures"]


@dataclass(frozen=True, slots=True)
class StoreFigures:
    """Counts since the folder was opened, sizes as they are. `written_bytes` is everything: partitions and journal.

    A sync is one job for everything that was written before it began; `sync_ns` is how long all of them took together.
    """

    partitions: int
    partitions_failed: int
    written_bytes: int
    unsynced_bytes: int
    congested: bool
    syncs: int
    syncs_failed: int
    sync_ns: int
    journal_size_bytes: int
    disk_size_bytes: int
    disk_free_bytes: int
    disk_is_full: bool
