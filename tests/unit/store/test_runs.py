"""Walking over batches: everything is checked, and a walk stops where it should, however the bytes are cut."""

from __future__ import annotations

import pytest

from polymq.store.index import SparseIndex
from polymq.store.runs import Walk, scan
from polymq.wire.records import HEADER_SIZE_BYTES, BatchHeader, encode_bodies, seal
from polymq.wire.slices import MessageBatch


def batch(offset: int, count: int = 2, *, segment_id: int = 7, epoch: int = 1, time_ns: int = 5) -> bytes:
    source = MessageBatch.of([b"body"] * count)
    target = bytearray(HEADER_SIZE_BYTES + 12 * count)
    end = encode_bodies(target, HEADER_SIZE_BYTES, source)
    seal(target, 0, end, BatchHeader(segment_id=segment_id, epoch=epoch, count=count, base_offset=offset, base_time_ns=time_ns))
    return bytes(target)


def scanned(data: bytes, walk: Walk, start: int = 0) -> int:
    return scan(lambda size, position: data[position : position + size], walk, start, len(data))


def test_a_walk_goes_over_good_batches_and_ends_at_zeros() -> None:
    data = batch(4) + batch(6, 3, epoch=2, time_ns=6) + bytes(500)
    index = SparseIndex(1)
    seen: list[tuple[int, int]] = []
    walk = Walk(7, 4, index=index, on_batch=lambda at, header: seen.append((at, header.base_offset)))
    assert scanned(data, walk) == len(data) - 500
    assert (walk.offset, walk.time_ns, walk.epochs, walk.ended, walk.problem) == (9, 6, [(1, 4), (2, 6)], True, "")
    assert seen == [(0, 4), (104, 6)]
    assert list(index.positions) == [0, 104]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (batch(6, segment_id=8), "another segment"),
        (batch(7), "6 should follow"),
        (batch(5), "6 should follow"),
        (batch(6, epoch=0), "epoch 0"),
        (batch(6, time_ns=4), "older"),
        (batch(6)[:-1] + b"\xff", "checksum"),
        (b"junk" * 30, "magic"),
        (batch(6)[:-1], "whole batch"),
        (b"\1" * 70, "whole batch"),
    ],
)
def test_the_first_batch_that_is_not_good_ends_the_walk(bad: bytes, problem: str) -> None:
    data = batch(4) + bad
    walk = Walk(7, 4)
    assert scanned(data, walk) == len(batch(4))
    assert problem in walk.problem
    assert walk.offset == 6


def test_fewer_zeros_than_a_header_are_an_end_too() -> None:
    walk = Walk(7, 4)
    assert scanned(batch(4) + bytes(79), walk) == 104
    assert (walk.ended, walk.problem) == (True, "")
    walk = Walk(7, 4)
    assert scanned(batch(4), walk) == 104
    assert walk.problem == ""


def test_a_batch_larger_than_a_chunk_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.store.runs._CHUNK_SIZE_BYTES", 90)
    data = batch(0) + batch(2, 40) + batch(42) + bytes(300)
    walk = Walk(7, 0)
    assert scanned(data, walk) == len(data) - 300
    assert (walk.offset, walk.ended) == (44, True)
