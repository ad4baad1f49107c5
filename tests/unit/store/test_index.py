"""The sparse index: what it finds is never behind what is looked for, and its file is itself or nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from polymq.store.index import IndexEntry, SparseIndex

if TYPE_CHECKING:
    import pytest

BATCHES = st.lists(st.tuples(st.integers(1, 50), st.integers(88, 900), st.integers(0, 3)), min_size=1, max_size=60)


def build(batches: list[tuple[int, int, int]], interval: int = 500) -> tuple[SparseIndex, list[IndexEntry], int, int]:
    index = SparseIndex(interval)
    offset, position, time_ns = 10, 64, 1000
    rows = []
    for count, size, later in batches:
        time_ns += later
        rows.append(IndexEntry(offset, position, time_ns))
        index.add(offset, position, time_ns)
        offset += count
        position += size
    return index, rows, offset, position


@given(BATCHES)
def test_an_entry_is_at_or_before_what_is_looked_for_and_near(batches: list[tuple[int, int, int]]) -> None:
    index, rows, end, used = build(batches)
    assert len(index.offsets) <= used // 500 + 1
    for row in rows:
        entry = index.at_offset(row.offset)
        assert entry in rows
        assert entry is not None
        assert entry.offset <= row.offset
        assert row.position - entry.position < 500
        assert index.before_position(row.position) == entry
        earlier = index.before_time(row.time_ns)
        assert earlier is None or earlier.time_ns < row.time_ns
    assert index.at_offset(9) is None
    assert index.before_position(63) is None
    assert index.before_time(1000) is None
    assert index.at_offset(end) == index.before_position(used)


@given(BATCHES)
def test_a_file_comes_back(batches: list[tuple[int, int, int]]) -> None:
    index, rows, end, used = build(batches)
    data = index.encode(segment_id=7, base_offset=10, end_offset=end, used=used)
    decoded = SparseIndex.decode(data, segment_id=7, base_offset=10, interval_bytes=500)
    assert decoded is not None
    back, end_back, used_back = decoded
    assert (end_back, used_back, back.last_time_ns) == (end, used, rows[-1].time_ns)
    assert (back.offsets, back.positions, back.times) == (index.offsets, index.positions, index.times)


def test_a_damaged_or_foreign_file_is_nothing() -> None:
    index, _, end, used = build([(5, 600, 1)] * 4)
    data = index.encode(segment_id=7, base_offset=10, end_offset=end, used=used)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 0x10
        assert SparseIndex.decode(bytes(changed), segment_id=7, base_offset=10, interval_bytes=500) is None, at
    for cut in range(len(data)):
        assert SparseIndex.decode(data[:cut], segment_id=7, base_offset=10, interval_bytes=500) is None
    assert SparseIndex.decode(data, segment_id=8, base_offset=10, interval_bytes=500) is None
    assert SparseIndex.decode(data, segment_id=7, base_offset=11, interval_bytes=500) is None


def test_an_index_begun_in_the_middle_is_completed() -> None:
    whole, rows, _, _ = build([(5, 600, 1)] * 6)
    late = SparseIndex(500, rows[3].position)
    for row in rows[3:]:
        late.add(*row)
    late.put_before(whole)
    assert (late.offsets, late.positions, late.times) == (whole.offsets, whole.positions, whole.times)
    assert late.complete_from == 64


def test_files_are_little_endian_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    index, _, end, used = build([(5, 600, 1)] * 3)
    data = index.encode(segment_id=7, base_offset=10, end_offset=end, used=used)
    assert data[64:72] == (10).to_bytes(8, "little")
    monkeypatch.setattr(sys, "byteorder", "big")
    swapped = index.encode(segment_id=7, base_offset=10, end_offset=end, used=used)
    assert swapped[64:72] == (10).to_bytes(8, "big")
    decoded = SparseIndex.decode(swapped, segment_id=7, base_offset=10, interval_bytes=500)
    assert decoded is not None
    assert decoded[0].offsets == index.offsets
