"""Recovery of one partition, case by case. (`test_damage.py` and `test_store_model.py` do it by force.)"""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.store.recovery import log_segments, partition_folder, recover_log, segment_path
from polymq.testing.disk import FakeFiles
from polymq.wire.batch import ORIGIN_NONE, PRODUCER_BROKER, Message, encode_message
from polymq.wire.slices import MessageBatch
from tests.unit.store.harness import Harness, bodies

if TYPE_CHECKING:
    from polymq.store.entries import Checkpoint


def filled(count: int = 120) -> tuple[FakeFiles, Checkpoint]:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    for number in range(count):
        harness.publish(log, bodies(number, 1, 100))
    point = log.point()
    harness.crash()
    return harness.files, point


def test_nothing_there_is_an_empty_partition() -> None:
    found = recover_log(FakeFiles(), 1, None, same_boot=False)
    assert (found.start, found.end, found.bases, found.failed, found.unsynced) == (0, 0, [], "", False)


def test_names_are_made_and_listed() -> None:
    files, _ = filled()
    assert partition_folder(7) == "partitions/0000007"
    assert segment_path(7, 5) == "partitions/0000007/00000000000000000005.seg"
    bases = log_segments(files, 1)
    assert bases == sorted(bases)
    assert len(bases) > 2
    assert log_segments(files, 2) == []


def test_without_a_checkpoint_everything_is_walked_through() -> None:
    files, point = filled()
    found = recover_log(files, 1, None, same_boot=True)
    assert (found.end, found.position, found.segment_id) == (point.end, point.position, point.segment_id)
    assert (found.sealed_size_bytes, found.last_time_ns, tuple(found.epochs)) == (point.sealed_size_bytes, point.last_time_ns, point.epochs)
    assert (found.synced, found.unsynced) == (0, True)


def test_from_a_checkpoint_only_the_rest_is_read() -> None:
    files, point = filled()
    reads: list[str] = []
    files.watch(lambda kind, path: reads.append(path) if kind == "read" else None)
    found = recover_log(files, 1, point, same_boot=True)
    assert set(reads) == {segment_path(1, point.segment_base)}
    assert (found.end, found.unsynced, found.failed) == (120, False, "")


def test_bytes_far_behind_the_end_are_cut_after_another_boot_only() -> None:
    for same_boot in (True, False):
        files, point = filled()
        file = files.open(segment_path(1, point.segment_base))
        size = file.size()
        file.pwrite(b"stale", size - 5)
        assert recover_log(files, 1, point, same_boot=same_boot).end == 120
        assert (file.pread(5, size - 5) == bytes(5)) is not same_boot
        assert file.size() == size


def test_a_segment_behind_a_gap_is_removed() -> None:
    files, point = filled()
    files.open(segment_path(1, 999), create=True).pwrite(b"x", 0)
    assert recover_log(files, 1, point, same_boot=True).end == 120
    assert 999 not in log_segments(files, 1)


def test_a_segment_whose_header_was_never_finished_is_removed() -> None:
    files, point = filled()
    files.open(segment_path(1, 120), create=True).allocate(4096)
    found = recover_log(files, 1, point, same_boot=False)
    assert (found.end, found.failed) == (120, "")
    assert found.bases[-1] == point.segment_base
    assert 120 not in log_segments(files, 1)


def test_the_first_segment_missing_is_damage() -> None:
    files, point = filled()
    files.remove(segment_path(1, 0))
    found = recover_log(files, 1, point, same_boot=True)
    assert found.failed == "segment 0 is missing"
    assert recover_log(FakeFiles(), 1, point, same_boot=True).failed


def test_what_was_removed_is_gone_for_good_before_anything_is_written() -> None:
    files, point = filled()
    files.open(segment_path(1, 999), create=True)
    seen: list[str] = []
    files.watch(lambda kind, path: seen.append(f"{kind} {path}"))
    recover_log(files, 1, point, same_boot=True)
    assert seen[-2:] == [f"remove {segment_path(1, 999)}", "sync_folder partitions/0000001"]


def test_readers_do_not_see_what_only_the_page_cache_has_kept() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=True)
    harness.publish(log, bodies(0, 3))
    harness.settle()
    log.append(MessageBatch.of(bodies(3, 2)), now_ns=1, origin=1)
    harness.store.commit()
    log = harness.restart(sync=True)
    assert (log.end, log.readable) == (5, 3)
    harness.settle()
    assert log.readable == 5


def test_notes_behind_the_checkpoint_are_read_and_those_before_it_are_not() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    point = None
    for number in range(60):
        note = Message(b"x" * 200, extras=((ORIGIN_NONE, b"%d" % number), (1, b"not a note")))
        records = encode_message(note, harness.clock.wall_ns()) + encode_message(Message(b"y"), 0)
        log.append_records(records, 2, now_ns=harness.clock.wall_ns(), origin=ORIGIN_NONE, producer=(PRODUCER_BROKER, -1, -1))
        harness.publish(log, bodies(number, 1))
        if number == 30:
            point = log.point()
    harness.crash()
    found = recover_log(harness.files, 1, point, same_boot=True)
    assert found.notes == [(3 * number, 1, b"%d" % number) for number in range(31, 60)]
    assert len(log_segments(harness.files, 1)) > 2
    log = harness.restart()
    assert log.notes[-1] == (3 * 59, 1, b"59")
    assert log.last_time_ns > 0
