"""What a user may choose about the store; the values here are what `polymq serve` uses unless told otherwise."""

from __future__ import annotations

from dataclasses import dataclass

from polymq import limits

__all__ = ["StoreSettings"]

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Settings of one data folder. Tests and the simulator make things small to reach the limits soon."""

    segment_size_bytes_first: int = limits.SEGMENT_SIZE_BYTES_FIRST
    segment_size_bytes_max: int = limits.SEGMENT_SIZE_BYTES_MAX
    batch_size_bytes_target: int = limits.BATCH_SIZE_BYTES_TARGET
    # Started at half the interval that is promised, so that a sync has the other half to end.
    sync_interval_ns: int = limits.SYNC_INTERVAL_NS // 2
    # Enough for a disk to stream; small enough that it never idles while publishers fill the next lot.
    sync_size_bytes: int = 32 * _MIB
    unsynced_size_bytes_high: int = limits.UNSYNCED_SIZE_BYTES_HIGH
    unsynced_size_bytes_low: int = limits.UNSYNCED_SIZE_BYTES_LOW
    # None: 5 % of the file system, at least 256 MiB.
    free_bytes_min: int | None = None
    # Preallocated bytes that hold nothing yet, as a part of the file system.
    reserved_part_max: float = 0.05
    # A segment that is open costs one descriptor, and one more when it is mapped: 2 x 400 fits the usual 1,024.
    open_segments_max: int = 400
    # What went through the page cache since is a guess at whether something is still in it.
    hot_size_bytes: int = 256 * _MIB
    # What one read brings in: out of the page cache on the loop's thread, and off the disk in the worker's.
    window_size_bytes: int = 256 * 1024
    read_ahead_size_bytes: int = 4 * _MIB
    # When readers hold more than this in windows, read-ahead shrinks to the small size.
    windows_size_bytes_max: int = 48 * _MIB
    journal_growth_bytes_max: int = 64 * _MIB
    journal_growth_bytes_min: int = 8 * _MIB
    # What one turn writes of a snapshot: about a millisecond of work, whether entries are small and many or large.
    snapshot_piece_entries: int = 96
    snapshot_piece_size_bytes: int = 256 * 1024
    index_interval_bytes: int = 64 * 1024
