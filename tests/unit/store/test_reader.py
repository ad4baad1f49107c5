"""Readers: hot and cold, from anywhere, in any portions; how they wait and how they move on."""

from __future__ import annotations

from typing import Any

import pytest

from polymq.wire.batch import read_messages
from polymq.wire.slices import MessageBatch
from tests.unit.store.harness import Harness, bodies, drain, read_all


def filled(count: int = 200, **settings: Any) -> Harness:
    harness = Harness(**settings)
    store = harness.open()
    log = store.create_log(1, sync=False)
    for first in range(0, count, 4):
        harness.publish(log, bodies(first, 4, 60))
    return harness


@pytest.mark.parametrize("hot_size_bytes", [0, 3000, 1 << 30])
@pytest.mark.parametrize("evicted", [False, True])
def test_every_offset_is_found_hot_or_cold(hot_size_bytes: int, evicted: bool) -> None:
    harness = filled(hot_size_bytes=hot_size_bytes)
    log = harness.store._logs[1]
    reader = log.reader(0)
    for offset in (0, 1, 3, 4, 57, 199, 198, 100, 2):
        if evicted:
            harness.files.evict()
        reader.seek(offset)
        assert drain(harness, reader) == bodies(offset, 200 - offset, 60)
    assert not log.failed


def test_portions_are_limited_by_count_and_by_size_but_not_below_one() -> None:
    harness = filled()
    reader = harness.store._logs[1].reader(0)
    piece = reader.take(3, 1 << 20)
    assert piece is not None
    assert (piece.offset, piece.count, piece.partition, reader.offset) == (0, 3, 1, 3)
    piece = reader.take(100, 1)
    assert piece is not None
    assert (piece.offset, piece.count) == (3, 1)
    piece = reader.take(100, 1000)
    assert piece is not None
    assert piece.end - piece.position <= 1000
    assert piece.count > 5


def test_hot_records_are_shown_where_they_lie() -> None:
    harness = filled(8)
    reader = harness.store._logs[1].reader(0)
    piece = reader.take(1000, 1 << 20)
    assert piece is not None
    assert piece.view is harness.store._logs[1].chain.segments[0].view


@pytest.mark.parametrize("hot_size_bytes", [0, 3000, 1 << 30])
@pytest.mark.parametrize("evicted", [False, True])
def test_batches_of_an_origin_are_skipped_up_to_the_next_other_one(hot_size_bytes: int, evicted: bool) -> None:
    harness = Harness(hot_size_bytes=hot_size_bytes)
    log = harness.open().create_log(1, sync=False)
    for first in range(0, 200, 4):
        log.append(MessageBatch.of(bodies(first, 4, 60)), now_ns=1, origin=7 if first % 100 < 80 else 8)
        harness.turn()
    reader = log.reader(0)
    if evicted:
        harness.files.evict()
    shown: list[bytes] = []
    skipped = 0
    while reader.offset < log.readable:
        while count := reader.skip_origin(7):
            skipped += count
        piece = reader.take(4, 1 << 20)
        harness.turn()
        if piece is not None:
            messages = read_messages(piece.view, piece.position, piece.batch_left, piece.base_time_ns, piece.count, piece.end)
            shown += [message.body for message in messages]
    assert shown == bodies(80, 20, 60) + bodies(180, 20, 60)
    assert skipped == 160
    assert reader.skip_origin(7) == 0
    log.append(MessageBatch.of([b"staged"]), now_ns=1, origin=7)
    assert reader.skip_origin(7) == 0
    harness.turn()
    assert reader.skip_origin(7) == 1
    assert not log.failed


def test_a_reader_at_the_end_does_not_wait_and_goes_on_later() -> None:
    harness = filled(8)
    log = harness.store._logs[1]
    reader = log.reader(8)
    assert reader.take(10, 1000) is None
    assert not reader.waiting
    log.append(MessageBatch.of([b"staged"]), now_ns=1, origin=1)
    assert reader.take(10, 1000) is None
    harness.turn()
    assert drain(harness, reader) == [b"staged"]


def test_a_cold_reader_waits_for_the_worker_once() -> None:
    harness = filled(hot_size_bytes=0)
    harness.files.evict()
    log = harness.store._logs[1]
    reads: list[str] = []
    harness.files.watch(lambda kind, path: reads.append(path) if kind == "read" else None)
    reader = log.reader(0)
    assert reader.take(10, 1000) is None
    assert reader.waiting
    assert reader.take(10, 1000) is None
    assert reader.waiting
    assert harness.store.poll()
    piece = reader.take(10, 100_000)
    assert piece is not None
    assert not reader.waiting
    before = len(reads)
    while reader.offset < log.chain.segments[0].end_offset and reader.take(1, 1 << 20):
        pass
    assert len(reads) == before, "what was read ahead is read again"


