"""What simulated runs have found in the store, as small as it gets; the number of the seed is in the name."""

from __future__ import annotations

from contextlib import suppress

import pytest

from polymq.errors import StoreFull
from polymq.store.ticket import TicketState
from polymq.testing.disk import DiskFault, SimulatedKill
from polymq.wire.records import read_messages
from polymq.wire.slices import MessageBatch
from tests.unit.store.harness import NSQ, Harness, bodies, drain, read_all

ENTRY = b"\x40entry"


def test_seed_1220_a_mark_that_a_kill_left_unsynced_is_synced_by_the_next_start() -> None:
    for seed in range(30):
        harness = Harness(seed)
        harness.files.kill_at = 2  # created and written, not synced
        with pytest.raises(SimulatedKill):
            harness.open()
        harness.crash()
        harness.open()
        harness.crash(power_loss=True)
        harness.open()


def test_seed_63_a_turn_that_the_journal_does_not_take_leaves_the_partitions_alone() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    harness.publish(log, bodies(0, 2))
    assert harness.store.unwritten == ""
    harness.files.faults.append(DiskFault("write", path="journal/"))
    harness.store.journal.append(ENTRY)
    ticket = log.append(MessageBatch.of(bodies(2, 2)), now_ns=1, origin=NSQ)
    harness.store.commit()
    assert "cannot be written" in harness.store.unwritten
    assert ticket.state is TicketState.FAILED
    assert log.readable == 2
    assert read_all(harness, harness.restart()) == bodies(0, 2)
    assert ENTRY not in harness.replayed


def test_seed_63_a_turn_that_the_journal_has_no_room_for_waits_as_a_whole() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    harness.publish(log, bodies(0, 1))
    harness.files.capacity_bytes = 0
    for number in range(1, 100):
        harness.store.journal.append(ENTRY * 40)
        ticket = log.append(MessageBatch.of(bodies(number, 1, size=0)), now_ns=1, origin=NSQ)
        harness.store.commit()
        if harness.store.journal.blocked:
            break
    assert harness.store.unwritten
    assert ticket.state is TicketState.PENDING
    assert log.readable == number
    with pytest.raises(StoreFull):
        log.append(MessageBatch.of(bodies(number + 1, 1, size=2000)), now_ns=1, origin=NSQ)
    harness.files.capacity_bytes = 1 << 30
    harness.store.commit()
    assert harness.store.unwritten == ""
    assert ticket.state is TicketState.DONE
    assert log.readable == number + 1


def test_seed_342_a_reader_that_waits_for_the_disk_does_not_lose_its_place() -> None:
    harness = Harness(hot_size_bytes=700, window_size_bytes=256, batch_size_bytes_target=100, index_interval_bytes=100)
    harness.worker_delay_ns_max = 10_000
    store = harness.open()
    log, other = (store.create_log(number, sync=False) for number in (1, 2))
    for target in (log, other):
        for number in range(20):
            harness.publish(target, bodies(number, 1))
    harness.settle()
    harness.files.evict()
    reader = log.reader(0)
    reader.seek(9)
    assert reader.take(1, 1 << 20) is None
    assert reader.waiting
    log.append(MessageBatch.of(bodies(20, 1)), now_ns=1, origin=NSQ)
    harness.store.commit()  # the segment is hot again, from its beginning
    while (piece := reader.take(1, 1 << 20)) is None:
        assert reader.waiting
        harness.poll()
    found = read_messages(piece.view, piece.position, piece.batch_left, piece.base_time_ns, 1, piece.end)
    assert (piece.offset, [found[0].body]) == (9, bodies(9, 1))
    assert drain(harness, reader) == bodies(10, 11)


def test_seed_177_segments_that_a_crash_kept_from_being_cut_can_be_dropped() -> None:
    harness = Harness(segment_size_bytes_max=4096)
    harness.worker_delay_ns_max = 1_000_000_000_000  # nothing is cut before the crash
    log = harness.open().create_log(1, sync=False)
    for number in range(10):
        harness.publish(log, bodies(number, 1, size=2500))
    harness.worker_delay_ns_max = 0
    log = harness.restart()
    harness.settle()
    for _ in range(5):
        log.retain(log.end, now_ns=harness.clock.wall_ns() + 10, age_ns=0, size_bytes=0)
        harness.turn()
    assert log.start > 0
    assert log.sealed_size_bytes >= 0
    harness.store.close(clean=True)


def forget_journal(harness: Harness) -> None:
    """Put a journal in the place of the one that is there which knows nothing but that it has begun."""
    for name in harness.files.list("journal"):
        harness.files.remove(f"journal/{name}")
    other = Harness()
    other.open()
    (name,) = other.files.list("journal")
    begun = other.files.open(f"journal/{name}")
    harness.files.open(f"journal/{name}", create=True).pwrite(begun.pread(begun.size(), 0), 0)


def test_seed_1232_an_index_from_before_a_cut_is_not_used_after_it() -> None:
    harness = Harness(segment_size_bytes_max=4096, batch_size_bytes_target=100, index_interval_bytes=100)
    log = harness.open().create_log(1, sync=False)
    while len(log.chain.segments) < 2:
        harness.publish(log, bodies(log.end, 1, size=300))
    harness.settle()
    count = log.chain.segments[0].end_offset
    path = "partitions/0000001/00000000000000000000"
    assert harness.files.exists(f"{path}.idx")
    # As after a power loss: the second segment never got there, and the first one lost its last batches.
    harness.crash()
    harness.files.remove(f"partitions/0000001/{count:020d}.seg")
    file = harness.files.open(f"{path}.seg")
    file.truncate(file.size() - 700)
    file.allocate(4096)
    forget_journal(harness)
    harness.boot += 1
    log = harness.open().open_log(1, sync=False)
    kept = log.end
    assert kept < count
    assert not harness.files.exists(f"{path}.idx")
    # Other sizes than before, and the same end: only the positions tell the two indexes apart.
    harness.publish(log, bodies(kept, count - kept - 1, size=10))
    harness.publish(log, bodies(count - 1, 1, size=450))
    harness.publish(log, bodies(count, 1, size=3000))
    assert log.chain.segments[0].end_offset == count
    harness.settle()
    log = harness.restart()
    assert [len(body) for body in read_all(harness, log, count - 1)] == [len(b"9;") + 450, len(b"10;") + 3000]


def test_seed_10202_what_a_snapshot_replaced_stays_until_the_snapshot_is_synced() -> None:
    for seed in range(20):
        for operation in range(12):
            harness = Harness(seed, sync_interval_ns=1 << 60)
            store = harness.open()
            store.journal.append(ENTRY)
            store.commit()
            assert store._committer.sync_now()
            store.journal.snapshot([[ENTRY] for _ in range(200)])
            store.commit()
            harness.crash()
            # The next process finds the snapshot in the page cache; it is killed, and then the power fails.
            harness.files.kill_at = operation
            with suppress(SimulatedKill):
                harness.open()
            harness.crash()
            harness.crash(power_loss=True)
            harness.open()
            assert ENTRY in harness.replayed


def test_seed_476_a_partition_that_cannot_be_read_does_not_claim_to_begin_anew() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    harness.publish(log, bodies(0, 2))
    harness.crash()
    harness.boot += 1
    store = harness.open()
    harness.files.faults.append(DiskFault("read", path="partitions/"))
    unread = store.open_log(1, sync=False)
    assert unread.failed
    assert unread.epochs == []
    harness.crash()
    assert harness.open().open_log(1, sync=False).epochs == [(1, 0), (2, 2)]
