"""A disk that fails or is full: a clear error for those it concerns, service for the others, nothing acknowledged lost."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from polymq.errors import Refusal, RefusalCode, StoreFailed, StoreFull
from polymq.store.ticket import TicketState
from polymq.testing.disk import DiskFault
from polymq.wire.slices import MessageBatch
from tests.unit.store.harness import Harness, bodies, read_all

if TYPE_CHECKING:
    from polymq.store.log import Log


def batch(count: int = 3, first: int = 0) -> MessageBatch:
    return MessageBatch.of(bodies(first, count))


def fill(harness: Harness, log: Log, count: int, first: int, *, turns: bool) -> int:
    """Append until there is no room; return the number of the first message that did not fit."""
    while first < 10_000:
        try:
            log.append(batch(count, first), now_ns=1, origin=1)
        except StoreFull:
            return first
        first += count
        if turns:
            harness.turn()
    pytest.fail("the disk was never full")


def test_a_failed_write_fences_its_partition_for_good_and_no_other() -> None:
    harness = Harness()
    store = harness.open()
    broken, well = store.create_log(1, sync=False), store.create_log(2, sync=False)
    harness.publish(broken, bodies(0, 3))
    harness.publish(well, bodies(0, 3))
    harness.files.faults.append(DiskFault("write", path="partitions/0000001"))
    first = broken.append(batch(first=3), now_ns=1, origin=1)
    second = well.append(batch(first=3), now_ns=1, origin=1)
    store.commit()
    assert first.state is TicketState.FAILED
    assert "cannot be written" in first.failure
    assert second.state is TicketState.DONE
    assert (broken.end, broken.readable) == (3, 3)
    with pytest.raises(StoreFailed, match="cannot be written"):
        broken.append(batch(), now_ns=1, origin=1)
    assert read_all(harness, broken) == bodies(0, 3)
    assert read_all(harness, well) == bodies(0, 6)
    assert len(store.health()) == 1
    harness.settle()
    store.close(clean=True)
    log = harness.restart()
    assert not log.failed
    assert read_all(harness, log) == bodies(0, 3)


@pytest.mark.parametrize("sync", [False, True])
def test_a_failed_sync_fences_its_partition_and_fails_who_waits(sync: bool) -> None:
    harness = Harness()
    store = harness.open()
    broken, well = store.create_log(1, sync=sync), store.create_log(2, sync=True)
    harness.files.faults.append(DiskFault("sync", path="partitions/0000001"))
    ticket = broken.append(batch(), now_ns=1, origin=1)
    other = well.append(batch(), now_ns=1, origin=1)
    harness.turn()
    harness.turn()
    assert ticket.state is (TicketState.FAILED if sync else TicketState.DONE)
    assert other.state is TicketState.DONE
    assert broken.readable == (0 if sync else 3)
    with pytest.raises(StoreFailed, match="cannot be synced"):
        broken.append(batch(), now_ns=1, origin=1)
    assert harness.files.faults == []
    harness.settle()
    assert broken.failed, "a sync that failed must never be tried again"


def test_a_partition_that_failed_in_a_life_is_looked_at_in_the_next() -> None:
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=False)
    harness.publish(log, bodies(0, 3))
    harness.settle()
    harness.files.faults.append(DiskFault("sync", path="partitions/0000001"))
    harness.publish(log, bodies(3, 3))
    harness.settle()
    assert log.failed
    store.close(clean=True)
    log = harness.restart(power_loss=True)
    assert not log.failed
    assert log.end in (3, 6)
    assert read_all(harness, log) == bodies(0, log.end)


@pytest.mark.parametrize("kind", ["write", "sync"])
def test_a_failed_journal_fails_everything_that_depends_on_it(kind: str) -> None:
    harness = Harness()
    store = harness.open()
    usual, synced = store.create_log(1, sync=False), store.create_log(2, sync=True)
    harness.publish(usual, bodies(0, 3))
    harness.settle()
    harness.files.faults.append(DiskFault(kind, path="journal/"))
    store.journal.append(b"\x40entry")
    written, durable = store.journal.ticket(), store.journal.ticket(sync=True)
    assert store.journal.ticket() is written
    waiting = synced.append(batch(), now_ns=1, origin=1)
    harness.settle()
    assert durable.state is TicketState.FAILED
    assert written.state is (TicketState.FAILED if kind == "write" else TicketState.DONE)
    assert waiting.state is TicketState.FAILED
    assert synced.readable == 0
    assert "the journal cannot be" in store.health()[0]
    for log in (usual, synced):
        with pytest.raises(StoreFailed, match="journal"):
            log.append(batch(), now_ns=1, origin=1)
    assert read_all(harness, usual) == bodies(0, 3)
    store.journal.append(b"\x40later")
    late = store.journal.ticket()
    harness.turn()
    assert late.state is TicketState.FAILED
    store.close(clean=True)
    assert read_all(harness, harness.restart()) == bodies(0, 3)


def test_a_full_disk_refuses_before_anything_is_staged_and_goes_on_when_there_is_room() -> None:
    harness = Harness()
    store = harness.open()
    log, small = store.create_log(1, sync=False), store.create_log(2, sync=False)
    harness.publish(small, bodies(0, 1))
    harness.files.capacity_bytes = 40_000
    appended = fill(harness, log, 5, 0, turns=True)
    with pytest.raises(StoreFull, match="no room"):
        log.append(batch(5, appended), now_ns=1, origin=1)
    assert log.end == appended
    assert read_all(harness, log) == bodies(0, log.readable)
    assert not log.failed
    harness.files.capacity_bytes = 1 << 30
    harness.turn()
    assert store.health() == []
    assert log.readable == appended
    harness.publish(small, bodies(1, 1))
    harness.publish(log, bodies(appended, 5))
    assert read_all(harness, log) == bodies(0, appended + 5)
    log = harness.restart()
    assert read_all(harness, log) == bodies(0, appended + 5)


def test_what_was_staged_before_the_disk_was_full_is_still_written() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    harness.publish(log, bodies(0, 1))
    harness.files.capacity_bytes = 0
    count = 1
    ticket = log.append(batch(1, count), now_ns=1, origin=1)
    count += 1
    count = fill(harness, log, 1, count, turns=False)
    with pytest.raises(StoreFull):
        log.append(batch(1, count), now_ns=1, origin=1)
    assert log.end == count
    harness.turn()
    assert ticket.state is TicketState.DONE
    assert read_all(harness, log) == bodies(0, count)


def test_below_the_mark_of_free_space_nobody_publishes() -> None:
    harness = Harness(free_bytes_min=1000)
    store = harness.open()
    log = store.create_log(1, sync=False)
    harness.publish(log, bodies(0, 3))
    harness.files.capacity_bytes = 0
    harness.settle()
    with pytest.raises(StoreFull, match="below the mark"):
        log.append(batch(), now_ns=1, origin=1)
    assert "below the mark" in store.health()[0]
    harness.files.capacity_bytes = 1 << 30
    # A refused publish writes nothing, so there is no sync after which to look.
    harness.settle()
    store.look_after_room(1 << 62)
    assert not store.health()
    harness.publish(log, bodies(3, 3))
    assert log.end == 6


def test_a_checkpoint_beside_a_full_disk_has_the_time_of_what_is_written() -> None:
    """And not that of what is staged: the batches behind the checkpoint may be earlier than it."""
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=False)
    harness.publish(log, bodies(0, 2))
    harness.settle()
    active = store.journal.chain.active
    assert active is not None
    while active.size_bytes - active.used > 160:
        store.journal.append(b"\x40" * 50)
        harness.settle()
    harness.publish(log, bodies(2, 1))
    # The sync of this write ends while the journal has no room for a turn with several batches.
    harness.files.capacity_bytes = 0
    store.journal.append(b"\x40" * 200_000)
    for number in range(3):
        log.append(MessageBatch.of(bodies(3 + number, 1, 600)), now_ns=harness.clock.wall_ns() + 1000 * (number + 1), origin=1)
    for _ in range(6):
        harness.turn()
    assert store.journal.blocked
    assert log.synced_point is not None
    assert log.synced_point.end == 3
    assert log.synced_point.last_time_ns < log.last_time_ns
    harness.files.capacity_bytes = 1 << 30
    store.commit()
    assert log.readable == 6
    log = harness.restart()
    assert log.end == 6
    assert read_all(harness, log) == bodies(0, 3) + bodies(3, 3, 600)


def test_a_journal_without_room_keeps_its_entries_until_there_is_some() -> None:
    harness = Harness()
    store = harness.open()
    for number in range(200):
        store.journal.append(b"\x40" + bytes([number]) * 30)
        ticket = store.journal.ticket()
        harness.turn()
        harness.files.capacity_bytes = 0
        if ticket.state is TicketState.PENDING:
            break
    else:
        pytest.fail("the journal was never full")
    assert store.congested
    assert "waits for room" in store.health()[0]
    harness.files.capacity_bytes = 1 << 30
    harness.turn()
    assert ticket.state is TicketState.DONE
    assert not store.congested
    harness.crash()
    harness.open()
    assert harness.replayed == [b"\x40" + bytes([each]) * 30 for each in range(number + 1)]


def test_a_snapshot_without_room_is_given_up_and_nothing_else() -> None:
    harness = Harness(journal_growth_bytes_min=100)
    store = harness.open()
    for number in range(10):
        store.journal.append(b"\x40%d" % number + bytes(40))
        harness.turn()
    assert store.journal.wants_snapshot
    free = harness.files.free_bytes()
    harness.files.capacity_bytes -= free - 2_000_000
    old = [segment.path for segment in store.journal.chain.segments]
    store.journal.snapshot([b"\x41" + bytes(900_000)] for _ in range(8))
    assert not store.journal.snapshotting
    store.journal.append(b"\x40last")
    harness.settle()
    assert not store.journal.failed
    assert not store.journal.blocked
    assert all(harness.files.exists(path) for path in old)
    # What has not fitted once is not tried again before there is more room.
    sequence = store.journal.sequence
    store.journal.snapshot([[b"\x42"]])
    assert store.journal.sequence == sequence
    harness.crash(power_loss=True)
    harness.boot += 1
    harness.files.capacity_bytes = 1 << 40
    harness.open()
    assert [entry[:2] for entry in harness.replayed if entry[0] == 0x40] == [b"\x40%d" % number for number in range(10)] + [b"\x40l"]
    harness.store.journal.snapshot([[b"\x42"]])
    harness.settle()
    harness.crash()
    harness.open()
    assert harness.replayed == [b"\x42"]


def test_a_segment_that_cannot_be_prepared_is_made_when_it_is_needed() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    harness.files.faults.append(DiskFault("allocate", errno=errno.EIO, path="partitions/0000001/next"))
    for number in range(60):
        harness.publish(log, bodies(number, 1, 200))
    assert harness.files.faults == []
    assert len(log.chain.segments) > 1
    assert read_all(harness, log) == bodies(0, 60, 200)


def test_no_segment_can_be_made_because_the_disk_is_broken() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    harness.files.faults.append(DiskFault("create", path="partitions/0000001"))
    with pytest.raises(StoreFailed, match="segment"):
        log.append(batch(), now_ns=1, origin=1)
    assert log.failed


def test_a_batch_that_no_reader_could_hold_is_refused() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    huge = MessageBatch.of([bytes(8 << 20)] * 2)
    with pytest.raises(Refusal) as caught:
        log.append(huge, now_ns=1, origin=1)
    assert caught.value.code is RefusalCode.BATCH_TOO_LARGE
    assert log.end == 0


def test_too_much_unsynced_holds_publishers_back_until_the_disk_has_caught_up() -> None:
    harness = Harness(unsynced_size_bytes_high=3000, unsynced_size_bytes_low=1000, sync_size_bytes=1 << 30)
    harness.worker_delay_ns_max = 1
    store = harness.open()
    log = store.create_log(1, sync=False)
    for number in range(40):
        log.append(batch(1, number), now_ns=1, origin=1)
        store.commit()
        if store.congested:
            break
    assert store.congested
    assert number > 10
    assert store.due_ns is not None
    harness.clock.advance_to(store.due_ns)
    store.commit()
    assert store.due_ns is None
    while not store.poll():
        harness.clock.advance(10)
    assert not store.congested


def test_much_unsynced_starts_a_sync_early() -> None:
    harness = Harness(sync_size_bytes=2000, sync_interval_ns=10**12)
    store = harness.open()
    log = store.create_log(1, sync=False)
    for number in range(40):
        harness.publish(log, bodies(number, 1))
        if log.synced_point is not None:
            break
    assert 15 < number < 39


def test_readers_survive_a_shortage_of_descriptors() -> None:
    harness = Harness(hot_size_bytes=0)
    log = harness.open().create_log(1, sync=False)
    harness.publish(log, bodies(0, 10))
    harness.files.evict()
    harness.files.faults.append(DiskFault("read", errno=errno.EMFILE, path="partitions/0000001"))
    reader = log.reader(0)
    assert reader.take(10, 1000) is None
    assert reader.waiting
    assert read_all(harness, log) == bodies(0, 10)
    assert not log.failed


@pytest.mark.parametrize("where", ["partitions/0000001", "journal/"])
def test_a_failed_sync_is_logged_once_and_the_end_is_not_said_to_be_clean(where: str, caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=False)
    harness.settle()
    harness.files.faults.append(DiskFault("sync", path=where))
    harness.publish(log, bodies(0, 3))
    harness.settle()
    assert harness.files.faults == []
    problems = [record.getMessage() for record in caplog.records if record.name.startswith("polymq.store")]
    assert sum("cannot be synced" in problem for problem in problems) == 1, problems
    assert not store.close(clean=True)


def test_a_store_that_is_well_says_so_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    harness = Harness()
    store = harness.open()
    harness.publish(store.create_log(1, sync=False), bodies(0, 3))
    store.create_log(2, sync=False)
    store.delete_log(2)
    assert store.close(clean=True)
    assert not caplog.records
