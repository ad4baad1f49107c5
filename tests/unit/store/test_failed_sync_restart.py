"""A sync that failed has lost pages that the page cache still shows: a restart must not build on them."""

from __future__ import annotations

import pytest

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
