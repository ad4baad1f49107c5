"""Planning and reading without Spark, over a door in this process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from polymq.clients.log import LogClient
from polymq.errors import ConfigError, Refusal
from polymq.spark.log.offsets import Place, Range
from polymq.spark.log.options import Options
from polymq.spark.log.planning import Planner
from polymq.spark.losses import DataLoss
from polymq.wire.records import Message
from tests.unit.clients.fake_log import BASE_TIME_NS, FakeLog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polymq.spark.log.offsets import Positions

CLIENTS: list[LogClient] = []
FIRST, SECOND = Place("orders", 0), Place("orders", 1)


@pytest.fixture
def log() -> Iterator[FakeLog]:
    fake = FakeLog()
    fake.create("orders", 2)
    append(fake, 30)
    yield fake
    while CLIENTS:
        CLIENTS.pop().close()
    fake.close()


def connect(log: FakeLog) -> LogClient:
    CLIENTS.append(LogClient(log.address))
    return CLIENTS[-1]


def append(log: FakeLog, count: int, partition: int = 0) -> None:
    target = log.topics["orders"][partition]
    for first in range(target.end, target.end + count, 10):
        target.append([Message(b"%d" % n) for n in range(first, first + 10)])


def planner(log: FakeLog, *, streaming: bool = True, **options: str) -> Planner:
    given = {"server": log.address, "subscribe": "orders", "startingOffsets": "earliest", "retryTimeoutMs": "0"} | options
    parsed = Options.parse(given, streaming=streaming)
    return Planner(parsed, lambda _: connect(log), sleep=lambda _: None)


def bounds(ranges: list[Range]) -> list[tuple[Place, int, int]]:
    return [(each.place, each.start, each.end) for each in ranges]


def replay(plan: Planner, start: Positions, end: Positions) -> tuple[list[Range], Positions]:
    """Plan a micro-batch again, and the one behind it; give all ranges, and where the second one ends."""
    planned = plan.plan(start, end)
    next_end = plan.advance(end, None)
    return planned + plan.plan(end, next_end), next_end


def test_a_stream_advances_to_what_is_readable_and_then_stays(log: FakeLog) -> None:
    plan = planner(log)
    start = plan.starting()
    end = plan.advance(start, None)
    assert bounds(plan.plan(start, end)) == [(FIRST, 0, 30)]
    assert plan.advance(end, None) == end
    append(log, 10, partition=1)
    after = plan.advance(end, None)
    assert bounds(plan.plan(end, after)) == [(SECOND, 0, 10)]
    assert plan.newest() == after


def test_a_limit_cuts_the_step(log: FakeLog) -> None:
    append(log, 10, partition=1)
    plan = planner(log)
    start = plan.starting()
    end = plan.advance(start, 12)
    assert (end[FIRST].offset, end[SECOND].offset) == (9, 3)


def test_what_is_written_after_the_freeze_is_left_for_the_next_run(log: FakeLog) -> None:
    plan = planner(log)
    plan.freeze()
    append(log, 10)
    log.topics["orders"].append(type(log.topics["orders"][0])(number=3))
    end = plan.advance(plan.starting(), None)
    assert end[FIRST].offset == 30
    assert plan.advance(end, None) == end


def test_a_partition_that_is_new_is_read_from_its_start(log: FakeLog) -> None:
    plan = planner(log, startingOffsets="latest")
    start = plan.starting()
    del start[SECOND]
    append(log, 20, partition=1)
    end = plan.advance(start, None)
    assert bounds(plan.plan(start, end)) == [(SECOND, 0, 20)]


def test_a_partition_that_is_gone_is_a_loss(log: FakeLog) -> None:
    plan = planner(log)
    end = plan.advance(plan.starting(), None)
    log.topics["orders"].pop(0)
    log.topics["orders"].append(log.topics["orders"][0])
    with pytest.raises(DataLoss):
        plan.plan({}, end)
    log.topics["orders"].pop()
    with pytest.raises(DataLoss, match="no longer there"):
        plan.plan({}, {SECOND: end[SECOND]})


@pytest.mark.parametrize(
    ("happens", "words", "expected"),
    [
        ("trimmed", "were removed", range(40, 90)),
        ("replaced", "name other records", range(90)),
        ("created again", "created again", range(60)),
        ("shortened", "ends at offset 20", range(90)),
        ("deleted", "no longer there", range(0)),
    ],
)
def test_a_batch_that_is_planned_again_after_a_loss_overlaps_no_other(log: FakeLog, happens: str, words: str, expected: range) -> None:
    """The batch that was planned and not committed keeps its end, so the next one begins there and nowhere else."""
    (partition, _) = log.topics["orders"]
    before = planner(log)
    start = before.starting()
    end = before.advance(start, None)
    match happens:
        case "trimmed":
            append(log, 60)
            partition.trim(40)
        case "replaced":
            partition.power_loss(20)
            append(log, 70)
        case "created again":
            log.create("orders", 2, number=9)
            append(log, 60)
        case "shortened":
            partition.batches.pop()
            partition.end = 20
        case _:
            del log.topics["orders"]
    with pytest.raises(DataLoss, match=words):
        planner(log).plan(start, end)
    after = planner(log, failOnDataLoss="false")
    with pytest.warns(RuntimeWarning, match=words):
        planned, next_end = replay(after, start, end)
    if happens == "shortened":
        append(log, 70)
        planned += after.plan(next_end, after.advance(next_end, None))
    assert [offset for each in planned for offset in range(each.start, each.end)] == list(expected)
    assert {each.log for each in planned} == ({log.topics["orders"][0].number} if planned else set())


def test_a_batch_that_is_planned_again_does_not_go_beyond_the_freeze(log: FakeLog) -> None:
    plan = planner(log, failOnDataLoss="false")
    plan.freeze()
    start = plan.starting()
    log.topics["orders"][0].power_loss(20)
    append(log, 30)
    with pytest.warns(RuntimeWarning, match="name other records"):
        end = plan.advance(start, None)
    assert bounds(plan.plan(start, end)) == [(FIRST, 0, 20)]
    with pytest.warns(RuntimeWarning, match="name other records"):
        assert plan.advance(end, None) == end


def test_after_a_loss_the_position_moves_though_nothing_can_be_read(log: FakeLog) -> None:
    plan = planner(log, failOnDataLoss="false")
    start = plan.advance(plan.starting(), None)
    log.create("orders", 2, number=9)
    with pytest.warns(RuntimeWarning, match="created again"):
        end = plan.advance(start, None)
    assert (end[FIRST].offset, end[FIRST].log, end[SECOND].log) == (0, 9, 10)
    assert plan.plan(end, end) == []
    assert plan.advance(end, None) == end


def test_records_that_may_not_be_read_yet_are_no_loss(log: FakeLog) -> None:
    plan = planner(log)
    start = plan.starting()
    end = plan.advance(start, None)
    log.topics["orders"][0].held_back = 20
    assert plan.advance(end, None) == end
    assert bounds(plan.plan(start, end)) == [(FIRST, 0, 30)]
    assert plan.newest()[FIRST].offset == 10
    batch = planner(log, streaming=False, endingOffsets='{"orders": {"0": 25}}')
    assert bounds(batch.plan_batch()) == [(FIRST, 0, 25)]


def test_a_topic_that_is_gone_is_a_loss_for_those_who_had_read_it(log: FakeLog) -> None:
    plan = planner(log)
    end = plan.advance(plan.starting(), None)
    del log.topics["orders"]
    with pytest.raises(DataLoss, match="orders/0 is no longer there"):
        plan.advance(end, None)
    assert plan.newest() == {}
    patient = planner(log, failOnDataLoss="false")
    patient.freeze()
    with pytest.warns(RuntimeWarning, match="no longer there"):
        assert patient.advance(end, None) == end
    with pytest.raises(Refusal):
        planner(log, failOnDataLoss="false").starting()
    with pytest.raises(Refusal):
        planner(log, failOnDataLoss="false").advance({}, None)


def test_a_partition_that_is_gone_is_a_loss_also_where_nothing_is_new(log: FakeLog) -> None:
    plan = planner(log)
    end = plan.advance(plan.starting(), None)
    log.topics["orders"].pop()
    with pytest.raises(DataLoss, match="orders/1 is no longer there"):
        plan.advance(end, None)


def test_a_refusal_that_is_not_about_the_topic_is_no_loss(log: FakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = planner(log, failOnDataLoss="false")
    start = plan.starting()
    monkeypatch.setattr(log, "answer", lambda path: (503, {}, b'{"error": "STORE_FAILED", "message": "damaged"}'))
    with pytest.raises(Refusal, match="damaged"):
        plan.advance(start, None)


def test_offsets_by_partition(log: FakeLog) -> None:
    append(log, 20, partition=1)
    plan = planner(log, startingOffsets='{"orders": {"0": 7, "1": -1}}')
    assert [position.offset for position in plan.starting().values()] == [7, 20]
    with pytest.raises(ConfigError, match="orders/5"):
        planner(log, startingOffsets='{"orders": {"5": 7}}').starting()


def test_a_batch_read_beyond_the_log_is_a_loss_and_goes_on_without_it(log: FakeLog) -> None:
    log.topics["orders"][0].trim(10)
    options = {"startingOffsets": '{"orders": {"0": 5}}', "endingOffsets": '{"orders": {"0": 35}}'}
    with pytest.raises(DataLoss):
        planner(log, streaming=False, **options).plan_batch()
    with pytest.warns(RuntimeWarning, match="orders/0"):
        ranges = planner(log, streaming=False, failOnDataLoss="false", **options).plan_batch()
    assert bounds(ranges) == [(FIRST, 10, 30)]


def test_an_idle_query_asks_the_broker_now_and_then_only(log: FakeLog) -> None:
    now = [100.0]
    pauses: list[float] = []
    parsed = Options.parse({"server": log.address, "subscribe": "orders"}, streaming=True)
    plan = Planner(parsed, lambda _: connect(log), sleep=pauses.append, monotonic=lambda: now[0])
    plan.advance({}, None)
    now[0] += 0.01
    plan.advance({}, None)
    now[0] += 1
    plan.advance({}, None)
    assert pauses == [pytest.approx(0.04)]


def test_a_time_is_the_first_record_of_that_time_or_later(log: FakeLog) -> None:
    """Batches of the door in this process are 10 µs apart, and 1,700,000,000,000 ms and 1 µs is the first one's time."""
    first_ms = BASE_TIME_NS // 1_000_000
    assert planner(log, startingTimestamp=str(first_ms)).starting()[FIRST].offset == 0
    late = str(first_ms + 1)
    with pytest.raises(ConfigError, match=f"orders/0 has no record of {late} ms"):
        planner(log, startingTimestamp=late).starting()
    patient = planner(log, startingOffsetsByTimestampStrategy="latest", startingTimestamp=late).starting()
    assert (patient[FIRST].offset, patient[SECOND].offset) == (30, 0)
    named = json.dumps({"orders": {"0": first_ms}})
    assert planner(log, streaming=False, endingOffsetsByTimestamp=named).plan_batch() == []
    log.topics["orders"][0].trim(10)
    read = planner(log, streaming=False, startingOffsetsByTimestamp=named, endingTimestamp=late)
    assert bounds(read.plan_batch()) == [(FIRST, 10, 30)]


