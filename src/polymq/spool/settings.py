"""What can be chosen about a spool, with its defaults and the reasons for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["ORIGINS", "SpoolSettings"]

# By which protocol a batch came: the numbers that the log has for them.
ORIGINS: Final = {"nsq": 1, "nats": 3, "phpmq": 4}

_MIB: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SpoolSettings:
    """Sizes and times of one spool.

    What the reader has committed is kept for `keep_seconds` more, and up to `keep_size_bytes` of it, so that a query that
    starts from an older checkpoint finds it; what is not committed is kept in any case. Segments double from the first
    size to the largest: an idle spool stays small, and a busy one drops what is old in pieces of some size.

    `window_count` ids are remembered for `window_seconds` at least, or until as many more have come: a broker sends again
    after its message timeout, so this should be no less than the rate times that.
    """

    keep_seconds: float = 24 * 3600.0
    keep_size_bytes: int = 1024 * _MIB
    segment_size_bytes_first: int = 1 * _MIB
    segment_size_bytes_max: int = 64 * _MIB
    window_count: int = 1_000_000
    window_seconds: float = 3600.0
    # A disk without room is tried again after this.
    full_retry_seconds: float = 1.0
    # Who holds the lock may be a process that is about to end: it is waited for so long.
    lock_wait_seconds: float = 30.0
    status_interval_seconds: float = 1.0
