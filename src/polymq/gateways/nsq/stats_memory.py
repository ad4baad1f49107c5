"""The figures that nsqd's statistics have about Go's heap, as far as this process has the like of them."""

from __future__ import annotations

import gc
import resource
import sys
from dataclasses import dataclass

__all__ = ["MemoryFigures", "memory_of_this_process"]

_BYTES_PER_RSS_UNIT = 1 if sys.platform == "darwin" else 1024


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """The nine figures in nsqd's order; what has no counterpart here is 0."""

    heap_objects: int = 0
    heap_idle_bytes: int = 0
    heap_in_use_bytes: int = 0
    heap_released_bytes: int = 0
    gc_pause_usec_100: int = 0
    gc_pause_usec_99: int = 0
    gc_pause_usec_95: int = 0
    next_gc_bytes: int = 0
    gc_total_runs: int = 0


def memory_of_this_process() -> MemoryFigures:
    """Count allocated blocks and collections; bytes in use are the most that the process had resident."""
    return MemoryFigures(
        heap_objects=sys.getallocatedblocks(),
        heap_in_use_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _BYTES_PER_RSS_UNIT,
        gc_total_runs=sum(generation["collections"] for generation in gc.get_stats()),
    )
