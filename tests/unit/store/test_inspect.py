"""`polymq inspect`'s eyes: they see what is there, and what is wrong with it."""

from __future__ import annotations

import pytest

from polymq.store import inspect
from polymq.testing.disk import FakeFiles
from polymq.wire.records import Message
from polymq.wire.slices import MessageBatch
from tests.unit.store.harness import Harness, bodies


def filled() -> Harness:
    harness = Harness()
    log = harness.open().create_log(4, sync=False)
    for turn in range(60):
        harness.publish(log, bodies(turn * 5, 5))
    harness.store.journal.append(b"\x40core")
    harness.settle()
    return harness


def test_a_running_folder_shows_every_segment_batch_and_record() -> None:
    harness = filled()
    assert inspect.partitions(harness.files) == [4]
    rows = list(inspect.segments(harness.files, 4))
    assert len(rows) > 2
    assert [row.verdict for row in rows] == [""] * len(rows)
    assert rows[-1].end_offset == 300
    assert sum(row.records for row in rows) == 300
    assert sum(row.batches for row in rows) == 60
    assert all(row.used_bytes <= row.size_bytes for row in rows)
    batches = [row for segment in rows for row in inspect.batches(harness.files, 4, segment.base_offset)]
    assert [row.header.base_offset for row in batches if row.header] == list(range(0, 300, 5))
    found = list(inspect.records(harness.files, 4))
    assert [row.offset for row in found] == list(range(300))
    assert [row.message.body for row in found if row.message] == bodies(0, 300)
    assert [row.offset for row in inspect.records(harness.files, 4, offset=297)] == [297, 298, 299]


def test_the_journal_is_listed_frame_by_frame() -> None:
    harness = filled()
    harness.store.delete_log(4)
    harness.store.journal.snapshot([[b"\x41snapshot"]])
    harness.store.close(clean=True)
    rows = list(inspect.frames(harness.files))
    assert [row.verdict for row in rows] == [""] * len(rows)
    assert [row.sequence for row in rows] == list(range(rows[0].sequence, rows[0].sequence + len(rows)))
    texts = [row.text for row in inspect.entries(harness.files)]
    assert texts[0] == "a snapshot begins"
    assert "start in epoch 1, boot boot-1" in texts
    assert "the core's, kind 65" in texts
    assert "the snapshot is complete" in texts
    assert texts[-1] == "clean stop"
    assert not any("checkpoint" in text for text in texts)


def test_entries_of_a_life_are_named() -> None:
    harness = filled()
    harness.store.delete_log(4)
    harness.settle()
    texts = [row.text for row in inspect.entries(harness.files)]
    assert "partition 4 is deleted" in texts
    assert "partition 4 is synced from record 0 up to 300" in texts


def test_damage_is_reported_with_its_place_and_ends_the_listing() -> None:
    harness = filled()
    first, second = list(inspect.segments(harness.files, 4))[:2]
    third = list(inspect.batches(harness.files, 4, second.base_offset))[2]
    harness.files.open(second.path).pwrite(b"\xff", third.position + 100)
    rows = list(inspect.segments(harness.files, 4))
    assert rows[0].verdict == ""
    assert "checksum" in rows[1].verdict
    assert rows[1].end_offset == second.base_offset + 10
    assert "should follow" in rows[2].verdict
    last = list(inspect.batches(harness.files, 4, second.base_offset))[-1]
    assert (last.header, last.position) == (None, third.position)
    *found, end = inspect.records(harness.files, 4)
    assert [row.offset for row in found] == list(range(second.base_offset + 10))
    assert (end.message, end.offset) == (None, second.base_offset + 10)
    assert end.verdict == rows[1].verdict
    assert f"records {end.offset} to 300 were synced" in end.verdict
    assert first.end_offset == second.base_offset


