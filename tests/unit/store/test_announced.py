"""What is written behind a checkpoint is announced in the journal: after a kill a start opens those partitions and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from polymq.errors import StoreFailed
from polymq.store import inspect
from polymq.store.entries import KIND_START, KIND_START_SILENT
from polymq.testing.disk import DiskFault, SimulatedKill
from polymq.wire.slices import MessageBatch
from tests.unit.store.harness import Harness, bodies, read_all

if TYPE_CHECKING:
    from polymq.store.log import Log


def opened(harness: Harness, *numbers: int) -> tuple[list[Log], set[str]]:
    """Open partitions in a new life; give them and the folders of partitions that were touched."""
    harness.crash()
    touched: set[str] = set()
    harness.files.watch(lambda _kind, path: touched.add(path.split("/")[1]) if path.startswith("partitions/") else None)
    store = harness.open()
    return [store.open_log(number, sync=False) for number in numbers], touched


def test_only_what_was_written_behind_its_checkpoint_is_looked_at() -> None:
    harness = Harness()
    store = harness.open()
    logs = [store.create_log(number, sync=False) for number in range(4)]
    for log in logs[:3]:
        harness.publish(log, bodies(0, 3))
    harness.settle()
    harness.publish(logs[1], bodies(3, 2))
    found, touched = opened(harness, 0, 1, 2, 3)
    assert touched == {"0000001"}
    assert [log.end for log in found] == [3, 5, 3, 0]
    assert [read_all(harness, log) for log in found] == [bodies(0, 3), bodies(0, 5), bodies(0, 3), []]
    # It was written again and synced: the next start need not look any more.
    harness.settle()
    found, touched = opened(harness, 0, 1, 2, 3)
    assert touched == set()
    # Another boot says nothing about what reached the disk.
    harness.boot += 1
    found, touched = opened(harness, 0, 1, 2)
    assert touched == {"0000000", "0000001", "0000002"}


def test_what_is_written_while_a_sync_runs_is_behind_its_checkpoint() -> None:
    harness = Harness()
    harness.worker_delay_ns_max = 3000
    store = harness.open()
    log = store.create_log(1, sync=False)
    for number in range(200):
        log.append(MessageBatch.of(bodies(number, 1)), now_ns=1, origin=1)
        harness.turn()
    count = log.end
    harness.crash()
    log = harness.open().open_log(1, sync=False)
    assert read_all(harness, log) == bodies(0, count)


@pytest.mark.parametrize("synced", [False, True])
def test_a_snapshot_says_it_too(synced: bool) -> None:
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=False)
    harness.publish(log, bodies(0, 2))
    if synced:
        harness.settle()
        harness.publish(log, bodies(2, 2))
    store.journal.snapshot([])
    entries = [row.text for row in inspect.entries(harness.files)]
    assert any("written behind the checkpoint: partition 1" in text for text in entries)
    (log,), touched = opened(harness, 1)
    assert touched == {"0000001"}
    assert read_all(harness, log) == bodies(0, 4 if synced else 2)
    harness.store.journal.snapshot([])
    harness.crash()
    # Nobody opened it in this life; a later one does.
    harness.open().journal.snapshot([])
    (log,), touched = opened(harness, 1)
    assert read_all(harness, log) == bodies(0, 4 if synced else 2)


def test_a_segment_that_was_begun_and_never_written_to_does_not_end_the_log_later() -> None:
    found = 0
    for at in range(40):
        harness = Harness()
        log = harness.open().create_log(1, sync=False)
        while log.chain.active is None or log.chain.active.size_bytes - log.chain.active.used > 300:
            harness.publish(log, bodies(log.end, 1, 100))
        harness.settle()
        count = log.end
        harness.files.kill_at = harness.files.operations + at
        try:
            harness.publish(log, bodies(count, 1, 400))
            break
        except SimulatedKill:
            pass
        (log,), _touched = opened(harness, 1)
        count = log.end
        names = harness.files.list("partitions/0000001")
        found += sum(name.endswith(".seg") for name in names) > len(log.chain.segments)
        # What fits into the segment that there was, then a new one.
        for number in range(count, count + 10):
            harness.publish(log, bodies(number, 1, 60))
        harness.settle()
        for power_loss in (False, True):
            log = harness.restart(power_loss=power_loss)
            assert read_all(harness, log)[-10:] == bodies(count, 10, 60)
            assert log.end == count + 10
    else:
        pytest.fail("never got to the end")
    assert found


@pytest.mark.parametrize("before", [0, 3])
@pytest.mark.parametrize("batches", [1, 4, 11])
@pytest.mark.parametrize("between", ["kill", "clean stop", "power loss"])
@pytest.mark.parametrize("checkpoints", [False, True])
def test_a_turn_that_began_several_segments_and_was_killed_does_not_end_the_log_later(
    before: int, batches: int, between: str, checkpoints: bool
) -> None:
    settings: dict[str, Any] = {} if checkpoints else {"sync_interval_ns": 10**15}
    harness = Harness(**settings)
    log = harness.open().create_log(1, sync=False)
    if before:
        harness.publish(log, bodies(0, before))
        harness.store.close(clean=True)
        log = harness.restart()
    for _ in range(batches):
        log.append(MessageBatch.of(bodies(log.end, 6, 200)), now_ns=harness.clock.wall_ns(), origin=1)
    # Before the commit: no announcement, and segments that hold nothing.
    begun = [name for name in harness.files.list("partitions/0000001") if name.endswith(".seg")]
    assert len(begun) > batches // 4
    log = harness.restart()
    assert log.end == before
    if between != "kill":
        # A life in which nobody appends leaves them as they are.
        harness.store.close(clean=between == "clean stop")
        log = harness.restart(power_loss=between == "power loss")
    for number in range(before, before + 150):
        harness.publish(log, bodies(number, 1, 150))
    for _ in range(2):
        log = harness.restart()
        assert read_all(harness, log) == bodies(0, before) + bodies(before, 150, 150)
        assert log.end == before + 150
        assert not harness.store.health()


def test_what_was_begun_is_removed_durably_before_the_append() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    for _ in range(11):
        log.append(MessageBatch.of(bodies(log.end, 6, 200)), now_ns=1, origin=1)
    log = harness.restart()
    seen: list[str] = []
    harness.files.watch(lambda kind, path: seen.append(kind) if path.startswith("partitions/") else None)
    log.append(MessageBatch.of(bodies(0, 1)), now_ns=1, origin=1)
    assert seen.index("sync_folder") < seen.index("create")
    assert "remove" not in seen[seen.index("sync_folder") :]


def test_an_append_is_refused_where_what_was_begun_cannot_be_removed() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    log.append(MessageBatch.of(bodies(0, 1)), now_ns=1, origin=1)
    log = harness.restart()
    harness.files.faults.append(DiskFault("remove", path="partitions/"))
    with pytest.raises(StoreFailed, match="partitions/0000001"):
        log.append(MessageBatch.of(bodies(0, 1)), now_ns=1, origin=1)
    assert log.end == 0
    harness.publish(log, bodies(0, 1))
    assert read_all(harness, harness.restart()) == bodies(0, 1)


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("kills", [0, 1, 2])
def test_a_kill_early_in_the_first_start_after_a_power_loss_hides_nothing(kills: int, snapshot: bool) -> None:
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=False)
    harness.publish(log, bodies(0, 3))
    harness.settle()
    segment = store.journal.chain.segments[-1]
    synced = segment.used
    log.append(MessageBatch.of(bodies(3, 2)), now_ns=harness.clock.wall_ns(), origin=1)
    store.commit()
    harness.crash()
    # The disk has kept the records and lost their announcement.
    assert segment.used > synced
    harness.files.open(segment.path).pwrite(bytes(segment.used - synced), synced)
    harness.boot += 1
    for _ in range(kills):
        store = harness.open()
        if snapshot:
            store.journal.snapshot([])
        harness.crash()
    log = harness.open().open_log(1, sync=False)
    assert read_all(harness, log) == bodies(0, 5)
    harness.store.close(clean=True)
    _logs, touched = opened(harness, 1)
    assert touched == set()


@pytest.mark.parametrize("kills", [0, 1])
def test_what_a_power_loss_left_behind_a_hole_is_cut_though_the_first_start_was_killed(kills: int) -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    harness.publish(log, bodies(0, 3))
    harness.settle()
    segment = log.chain.segments[-1]
    synced = segment.used
    log.append(MessageBatch.of(bodies(3, 1)), now_ns=harness.clock.wall_ns(), origin=1)
    harness.store.commit()
    hole = segment.used
    log.append(MessageBatch.of(bodies(4, 1)), now_ns=harness.clock.wall_ns(), origin=1)
    harness.store.commit()
    assert synced < hole < segment.used
    harness.crash()
    harness.files.open(segment.path).pwrite(bytes(hole - synced), synced)
    harness.boot += 1
    for _ in range(kills):
        harness.open()
        harness.crash()
    log = harness.open().open_log(1, sync=False)
    assert log.end == 3
    assert not any(harness.files.open(segment.path).pread(segment.size_bytes, synced))


def test_the_start_of_a_life_that_announced_nothing_makes_every_partition_suspicious() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    harness.publish(log, bodies(0, 2))
    harness.settle()
    # As format 1 wrote it.
    entry = bytes([KIND_START_SILENT]) + harness.store.journal.epoch.to_bytes(4, "little") + b"boot-1"
    assert KIND_START != KIND_START_SILENT
    harness.store.journal.append(entry)
    harness.turn()
    for _ in range(2):
        _logs, touched = opened(harness, 1)
        assert touched == {"0000001"}
    harness.store.close(clean=True)
    harness.crash()
    harness.open()
    _logs, touched = opened(harness, 1)
    assert touched == set()
