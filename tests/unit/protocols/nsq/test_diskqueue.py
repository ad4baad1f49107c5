from __future__ import annotations

import struct
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.protocols.nsq import diskqueue
from polymq.protocols.nsq.diskqueue import MessageIndex, QueueColumns, append_rest, merge, oversized, ranges_of
from tests.unit.protocols.nsq.queues import Stored, record, records
from tests.unit.protocols.nsq.streams import interpreted

if TYPE_CHECKING:
    from types import ModuleType

plain = interpreted("polymq.protocols.nsq.diskqueue")
BUILDS = pytest.mark.parametrize("build", [diskqueue, plain], ids=["as built", "interpreted"])
TIME_NS = 1_700_000_000_000_000_000


def message(number: int, attempts: int = 0) -> Stored:
    return Stored(number << 12 | 7, TIME_NS + number, b"m%d" % number, attempts)


def read(build: ModuleType, queues: list[list[Stored]]) -> tuple[Any, list[Any]]:
    index, columns = build.MessageIndex(), []
    for number, stored in enumerate(queues):
        queue = build.QueueColumns(number)
        data = records(stored)
        assert index.scan(data, 0, len(data), number, queue) == len(data)
        columns.append(queue)
    return index, columns


def bodies_of(index: Any, order: array[int], files: list[bytes]) -> list[tuple[bytes, int]]:
    """Follow an order back to the bytes."""
    found = []
    first = 0
    while first < len(order):
        columns = (array("q", bytes(24)), array("q", bytes(24)), array("q", bytes(24)))
        count, file, size_bytes = index.run(order, first, 1000, columns)
        assert sum(columns[1][:count]) == size_bytes
        for position, size, time_ns in list(zip(*columns, strict=True))[:count]:
            found.append((files[file][position : position + size], time_ns))
        first += count
    return found


@BUILDS
def test_what_lies_in_several_queues_is_one_message(build: ModuleType) -> None:
    index, (a, b) = read(build, [[message(1), message(2, 3)], [message(2), message(4, 9)]])
    assert len(index) == 3
    assert a.rows() == [(0, 0), (1, 3)]
    assert b.rows() == [(1, 0), (2, 9)]
    assert (a.tried(), b.tried(), a.repeated) == (1, 1, 0)
    assert index.body_bytes() == 6


@BUILDS
@pytest.mark.parametrize("other", [{"id": 8}, {"time_ns": 1}, {"body": b"m1 "}])
def test_messages_that_differ_in_id_time_or_size_are_two(build: ModuleType, other: dict[str, Any]) -> None:
    index, _ = read(build, [[message(1)], [replace(message(1), **other)]])
    assert len(index) == 2


@BUILDS
def test_a_message_that_lies_twice_in_a_queue_is_kept_once_with_its_highest_attempts(build: ModuleType) -> None:
    _, (queue,) = read(build, [[message(1), message(2), message(1, 4), message(1, 2)]])
    assert queue.rows() == [(0, 4), (1, 0)]
    assert queue.repeated == 2


@BUILDS
def test_scanning_stops_where_no_sound_record_begins(build: ModuleType) -> None:
    good = records([message(1), message(2)])
    bad_sizes = [0, 25, -1, 2**31 - 1, 27 + limits.MESSAGE_SIZE_BYTES_MAX]
    for tail in [b"", b"\0", record(message(3))[:-1], *(struct.pack(">i", size) + bytes(60) for size in bad_sizes)]:
        index, queue = build.MessageIndex(), build.QueueColumns(0)
        data = good + tail
        assert index.scan(data, 0, len(data), 0, queue) == len(good)
        assert len(queue) == len(index) == 2


@BUILDS
def test_a_time_that_no_clock_shows_becomes_zero(build: ModuleType) -> None:
    index, _ = read(build, [[replace(message(1), time_ns=-1), replace(message(2), time_ns=-(2**63))]])
    assert list(index.times()) == [0, 0]


def test_a_sound_record_that_is_too_large_can_be_passed_by() -> None:
    body_size = limits.MESSAGE_SIZE_BYTES_MAX + 1
    large = record(Stored(5, TIME_NS, bytes(body_size)))
    data = large + record(message(1))
    assert oversized(data, 0, len(data)) == len(large)
    assert oversized(data, 0, len(large) - 1) == 0, "it must end within the file"
    assert oversized(data, len(large), len(data)) == 0, "this one is not too large"
    assert oversized(data[:14] + b"?" * 16 + data[30:], 0, len(data)) == 0, "that is no id"
    assert oversized(b"", 0, 0) == 0
    just = record(Stored(5, TIME_NS, bytes(body_size - 1)))
    index, queue = MessageIndex(), QueueColumns(0)
    assert index.scan(just, 0, len(just), 0, queue) == len(just)


@BUILDS
@pytest.mark.parametrize(
    "garbage", [b"?", b"\0" * 40, b"0123456789abcdef" * 5, record(message(8))[:-1], record(message(8))[1:], b"\xff" * 100]
)
def test_records_are_found_again_behind_damage(build: ModuleType, garbage: bytes) -> None:
    good = records([message(1), message(2)])
    for tail, found in ((good, len(garbage)), (record(message(1)), len(garbage)), (b"", len(garbage)), (good + b"x", len(garbage))):
        data = b"**" + garbage + tail
        assert build.resume(data, 2, len(data)) == 2 + found, tail


