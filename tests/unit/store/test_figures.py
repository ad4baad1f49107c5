"""The store in numbers."""

from __future__ import annotations

from polymq.testing.disk import DiskFault
from tests.unit.store.harness import Harness, bodies


def test_what_is_written_and_synced_is_counted() -> None:
    harness = Harness()
    store = harness.open()
    before = store.figures()
    assert (before.partitions, before.syncs, before.congested, before.disk_is_full) == (0, 0, False, False)
    log = store.create_log(1, sync=False)
    harness.publish(log, bodies(0, 3))
    written = store.figures()
    assert written.partitions == 1
    assert written.written_bytes - before.written_bytes >= 3 * 20
    harness.settle()
    synced = store.figures()
    assert synced.syncs > 0
    assert synced.syncs_failed == 0
    assert synced.sync_ns >= 0
    assert synced.unsynced_bytes <= written.unsynced_bytes
    assert synced.journal_size_bytes >= 4096
    assert 0 < synced.disk_free_bytes <= synced.disk_size_bytes


def test_a_failed_sync_is_counted() -> None:
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=False)
    harness.publish(log, bodies(0, 3))
    harness.files.faults.append(DiskFault("sync", path="partitions/0000001"))
    harness.settle()
    found = store.figures()
    assert (found.syncs_failed, found.partitions_failed) == (1, 1)
