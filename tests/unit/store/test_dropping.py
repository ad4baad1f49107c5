"""Dropping what is no longer needed: whole segments, only synced ones, and durably."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from polymq.store.recovery import segment_path
from polymq.testing.disk import DiskFault
from tests.unit.store.harness import Harness, bodies, read_all

if TYPE_CHECKING:
    from polymq.store.log import Log


def filled() -> Harness:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    for number in range(300):
        harness.clock.advance(10_000)
        harness.publish(log, bodies(number, 1, 100))
    harness.settle()
    return harness


def test_files_go_once_the_journal_says_so_durably() -> None:
    harness = filled()
    log = harness.store._logs[1]
    size = log.size_bytes
    second = log.chain.segments[1]
    log.retain(250, now_ns=harness.clock.wall_ns(), age_ns=0, size_bytes=1 << 40)
    assert second.base_offset < log.start <= 250
    assert log.size_bytes < size
    assert harness.files.exists(segment_path(1, 0))
    harness.settle()
    names = harness.files.list("partitions/0000001")
    assert min(name for name in names if name.endswith(".seg") and name[0] == "0") == f"{log.start:020d}.seg"
    assert not any(name.startswith(f"{0:020d}") for name in names)
    start = log.start
    for power_loss in (False, True):
        log = harness.restart(power_loss=power_loss)
        assert (log.start, log.end, log.failed) == (start, 300, "")
        assert read_all(harness, log, 0) == bodies(start, 300 - start, 100)


def test_a_crash_before_the_files_are_gone_leaves_nothing_behind() -> None:
    for clean in (False, True):
        harness = filled()
        log = harness.store._logs[1]
        log.retain(250, now_ns=harness.clock.wall_ns(), age_ns=0, size_bytes=0)
        start = log.start
        log._committer._doomed.clear()
        harness.settle()
        assert harness.files.exists(segment_path(1, 0))
        if clean:
            harness.store.close(clean=True)
        log = harness.restart()
        assert log.start == start
        assert read_all(harness, log, 0) == bodies(start, 300 - start, 100)
        log.list_segments()
        harness.store.journal.append(b"\x40")
        harness.settle()
        assert not harness.files.exists(segment_path(1, 0))


def test_segments_of_an_earlier_life_are_looked_at_first() -> None:
    harness = filled()
    harness.store.close(clean=True)
    log = harness.restart()
    harness.publish(log, bodies(300, 1, 100))
    assert log.start == 0
    log.retain(250, now_ns=harness.clock.wall_ns(), age_ns=0, size_bytes=0)
    assert log.start == 0
    harness.store.poll()
    log.retain(250, now_ns=harness.clock.wall_ns(), age_ns=0, size_bytes=0)
    assert 0 < log.start <= 250
    harness.settle()
    assert read_all(harness, log) == bodies(log.start, 301 - log.start, 100)


def test_nothing_unsynced_is_dropped() -> None:
    harness = Harness(sync_interval_ns=10**15)
    log = harness.open().create_log(1, sync=False)
    for number in range(200):
        harness.publish(log, bodies(number, 1, 100))
    log.retain(200, now_ns=10**18, age_ns=0, size_bytes=0)
    assert log.start == 0


def test_a_segment_that_cannot_be_looked_at_fences() -> None:
    harness = filled()
    harness.store.close(clean=True)
    log = harness.restart()
    harness.files.open(segment_path(1, 0)).pwrite(b"\xff", 10)
    log.retain(250, now_ns=harness.clock.wall_ns(), age_ns=0, size_bytes=0)
    harness.store.poll()
    assert "header" in log.failed


def test_a_segment_that_cannot_be_opened_at_the_moment_is_looked_at_later() -> None:
    harness = filled()
    harness.store.close(clean=True)
    log = harness.restart()
    harness.files.faults.append(DiskFault("open", errno=errno.EMFILE, path=segment_path(1, 0)))
    log.retain(250, now_ns=harness.clock.wall_ns(), age_ns=0, size_bytes=0)
    harness.store.poll()
    assert not harness.files.faults
    assert not log.failed
    for _ in range(2):
        log.retain(250, now_ns=harness.clock.wall_ns(), age_ns=0, size_bytes=0)
        harness.store.poll()
    assert log.start > 0


def test_a_sync_that_began_before_does_not_bring_the_old_start_back() -> None:
    harness = filled()
    log = harness.store._logs[1]
    harness.publish(log, bodies(300, 1, 100))
    captured = log.capture()[2]
    log.retain(250, now_ns=harness.clock.wall_ns(), age_ns=0, size_bytes=0)
    start = log.start
    assert captured.start == 0 < start
    assert log.synced(captured)
    assert log.synced_point is not None
    assert log.synced_point.start == start
    assert log.synced_point.end == 301
    assert log.synced_point.sealed_size_bytes == log.sealed_size_bytes


def two_partitions(**settings: Any) -> Harness:
    """Two partitions that are written by turns, synced, and needed by nobody."""
    harness = Harness(segment_size_bytes_max=4096, **settings)
    store = harness.open()
    logs = [store.create_log(number, sync=False) for number in (1, 2)]
    for number in range(300):
        for log in logs:
            harness.clock.advance(10_000)
            harness.publish(log, bodies(number, 1, 100))
    harness.settle()
    return harness


def retained(harness: Harness, *needed: int) -> list[Log]:
    """Tell both partitions what is needed of them."""
    logs = [harness.store._logs[number] for number in (1, 2)]
    for log, first_needed in zip(logs, needed, strict=True):
        log.retain(first_needed, now_ns=harness.clock.wall_ns(), age_ns=1 << 62, size_bytes=1 << 62)
    return logs


def finished_size_bytes(harness: Harness) -> int:
    return sum(size_bytes for part in harness.store._finished.parts.values() for _, size_bytes in part)


def test_what_nobody_needs_has_one_budget_for_all_partitions_and_the_oldest_goes_first() -> None:
    harness = two_partitions()
    one, two = retained(harness, 300, 300)
    all_of_it = finished_size_bytes(harness)
    budget = all_of_it // 2
    assert all_of_it > 8 * 4096
    harness.store.look_after_room(all_of_it)
    retained(harness, 300, 300)
    assert one.start == two.start == 0
    harness.store.look_after_room(budget)
    retained(harness, 300, 300)
    assert budget - 2 * 4096 < finished_size_bytes(harness) <= budget
    # They were written by turns, so they are equally old.
    assert 0 < one.start
    assert abs(one.start - two.start) < 40
    starts = one.start, two.start
    harness.store.look_after_room(budget)
    retained(harness, 300, 300)
    assert (one.start, two.start) == starts


def test_what_somebody_has_gone_back_to_does_not_go_for_the_budget() -> None:
    harness = two_partitions()
    retained(harness, 300, 300)
    harness.store.look_after_room(0)
    one, two = retained(harness, 0, 50)
    assert one.start == 0
    assert two.start <= 50
    harness.store.delete_log(2)
    harness.store.look_after_room(0)
    assert finished_size_bytes(harness) == 0


def test_what_nobody_needs_goes_before_publishers_are_refused() -> None:
    mark = 30_000
    harness = two_partitions(free_bytes_min=mark)
    files = harness.files
    retained(harness, 300, 300)
    files.capacity_bytes = files.used_bytes + mark + mark // 8
    size_bytes = finished_size_bytes(harness)
    for _ in range(3):
        harness.store.look_after_room(1 << 62)
        assert not harness.store.health()
        retained(harness, 300, 300)
        harness.settle()
    # So much as is lacking, and no more.
    assert files.free_bytes() >= mark * 1.25
    assert size_bytes - finished_size_bytes(harness) <= mark // 8 + 3 * 4096
    files.capacity_bytes = files.used_bytes
    harness.store.look_after_room(1 << 62)
    assert harness.store.health()
    retained(harness, 300, 300)
    harness.settle()
    harness.store.look_after_room(1 << 62)
    assert not harness.store.health()


def test_nothing_more_goes_while_files_are_being_removed() -> None:
    harness = two_partitions(free_bytes_min=30_000)
    retained(harness, 300, 300)
    harness.files.capacity_bytes = harness.files.used_bytes + 30_000
    harness.store.look_after_room(1 << 62)
    one, two = retained(harness, 300, 300)
    starts = one.start, two.start
    assert starts != (0, 0)
    harness.store.look_after_room(1 << 62)
    retained(harness, 300, 300)
    assert (one.start, two.start) == starts
