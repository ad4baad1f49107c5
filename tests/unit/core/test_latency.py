from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.core.latency import STRETCHES_MAX, DeliveryTimes, Histogram, LatencyWindow
from polymq.core.settings import CoreSettings
from polymq.wire.records import HEADER_SIZE_BYTES, BatchHeader, Message, encode_message, seal

from .conftest import World, inbox

if TYPE_CHECKING:
    from polymq.core.views import LatencyView

SECOND_NS = 1_000_000_000
PARTITION = 3


def ids(*offsets: int) -> array[int]:
    return array("q", [PARTITION << limits.OFFSET_BITS | offset for offset in offsets])


def batches(*groups: list[int], base_offset: int = 0) -> bytearray:
    """One batch for each list of times: the first is the batch's own, the others are written as differences."""
    data = bytearray()
    for times in groups:
        at = len(data)
        data += bytes(HEADER_SIZE_BYTES)
        for time_ns in times:
            message = Message(b"body") if time_ns == times[0] else Message(b"body", time_ns=time_ns)
            data += encode_message(message, times[0])
        seal(data, at, len(data), BatchHeader(count=len(times), base_offset=base_offset, base_time_ns=times[0], segment_id=1, epoch=1))
        base_offset += len(times)
    return data


def noted(*groups: list[int], base_offset: int = 0, floor: int = 0, times: DeliveryTimes | None = None) -> DeliveryTimes:
    """Hand out whole batches."""
    data = batches(*groups, base_offset=base_offset)
    times = times or DeliveryTimes()
    count = sum(len(group) for group in groups)
    times.note(data, 0, len(data), 0, 0, base_offset, count, floor)
    return times


def took(times: DeliveryTimes, *offsets: int, now_ns: int) -> Histogram:
    histogram = Histogram()
    times.settled(ids(*offsets), 0, len(offsets), now_ns, histogram)
    return histogram


def quantiles(histogram: Histogram, *shares: float) -> list[int]:
    return [histogram.quantile(share) for share in shares]


def test_nothing_was_measured() -> None:
    assert quantiles(Histogram(), 0.5, 1.0) == [0, 0]


def test_one_duration_is_exact() -> None:
    histogram = Histogram()
    histogram.add(123_456_789, 5)
    assert quantiles(histogram, 0.01, 1.0) == [123_456_789, 123_456_789]
    assert histogram.total == 5


