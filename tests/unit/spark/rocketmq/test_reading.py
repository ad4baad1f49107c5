"""Ranges of queues as executors read them: whole, over whatever happens, and never for ever."""

from __future__ import annotations

import random
import zlib
from typing import TYPE_CHECKING

import pytest

from polymq.clients.rocketmq_options import RocketMQOptions
from polymq.clients.rocketmq_queues import MessageQueue, QueueClient
from polymq.errors import DeadlineExceeded, Refusal
from polymq.protocols.rocketmq.messages import StoredMessage
from polymq.protocols.rocketmq.runs import encode_one
from polymq.spark.losses import DataLoss
from polymq.spark.rocketmq import reading
from polymq.spark.rocketmq.offsets import Range
from polymq.spark.rocketmq.options import Options
from polymq.spark.rocketmq.reading import RangeReader
from tests.unit.clients.fake_queues import FakeQueue, FakeQueues, Reply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

QUEUE = MessageQueue("orders", "broker-a", 0)
CLIENTS: list[QueueClient] = []


@pytest.fixture
def queues() -> Iterator[FakeQueues]:
    fake = FakeQueues()
    fake.create("orders")
    fake.put("orders", 1000)
    yield fake
    while CLIENTS:
        CLIENTS.pop().close()
    fake.close()


@pytest.fixture
def queue(queues: FakeQueues) -> FakeQueue:
    return queues.queues["orders"]["broker-a"][0]


def read(queues: FakeQueues, start: int, end: int, happens: Callable[[float], None] = lambda _: None, **given: str) -> list[int]:
    """Read a range; gives its offsets."""
    base = {"namesrvAddr": queues.address, "subscribe": "orders", "retryTimeoutMs": "10000", "columns": "value,offset,partition"}
    options = Options.parse(base | given, streaming=True)
    CLIENTS.append(QueueClient(queues.address, "g", RocketMQOptions(request_seconds=2.0)))
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        happens(sum(slept))

    reader = RangeReader(CLIENTS[-1], Range(QUEUE, 5, start, end), options, sleep=sleep, monotonic=lambda: sum(slept))
    found: list[int] = []
    for batch in reader.batches():
        batch.validate(full=True)
        assert set(batch["partition"].to_pylist()) <= {5}
        found += batch["offset"].to_pylist()
    return found


@pytest.mark.parametrize(("start", "end"), [(0, 1000), (1, 2), (17, 400), (990, 1000), (5, 5)])
@pytest.mark.parametrize("pull", ["1", "7", "32"])
def test_ranges_are_read_whole(queues: FakeQueues, start: int, end: int, pull: str) -> None:
    if pull == "1":
        start = max(start, end - 50)
    assert read(queues, start, end, pullBatch=pull) == list(range(start, end))


