"""The journal: one frame per turn, snapshots, and what asks for them."""

from __future__ import annotations

import errno

from polymq.store import inspect
from polymq.store.ticket import TicketState
from polymq.testing.disk import DiskFault
from tests.unit.store.harness import Harness


def test_entries_of_a_turn_are_one_frame_and_one_write() -> None:
    harness = Harness()
    store = harness.open()
    before = len(list(inspect.frames(harness.files)))
    writes: list[str] = []
    harness.files.watch(lambda kind, path: writes.append(path) if kind == "write" else None)
    for number in range(5):
        store.journal.append(b"\x40%d" % number)
    ticket = store.journal.ticket()
    assert ticket.state is TicketState.PENDING
    store.commit()
    assert ticket.state is TicketState.DONE
    assert len(writes) == 1
    rows = list(inspect.frames(harness.files))
    assert len(rows) == before + 1
    assert rows[-1].entry_count == 5
    store.commit()
    assert len(writes) == 1


def test_tickets_without_entries_are_settled_too() -> None:
    harness = Harness()
    store = harness.open()
    written, synced = store.journal.ticket(), store.journal.ticket(sync=True)
    assert store.journal.ticket(sync=True) is synced
    store.commit()
    assert written.state is TicketState.DONE
    harness.settle()
    assert synced.state is TicketState.DONE
    operations = harness.files.operations
    later = store.journal.ticket(sync=True)
    assert store.due_ns is None
    store.commit()
    # Nothing is left to write, but somebody waits: that is done at once, and touches no file.
    assert store.poll()
    assert (later.state, store.due_ns) == (TicketState.DONE, None)
    assert harness.files.operations == operations


def test_large_entries_and_many_segments_come_back() -> None:
    harness = Harness()
    store = harness.open()
    entries = [b"\x40" + bytes([number]) * size for number, size in enumerate((0, 10, 5000, 100_000, 3, 70_000, 2000))]
    for entry in entries:
        store.journal.append(entry)
        harness.turn()
    assert len(store.journal.chain.segments) > 2
    for power_loss in (False, True):
        harness.settle()
        harness.crash(power_loss=power_loss)
        harness.open()
        assert harness.replayed == entries


def test_growth_asks_for_a_snapshot_which_replaces_what_was_before() -> None:
    harness = Harness()
    store = harness.open()
    assert not store.journal.wants_snapshot
    count = 0
    while not store.journal.wants_snapshot:
        store.journal.append(b"\x40" + bytes(100))
        harness.turn()
        count += 1
    assert count > 10
    old = [segment.path for segment in store.journal.chain.segments]
    store.journal.append(b"\x40before")
    store.journal.snapshot([[b"\x41one", b"\x41two"]])
    assert not store.journal.wants_snapshot
    store.journal.append(b"\x40after")
    assert all(harness.files.exists(path) for path in old)
    harness.settle()
    assert not any(harness.files.exists(path) for path in old)
    harness.crash(power_loss=True)
    harness.open()
    assert harness.replayed == [b"\x41one", b"\x41two", b"\x40after"]


def test_a_large_snapshot_is_cut_into_frames() -> None:
    harness = Harness()
    store = harness.open()
    store.journal.append(b"\x40first")
    harness.settle()
    # One unit that is larger than a piece, then many small ones.
    large = [b"\x41" + bytes([number]) * 100_000 for number in range(10)]
    small = [b"\x42%d" % number for number in range(1000)]
    store.journal.begin_snapshot([large, *([entry] for entry in small)])
    frames = [0]
    while store.journal.snapshotting:
        sequence = store.journal.sequence
        store.journal.continue_snapshot()
        frames.append(store.journal.sequence - sequence)
    assert set(frames[1:]) == {1}
    assert len(frames) > 5 + 10
    rows = list(inspect.frames(harness.files))
    assert max(row.size_bytes for row in rows) <= harness.settings.snapshot_piece_size_bytes + 100
    assert max(row.entry_count for row in rows) <= harness.settings.snapshot_piece_entries + 1
    harness.crash()
    harness.open()
    assert harness.replayed == large + small


def test_what_is_journaled_while_a_large_piece_is_written_counts_behind_it() -> None:
    harness = Harness(snapshot_piece_size_bytes=50)
    store = harness.open()
    journal = store.journal
    journal.append(b"\x40before")
    journal.begin_snapshot([[b"\x41%d" % number + b"." * 30 for number in range(4)]])
    between: list[bytes] = []
    while journal.snapshotting:
        between.append(b"\x40during %d" % len(between))
        journal.append(between[-1])
        journal.continue_snapshot()
        store.commit()
    harness.crash()
    harness.open()
    assert harness.replayed == [*between[:1], *(b"\x41%d" % number + b"." * 30 for number in range(4)), *between[1:]]


def test_entries_lost_by_a_failing_journal_are_told_even_when_nothing_else_is_staged() -> None:
    harness = Harness()
    store = harness.open()
    store.journal.begin_snapshot([[b"\x41"]])
    store.journal.append(b"\x40settled")
    harness.files.faults.append(DiskFault("write", errno=errno.EIO, path="journal/"))
    store.journal.continue_snapshot()
    assert not store.journal.snapshotting
    store.commit()
    assert "cannot be written" in store.unwritten
    store.commit()
    assert store.unwritten == ""


def test_a_stop_in_the_middle_of_a_snapshot_is_clean() -> None:
    harness = Harness()
    store = harness.open()
    store.journal.append(b"\x40kept")
    harness.publish(store.create_log(1, sync=False), [b"a"])
    store.journal.begin_snapshot([[b"\x41piece"], [b"\x41never"]])
    store.journal.continue_snapshot()
    store.close(clean=True)
    harness.crash()
    store = harness.open()
    assert store._clean
    assert harness.replayed[0] == b"\x40kept"
    # Another one begins while the first is under way: that one is given up.
    store.journal.begin_snapshot([[b"\x42one"], [b"\x42two"]])
    store.journal.continue_snapshot()
    store.journal.snapshot([[b"\x43new"]])
    harness.settle()
    harness.crash()
    harness.open()
    assert harness.replayed == [b"\x43new"]


def test_a_snapshot_carries_the_checkpoints_of_partitions_that_nobody_opened() -> None:
    harness = Harness()
    store = harness.open()
    for number in (1, 2):
        harness.publish(store.create_log(number, sync=False), [b"a", b"b"])
    store.close(clean=True)
    harness.crash()
    store = harness.open()
    log = store.open_log(1, sync=False)
    harness.publish(log, [b"c"])
    harness.settle()
    store.journal.snapshot([])
    store.close(clean=True)
    harness.crash()
    store = harness.open()
    assert [store.open_log(number, sync=False).end for number in (1, 2)] == [3, 2]
    assert store._clean


def test_the_next_snapshot_waits_until_four_times_the_last_has_been_written() -> None:
    harness = Harness(journal_growth_bytes_min=10)
    store = harness.open()
    store.journal.snapshot([[b"\x41" + bytes(3000)]])
    harness.settle()
    size = 0
    while not store.journal.wants_snapshot:
        store.journal.append(b"\x40" + bytes(500))
        harness.turn()
        size += 545
    assert 12_000 < size < 14_000
