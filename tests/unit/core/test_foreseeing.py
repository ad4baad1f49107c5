"""A group that was taken over: it leaves out what it does not have, and goes on counting attempts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymq.core.ahead import LEFT_OUT
from polymq.core.group import GroupKind
from polymq.errors import Refusal
from polymq.wire.records import Message, encode_message

from .conftest import World, inbox


def prepared(single: World, ranges: list[tuple[int, int, int]], count: int = 10) -> World:
    single.session.create_topic("t")
    single.session.create_group("t", "g")
    single.session.foresee("t", "g", 0, ranges)
    for index in range(count):
        single.publish("t", b"m%d" % index)
    single.turn()
    return single


def received(world: World, credit: int = 100) -> list[tuple[bytes, int]]:
    consumer = world.consume("t", "g", credit)
    world.turn()
    return inbox(consumer).got


RANGES = [(0, 2, LEFT_OUT), (3, 5, 4), (5, 6, LEFT_OUT), (6, 7, 65535)]
EXPECTED = [(b"m2", 1), (b"m3", 5), (b"m4", 5), (b"m6", 65535), (b"m7", 1), (b"m8", 1), (b"m9", 1)]


def test_each_message_comes_once_with_its_attempts(single: World) -> None:
    prepared(single, RANGES)
    assert single.view().groups[0].depth == 7
    assert received(single) == EXPECTED


@pytest.mark.parametrize("snapshot", [False, True])
def test_it_outlives_the_process(single: World, snapshot: bool) -> None:
    prepared(single, RANGES)
    if snapshot:
        single.broker.snapshot()
    single.restart()
    assert single.view().groups[0].depth == 7
    assert received(single) == EXPECTED


@pytest.mark.parametrize("snapshot", [False, True])
@pytest.mark.parametrize("settled", range(7))
def test_a_restart_half_way_goes_on(single: World, settled: int, snapshot: bool) -> None:
    prepared(single, RANGES)
    consumer = single.consume("t", "g", 5)
    single.turn()
    got = inbox(consumer)
    assert got.got == EXPECTED[:5]
    done = [got.ids[settled]] if settled < 5 else got.ids[:settled]
    single.settle(consumer, *done)
    single.session.credit(consumer, 0)
    single.turn()
    if snapshot:
        single.broker.snapshot()
    single.restart()
    left = [EXPECTED[index] for index in range(7) if index >= 5 or (settled < 5 and index != settled)]
    again = received(single)
    assert [body for body, _attempts in again] == [body for body, _attempts in left]
    for (_body, attempts), (_, before) in zip(again, left, strict=True):
        assert attempts >= before, "what was known ahead is not forgotten when the process dies"


def test_sampling_and_several_consumers_see_the_same(single: World) -> None:
    prepared(single, RANGES)
    first = single.consume("t", "g", 100, sample_percent=99)
    second = single.consume("t", "g", 100)
    single.turn()
    assert sorted(inbox(first).got + inbox(second).got) == sorted(EXPECTED)


def test_an_emptied_group_knows_nothing_any_more(single: World) -> None:
    prepared(single, [(0, 2, LEFT_OUT), (4, 6, 3)], count=6)
    single.session.empty_group("t", "g")
    single.publish("t", b"new")
    single.turn()
    single.restart()
    assert single.view().groups[0].depth == 1
    assert received(single) == [(b"new", 1)]


def test_only_work_groups_can_be_told(single: World) -> None:
    single.session.create_topic("t")
    single.session.create_group("t", "c", kind=GroupKind.CURSOR)
    with pytest.raises(Refusal, match="not a work group"):
        single.session.foresee("t", "c", 0, [])


def test_encoded_records_keep_their_own_times(single: World) -> None:
    single.session.create_topic("t")
    base = single.clock.wall_ns()
    records = b"".join(encode_message(Message(body, time_ns=time_ns), base) for body, time_ns in ((b"a", base - 500), (b"b", 7)))
    single.session.publish_records("t", 0, memoryview(records), 2, time_ns=base, origin=1)
    single.turn()
    consumer = single.consume("t", "g", 10)
    single.turn()
    assert inbox(consumer).got == [(b"a", 1), (b"b", 1)]
    messages = single.store.logs[0].messages()
    assert [(each.body, each.time_ns) for each in messages] == [(b"a", base - 500), (b"b", 7)]


@settings(max_examples=60)
@given(st.lists(st.sampled_from((0, 0, LEFT_OUT, 1, 2, 9)), min_size=1, max_size=40), st.booleans(), st.integers(1, 7))
def test_any_pattern_is_delivered_as_it_was_told(pattern: list[int], restart: bool, credit: int) -> None:
    world = World(1)
    ranges = [(index, index + 1, attempts) for index, attempts in enumerate(pattern) if attempts]
    prepared(world, ranges, count=len(pattern))
    if restart:
        world.restart()
    consumer = world.consume("t", "g", credit)
    for _ in pattern:
        world.turn()
        ids = inbox(consumer).ids
        world.settle(consumer, *ids[-credit:])
    expected = [(b"m%d" % index, attempts + 1) for index, attempts in enumerate(pattern) if attempts != LEFT_OUT]
    assert inbox(consumer).got == expected
    assert world.view().groups[0].depth == 0


@pytest.mark.parametrize("gap", [1, 2499, 2500, 2501, 6000])
def test_a_gap_of_any_size_is_stepped_over(single: World, gap: int) -> None:
    prepared(single, [(2, 2 + gap, LEFT_OUT)], count=0)
    single.publish("t", *(b"%d" % index for index in range(gap + 5)))
    single.turn()
    assert [int(body) for body, _ in received(single)] == [0, 1, 2 + gap, 3 + gap, 4 + gap]


def test_a_gap_that_lies_on_the_disk_is_waited_for(single: World) -> None:
    prepared(single, [(2, 5, LEFT_OUT)])
    consumer = single.consume("t", "g", 2)
    single.turn()
    assert inbox(consumer).bodies == [b"m0", b"m1"]
    single.store.logs[0].cold = True
    single.session.credit(consumer, 100)
    single.broker.dispatch()
    assert inbox(consumer).bodies == [b"m0", b"m1"]
    single.store.logs[0].cold = False
    single.turn()
    assert inbox(consumer).bodies == [b"m0", b"m1", b"m5", b"m6", b"m7", b"m8", b"m9"]