def test_a_damaged_header_and_bytes_behind_the_end_are_reported() -> None:
    harness = filled()
    last = list(inspect.segments(harness.files, 4))[-1]
    file = harness.files.open(last.path)
    file.pwrite(b"stale", last.size_bytes - 5)
    row = list(inspect.segments(harness.files, 4))[-1]
    assert (row.verdict, row.note) == ("", "torn tail behind record 300, up to which it is synced: there are bytes behind the last batch")
    file.pwrite(b"\xff", 20)
    row = list(inspect.segments(harness.files, 4))[-1]
    assert "checksum" in row.verdict
    assert row.records == 0


def test_a_torn_journal_is_reported_and_is_no_damage() -> None:
    harness = filled()
    last = list(inspect.frames(harness.files))[-1]
    harness.files.open(last.path).pwrite(b"\xff", last.position + 45)
    for row in (list(inspect.frames(harness.files))[-1], list(inspect.entries(harness.files))[-1]):
        assert row.verdict == ""
        assert row.note.startswith("torn tail: the checksum is ")
    assert inspect.journal_damage(harness.files) == ""


def test_a_bad_frame_that_was_synced_is_damage() -> None:
    harness = filled()
    bad = list(inspect.frames(harness.files))[3]
    harness.files.open(bad.path).pwrite(b"\xff", bad.position + 45)
    assert [row.sequence for row in inspect.frames(harness.files)] == [1, 2, 3, 0]
    for row in (list(inspect.frames(harness.files))[-1], list(inspect.entries(harness.files))[-1]):
        assert row.verdict.startswith("expected journal frame 4, which was synced, found the checksum is ")
    assert "journal frame 4, which was synced" in inspect.journal_damage(harness.files)


def test_a_journal_that_is_gone_is_damage_where_there_are_partitions() -> None:
    harness = filled()
    for name in harness.files.list("journal"):
        harness.files.remove(f"journal/{name}")
    (frame,) = inspect.frames(harness.files)
    assert frame.verdict.startswith(
        "expected the journal's first frame, which is synced before there are partitions, found no file. Restore"
    )
    (entry,) = inspect.entries(harness.files)
    assert entry.verdict in inspect.journal_damage(harness.files)
    assert inspect.journal_damage(FakeFiles(1)) == ""


def wrong(harness: Harness) -> tuple[list[str], str, str]:
    """What `segments`, `missing` and `records` say."""
    verdicts = [row.verdict for row in inspect.segments(harness.files, 4) if row.verdict]
    rows = list(inspect.records(harness.files, 4))
    return verdicts, inspect.missing(harness.files, 4), rows[-1].verdict if rows else ""


def test_nothing_is_wrong_with_what_was_synced_and_is_there() -> None:
    harness = filled()
    assert wrong(harness) == ([], "", "")
    harness.store.close(clean=True)
    assert wrong(harness) == ([], "", "")


def test_synced_batches_that_became_zeros_are_damage() -> None:
    harness = filled()
    last = list(inspect.segments(harness.files, 4))[-1]
    batches = list(inspect.batches(harness.files, 4, last.base_offset))[-4:]
    first = batches[0].header
    assert first is not None
    harness.files.open(last.path).pwrite(bytes(last.used_bytes - batches[0].position), batches[0].position)
    expected = f"the rest is zeros; records {first.base_offset} to 300 were synced"
    assert wrong(harness) == ([expected], "", expected)


@pytest.mark.parametrize("index", [0, 1, -1])
def test_a_segment_that_is_gone_is_damage(index: int) -> None:
    harness = filled()
    rows = list(inspect.segments(harness.files, 4))
    harness.files.remove(rows[index].path)
    verdicts, absent, end = wrong(harness)
    if index == 1:
        text = f"it begins with record {rows[2].base_offset}, {rows[1].base_offset} should follow"
        assert verdicts == [end] == [f"{text}; records {rows[1].base_offset} to 300 were synced"]
        assert [row.offset for row in inspect.records(harness.files, 4)] == [*range(rows[1].base_offset), rows[2].base_offset]
    else:
        assert absent == end == f"segment {rows[index].base_offset} is missing; records 0 to 300 were synced"


