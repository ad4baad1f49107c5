"""Figures about this process's memory."""

from __future__ import annotations

import gc

from polymq.gateways.nsq.stats_memory import memory_of_this_process


def test_figures_are_plausible() -> None:
    before = memory_of_this_process()
    gc.collect()
    after = memory_of_this_process()
    assert after.gc_total_runs > before.gc_total_runs
    assert after.heap_in_use_bytes > 1_000_000
    assert after.heap_objects > 1000
