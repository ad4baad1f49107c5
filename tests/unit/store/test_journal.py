"""The journal: one frame per turn, snapshots, and what asks for them."""

from __future__ import annotations

from polymq.store import inspect
from polymq.store.ticket import TicketState
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
    store.journal.append(b"\x40")
    harness.settle()
    assert synced.state is TicketState.DONE


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
    store.journal.snapshot(iter([b"\x41one", b"\x41two"]))
    assert not store.journal.wants_snapshot
    store.journal.append(b"\x40after")
    assert all(harness.files.exists(path) for path in old)
    harness.settle()
    assert not any(harness.files.exists(path) for path in old)
    harness.crash(power_loss=True)
    harness.open()
    assert harness.replayed == [b"\x41one", b"\x41two", b"\x40after"]


def test_a_large_snapshot_is_cut_into_frames_and_is_all_or_nothing() -> None:
    harness = Harness()
    store = harness.open()
    store.journal.append(b"\x40first")
    harness.settle()
    store.journal.snapshot(b"\x41" + bytes([number]) * 300_000 for number in range(10))
    rows = [row for row in inspect.frames(harness.files) if row.size_bytes > 200_000]
    assert 2 < len(rows) < 10
    last = rows[-1]
    copy = harness.files.open(last.path).pread(1 << 24, 0)
    harness.crash()
    harness.open()
    assert len(harness.replayed) == 10
    harness.crash()
    assert harness.files.exists(last.path)
    harness.files.open(last.path).pwrite(copy[: last.position] + bytes(len(copy) - last.position), 0)


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
    store.journal.snapshot(iter([]))
    store.close(clean=True)
    harness.crash()
    store = harness.open()
    assert [store.open_log(number, sync=False).end for number in (1, 2)] == [3, 2]
    assert store._clean


def test_the_next_snapshot_waits_until_four_times_the_last_has_been_written() -> None:
    harness = Harness(journal_growth_bytes_min=10)
    store = harness.open()
    store.journal.snapshot(iter([b"\x41" + bytes(3000)]))
    harness.settle()
    size = 0
    while not store.journal.wants_snapshot:
        store.journal.append(b"\x40" + bytes(500))
        harness.turn()
        size += 545
    assert 12_000 < size < 14_000