def test_windows_are_counted_as_long_as_they_live() -> None:
    harness = filled(hot_size_bytes=0)
    log = harness.store._logs[1]
    volume = harness.store._volume
    reader = log.reader(0)
    assert reader.take(10, 1000) is not None
    assert volume.windows_size_bytes > 0
    reader.seek(99)
    assert volume.windows_size_bytes == 0
    assert drain(harness, reader)
    assert volume.windows_size_bytes == 0


@pytest.mark.parametrize("offset", range(8))
def test_going_back_in_the_window_at_hand_reads_nothing(offset: int) -> None:
    harness = filled(hot_size_bytes=0)
    reader = harness.store._logs[1].reader(0)
    assert reader.take(10, 1000) is not None
    harness.files.evict()
    reader.seek(offset)
    piece = reader.take(1, 1000)
    assert piece is not None
    (message,) = read_messages(piece.view, piece.position, piece.batch_left, piece.base_time_ns, piece.count, piece.end)
    assert (piece.offset, message.body) == (offset, bodies(offset, 1, 60)[0])


def test_little_is_read_ahead_when_windows_take_too_much() -> None:
    harness = filled(hot_size_bytes=0, windows_size_bytes_max=1)
    log = harness.store._logs[1]
    first = log.reader(0)
    assert first.take(1, 1000) is not None
    harness.files.evict()
    second = log.reader(0)
    assert second.take(1, 1000) is None
    harness.store.poll()
    assert second.take(1, 1000) is not None
    assert second._window is not None
    assert len(second._window.view) <= 1024


def test_a_copy_counts_with_all_that_was_read() -> None:
    harness = filled(hot_size_bytes=0)
    log = harness.store._logs[1]
    reader = log.reader(0)
    assert reader.copy_size_bytes == 0
    harness.files.evict()
    assert reader.take(1, 1000) is None
    assert reader.copy_size_bytes >= log._volume.settings.read_ahead_size_bytes
    harness.store.poll()
    assert reader.take(1, 1000) is not None
    assert reader._window is not None
    assert reader.copy_size_bytes == len(reader._window.view.obj) == log._volume.windows_size_bytes  # type: ignore[arg-type]
    reader.seek(-1)
    assert reader.copy_size_bytes == log._volume.windows_size_bytes == 0


def test_a_reader_that_fell_behind_goes_on_at_the_start() -> None:
    harness = filled(400)
    harness.settle()
    log = harness.store._logs[1]
    behind = log.reader(0)
    inside = log.reader(0)
    assert inside.take(5, 1 << 20) is not None
    log.retain(300, now_ns=harness.clock.wall_ns(), age_ns=0, size_bytes=0)
    harness.settle()
    assert log.start > 20
    for reader in (behind, inside):
        assert drain(harness, reader) == bodies(log.start, 400 - log.start, 60)


def test_reading_does_not_depend_on_open_files() -> None:
    harness = filled(open_segments_max=1)
    store = harness.store
    logs = [store._logs[1], store.create_log(2, sync=False)]
    harness.publish(logs[1], bodies(0, 5))
    readers = [log.reader(0) for log in logs]
    for reader in readers * 2:
        reader.take(1, 1000)
    assert drain(harness, readers[0]) == bodies(2, 198, 60)
    assert drain(harness, readers[1]) == bodies(2, 3)


def test_after_a_restart_everything_is_checked_when_it_is_read_and_new_records_are_hot() -> None:
    harness = filled(12)
    harness.store.close(clean=True)
    log = harness.restart()
    reader = log.reader(0)
    harness.publish(log, bodies(12, 2, 60))
    assert drain(harness, reader) == bodies(0, 14, 60)
    harness.publish(log, bodies(14, 2, 60))
    piece = reader.take(10, 10_000)
    assert piece is not None
    assert piece.view is log.chain.segments[-1].view
    assert read_all(harness, log, 3) == bodies(3, 13, 60)


def test_damage_is_looked_at_once_per_reader() -> None:
    harness = filled(hot_size_bytes=0)
    log = harness.store._logs[1]
    harness.files.open(log.chain.segments[0].path).pwrite(b"\xff", 64 + 100)
    reader = log.reader(0)
    assert reader.take(1, 1000) is None
    assert not reader.waiting
    assert "checksum" in log.failed
    harness.files.evict()
    operations = harness.files.operations
    assert reader.take(1, 1000) is None
    assert harness.files.operations == operations
    reader.seek(100)
    assert drain(harness, reader) == bodies(100, 100, 60)


def test_who_waits_for_the_disk_is_seen_without_asking_and_copies_are_let_go() -> None:
    harness = filled(hot_size_bytes=0)
    harness.files.evict()
    log = harness.store._logs[1]
    reader = log.reader(0)
    assert not reader.is_stalled
    assert not reader.keeps_copy
    assert reader.take(1, 1000) is None
    assert reader.is_stalled
    assert reader.keeps_copy
    harness.poll()
    assert reader.waiting
    assert not reader.is_stalled
    assert reader.take(1, 1000) is not None
    assert reader.keeps_copy
    reader.seek(reader.offset)
    assert not reader.keeps_copy
    assert drain(harness, reader) == bodies(1, 199, 60)
