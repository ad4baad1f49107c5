"""Reading the journal back when something is missing at its end."""

from __future__ import annotations

import pytest

from polymq.errors import CorruptRecord
from polymq.store.journal_recovery import journal_segments, recover_journal
from polymq.testing.disk import FakeFiles, SimulatedKill
from tests.unit.store.harness import Harness, bodies


def test_no_journal_is_an_empty_one() -> None:
    recovered = recover_journal(FakeFiles())
    assert (recovered.scans, recovered.next_sequence, list(recovered.entries())) == ([], 1, [])


def snapshot_killed_at(operation: int) -> Harness:
    """A snapshot in the middle of which the process is killed."""
    harness = Harness()
    store = harness.open()
    store.journal.append(b"\x40one")
    harness.settle()
    harness.files.kill_at = harness.files.operations + operation
    try:
        store.journal.snapshot([b"\x41" + bytes([number]) * 400_000] for number in range(8))
        harness.settle()
    except SimulatedKill:
        pass
    harness.crash()
    return harness


def test_only_a_complete_snapshot_replaces_what_was_before_it() -> None:
    outcomes = set()
    pieces = [b"\x41" + bytes([number]) * 400_000 for number in range(8)]
    for operation in range(60):
        harness = snapshot_killed_at(operation)
        harness.open()
        found = harness.replayed
        complete = found == pieces
        assert complete or (found[0] == b"\x40one" and found[1:] == pieces[: len(found) - 1])
        outcomes.add("complete" if complete else len(found) - 1)
        harness.store.journal.append(b"\x42more")
        harness.settle()
        harness.crash()
        harness.open()
        assert harness.replayed == [*found, b"\x42more"]
    assert outcomes >= {0, 1, 7, "complete"}


def test_what_a_snapshot_has_replaced_may_be_left_over() -> None:
    harness = Harness()
    store = harness.open()
    store.journal.append(b"\x40one")
    harness.settle()
    first = store.journal.chain.segments[0].path
    data = harness.files.open(first).pread(1 << 20, 0)
    store.journal.snapshot([[b"\x41"]])
    harness.settle()
    assert not harness.files.exists(first)
    harness.crash()
    harness.files.open(first, create=True).pwrite(data, 0)
    harness.files.open("journal/next.jnl", create=True).close()
    harness.open()
    assert harness.replayed == [b"\x41"]
    assert not harness.files.exists(first)
    assert not harness.files.exists("journal/next.jnl")


def test_a_damaged_snapshot_whose_journal_is_gone_is_refused() -> None:
    harness = Harness()
    store = harness.open()
    store.journal.append(b"\x40one")
    harness.settle()
    store.journal.snapshot([[b"\x41"]])
    harness.settle()
    path = store.journal.chain.segments[-1].path
    harness.crash()
    for at in (10, 70):
        file = harness.files.open(path)
        before = file.pread(1, at)
        file.pwrite(b"\xee", at)
        with pytest.raises(CorruptRecord, match="Restore"):
            recover_journal(harness.files)
        assert journal_segments(harness.files), "nothing is removed when the folder is refused"
        file.pwrite(before, at)
    assert [bytes(entry) for entry in recover_journal(harness.files).entries()].count(b"\x41") == 1


@pytest.mark.parametrize("at", [0, 5, 20, 63, 64, 70, 100, None])
def test_a_journal_without_its_first_frame_is_damage_if_there_are_partitions(at: int | None) -> None:
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=False)
    harness.publish(log, bodies(0, 5))
    store.journal.append(b"\x40topic")
    harness.settle()
    (segment,) = store.journal.chain.segments
    harness.crash()
    if at is None:
        harness.files.remove(segment.path)
    else:
        file = harness.files.open(segment.path)
        file.pwrite(bytes([file.pread(1, at)[0] ^ 1]), at)
    names = harness.files.list("partitions/0000001")
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="Restore the data folder from a copy, or move it away"):
            harness.open()
    assert sorted(harness.files.list("partitions/0000001")) == sorted(names)


def test_a_first_start_that_never_got_to_its_first_frame_is_no_damage() -> None:
    reached = 0
    for power_loss in (False, True):
        for operation in range(40):
            harness = Harness(operation)
            harness.files.kill_at = operation
            try:
                harness.open()
                break
            except SimulatedKill:
                reached += 1
            harness.crash(power_loss=power_loss)
            harness.publish(harness.open().create_log(1, sync=False), bodies(0, 3))
            assert harness.restart().end == 3
    assert reached > 8


def test_what_a_snapshot_replaces_goes_once_the_snapshot_is_synced() -> None:
    reached = set()
    for seed in range(12):
        for operation in range(20):
            harness = Harness(seed)
            store = harness.open()
            store.journal.append(b"\x40one")
            harness.settle()
            # Complete in the page cache, and no sync: the process is killed, and the next one while it starts.
            store.journal.snapshot([[b"\x40one"]])
            store.commit()
            harness.crash()
            harness.files.kill_at = harness.files.operations + operation
            try:
                harness.open()
                break
            except SimulatedKill:
                reached.add(operation)
            harness.crash(power_loss=True)
            harness.open()
            # Twice where the end of the snapshot is lost: its pieces say again what was said before.
            assert set(harness.replayed) == {b"\x40one"}
    assert len(reached) > 5
