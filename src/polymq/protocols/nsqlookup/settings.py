"""What both sides of nsqlookupd's protocol know."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["MAGIC", "VERSION", "LookupSettings"]

MAGIC: Final = b"  V1"
# nsqadmin wants a semantic version of nsqd; this is the one whose behaviour is served.
VERSION: Final = "1.3.0"
_SECOND_NS: Final = 1_000_000_000


@dataclass(frozen=True, slots=True)
class LookupSettings:
    """What whoever runs the directory can set, with nsqlookupd's defaults."""

    inactive_producer_timeout_ns: int = 300 * _SECOND_NS  # --inactive-producer-timeout: without a PING it is not shown
    tombstone_lifetime_ns: int = 45 * _SECOND_NS  # --tombstone-lifetime: a producer is hidden from a topic so long