def test_pieces_are_handed_on_when_they_are_large(queues: FakeQueues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_BATCH_OFFSETS", 100)
    assert read(queues, 0, 1000) == list(range(1000))
    monkeypatch.setattr(reading, "_BATCH_OFFSETS", 10**9)
    monkeypatch.setattr(reading, "_BATCH_SIZE_BYTES", 1000)
    assert read(queues, 0, 1000) == list(range(1000))


def test_a_broker_that_gives_less_than_it_is_asked_for_is_not_asked_for_more(queues: FakeQueues) -> None:
    queues.pull_count_max = 8
    assert read(queues, 0, 1000) == list(range(1000))
    # Some guesses are wrong at first, and some later: one tries whether it gives more by now.
    assert queues.codes().count(11) < 170


def test_what_is_left_out_is_passed_over(queues: FakeQueues, queue: FakeQueue) -> None:
    for offset in (0, 5, *range(100, 300), 999):
        queue.messages[offset] = None
    assert read(queues, 0, 1000) == [*range(1, 5), *range(6, 100), *range(300, 999)]


def test_what_is_removed_while_it_is_read_is_a_loss(queues: FakeQueues, queue: FakeQueue) -> None:
    for offset in range(100):
        queue.messages[offset] = None
    # The broker has not counted yet what it has removed.
    queues.scripts[32] = lambda _: (0, "", {"timestamp": "-1"}, b"")
    with pytest.raises(DataLoss, match="nothing left at offset 50"):
        read(queues, 50, 200)
    with pytest.warns(RuntimeWarning, match="nothing left at offset 50"):
        assert read(queues, 50, 200, failOnDataLoss="false") == list(range(100, 200))


@pytest.mark.parametrize("first", [60, 300])
def test_a_range_that_begins_before_the_queue_is_a_loss(queues: FakeQueues, queue: FakeQueue, first: int) -> None:
    queue.first, queue.messages = first, queue.messages[first:]
    with pytest.raises(DataLoss, match=f"starts at offset {first}"):
        read(queues, 50, 200)
    with pytest.warns(RuntimeWarning, match="starts at offset"):
        assert read(queues, 50, 200, failOnDataLoss="false") == list(range(first, 200))


@pytest.mark.parametrize("left", [100, 20])
def test_a_queue_that_ends_before_the_range_is_a_loss_after_a_while(queues: FakeQueues, queue: FakeQueue, left: int) -> None:
    del queue.messages[left:]
    with pytest.raises(DataLoss, match="ends at offset"):
        read(queues, 50, 200)
    with pytest.warns(RuntimeWarning, match="ends at offset"):
        assert read(queues, 50, 200, failOnDataLoss="false") == list(range(50, left))


def test_a_queue_that_shows_its_end_later_is_waited_for(queues: FakeQueues, queue: FakeQueue) -> None:
    kept = queue.messages[100:]
    del queue.messages[100:]

    def synced(slept: float) -> None:
        if slept > 1 and queue.end == 100:
            queue.messages += kept

    assert read(queues, 50, 200, synced) == list(range(50, 200))


def test_a_topic_that_is_gone_is_a_loss(queues: FakeQueues) -> None:
    queues.create("events")
    del queues.queues["orders"]
    with pytest.raises(DataLoss, match="no longer there"):
        read(queues, 0, 10)
    with pytest.warns(RuntimeWarning, match="no longer there"):
        assert read(queues, 0, 10, failOnDataLoss="false") == []


def test_a_broker_that_is_away_is_waited_for(queues: FakeQueues) -> None:
    queues.away.add("broker-a")

    def back(slept: float) -> None:
        if slept > 3:
            queues.away.clear()

    assert read(queues, 0, 100, back, failOnDataLoss="false") == list(range(100))
    queues.away.add("broker-a")
    with pytest.raises(DeadlineExceeded, match="after 10 s"):
        read(queues, 0, 100, failOnDataLoss="false")


def test_a_broker_that_is_busy_now_and_then_is_asked_again(queues: FakeQueues) -> None:
    random_ = random.Random(1)
    busy: Reply = (2, "busy", {}, b"")
    queues.scripts[11] = lambda _: busy if random_.random() < 0.3 else None
    assert read(queues, 0, 1000) == list(range(1000))


def test_who_may_not_read_is_told_at_once(queues: FakeQueues) -> None:
    queues.scripts[11] = lambda _: (16, "the consumer group's right is not enough", {}, b"")
    with pytest.raises(Refusal, match="not enough"):
        read(queues, 0, 10, lambda _: pytest.fail("it was tried again"))


@pytest.mark.parametrize("code", [0, 19, 20, 21])
def test_a_broker_that_does_not_go_on_is_not_asked_for_ever(queues: FakeQueues, code: int) -> None:
    fields = {"nextBeginOffset": "0", "minOffset": "0", "maxOffset": "1000"}
    queues.scripts[11] = lambda _: (code, "NO", fields, b"")
    with pytest.raises(DeadlineExceeded, match="does not give what it has at offset 7"):
        read(queues, 7, 10)


def test_nonsense_is_asked_for_again_and_then_given_up(queues: FakeQueues) -> None:
    fields = {"nextBeginOffset": "10", "minOffset": "0", "maxOffset": "1000"}
    left = [3]

    def nonsense(ext: dict[str, str]) -> tuple[int, str, dict[str, str], bytes] | None:
        left[0] -= 1
        return (0, "FOUND", {**fields, "nextBeginOffset": str(int(ext["queueOffset"]) + 1)}, b"nonsense") if left[0] >= 0 else None

    queues.scripts[11] = nonsense
    assert read(queues, 0, 100) == list(range(100))
    left[0] = 10**9
    with pytest.raises(DeadlineExceeded, match="do not fit"):
        read(queues, 0, 10, retryTimeoutMs="1000")


def test_an_answer_without_numbers_is_nonsense(queues: FakeQueues) -> None:
    queues.scripts[11] = lambda _: (0, "FOUND", {}, b"")
    with pytest.raises(DeadlineExceeded, match="nextBeginOffset"):
        read(queues, 0, 100)


def test_a_damaged_message_comes_a_second_time(queues: FakeQueues, queue: FakeQueue) -> None:
    whole = queue.messages[40]
    assert whole is not None
    damaged = bytearray(whole)
    damaged[88] ^= 1
    queue.messages[40] = bytes(damaged)

    def mended(ext: dict[str, str]) -> None:
        if ext["queueOffset"] == "40":
            queue.messages[40] = whole

    queues.scripts[11] = mended
    assert read(queues, 0, 1000) == list(range(1000))
    queues.scripts.clear()
    queue.messages[40] = bytes(damaged)
    with pytest.raises(DataLoss, match="damaged message at offset 40"):
        read(queues, 0, 1000)
    with pytest.warns(RuntimeWarning, match="damaged message at offset 40"):
        assert read(queues, 0, 1000, failOnDataLoss="false") == [*range(40), *range(41, 1000)]


def test_packed_bodies_are_unpacked(queues: FakeQueues, queue: FakeQueue) -> None:
    text = b"long " * 100
    queue.messages[5] = encode_one(StoredMessage("orders", 0, 5, 1005, zlib.compress(text), b"", sys_flag=1))
    base = {"namesrvAddr": queues.address, "subscribe": "orders", "columns": "value"}
    CLIENTS.append(QueueClient(queues.address, "g", RocketMQOptions()))
    (batch,) = RangeReader(CLIENTS[-1], Range(QUEUE, 0, 4, 7), Options.parse(base, streaming=True)).batches()
    assert batch["value"].to_pylist() == [b"4", text, b"6"]


def test_only_messages_with_the_tags_come(queues: FakeQueues, queue: FakeQueue) -> None:
    queues.put("orders", 50, properties="TAGS\x01Aa\x02")
    queues.put("orders", 50, properties="TAGS\x01BB\x02")  # the same hash
    assert read(queues, 0, 1100, tags="BB || C") == list(range(1050, 1100))
    assert read(queues, 0, 500, tags="BB") == []
    # Removed behind the reader's back, and noticed at the end.
    queue.first, queue.messages = 500, queue.messages[500:]
    real = queues.scripts
    real[11] = lambda ext: (
        None
        if int(ext["queueOffset"]) >= 500
        else (20, "NO_MATCHED", {"nextBeginOffset": "1060", "minOffset": "500", "maxOffset": "1100"}, b"")
    )
    with pytest.raises(DataLoss, match="starts at offset 500"):
        read(queues, 0, 1100, tags="BB")
