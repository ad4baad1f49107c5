"""Too many open files: what could not begin has not failed, and is done when files can be opened again."""

from __future__ import annotations

import errno

import pytest

from polymq.errors import StoreFailed
from polymq.store.committer import UNSURE_NAME
from polymq.store.ticket import TicketState
from polymq.testing.disk import DiskFault
from polymq.wire.slices import MessageBatch
from tests.unit.store.harness import Harness, bodies, read_all


def lacking(kind: str, path: str, *, count: int = 3) -> DiskFault:
    return DiskFault(kind, errno=errno.EMFILE, path=path, count=count)


@pytest.mark.parametrize("kind", ["open", "sync_folder"])
@pytest.mark.parametrize("path", ["partitions/0000001", "journal"])
def test_a_sync_that_cannot_open_a_file_is_done_later(kind: str, path: str) -> None:
    harness = Harness()
    store = harness.open()
    if kind == "sync_folder" and path == "journal":
        # A new name in the journal's folder.
        store.journal.append(b"\x40" + bytes(5000))
    log = store.create_log(1, sync=True)
    ticket = log.append(MessageBatch.of(bodies(0, 3)), now_ns=1, origin=1)
    entry = store.journal.ticket(sync=True)
    harness.files.faults.append(lacking(kind, path))
    harness.turn()
    assert harness.files.faults[0].count < 3
    assert ticket.state is TicketState.PENDING
    if path == "journal":
        assert entry.state is TicketState.PENDING
    assert not store.health()
    due_ns = store.due_ns
    assert due_ns is not None
    assert due_ns > harness.clock.monotonic_ns()
    # Not at once, though somebody waits.
    left = harness.files.faults[0].count
    for _ in range(5):
        log.append(MessageBatch.of(bodies(3, 1)), now_ns=1, origin=1)
        store.commit()
        store.poll()
        # Nor is a turn asked for before then, in which nothing could be done.
        assert store.due_ns == due_ns
    assert harness.files.faults[0].count == left
    for _ in range(16):
        harness.turn()
    assert not harness.files.faults
    assert (ticket.state, entry.state) == (TicketState.DONE, TicketState.DONE)
    assert store._committer.unsynced_bytes == 0
    assert store.figures().syncs_failed == 0
    assert not harness.files.exists(UNSURE_NAME)
    assert read_all(harness, harness.restart(power_loss=True)) == bodies(0, 3) + 5 * bodies(3, 1)


def test_what_is_unsynced_counts_until_a_sync_has_covered_it() -> None:
    harness = Harness(
        unsynced_size_bytes_high=1500, unsynced_size_bytes_low=1000, segment_size_bytes_first=65536, segment_size_bytes_max=65536
    )
    store = harness.open()
    log = store.create_log(1, sync=False)
    harness.publish(log, bodies(0, 1, 60))
    harness.files.faults.append(lacking("open", "partitions/0000001", count=1000))
    for number in range(1, 40):
        harness.publish(log, bodies(number, 1, 60))
    assert store.congested
    harness.files.faults.clear()
    harness.settle()
    assert not store.congested
    assert log.synced_point is not None
    assert log.synced_point.end == 40


def test_a_failed_sync_still_fences_what_it_failed_for() -> None:
    harness = Harness()
    store = harness.open()
    logs = [store.create_log(number, sync=True) for number in (1, 2)]
    tickets = [log.append(MessageBatch.of(bodies(0, 3)), now_ns=1, origin=1) for log in logs]
    harness.files.faults.extend((DiskFault("sync", path="partitions/0000001"), lacking("open", "journal", count=1)))
    for _ in range(8):
        harness.turn()
    assert [bool(log.failed) for log in logs] == [True, False]
    assert [ticket.state for ticket in tickets] == [TicketState.FAILED, TicketState.DONE]


def test_files_stay_until_the_journal_is_synced() -> None:
    harness = Harness()
    store = harness.open()
    harness.publish(store.create_log(1, sync=False), bodies(0, 5))
    harness.settle()
    store.delete_log(1)
    harness.files.faults.append(lacking("open", "journal", count=1000))
    for _ in range(8):
        harness.turn()
    assert harness.files.exists("partitions/0000001")
    harness.files.faults.clear()
    harness.settle()
    assert not harness.files.exists("partitions/0000001")
    assert not store._committer.removing


def test_a_stop_without_descriptors_is_not_a_clean_one() -> None:
    harness = Harness()
    store = harness.open()
    harness.publish(store.create_log(1, sync=False), bodies(0, 5))
    harness.files.faults.append(lacking("open", "partitions/0000001", count=1000))
    store.close(clean=True)
    harness.files.faults.clear()
    log = harness.restart()
    assert not harness.store._clean
    assert read_all(harness, log) == bodies(0, 5)


def test_a_start_that_cannot_sync_says_why() -> None:
    harness = Harness()
    harness.open()
    harness.crash()
    harness.files.faults.append(lacking("sync_folder", "journal", count=1000))
    with pytest.raises(StoreFailed, match="ulimit -n"):
        harness.open()
