"""Bytes that are not what was written: a torn tail is cut, damage to what was synced is fenced and reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.errors import CorruptRecord, StoreFailed
from polymq.store.recovery import segment_path
from polymq.store.runs import Walk
from polymq.store.segment import SEGMENT_HEADER_SIZE_BYTES
from polymq.wire.records import parse_header
from polymq.wire.slices import MessageBatch
from tests.unit.store.harness import Harness, bodies, read_all

if TYPE_CHECKING:
    from polymq.testing.disk import FakeFiles

PATH = segment_path(1, 0)


def places(files: FakeFiles, path: str = PATH) -> list[tuple[int, int]]:
    """(start, end) of every batch in a segment."""
    file = files.open(path)
    data = file.pread(file.size(), 0)
    found: list[tuple[int, int]] = []
    walk = Walk(parse_header(data, SEGMENT_HEADER_SIZE_BYTES).segment_id, 0)
    walk.on_batch = lambda at, header: found.append((at, at + header.size))
    walk.run(data, SEGMENT_HEADER_SIZE_BYTES, SEGMENT_HEADER_SIZE_BYTES)
    return found


def written(*, synced: int, unsynced: int) -> Harness:
    """A partition of batches of two records, of which the first are synced, and a kill."""
    harness = Harness(sync_interval_ns=10**15)
    store = harness.open()
    log = store.create_log(1, sync=False)
    for number in range(synced):
        harness.publish(log, bodies(2 * number, 2))
    if synced:
        store.journal.ticket(sync=True)
        harness.turn()
        harness.turn()
        assert log.synced_point is not None
        store.journal.append(b"\x40")
        harness.turn()
    for number in range(synced, synced + unsynced):
        harness.publish(log, bodies(2 * number, 2))
    harness.crash()
    return harness


@pytest.mark.parametrize("boots", [0, 1])
def test_damage_at_every_byte_of_the_last_batch_loses_it_and_no_other(boots: int) -> None:
    harness = written(synced=1, unsynced=2)
    start, end = places(harness.files)[-1]
    for at in range(start, end):
        harness = written(synced=1, unsynced=2)
        harness.boot += boots
        file = harness.files.open(PATH)
        file.pwrite(bytes([file.pread(1, at)[0] ^ 0x5A]), at)
        log = harness.open().open_log(1, sync=False)
        assert (log.failed, log.end) == ("", 4), f"byte {at - start}"
        assert read_all(harness, log) == bodies(0, 4)
        harness.publish(log, bodies(4, 1))
        assert read_all(harness, log) == bodies(0, 5)
        assert log.epochs == ([(1, 0), (2, 4)] if boots else [(1, 0)])


def test_truncation_at_every_byte_of_the_last_batch_loses_it_and_no_other() -> None:
    harness = written(synced=1, unsynced=2)
    start, end = places(harness.files)[-1]
    for at in range(start, end):
        harness = written(synced=1, unsynced=2)
        harness.files.open(PATH).truncate(at)
        log = harness.open().open_log(1, sync=False)
        assert (log.failed, log.end) == ("", 4), f"byte {at - start}"
        harness.publish(log, bodies(4, 40))
        assert read_all(harness, log) == bodies(0, 44)


@pytest.mark.parametrize("at", ["header", "batch", "truncated", "missing", "other"])
def test_damage_to_what_was_synced_fences_the_partition(at: str) -> None:
    harness = written(synced=3, unsynced=1)
    file = harness.files.open(PATH)
    if at == "header":
        file.pwrite(b"\xff", 20)
    elif at == "batch":
        file.pwrite(b"\xff", places(harness.files)[1][0] + 90)
    elif at == "truncated":
        file.truncate(places(harness.files)[1][0])
    elif at == "missing":
        harness.files.remove(PATH)
    else:
        other = Harness(99)
        log = other.open().create_log(1, sync=False)
        for number in range(4):
            other.publish(log, bodies(2 * number, 2))
        source = other.files.open(PATH)
        file.pwrite(source.pread(source.size(), 0), 0)
    store = harness.open()
    log = store.open_log(1, sync=False)
    if at == "batch":
        assert read_all(harness, log) == bodies(0, 2)
    assert log.failed
    assert store.health() == [f"partition 1: {log.failed}"]
    with pytest.raises(StoreFailed):
        log.append(MessageBatch.of([b"x"]), now_ns=1, origin=1)
    if at not in ("batch", "truncated"):
        assert read_all(harness, log) == []
    well = store.create_log(2, sync=False)
    harness.publish(well, bodies(0, 2))
    assert read_all(harness, well) == bodies(0, 2)


def test_two_crashes_in_a_row_do_not_bring_back_a_stale_batch() -> None:
    """A power loss keeps the second of two equal-sized batches; the first is written anew, then the power fails again."""
    harness = written(synced=1, unsynced=2)
    (start, end), (second, second_end) = places(harness.files)[1:]
    assert end - start == second_end - second
    harness.boot += 1
    harness.files.open(PATH).pwrite(bytes(end - start), start)
    log = harness.open().open_log(1, sync=False)
    assert log.end == 2
    harness.publish(log, [b"new" + body[3:] for body in bodies(2, 2)])
    assert places(harness.files)[1] == (start, end)
    harness.crash()
    harness.boot += 1
    log = harness.open().open_log(1, sync=False)
    assert log.end == 4, "the batch behind the cut has come back"
    assert read_all(harness, log)[2:] == [b"new" + body[3:] for body in bodies(2, 2)]


def test_a_stale_later_segment_does_not_come_back() -> None:
    harness = Harness(sync_interval_ns=10**15)
    log = harness.open().create_log(1, sync=False)
    number = 0
    while len(log.chain.segments) < 2:
        harness.publish(log, bodies(number, 1, 100))
        number += 1
    base = log.chain.segments[1].base_offset
    harness.crash()
    harness.boot += 1
    last = places(harness.files)[-1][0]
    harness.files.open(PATH).pwrite(b"\xff", last + 100)
    log = harness.open().open_log(1, sync=False)
    assert log.end == base - 1
    assert not harness.files.exists(segment_path(1, base))
    harness.publish(log, bodies(base - 1, 1, 100))
    harness.crash(power_loss=False)
    log = harness.open().open_log(1, sync=False)
    assert log.end == base
    assert read_all(harness, log) == bodies(0, base, 100)


def test_a_damaged_index_is_made_again() -> None:
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=False)
    for number in range(100):
        harness.publish(log, bodies(number, 1, 100))
    store.close(clean=True)
    assert len(log.chain.segments) > 2
    for segment in log.chain.segments[:-1]:
        harness.files.open(segment.path.replace(".seg", ".idx")).pwrite(b"\xff", 70)
    log = harness.restart()
    for offset in (0, 50, 99, 20):
        assert read_all(harness, log, offset) == bodies(offset, 100 - offset, 100)
    assert not log.failed


def test_a_segment_that_vanished_is_noticed_when_it_is_needed() -> None:
    harness = Harness()
    store = harness.open()
    log = store.create_log(1, sync=False)
    for number in range(100):
        harness.publish(log, bodies(number, 1, 100))
    store.close(clean=True)
    middle = log.chain.segments[1]
    last = log.chain.segments[-1]
    harness.files = harness.files.crash()
    harness.files.remove(middle.path)
    log = harness.open().open_log(1, sync=False)
    assert read_all(harness, log, last.base_offset) == bodies(last.base_offset, 100 - last.base_offset, 100)
    assert not log.failed
    assert read_all(harness, log, 0) == bodies(0, middle.base_offset, 100)
    assert log.failed
    harness.crash()
    harness.files.remove(PATH)
    log = harness.open().open_log(1, sync=False)
    assert read_all(harness, log, 0) == []
    assert log.failed


def synced_and_killed(harness: Harness, *numbers: int) -> None:
    """Partitions with some records, all synced; then the process is killed."""
    store = harness.open()
    for number in numbers:
        harness.publish(store.create_log(number, sync=False), bodies(0, 3, 100))
    harness.settle()
    harness.crash()


@pytest.mark.parametrize("damage", ["missing", "short", "another"])
def test_damage_to_a_partition_that_a_start_need_not_open_is_found_before_long(damage: str) -> None:
    harness = Harness()
    synced_and_killed(harness, 1, 2)
    if damage == "missing":
        harness.files.remove(PATH)
    elif damage == "short":
        harness.files.open(PATH).truncate(200)
    else:
        file = harness.files.open(PATH)
        file.pwrite(harness.files.open(PATH.replace("0000001", "0000002")).pread(64, 0), 0)
    store = harness.open()
    log, other = store.open_log(1, sync=False), store.open_log(2, sync=False)
    assert store.health() == []
    harness.settle()
    assert log.failed
    assert store.health() == [f"partition 1: {log.failed}"]
    with pytest.raises(StoreFailed):
        log.append(MessageBatch.of([b"x"]), now_ns=1, origin=1)
    assert not other.failed
    # And again by the next start, whether it was a clean stop or not.
    store.close(clean=True)
    harness.crash()
    log = harness.open().open_log(1, sync=False)
    harness.settle()
    assert log.failed


def test_damage_is_found_by_the_first_append_if_that_comes_first() -> None:
    harness = Harness()
    synced_and_killed(harness, 1)
    harness.files.remove(PATH)
    log = harness.open().open_log(1, sync=False)
    with pytest.raises(StoreFailed):
        log.append(MessageBatch.of([b"x"]), now_ns=1, origin=1)
    assert log.failed


def journal_of(turns: int) -> tuple[Harness, str]:
    harness = Harness(sync_interval_ns=10**15)
    store = harness.open()
    for number in range(turns):
        store.journal.append(b"\x40%d" % number)
        if number == 2:
            store.journal.ticket(sync=True)
        harness.turn()
    path = store.journal.chain.segments[-1].path
    harness.crash()
    return harness, path


def test_the_journal_is_cut_at_a_torn_frame_but_not_before_what_was_synced() -> None:
    harness, path = journal_of(6)
    file = harness.files.open(path)
    data = file.pread(file.size(), 0)
    starts = [data.index(b"\x40%d" % number) for number in range(6)]
    for number in range(6):
        harness, path = journal_of(6)
        harness.files.open(path).pwrite(b"\xff", starts[number])
        if number < 3:
            with pytest.raises(CorruptRecord, match="which was synced"):
                harness.open()
            continue
        harness.open()
        assert harness.replayed == [b"\x40%d" % each for each in range(number)]
        harness.store.journal.append(b"\x41")
        harness.turn()
        harness.crash()
        harness.open()
        assert harness.replayed == [*(b"\x40%d" % each for each in range(number)), b"\x41"]


def test_a_journal_whose_beginning_is_missing_is_refused() -> None:
    harness = Harness()
    store = harness.open()
    while len(store.journal.chain.segments) < 2:
        store.journal.append(b"\x40" + bytes(500))
        harness.turn()
    harness.crash()
    harness.files.remove(store.journal.chain.segments[0].path)
    with pytest.raises(CorruptRecord, match="Restore"):
        harness.open()