@BUILDS
def test_one_thing_that_looks_like_a_record_is_not_believed(build: ModuleType) -> None:
    alone = record(message(1)) + b"and something else behind it, which is no record at all"
    assert build.resume(b"?" + alone, 0, 1 + len(alone)) == 1 + len(alone)
    old = record(replace(message(1), time_ns=5)) * 2
    assert build.resume(b"?" + old, 0, 1 + len(old)) == 1 + len(old)
    assert build.resume(b"", 0, 0) == 0


@BUILDS
def test_an_order_keeps_that_of_every_queue(build: ModuleType) -> None:
    index, queues = read(build, [[message(5), message(1), message(6)], [message(1), message(3), message(6)]])
    order, forced = build.merge(queues, index.times())
    assert [list(index.times())[number] - TIME_NS for number in order] == [5, 1, 3, 6]
    assert forced == 0


@BUILDS
def test_where_queues_contradict_each_other_the_older_message_comes_first(build: ModuleType) -> None:
    index, queues = read(build, [[message(2), message(1), message(3)], [message(1), message(2), message(4)]])
    order, forced = build.merge(queues, index.times())
    assert [list(index.times())[number] - TIME_NS for number in order] == [1, 2, 3, 4]
    assert forced == 1


@BUILDS
def test_runs_end_with_the_file_the_room_and_the_size(build: ModuleType) -> None:
    index, (a, b) = read(build, [[message(number) for number in (1, 2, 3, 4)], [message(10)]])
    order, _ = build.merge([a, b], index.times())
    files = [records([message(number) for number in (1, 2, 3, 4)]), record(message(10))]
    expected = [(b"m%d" % number, TIME_NS + number) for number in (1, 2, 3, 4, 10)]
    assert bodies_of(index, order, files) == expected
    columns = (array("q", bytes(80)), array("q", bytes(80)), array("q", bytes(80)))
    assert index.run(order, 0, 5, columns) == (2, 0, 4)
    assert index.run(order, 0, 1, columns) == (1, 0, 2), "one at least"
    assert index.run(order, 0, 100, columns) == (4, 0, 8)
    assert index.run(order, 4, 100, columns) == (1, 1, 3)


@BUILDS
def test_the_rest_of_a_queue_goes_behind(build: ModuleType) -> None:
    index, (a, own) = read(build, [[message(2), message(5)], [message(1), message(5), message(9)]])
    order, _ = build.merge([a], index.times())
    assert list(build.append_rest(order, own, len(index))) == [0, 1, 2, 3]
    assert list(build.append_rest(array("i"), own, len(index))) == [2, 1, 3]


@BUILDS
def test_ranges_say_what_a_queue_lacks_and_what_was_tried(build: ModuleType) -> None:
    index, (a, b) = read(build, [[message(number) for number in range(6)], [message(1, 2), message(2, 2), message(4)]])
    order, _ = build.merge([a, b], index.times())
    assert list(build.ranges_of([a], order, 6, 6)) == []
    assert list(build.ranges_of([b], order, 6, 6)) == [0, 1, -1, 1, 3, 2, 3, 4, -1, 5, 6, -1]
    assert list(build.ranges_of([b, a], order, 6, 6)) == [1, 3, 2]
    assert list(build.ranges_of([], order, 6, 6)) == [0, 6, -1]


@BUILDS
def test_many_messages_make_everything_grow(build: ModuleType) -> None:
    stored = [message(number, number % 3) for number in range(1000)]
    index, (a, b) = read(build, [stored, stored[::-1][:700]])
    assert (len(index), len(a), len(b)) == (1000, 1000, 700)
    assert b.rows()[0] == (999, 0)
    order, _ = build.merge([a], index.times())
    assert list(order) == list(range(1000))


QUEUE = st.lists(st.tuples(st.integers(0, 30), st.sampled_from((0, 0, 1, 7, 65535))), max_size=25)


@given(st.lists(QUEUE, max_size=4))
def test_nothing_is_lost_nothing_added_and_the_builds_agree(queues: list[list[tuple[int, int]]]) -> None:
    stored = [[message(number, attempts) for number, attempts in queue] for queue in queues]
    told = []
    for build in (diskqueue, plain):
        index, columns = read(build, stored)
        order, forced = build.merge(columns, index.times())
        numbers = [list(index.times())[each] - TIME_NS for each in order]
        assert sorted(numbers) == sorted({number for queue in queues for number, _ in queue})
        assert {body for body, _ in bodies_of(index, order, [records(each) for each in stored])} == {b"m%d" % each for each in numbers}
        for queue, column in zip(queues, columns, strict=True):
            first_places = list(dict.fromkeys(number for number, _ in queue))
            kept = [number for number in numbers if number in first_places]
            if not forced:
                assert kept == first_places
            flat = list(build.ranges_of([column], order, len(order), len(index)))
            known = {at: flat[i + 2] for i in range(0, len(flat), 3) for at in range(flat[i], flat[i + 1])}
            for at, number in enumerate(numbers):
                attempts = max((tried for each, tried in queue if each == number), default=-1)
                assert known.get(at, 0) == attempts
        told.append((numbers, forced))
    assert told[0] == told[1]
    assert append_rest(array("i"), QueueColumns(0), 0) == array("i")
    assert (merge([], array("q")), ranges_of([], array("i"), 0, 0)) == ((array("i"), 0), array("q"))
