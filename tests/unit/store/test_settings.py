"""Defaults keep the promises of `limits`."""

from __future__ import annotations

from polymq import limits
from polymq.store.settings import StoreSettings


def test_a_sync_starts_early_enough_to_end_in_time() -> None:
    settings = StoreSettings()
    assert settings.sync_interval_ns < limits.SYNC_INTERVAL_NS
    assert settings.sync_size_bytes < settings.unsynced_size_bytes_low < settings.unsynced_size_bytes_high


def test_windows_fit_their_limits() -> None:
    settings = StoreSettings()
    assert settings.index_interval_bytes < settings.window_size_bytes < settings.read_ahead_size_bytes < settings.windows_size_bytes_max
    assert settings.journal_growth_bytes_min < settings.journal_growth_bytes_max