def test_too_few_records_are_waited_with(log: FakeLog) -> None:
    now = [100.0]
    given = {"server": log.address, "subscribe": "orders", "startingOffsets": "earliest", "minOffsetsPerTrigger": "20"}
    options = Options.parse(given | {"maxTriggerDelay": "30s"}, streaming=True)
    plan = Planner(options, lambda _: connect(log), sleep=lambda _: None, monotonic=lambda: now[0])
    start = plan.starting()
    end = plan.advance(start, None)
    append(log, 10)
    assert plan.advance(end, None) == end
    append(log, 10)
    after = plan.advance(end, None)
    assert after[FIRST].offset == 50
    append(log, 10)
    now[0] += 29
    assert plan.advance(after, None) == after
    now[0] += 1
    assert plan.advance(after, None)[FIRST].offset == 60
    plan.freeze()
    assert plan.advance(after, None)[FIRST].offset == 60


def test_bytes_are_counted_by_the_average(log: FakeLog) -> None:
    partition = log.topics["orders"][0]
    partition.other_bytes = 30_000 - sum(len(data) for _, _, data in partition.batches)
    plan = planner(log, maxBytesPerTrigger="12000")
    start = plan.starting()
    assert plan.advance(start, None)[FIRST].offset == 12
    assert plan.advance(start, 5)[FIRST].offset == 5
    assert planner(log, maxBytesPerTrigger="1").advance(start, None)[FIRST].offset == 1
    assert planner(log, maxBytesPerTrigger="30000").advance(start, None)[FIRST].offset == 30


