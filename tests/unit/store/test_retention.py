"""Which segments may go; that they go is in test_dropping.py."""

from __future__ import annotations

from polymq.store.retention import droppable, finished, index_path
from polymq.store.segment import Segment


def row(*segments: tuple[int, int, int, int]) -> list[Segment]:
    made = []
    for base, end, size, created in segments:
        segment = Segment("a.seg", base)
        segment.end_offset, segment.size_bytes, segment.created_ns = end, size, created
        made.append(segment)
    return made


def test_old_or_too_many_but_never_what_is_needed_nor_the_last() -> None:
    segments = row((0, 10, 100, 1), (10, 20, 100, 50), (20, 30, 100, 90), (30, 30, 100, 99))
    assert droppable(segments, 30, older_than_ns=0, excess_bytes=0) == 0
    assert droppable(segments, 30, older_than_ns=51, excess_bytes=0) == 1
    assert droppable(segments, 30, older_than_ns=1000, excess_bytes=0) == 3
    assert droppable(segments, 19, older_than_ns=1000, excess_bytes=1000) == 1
    assert droppable(segments, 30, older_than_ns=0, excess_bytes=1) == 1
    assert droppable(segments, 30, older_than_ns=0, excess_bytes=101) == 2
    assert index_path("a/b.seg") == "a/b.idx"


def test_what_is_finished_ends_before_what_is_needed_and_is_never_the_last() -> None:
    segments = row((0, 10, 100, 1), (10, 20, 100, 50), (20, 30, 100, 90))
    assert [segment.base_offset for segment, _ in finished(segments, 9)] == []
    assert [(segment.base_offset, following.base_offset) for segment, following in finished(segments, 10)] == [(0, 10)]
    assert [segment.base_offset for segment, _ in finished(segments, 30)] == [0, 10]
