"""Planning without Spark, over a name server and brokers in this process."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.rocketmq_options import RocketMQOptions
from polymq.clients.rocketmq_queues import MessageQueue, QueueClient
from polymq.errors import ConfigError, DeadlineExceeded, Refusal
from polymq.spark.losses import DataLoss
from polymq.spark.rocketmq.offsets import Position, Positions, Range
from polymq.spark.rocketmq.options import Options
from polymq.spark.rocketmq.planning import Planner
from tests.unit.clients.fake_queues import BASE_TIME_MS, FakeQueues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIRST, SECOND = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
OTHER = MessageQueue("orders", "broker-b", 0)
CLIENTS: list[QueueClient] = []


@pytest.fixture
def queues() -> Iterator[FakeQueues]:
    fake = FakeQueues()
    fake.create("orders", 2)
    fake.put("orders", 30)
    yield fake
    while CLIENTS:
        CLIENTS.pop().close()
    fake.close()


class Time:
    """Goes on by being slept through; `happens` then."""

    def __init__(self) -> None:
        self.now = 0.0
        self.happens: Callable[[], None] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.happens()

    def monotonic(self) -> float:
        return self.now


def planner(queues: FakeQueues, *, streaming: bool = True, time: Time | None = None, **given: Any) -> Planner:
    time = time or Time()
    base = {"namesrvAddr": queues.address, "retryTimeoutMs": "0"}
    if not {"subscribePattern", "assign"} & set(given):
        base["subscribe"] = "orders"
    if not any(name.startswith("starting") for name in given):
        base["startingOffsets"] = "earliest"
    options = Options.parse(base | given, streaming=streaming)
    # A clock for routes: they are old whenever they are looked for.
    CLIENTS.append(QueueClient(queues.address, "g", RocketMQOptions(), monotonic=itertools.count(0.0, 100.0).__next__))
    return Planner(options, CLIENTS[-1], sleep=time.sleep, monotonic=time.monotonic)


def at(**offsets: tuple[int, int]) -> Positions:
    named = {"first": FIRST, "second": SECOND, "other": OTHER}
    return {named[name]: Position(*numbers) for name, numbers in offsets.items()}


def ranges(found: list[Range]) -> list[tuple[int, int, int]]:
    return [(each.partition, each.start, each.end) for each in found]


def test_a_stream_starts_where_it_is_told(queues: FakeQueues) -> None:
    queues.queues["orders"]["broker-a"][0].first = 5
    assert planner(queues).starting() == at(first=(5, 0), second=(0, 1))
    assert planner(queues, startingOffsets="latest").starting() == at(first=(35, 0), second=(0, 1))
    named = '{"orders": {"broker-a": {"0": 17}}}'
    assert planner(queues, startingOffsets=named).starting() == at(first=(17, 0), second=(0, 1))
    assert planner(queues, startingOffsets='{"orders": {"broker-a": {"0": -1}}}').starting() == at(first=(35, 0), second=(0, 1))


def test_a_stream_starts_at_a_time(queues: FakeQueues) -> None:
    queues.put("orders", 10, queue=1)
    assert planner(queues, startingTimestamp=str(BASE_TIME_MS + 95)).starting() == at(first=(10, 0), second=(10, 1))
    times = f'{{"orders": {{"broker-a": {{"1": {BASE_TIME_MS + 40}}}}}}}'
    assert planner(queues, startingOffsetsByTimestamp=times).starting() == at(first=(0, 0), second=(4, 1))


def test_what_is_not_there_is_refused(queues: FakeQueues) -> None:
    with pytest.raises(Refusal, match="no name server knows events"):
        planner(queues, subscribe="events").starting()
    with pytest.raises(ConfigError, match="orders/broker-a/7"):
        planner(queues, startingOffsets='{"orders": {"broker-a": {"7": 1}}}').starting()
    with pytest.raises(ConfigError, match="assign speaks of orders/broker-b/0"):
        planner(queues, assign='{"orders": {"broker-b": [0]}}').starting()


def test_assigned_queues_keep_their_numbers(queues: FakeQueues) -> None:
    queues.create("orders", 2, "broker-b")
    plan = planner(queues, assign='{"orders": {"broker-a": [1], "broker-b": [0]}}')
    assert plan.starting() == at(second=(0, 1), other=(0, 2))


def test_patterns_match_whole_names_of_users_topics(queues: FakeQueues) -> None:
    queues.create("orders_eu")
    assert {queue.topic for queue in planner(queues, subscribePattern="orders|x").starting()} == {"orders"}
    assert {queue.topic for queue in planner(queues, subscribePattern="orders.*").starting()} == {"orders", "orders_eu"}
    assert planner(queues, subscribePattern="nothing").starting() == {}


def test_a_batch_goes_to_the_end(queues: FakeQueues) -> None:
    plan = planner(queues)
    start = plan.starting()
    end = plan.advance(start, None)
    assert end == at(first=(30, 0), second=(0, 1))
    assert ranges(plan.plan(start, end)) == [(0, 0, 30)]
    assert plan.advance(end, None) is end
    assert plan.newest() == end


def test_limits_are_shared_by_what_waits(queues: FakeQueues) -> None:
    queues.put("orders", 60, queue=1)
    plan = planner(queues)
    end = plan.advance(plan.starting(), 30)
    assert end == at(first=(10, 0), second=(20, 1))
    assert ranges(planner(queues, minPartitions="4").plan(plan.starting(), end)) == [(0, 0, 10), (1, 0, 6), (1, 6, 13), (1, 13, 20)]


def test_positions_alone_are_enough_to_plan(queues: FakeQueues) -> None:
    assert ranges(planner(queues).plan(at(first=(10, 4), second=(0, 1)), at(first=(25, 4), second=(0, 1)))) == [(4, 10, 25)]


def test_new_queues_and_brokers_are_found(queues: FakeQueues) -> None:
    plan = planner(queues)
    end = plan.advance(plan.starting(), None)
    queues.create("orders", 1, "broker-b")
    assert plan.advance(end, None) is end
    queues.put("orders", 5, broker="broker-b")
    later = plan.advance(end, None)
    assert later == end | at(other=(5, 2))
    assert ranges(planner(queues).plan(end, later)) == [(2, 0, 5)]


def test_a_limited_batch_gives_new_queues_their_numbers_together(queues: FakeQueues) -> None:
    plan = planner(queues)
    end = plan.advance(plan.starting(), None)
    queues.create("orders", 2, "broker-b")
    queues.put("orders", 5, queue=1, broker="broker-b")
    later = plan.advance(end, 3)
    assert later == end | at(other=(0, 2)) | {MessageQueue("orders", "broker-b", 1): Position(3, 3)}


def test_an_available_now_run_ends_where_it_began_to_look(queues: FakeQueues) -> None:
    plan = planner(queues)
    start = plan.starting()
    plan.freeze()
    queues.put("orders", 10)
    end = plan.advance(start, None)
    assert end == at(first=(30, 0), second=(0, 1))
    assert plan.advance(end, None) is end


def test_brokers_are_not_asked_all_the_time(queues: FakeQueues) -> None:
    time = Time()
    plan = planner(queues, time=time)
    start = plan.starting()
    for _ in range(3):
        plan.advance(start, None)
    assert time.now == pytest.approx(0.2)


def test_a_broker_that_is_away_is_waited_for(queues: FakeQueues) -> None:
    time = Time()
    plan = planner(queues, time=time, retryTimeoutMs="10000")
    start = plan.starting()
    queues.away.add("broker-a")

    def back() -> None:
        if time.now > 3:
            queues.away.clear()

    time.happens = back
    assert plan.advance(start, None) == at(first=(30, 0), second=(0, 1))
    assert time.now > 3
    time.happens = lambda: None
    queues.away.add("broker-a")
    with pytest.raises(DeadlineExceeded, match="after 10 s"):
        plan.advance(start, None)


def test_a_broker_that_is_away_is_no_loss(queues: FakeQueues) -> None:
    plan = planner(queues, failOnDataLoss="false")
    start = plan.starting()
    queues.create("orders", 1, "broker-b")
    queues.away.add("broker-a")
    with pytest.raises(DeadlineExceeded, match="its broker is away"):
        plan.advance(start, None)
    with pytest.raises(DeadlineExceeded, match="its broker is away"):
        plan.plan(start, at(first=(30, 0), second=(0, 1)))


def removed(queues: FakeQueues) -> None:
    queue = queues.queues["orders"]["broker-a"][0]
    queue.first, queue.messages = 20, queue.messages[20:]


def shortened(queues: FakeQueues) -> None:
    del queues.queues["orders"]["broker-a"][0].messages[5:]


def deleted(queues: FakeQueues) -> None:
    queues.create("events")
    del queues.queues["orders"]


@pytest.mark.parametrize(
    ("happens", "words", "expected"),
    [
        (removed, "starts at offset 20", at(first=(30, 0), second=(0, 1))),
        (shortened, "ends at offset 5", at(first=(5, 0), second=(0, 1))),
        (deleted, "no longer there", at(first=(10, 0), second=(0, 1))),
    ],
)
def test_losses_are_noticed(queues: FakeQueues, happens: Callable[[FakeQueues], None], words: str, expected: Positions) -> None:
    start, end = at(first=(10, 0), second=(0, 1)), at(first=(15, 0), second=(0, 1))
    happens(queues)
    with pytest.raises(DataLoss, match=words):
        planner(queues).advance(start, None)
    with pytest.raises(DataLoss, match=words):
        planner(queues).plan(start, end)
    lenient = planner(queues, failOnDataLoss="false")
    with pytest.warns(RuntimeWarning, match=words):
        assert lenient.advance(start, None) == expected
    with pytest.warns(RuntimeWarning, match=words):
        assert ranges(lenient.plan(start, end)) == []


def test_a_topic_that_is_not_asked_for_any_more_is_a_loss(queues: FakeQueues) -> None:
    queues.create("events")
    with pytest.raises(DataLoss, match="no longer asked for"):
        planner(queues, subscribe="events").advance(at(first=(10, 0)), None)


def test_a_queue_that_seems_shorter_is_looked_at_again(queues: FakeQueues) -> None:
    time = Time()
    plan = planner(queues, time=time, retryTimeoutMs="60000")
    shown = [7]
    queues.scripts[30] = lambda ext: (0, "", {"offset": str(shown[0])}, b"") if ext["queueId"] == "0" else None

    def synced() -> None:
        shown[0] = 30 if time.now > 1 else 7

    time.happens = synced
    start = at(first=(10, 0), second=(0, 1))
    assert plan.advance(start, None) is start
    assert 1 < time.now < 3
    assert plan.advance(start, None) == at(first=(30, 0), second=(0, 1))


def batch(queues: FakeQueues, **given: Any) -> list[tuple[int, int, int]]:
    return ranges(planner(queues, streaming=False, **given).plan_batch())


def test_batch_reads_have_bounds(queues: FakeQueues) -> None:
    queues.put("orders", 10, queue=1)
    assert batch(queues) == [(0, 0, 30), (1, 0, 10)]
    assert batch(queues, startingOffsets='{"orders": {"broker-a": {"0": 29}}}', endingOffsets='{"orders": {"broker-a": {"1": 4}}}') == [
        (0, 29, 30),
        (1, 0, 4),
    ]
    assert batch(queues, startingTimestamp=str(BASE_TIME_MS + 50), endingTimestamp=str(BASE_TIME_MS + 80)) == [(0, 5, 8), (1, 5, 8)]


def test_batch_reads_notice_losses(queues: FakeQueues) -> None:
    removed(queues)
    given: dict[str, Any] = {
        "startingOffsets": '{"orders": {"broker-a": {"0": 3}}}',
        "endingOffsets": '{"orders": {"broker-a": {"0": 99}}}',
    }
    with pytest.raises(DataLoss, match="ends at offset 30, before 99"):
        batch(queues, **given)
    with pytest.warns(RuntimeWarning, match="starts at offset 20, not 3"), pytest.warns(RuntimeWarning, match="before 99"):
        assert batch(queues, failOnDataLoss="false", **given) == [(0, 20, 30)]
