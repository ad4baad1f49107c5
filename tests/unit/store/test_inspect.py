"""`polymq inspect`'s eyes: they see what is there, and what is wrong with it."""

from __future__ import annotations

from polymq.store import inspect
from polymq.wire.records import Message
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
    assert [row.message.body for row in found] == bodies(0, 300)
    assert [row.offset for row in inspect.records(harness.files, 4, offset=297)] == [297, 298, 299]


def test_the_journal_is_listed_frame_by_frame() -> None:
    harness = filled()
    harness.store.delete_log(4)
    harness.store.journal.snapshot(iter([b"\x41snapshot"]))
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
    assert [row.offset for row in inspect.records(harness.files, 4)] == list(range(second.base_offset + 10))
    assert first.end_offset == second.base_offset


def test_a_damaged_header_and_bytes_behind_the_end_are_reported() -> None:
    harness = filled()
    last = list(inspect.segments(harness.files, 4))[-1]
    file = harness.files.open(last.path)
    file.pwrite(b"stale", last.size_bytes - 5)
    assert list(inspect.segments(harness.files, 4))[-1].verdict == "there are bytes behind the last batch"
    file.pwrite(b"\xff", 20)
    row = list(inspect.segments(harness.files, 4))[-1]
    assert "checksum" in row.verdict
    assert row.records == 0


def test_a_torn_journal_is_reported() -> None:
    harness = filled()
    last = list(inspect.frames(harness.files))[-1]
    harness.files.open(last.path).pwrite(b"\xff", last.position + 45)
    assert "checksum" in list(inspect.frames(harness.files))[-1].verdict


def test_records_show_everything_that_was_stored() -> None:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    message = Message(b"body", b"key", ((b"name", b"value"),), ((2, b"extra"),), 0, 99)
    log.append_messages([message], now_ns=harness.clock.wall_ns(), origin=2)
    harness.turn()
    row = next(inspect.records(harness.files, 1))
    assert row.message == Message(b"body", b"key", ((b"name", b"value"),), ((2, b"extra"),), harness.clock.wall_ns() - 600, 99)
