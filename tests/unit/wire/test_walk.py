"""Passing over plain batches: never over one that `check` refuses or that does not follow, and the same in both builds."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymq.store.index import SparseIndex
from polymq.store.runs import Walk
from polymq.wire import walk
from polymq.wire.records import Message, check, parse_header
from tests.unit.wire import batches

if TYPE_CHECKING:
    from collections.abc import Callable

plain = batches.interpreted("walk")
END = 1 << 41
# What `batches.batch` writes.
SEGMENT, EPOCH = 7, 3
messages = st.lists(st.builds(Message, body=st.binary(max_size=9)) | batches.messages, min_size=1, max_size=4)


def passed(data: bytes | bytearray, *, at: int = 0, stop_at: int | None = None, offset: int = 0, until: int = END) -> tuple[int, int, int]:
    """Ask both builds, which have to agree."""
    stop = len(data) if stop_at is None else stop_at
    first = walk.pass_plain(data, at, stop, SEGMENT, EPOCH, offset, 0, until)
    assert plain.pass_plain(data, at, stop, SEGMENT, EPOCH, offset, 0, until) == first
    return first


def bodies(*counts: int) -> list[list[Message]]:
    return [[Message(b"x" * count)] * count for count in counts]


def test_the_two_are_two() -> None:
    assert plain.pass_plain is not walk.pass_plain
    assert str(plain.__file__).endswith(".py")


def test_plain_batches_are_passed_up_to_where_somebody_wants_to_hear_of_one() -> None:
    sizes = [len(batches.run([group])) for group in bodies(1, 3, 2)]
    data = batches.run(bodies(1, 3, 2))
    assert passed(data) == (len(data), 6, batches.BASE_TIME_NS)
    assert passed(b"") == (0, 0, 0)
    assert [passed(data, until=until)[1] for until in range(7)] == [0, 1, 1, 1, 4, 4, 6]
    assert passed(data, stop_at=0)[0] == 0
    assert passed(data, stop_at=1)[0] == sizes[0]
    assert passed(data, stop_at=sizes[0])[0] == sizes[0]
    assert passed(data, at=sizes[0], offset=1)[0] == len(data)
    assert passed(data[:-1])[0] == len(data) - sizes[2]
    assert passed(data + bytes(200))[0] == len(data)


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [
        (4, "<I", 1),
        (8, "<I", 87),
        (8, "<I", 1 << 30),
        (12, "<B", 2),
        (14, "<H", 4),
        (14, "<H", 1 << 4),
        (16, "<Q", 8),
        (20, "<I", 1),
        (24, "<I", 4),
        (28, "<I", 0),
        (28, "<I", 2),
        (28, "<I", 1 << 31),
        (32, "<q", 1),
        (32, "<q", -1),
        (40, "<q", -1),
        (80, "<I", 7),
        (80, "<I", 9999),
        (84, "<I", 9),
        (87, "<B", 1),
    ],
)
def test_any_other_batch_stops_it(at: int, form: str, value: int) -> None:
    data = bytearray(batches.run(bodies(1)))
    assert passed(data)[0] == len(data)
    struct.pack_into(form, data, at, value)
    assert passed(batches.reseal(data))[0] == 0
    data = bytearray(batches.run(bodies(1)))
    data[-1] ^= 1
    assert passed(data)[0] == 0


@pytest.mark.parametrize("attributes", range(4))
def test_origin_and_being_passed_over_do_not_matter(attributes: int) -> None:
    data = bytearray(batches.run(bodies(1)))
    struct.pack_into("<BH", data, 13, 5, attributes)
    assert passed(batches.reseal(data))[0] == len(data)


def slow(data: bytes, walked: Walk) -> int:
    """The walk that looks at each batch in Python."""
    walked.on_batch = lambda position, header: None
    return walked.run(data, 0, 1000)


@settings(max_examples=300)
@given(st.lists(messages, max_size=6), st.data())
def test_a_walk_says_the_same_with_and_without_it(groups: list[list[Message]], draw: st.DataObject) -> None:
    data = bytearray(batches.run(groups))
    for _ in range(draw.draw(st.integers(0, 2))):
        if len(data) >= 4:
            at = draw.draw(st.integers(0, len(data) - 4))
            struct.pack_into("<I", data, at, draw.draw(st.integers(0, 300) | st.integers(0, 2**32 - 1)))
    data += bytes(draw.draw(st.integers(0, 100)))
    until = draw.draw(st.just(END) | st.integers(0, 12))
    interval = draw.draw(st.integers(1, 400))

    def outcome(run: Callable[[Walk], int]) -> tuple[object, ...]:
        index = SparseIndex(interval, 1000)
        walked = Walk(SEGMENT, 0, epoch=EPOCH, until=until, index=index)
        end = run(walked)
        found = (list(index.offsets), list(index.positions), list(index.times), index.last_time_ns)
        return end, walked.offset, walked.epoch, walked.time_ns, walked.epochs, walked.problem, walked.ended, found

    assert outcome(lambda walked: walked.run(bytes(data), 0, 1000)) == outcome(lambda walked: slow(bytes(data), walked))
    end, offset, _time_ns = passed(data, until=until)
    at = 0
    while at < end:
        assert check(data, at, len(data)) is None
        at += parse_header(data, at).size
    assert at == end
    assert offset <= until


@given(st.lists(st.integers(1, 4), max_size=12), st.integers(0, 40), st.integers(0, 3), st.integers(0, 2000), st.integers(0, 90))
def test_whole_batches_are_passed_up_to_a_record_a_size_or_the_end(
    counts: list[int], before: int, skipped: int, stop_at: int, cut: int
) -> None:
    data = batches.run(bodies(*counts))
    end = max(0, len(data) - cut)
    sizes = [len(batches.run([group])) for group in bodies(*counts)]
    at, began_at = min(sum(sizes[:skipped]), end), 0
    expected, next_offset, position, base = at, 0, 0, 0
    for count, size in zip(counts, sizes, strict=True):
        if position >= at:
            if base >= before or position + size > end or (position > began_at and position + size > stop_at):
                break
            expected, next_offset = position + size, base + count
        position, base = position + size, base + count
    for module in (walk, plain):
        assert module.pass_whole(data, at, end, before, began_at, stop_at) == (expected, next_offset)


def test_a_batch_without_a_size_stops_the_walk() -> None:
    for module in (walk, plain):
        assert module.pass_whole(bytes(400), 0, 400, END, 0, 400) == (0, 0)