def test_topics_of_a_pattern_are_found_while_the_query_runs(log: FakeLog) -> None:
    given = {"server": log.address, "subscribePattern": "ord.+", "startingOffsets": "latest"}
    plan = Planner(Options.parse(given, streaming=True), lambda _: connect(log), sleep=lambda _: None)
    start = plan.starting()
    (partition,) = log.create("ordinary")
    partition.append([Message(b"x")])
    log.create("other")
    end = plan.advance(start, None)
    assert bounds(plan.plan(start, end)) == [(Place("ordinary", 0), 0, 1)]
    del log.topics["ordinary"]
    with pytest.raises(DataLoss, match="ordinary/0 is no longer there"):
        plan.advance(end, None)


def test_partitions_that_are_assigned_must_be_there(log: FakeLog) -> None:
    def assigned(text: str) -> Planner:
        options = Options.parse({"server": log.address, "assign": text, "startingOffsets": "earliest"}, streaming=True)
        return Planner(options, lambda _: connect(log), sleep=lambda _: None)

    plan = assigned('{"orders": [1]}')
    append(log, 10, partition=1)
    assert bounds(plan.plan(plan.starting(), plan.newest())) == [(SECOND, 0, 10)]
    with pytest.raises(ConfigError, match="assign speaks of orders/7, orders/n/1"):
        assigned('{"orders": [1, 7, "n/1"]}').starting()


def test_a_broker_that_is_slow_to_say_is_asked_less_often(log: FakeLog) -> None:
    now = [100.0]
    pauses: list[float] = []

    def monotonic() -> float:
        now[0] += 0.01
        return now[0]

    plan = Planner(
        Options.parse({"server": log.address, "subscribe": "orders"}, streaming=True),
        lambda _: connect(log),
        sleep=pauses.append,
        monotonic=monotonic,
    )
    plan.advance({}, None)
    plan.advance({}, None)
    assert len(pauses) == 1
    assert 0.05 < pauses[0] < 0.1