@given(st.lists(st.tuples(st.integers(1025, 1 << 51), st.integers(1, 9)), min_size=1), st.floats(0.01, 1.0))
def test_quantiles_are_right_to_a_bucket(pairs: list[tuple[int, int]], share: float) -> None:
    histogram = Histogram()
    for value_ns, weight in pairs:
        histogram.add(value_ns, weight)
    every = sorted(value_ns for value_ns, weight in pairs for _ in range(weight))
    exact = every[min(len(every), max(1, -int(-share * len(every) // 1))) - 1]
    assert histogram.quantile(share) == pytest.approx(exact, rel=1 / 32)


@pytest.mark.parametrize("value_ns", [-5, 0, 1, 1023, 1024, 1 << 51, (1 << 52) - 1, 1 << 52, (1 << 63) - 1])
def test_the_ends_of_the_scale(value_ns: int) -> None:
    histogram = Histogram()
    histogram.add(value_ns, 1)
    histogram.add(5_000, 1)
    assert histogram.total == 2
    assert 0 <= histogram.quantile(0.5) <= histogram.quantile(1.0)


def test_merging_is_as_if_all_had_been_added_to_one() -> None:
    first, second, both = Histogram(), Histogram(), Histogram()
    for value_ns in (10_000, 2_000_000, 3):
        first.add(value_ns, 2)
        both.add(value_ns, 2)
    for value_ns in (9_000_000_000, 77_777):
        second.add(value_ns, 1)
        both.add(value_ns, 1)
    empty = Histogram()
    empty.merge(Histogram())
    assert empty.total == 0
    empty.merge(first)
    empty.merge(second)
    empty.merge(Histogram())
    shares = [each / 20 for each in range(1, 21)]
    assert quantiles(empty, *shares) == quantiles(both, *shares)
    assert empty.total == both.total


def test_every_record_counts_from_its_own_time() -> None:
    times = noted([1000, 1000, 500], [8000])
    assert quantiles(took(times, 0, 1, 2, 3, now_ns=10_000), 0.25, 0.75, 1.0) == [2000, 9088, 9500]
    assert quantiles(took(times, 2, now_ns=10_000), 1.0) == [9500]
    assert took(times, 3, 0, now_ns=10_000).total == 2


def test_batches_of_one_time_are_one_stretch() -> None:
    assert noted([7, 7], [7], [9]).count == 2


def test_what_was_never_handed_out_is_left_out() -> None:
    assert took(DeliveryTimes(), 1, 2, now_ns=9).total == 0
    times = noted([4000], base_offset=10)
    assert took(times, 9, 10, now_ns=9000).total == 1


def test_handing_out_again_changes_nothing() -> None:
    times = noted([1000], [2000])
    noted([1000], times=times)
    assert times.count == 2
    assert quantiles(took(times, 0, now_ns=5000), 1.0) == [4000]


def test_a_slice_may_begin_within_a_batch() -> None:
    data = batches([3000, 3000, 3000], [4000])
    record = len(encode_message(Message(b"body")))
    times = DeliveryTimes()
    times.note(data, HEADER_SIZE_BYTES + record, len(data), 2, 3000, 1, 3, 0)
    assert [took(times, offset, now_ns=9000).quantile(1.0) for offset in (1, 2, 3)] == [6000, 6000, 5000]


def test_a_slice_that_is_cut_short_is_not_read_beyond() -> None:
    data = batches([3000], [4000])
    times = DeliveryTimes()
    for end in range(len(data)):
        times.note(data, 0, end, 0, 0, end * 10, 2, 0)
    assert times.count > 0


def test_what_the_group_has_finished_with_is_forgotten() -> None:
    times = DeliveryTimes()
    for offset in range(100_000):
        noted([offset], base_offset=offset, floor=max(0, offset - 10), times=times)
        assert times.count <= 64
    assert took(times, 99_999, now_ns=200_000).quantile(1.0) == 100_001


def test_a_straggler_does_not_make_it_grow_without_end() -> None:
    times = DeliveryTimes()
    for offset in range(0, 2 * STRETCHES_MAX, 1000):
        noted(*([each] for each in range(offset, offset + 1000)), base_offset=offset, floor=0, times=times)
    assert times.count <= STRETCHES_MAX
    last = 2 * STRETCHES_MAX - 1
    assert took(times, last, now_ns=last + 5000).total == 1
    assert took(times, 0, now_ns=last).total == 0


def test_the_window_forgets_by_halves() -> None:
    window = LatencyWindow(10 * SECOND_NS, 0)
    window.current(0).add(1000, 1)
    window.current(5 * SECOND_NS).add(2000, 1)
    assert window.merged(9 * SECOND_NS).total == 2
    assert window.merged(10 * SECOND_NS).total == 1
    assert window.merged(15 * SECOND_NS).total == 0
    window.current(16 * SECOND_NS).add(3000, 1)
    assert window.merged(100 * SECOND_NS).total == 0


def latency(world: World, group: str) -> LatencyView:
    (found,) = [view for view in world.view().groups if view.name == group]
    return found.latency


def measuring(partitions: int = 1) -> World:
    world = World(partitions)
    world.settings = CoreSettings(partitions=partitions, latency_quantiles=(1.0, 0.5), latency_window_ns=100 * SECOND_NS)
    world.restart()
    return world


def test_it_is_off_unless_asked_for(single: World) -> None:
    consumer = single.consume("t", "g", 10)
    single.publish("t", b"a")
    single.turn()
    single.settle(consumer, *inbox(consumer).ids)
    assert (latency(single, "g").count, latency(single, "g").quantiles) == (0, ())
    assert single.view().latency.quantiles == ()


@pytest.mark.parametrize("partitions", [1, 4])
def test_groups_are_measured_and_the_topic_is_all_of_them(partitions: int) -> None:
    world = measuring(partitions)
    assert world.session.topic("t") is None
    world.session.create_topic("t")
    assert world.view().latency.quantiles == (), "without a group nothing is measured"
    first, second = world.consume("t", "g", 10), world.consume("t", "h", 10)
    assert latency(world, "g").quantiles == ((1.0, 0), (0.5, 0))
    for body in (b"a", b"b", b"c"):
        world.publish("t", body)
        world.turn()
        world.wait(1)
    world.settle(first, *inbox(first).ids)
    world.wait(4)
    assert world.settle(second, inbox(second).ids[0], 12345)[0][0] == 1, "what cannot be settled is not measured"
    assert latency(world, "g").count == 3
    assert dict(latency(world, "g").quantiles)[1.0] == 3 * SECOND_NS
    assert dict(latency(world, "g").quantiles)[0.5] == pytest.approx(2 * SECOND_NS, rel=1 / 32)
    assert latency(world, "h").count == 1
    assert dict(latency(world, "h").quantiles)[1.0] == 7 * SECOND_NS
    assert world.view().latency.count == 4
    assert dict(world.view().latency.quantiles)[1.0] == 7 * SECOND_NS
    world.wait(200)
    assert world.view().latency.count == 0


def test_a_deferred_message_counts_from_its_publish() -> None:
    world = measuring()
    consumer = world.consume("t", "g", 10)
    world.publish("t", b"a", delay_ns=5 * SECOND_NS)
    world.turn()
    world.wait(6)
    world.settle(consumer, *inbox(consumer).ids)
    assert latency(world, "g").quantiles[0][1] == 6 * SECOND_NS


def test_what_is_replayed_is_measured_again() -> None:
    world = measuring()
    consumer = world.consume("t", "g", 10)
    for number in range(200):
        world.publish("t", b"x")
        world.wait(0.01)
        world.settle(consumer, inbox(consumer).ids[number])
        world.turn()
    assert latency(world, "g").count == 200
    assert world.session.replay("t", "g", offset=0)
    world.wait(8)
    world.settle(consumer, *inbox(consumer).ids[200:])
    assert latency(world, "g").count == 210
    assert latency(world, "g").quantiles[0][1] == 10 * SECOND_NS
