"""Whole batches for the log's door, and questions about time."""

from __future__ import annotations

from typing import Any

import pytest

from polymq.errors import CorruptRecord
from polymq.wire.records import parse_header
from polymq.wire.slices import MessageBatch
from tests.unit.store.harness import Harness, bodies


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
    assert log.offset_at(0) == 0
    assert log.offset_at(1000) == 0
    for number in range(80):
        assert log.offset_at(1000 + 10 * number) == 2 * number, number
        assert log.offset_at(1000 + 10 * number - 3) == 2 * number, number
    assert log.offset_at(1791) == 160


def test_times_of_a_damaged_segment_are_an_error() -> None:
    harness = filled()
    harness.store.close(clean=True)
    log = harness.restart()
    harness.files.open(log.chain.segments[0].path).pwrite(b"\xff", 64 + 100)
    log.list_segments()
    harness.files.open(log.chain.segments[0].path).pwrite(b"\xff", 64 + 100)
    with pytest.raises(CorruptRecord):
        log.offset_at(1010)


def test_an_empty_partition_has_nothing_at_any_time() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    assert log.offset_at(5) == 0
    assert log.batches(0, 100) == b""
