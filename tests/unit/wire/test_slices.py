from __future__ import annotations

from polymq.wire.slices import MessageBatch, Slice


def test_a_batch_of_separate_bodies_gives_them_back() -> None:
    bodies = [b"one", b"", b"three"]
    batch = MessageBatch.of(bodies)
    assert (batch.first, batch.count, batch.size_bytes) == (0, 3, 8)
    assert (batch.positions.format, batch.sizes.format) == ("q", "q")
    assert batch.bodies() == bodies
    assert MessageBatch.of([]).bodies() == []


def test_a_batch_may_be_part_of_the_arrays() -> None:
    batch = MessageBatch.of([b"one", b"two", b"three"])
    part = MessageBatch(batch.view, batch.positions, batch.sizes, first=1, count=2, size_bytes=8)
    assert part.bodies() == [b"two", b"three"]


def test_a_slice_holds_what_it_was_given() -> None:
    view = memoryview(b"bytes")
    piece = Slice(view, partition=1, position=2, end=3, offset=4, count=5, batch_left=6, base_time_ns=7)
    assert piece.view is view
    assert (piece.partition, piece.position, piece.end, piece.offset) == (1, 2, 3, 4)
    assert (piece.count, piece.batch_left, piece.base_time_ns) == (5, 6, 7)
