"""Whole batches for the log's door, and questions about time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from polymq.errors import StoreFailed
from polymq.store.retention import index_path
from polymq.testing.disk import FakeFile
from polymq.wire.records import parse_header
from polymq.wire.slices import MessageBatch
from tests.unit.store.harness import Harness, bodies

if TYPE_CHECKING:
    from polymq.store.log import Log


def filled(**settings: Any) -> Harness:
    harness = Harness(**settings)
    log = harness.open().create_log(1, sync=False)
    for number in range(80):
        log.append(MessageBatch.of(bodies(2 * number, 2, 80)), now_ns=1000 + 10 * number, origin=1)
        harness.turn()
    return harness


def offsets(view: memoryview) -> list[int]:
    at, found = 0, []
    while at < len(view):
        header = parse_header(view, at)
        found.append(header.base_offset)
        at += header.size
    assert at == len(view)
    return found


@pytest.mark.parametrize("hot_size_bytes", [0, 1 << 30])
def test_batches_are_whole_from_the_one_that_holds_the_offset(hot_size_bytes: int) -> None:
    harness = filled(hot_size_bytes=hot_size_bytes)
    log = harness.store._logs[1]
    for offset in range(160):
        view = log.batches(offset, 1000)
        assert view is not None
        found = offsets(view)
        assert found[0] == offset // 2 * 2
        assert len(view) <= 1000
        segment = log.segment_of(offset)
        assert segment is not None
        assert len(found) == 3 or found[-1] + 2 == segment.end_offset
        small = log.batches(offset, 1)
        assert small is not None
        assert len(offsets(small)) == 1
    assert log.batches(160, 1000) == b""
    large = log.batches(0, 1 << 20)
    assert large is not None
    assert offsets(large)[-1] + 2 == log.chain.segments[0].end_offset


def test_batches_on_the_disk_come_after_a_poll() -> None:
    harness = filled(hot_size_bytes=0)
    log = harness.store._logs[1]
    harness.files.evict()
    assert log.batches(7, 1000) is None
    assert harness.store.poll()
    view = log.batches(7, 1000)
    assert view is not None
    assert offsets(view)[0] == 6
    harness.files.evict()
    for offset in range(20, 60, 2):
        log.batches(offset, 500)
    assert len(log._requests) <= 8


def test_batches_that_are_not_readable_are_not_shown() -> None:
    harness = Harness()
    harness.worker_delay_ns_max = 10**9
    log = harness.open().create_log(1, sync=True)
    log.append(MessageBatch.of(bodies(0, 2)), now_ns=1, origin=1)
    harness.store.commit()
    while log.readable == 0:
        harness.poll()
    log.append(MessageBatch.of(bodies(2, 2)), now_ns=1, origin=1)
    harness.store.commit()
    view = log.batches(0, 1 << 20)
    assert view is not None
    assert offsets(view) == [0]


def test_damage_ends_the_batches() -> None:
    harness = filled(hot_size_bytes=0)
    log = harness.store._logs[1]
    harness.files.open(log.chain.segments[0].path).pwrite(b"\xff", 64 + 100)
    assert log.batches(0, 1000) == b""
    assert "checksum" in log.failed


@pytest.mark.parametrize("restarted", [False, True])
def test_the_first_offset_at_a_time(restarted: bool) -> None:
    harness = filled()
    log = harness.store._logs[1]
    if restarted:
        harness.store.close(clean=True)
        log = harness.restart()
    assert offset_at(harness, log, 0) == 0
    assert offset_at(harness, log, 1000) == 0
    for number in range(80):
        assert offset_at(harness, log, 1000 + 10 * number) == 2 * number, number
        assert offset_at(harness, log, 1000 + 10 * number - 3) == 2 * number, number
    assert offset_at(harness, log, 1791) == 160
    assert not log._searches


def offset_at(harness: Harness, log: Log, time_ns: int) -> int:
    """Ask until there is an answer."""
    for _ in range(50):
        offset = log.offset_at(time_ns)
        if offset is not None:
            return offset
        harness.poll()
    raise AssertionError(time_ns)


def test_a_time_in_memory_is_answered_at_once() -> None:
    log = filled().store._logs[1]
    assert [log.offset_at(1000 + 10 * number) for number in range(80)] == [2 * number for number in range(80)]


@pytest.mark.parametrize("has_index", [False, True])
def test_times_on_the_disk_are_looked_up_by_the_worker(has_index: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = filled()
    paths = [segment.path for segment in harness.store._logs[1].chain.segments]
    harness.store.close(clean=True)
    for path in paths[:-1]:
        assert harness.files.exists(index_path(path))
        if not has_index:
            harness.files.remove(index_path(path))
    harness.worker_delay_ns_max = 1000
    log = harness.restart()
    is_asking = False
    pread = FakeFile.pread

    def watched(file: FakeFile, size: int, position: int) -> bytes:
        assert not is_asking, "the loop reads the disk"
        return pread(file, size, position)

    monkeypatch.setattr(FakeFile, "pread", watched)
    waits = 0
    for number in (40, 0, 79, 7, 55, 30):
        harness.files.evict()
        offset = None
        while offset is None:
            is_asking = True
            offset = log.offset_at(1000 + 10 * number)
            is_asking = False
            waits += offset is None
            harness.poll()
        assert offset == 2 * number
    assert waits > 6


def test_questions_about_time_that_nobody_comes_back_for_are_forgotten() -> None:
    harness = filled()
    harness.store.close(clean=True)
    harness.worker_delay_ns_max = 1000
    log = harness.restart()
    for time_ns in range(1001, 1021):
        assert log.offset_at(time_ns) is None
    assert len(log._searches) == 8
    assert [offset_at(harness, log, time_ns) for time_ns in range(1001, 1021)] == [2] * 10 + [4] * 10


def test_times_of_a_damaged_segment_are_an_error() -> None:
    harness = filled()
    harness.store.close(clean=True)
    log = harness.restart()
    harness.files.open(log.chain.segments[0].path).pwrite(b"\xff", 64 + 100)
    log.list_segments()
    harness.files.open(log.chain.segments[0].path).pwrite(b"\xff", 64 + 100)
    for _ in range(2):
        with pytest.raises(StoreFailed, match="checksum"):
            offset_at(harness, log, 1010)


def test_a_segment_header_that_is_damaged_is_an_error() -> None:
    harness = filled()
    harness.store.close(clean=True)
    log = harness.restart()
    log.list_segments()
    for segment in log.chain.segments:
        harness.files.open(segment.path).pwrite(b"\xff", 20)
    with pytest.raises(StoreFailed, match="header"):
        offset_at(harness, log, 1010)


def test_a_segment_that_was_dropped_is_not_asked_any_more() -> None:
    harness = filled()
    harness.store.close(clean=True)
    harness.worker_delay_ns_max = 1000
    log = harness.restart()
    harness.files.evict()
    assert log.offset_at(1010) is None
    first = log.chain.segments.pop(0)
    harness.files.remove(first.path)
    log.start = log.chain.segments[0].base_offset
    assert offset_at(harness, log, 1010) == log.start


def test_an_empty_partition_has_nothing_at_any_time() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    assert log.offset_at(5) == 0
    assert log.batches(0, 100) == b""