def test_a_partition_that_is_gone_is_damage_unless_it_was_deleted() -> None:
    harness = filled()
    paths = [row.path for row in inspect.segments(harness.files, 4)]
    for path in paths:
        harness.files.remove(path)
    text = "its files are missing; records 0 to 300 were synced"
    assert inspect.partitions(harness.files) == [4]
    assert wrong(harness) == ([], text, text)
    stale = inspect.synced_points(harness.files)
    harness.store.delete_log(4)
    harness.settle()
    assert inspect.partitions(harness.files) == []
    assert inspect.missing(harness.files, 4, stale) == ""


def test_another_segment_of_the_same_name_is_damage() -> None:
    harness, other = filled(), Harness(7)
    log = other.open().create_log(4, sync=False)
    for turn in range(60):
        other.publish(log, bodies(turn * 5, 5))
    last = list(inspect.segments(harness.files, 4))[-1]
    source = other.files.open(last.path)
    harness.files.open(last.path).pwrite(source.pread(source.size(), 0), 0)
    assert wrong(harness) == (["it is another segment of the same name"], "", "it is another segment of the same name")


def test_a_torn_tail_behind_the_checkpoint_is_no_damage() -> None:
    harness = filled()
    log = harness.store._logs[4]
    log.append(MessageBatch.of(bodies(300, 5)), now_ns=harness.clock.wall_ns(), origin=1)
    harness.store.commit()
    last = list(inspect.segments(harness.files, 4))[-1]
    assert last.end_offset == 305
    batch = list(inspect.batches(harness.files, 4, last.base_offset))[-1]
    harness.files.open(last.path).pwrite(b"\xff", batch.position + 100)
    row = list(inspect.segments(harness.files, 4))[-1]
    assert (row.verdict, row.end_offset) == ("", 300)
    assert row.note.startswith("torn tail behind record 300, up to which it is synced: the checksum is ")
    end = list(inspect.records(harness.files, 4, offset=299))[-1]
    assert (end.message, end.verdict, end.note) == (None, "", row.note)


def test_a_partition_that_was_never_synced_has_only_a_torn_tail() -> None:
    harness = Harness(sync_interval_ns=10**18)
    log = harness.open().create_log(2, sync=False)
    harness.publish(log, [b"a"])
    harness.files.open(log.chain.segments[0].path).pwrite(b"\xff", 64 + 81)
    (row,) = inspect.segments(harness.files, 2)
    assert row.verdict == ""
    assert row.note.startswith("torn tail, nothing of this partition is known to be synced: ")


def test_segments_that_retention_has_dropped_are_no_damage() -> None:
    harness = filled()
    stale = inspect.synced_points(harness.files)
    first, second = list(inspect.segments(harness.files, 4))[:2]
    kept = harness.files.open(first.path)
    data = kept.pread(kept.size(), 0)
    harness.store._logs[4].retain(second.base_offset, now_ns=harness.clock.wall_ns(), age_ns=1 << 60, size_bytes=0)
    harness.settle()
    assert not harness.files.exists(first.path)
    assert inspect.missing(harness.files, 4, stale) == ""
    row = next(inspect.segments(harness.files, 4, stale))
    assert (row.base_offset, row.verdict, row.note) == (second.base_offset, "", "")
    harness.files.open(first.path, create=True).pwrite(data, 0)
    row = next(inspect.segments(harness.files, 4))
    assert (row.verdict, row.note) == ("", "dropped, the next start removes it")
    assert next(inspect.records(harness.files, 4)).offset == second.base_offset


def test_records_show_everything_that_was_stored() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    message = Message(b"body", b"key", ((b"name", b"value"),), ((2, b"extra"),), 0, 99)
    log.append_messages([message], now_ns=harness.clock.wall_ns(), origin=2)
    harness.turn()
    row = next(inspect.records(harness.files, 1))
    assert row.message == Message(b"body", b"key", ((b"name", b"value"),), ((2, b"extra"),), harness.clock.wall_ns() - 600, 99)
