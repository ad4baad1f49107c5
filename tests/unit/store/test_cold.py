"""Cold reads: what they find, what they learn about a segment, and how they fail."""

from __future__ import annotations

from typing import Any

import pytest

from polymq.errors import CorruptRecord
from polymq.store.cold import ColdRead, NotCachedError, describe
from polymq.store.index import IndexEntry
from polymq.store.recovery import segment_path
from tests.unit.store.harness import Harness, bodies

PATH = segment_path(1, 0)


def filled() -> Harness:
    harness = Harness()
    log = harness.open().create_log(1, sync=False)
    for first in range(0, 40, 4):
        harness.publish(log, bodies(first, 4))
    harness.settle()
    return harness


def cold(harness: Harness, offset: int, **changes: object) -> ColdRead:
    segment = harness.store._logs[1].chain.segments[0]
    values: dict[str, Any] = {
        "hint": None,
        "limit": segment.used,
        "segment_id": 0,
        "size_bytes": 300,
        "end_offset": segment.end_offset,
    } | changes
    return ColdRead(harness.files, PATH, 1, 0, offset=offset, interval_bytes=512, **values)


def test_a_window_begins_with_the_batch_that_holds_the_offset() -> None:
    harness = filled()
    for offset in range(40):
        window = cold(harness, offset).run(cached=False)
        assert window.offset == offset // 4 * 4
        assert window.end - window.position == len(window.view)
        assert window.segment_id == harness.store._logs[1].chain.segments[0].segment_id
        assert window.index is not None


def test_a_batch_larger_than_the_window_is_read_whole() -> None:
    harness = filled()
    window = cold(harness, 9, size_bytes=81).run(cached=False)
    assert (window.offset, len(window.view) > 81) == (8, True)


def test_a_large_batch_is_not_read_where_everybody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    harness = filled()
    segment = harness.store._logs[1].chain.segments[0]
    hint = IndexEntry(0, 64, 0)
    known = {"segment_id": segment.segment_id, "hint": hint}
    monkeypatch.setattr("polymq.store.cold._CACHED_SIZE_BYTES_MAX", 1 << 20)
    assert cold(harness, 1, size_bytes=81, **known).run(cached=True).offset == 0
    monkeypatch.setattr("polymq.store.cold._CACHED_SIZE_BYTES_MAX", 81)
    with pytest.raises(NotCachedError):
        cold(harness, 1, size_bytes=81, **known).run(cached=True)
    assert cold(harness, 1, size_bytes=81, **known).run(cached=False).offset == 0


def test_a_wrong_limit_or_offset_is_an_error_and_no_loop() -> None:
    harness = filled()
    with pytest.raises(CorruptRecord, match=r"zeros|fewer"):
        cold(harness, 40, limit=4096, end_offset=99).run(cached=False)
    with pytest.raises(CorruptRecord):
        cold(harness, 39, limit=500).run(cached=False)
    with pytest.raises(CorruptRecord, match="another segment"):
        cold(harness, 0, segment_id=5).run(cached=False)
    harness.files.open(PATH).pwrite(b"\xff", 30)
    with pytest.raises(CorruptRecord, match="header"):
        cold(harness, 0).run(cached=False)
    with pytest.raises(CorruptRecord, match="header"):
        describe(harness.files, PATH, 1, 0)


def test_only_what_is_cached_is_read_when_asked_so() -> None:
    harness = filled()
    hint = IndexEntry(0, 64, 0)
    assert cold(harness, 2, hint=hint).run(cached=True).offset == 0
    with pytest.raises(NotCachedError):
        cold(harness, 2).run(cached=True)
    harness.files.evict()
    with pytest.raises(NotCachedError):
        cold(harness, 2, hint=hint).run(cached=True)


def test_a_window_teaches_its_segment() -> None:
    harness = filled()
    harness.store.close(clean=True)
    log = harness.restart()
    segment = log.chain.segments[0]
    assert segment.index is None
    window = cold(harness, 5, segment_id=segment.segment_id).run(cached=False)
    window.teach(segment, active=True)
    assert segment.index is window.index
    assert segment.created_ns == window.created_ns
    assert not segment.known
    segment.segment_id = segment.used = 0
    window.teach(segment, active=False)
    assert (segment.segment_id, segment.known, segment.used) == (window.segment_id, True, window.used)
