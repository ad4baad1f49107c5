"""A sync that failed has lost pages that the page cache still shows: a restart must not build on them."""

from __future__ import annotations

import pytest

from polymq.store.committer import UNSURE_NAME
from polymq.testing.disk import DiskFault
from polymq.wire.slices import MessageBatch
from polymq.wire.tickets import TicketState

from .harness import Harness, bodies, read_all


@pytest.mark.parametrize("seed", range(40))
def test_what_is_acknowledged_after_the_restart_survives_a_power_loss(seed: int) -> None:
    harness = Harness(seed)
    store = harness.open()
    log = store.create_log(1, sync=True)
    harness.publish(log, bodies(0, 3, 400))
    harness.settle()
    harness.files.faults.append(DiskFault("sync", path="partitions/0000001"))
    failed = log.append(MessageBatch.of(bodies(3, 3, 400)), now_ns=1, origin=1)
    harness.turn()
    harness.settle()
    assert failed.state is TicketState.FAILED
    store.close(clean=False)
    log = harness.restart(sync=True)
    harness.settle()
    kept = log.append(MessageBatch.of(bodies(6, 3, 400)), now_ns=2, origin=1)
    harness.turn()
    harness.settle()
    assert kept.state is TicketState.DONE
    log = harness.restart(sync=True, power_loss=True)
    harness.settle()
    assert log.failed == ""
    assert read_all(harness, log) == bodies(0, 9, 400)


@pytest.mark.parametrize("seed", range(40))
def test_a_journal_whose_sync_failed_is_whole_after_the_restart_and_a_power_loss(seed: int) -> None:
    harness = Harness(seed)
    store = harness.open()
    store.journal.append(b"\x40before")
    harness.settle()
    harness.files.faults.append(DiskFault("sync", path="journal"))
    store.journal.append(b"\x40doubtful")
    ticket = store.journal.ticket(sync=True)
    harness.turn()
    harness.settle()
    assert ticket.state is TicketState.FAILED
    store.close(clean=False)
    harness.crash()
    store = harness.open()
    store.journal.append(b"\x40after")
    ticket = store.journal.ticket(sync=True)
    harness.turn()
    harness.settle()
    assert ticket.state is TicketState.DONE
    harness.crash(power_loss=True)
    harness.open()
    assert harness.replayed == [b"\x40before", b"\x40doubtful", b"\x40after"]


def test_announcements_that_a_failed_sync_of_the_journal_took_hide_nothing() -> None:
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=False)
    harness.publish(log, bodies(0, 3))
    harness.settle()
    segment = store.journal.chain.segments[-1]
    synced = segment.used
    harness.files.faults.append(DiskFault("sync", path="journal/"))
    log.append(MessageBatch.of(bodies(3, 2)), now_ns=harness.clock.wall_ns(), origin=1)
    store.commit()
    assert segment.used > synced
    harness.settle()
    assert store.journal.failed
    assert log.readable == 5
    harness.crash()
    # The kernel took the pages for clean and has given them up since: this is what the disk has.
    harness.files.open(segment.path).pwrite(bytes(segment.used - synced), synced)
    log = harness.open().open_log(1, sync=False)
    assert read_all(harness, log) == bodies(0, 5)
    assert not harness.files.exists(UNSURE_NAME)
    harness.publish(log, bodies(5, 2))
    harness.settle()
    assert read_all(harness, harness.restart()) == bodies(0, 7)


def test_what_may_be_lost_is_remembered_until_all_was_looked_at() -> None:
    """The process that finds the mark may be killed before it opens a partition."""
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=False)
    harness.publish(log, bodies(0, 3))
    harness.settle()
    synced = store.journal.chain.segments[-1].used
    harness.files.faults.append(DiskFault("sync", path="journal/"))
    harness.publish(log, bodies(3, 2))
    harness.settle()
    harness.crash()
    segment = store.journal.chain.segments[-1]
    harness.files.open(segment.path).pwrite(bytes(segment.used - synced), synced)
    harness.open()
    assert read_all(harness, harness.restart()) == bodies(0, 5)
