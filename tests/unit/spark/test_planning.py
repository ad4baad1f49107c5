"""Planning and reading without Spark, over a door in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.clients.log import LogClient
from polymq.errors import ConfigError
from polymq.spark.offsets import DataLoss, Place, Range
from polymq.spark.options import Options
from polymq.spark.planning import Planner
from polymq.wire.records import Message
from tests.unit.clients.fake_log import FakeLog

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    return Planner(parsed, connect(log), sleep=lambda _: None)


def bounds(ranges: list[Range]) -> list[tuple[Place, int, int]]:
    return [(each.place, each.start, each.end) for each in ranges]


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
    plan = Planner(parsed, connect(log), sleep=pauses.append, monotonic=lambda: now[0])
    plan.advance({}, None)
    now[0] += 0.01
    plan.advance({}, None)
    now[0] += 1
    plan.advance({}, None)
    assert pauses == [pytest.approx(0.04)]
