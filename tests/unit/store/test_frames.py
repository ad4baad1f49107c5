"""Journal frames: round trip, where a scan stops, and what a later frame tells about an earlier one."""

from __future__ import annotations

import struct

from polymq.store.frames import FRAME_HEADER_SIZE_BYTES, entries_of, scan_segment, seal_frame, synced_later
from polymq.store.segment import JOURNAL_PARTITION, MAGIC_JOURNAL, encode_segment_header


def frame(entries: list[bytes], sequence: int, *, synced: int = 0, segment_id: int = 5) -> bytes:
    body = b"".join(struct.pack("<I", len(entry)) + entry for entry in entries)
    buffer = bytearray(FRAME_HEADER_SIZE_BYTES) + body
    seal_frame(buffer, len(buffer), count=len(entries), segment_id=segment_id, sequence=sequence, synced_sequence=synced)
    return bytes(buffer)


def segment(*frames: bytes, base: int = 1, padding: int = 200) -> bytes:
    head = encode_segment_header(MAGIC_JOURNAL, JOURNAL_PARTITION, segment_id=5, base_offset=base, created_ns=1, size_bytes=4096, epoch=1)
    return head + b"".join(frames) + bytes(padding)


def test_frames_come_back_with_their_entries() -> None:
    scan = scan_segment(segment(frame([b"a", b""], 1), frame([b"ccc"], 2, synced=1)), 1)
    assert scan.problem == ""
    assert scan.next_sequence == 3
    assert [header.entry_count for _, header in scan.frames] == [2, 1]
    assert [bytes(entry) for at, header in scan.frames for entry in entries_of(scan.data, at, header)] == [b"a", b"", b"ccc"]
    assert scan.end == len(scan.data) - 200


def test_every_damaged_byte_of_the_last_frame_ends_the_scan_before_it() -> None:
    data = segment(frame([b"a"], 1), frame([b"bbb"], 2))
    start = 64 + len(frame([b"a"], 1))
    for at in range(start, start + len(frame([b"bbb"], 2))):
        changed = bytearray(data)
        changed[at] ^= 0x21
        scan = scan_segment(bytes(changed), 1)
        assert (len(scan.frames), scan.end) == (1, start)
        assert scan.problem


def test_a_frame_of_another_segment_or_sequence_does_not_count() -> None:
    assert "another segment" in scan_segment(segment(frame([b"a"], 1, segment_id=6)), 1).problem
    assert "2 should follow" in scan_segment(segment(frame([b"a"], 1), frame([b"b"], 3)), 1).problem
    assert "2 should follow" in scan_segment(segment(frame([b"a"], 1), frame([b"b"], 1)), 1).problem


def test_the_end_may_be_zeros_or_the_end_of_the_file() -> None:
    for padding in (0, 1, 39, 40, 41):
        assert scan_segment(segment(frame([b"a"], 1), padding=padding), 1).problem == ""
    assert "fewer" in scan_segment(segment(frame([b"a"], 1), b"junk", padding=0), 1).problem
    assert "claims" in scan_segment(segment(frame([b"a" * 60], 1), padding=0)[:-8], 1).problem


def test_a_bad_header_ends_everything() -> None:
    scan = scan_segment(segment(frame([b"a"], 1)), 2)
    assert (scan.segment_id, scan.frames, scan.end) == (0, [], 0)
    assert not synced_later(scan, 1)


def test_a_later_frame_tells_whether_a_lost_one_was_synced() -> None:
    for synced, known in ((0, False), (1, False), (2, True), (3, True)):
        middle = bytearray(frame([b"bbb"], 2))
        middle[-1] ^= 1
        scan = scan_segment(segment(frame([b"a"], 1), bytes(middle), frame([b"c"], 3, synced=1), frame([b"d"], 4, synced=synced)), 1)
        assert scan.next_sequence == 2
        assert synced_later(scan, 2) is known
