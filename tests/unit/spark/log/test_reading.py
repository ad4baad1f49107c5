"""Reading ranges without Spark, over a door in this process."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from polymq.clients.log import LogClient
from polymq.errors import DeadlineExceeded, Refusal
from polymq.spark.log import reading
from polymq.spark.log.offsets import Place, Range
from polymq.spark.log.options import Options
from polymq.spark.losses import DataLoss
from polymq.wire.batch import ATTRIBUTE_RENEWED
from polymq.wire.records import Message
from tests.unit.clients.fake_log import FakeLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FIRST = Place("orders", 0)


@pytest.fixture
def log() -> Iterator[FakeLog]:
    fake = FakeLog()
    fake.create("orders")
    append(fake, 30)
    yield fake
    fake.close()


def append(log: FakeLog, count: int) -> None:
    target = log.topics["orders"][0]
    for first in range(target.end, target.end + count, 10):
        target.append([Message(b"%d" % n) for n in range(first, first + 10)])


def never(seconds: float) -> None:
    raise AssertionError(f"slept {seconds} s")


def read(log: FakeLog, wanted: Range, sleep: Callable[[float], None] = never, **options: str) -> list[tuple[int, bytes]]:
    parsed = Options.parse({"server": log.address, "subscribe": "orders", "maxFetchBytes": "65536"} | options, streaming=True)
    with contextlib.closing(LogClient(log.address)) as client:
        batches = list(reading.read_range(client, wanted, parsed, sleep=sleep, monotonic=lambda: 0.0))
    assert all(batch.num_rows for batch in batches)
    return [(row["offset"], row["value"]) for batch in batches for row in batch.to_pylist()]


def rows(*spans: range) -> list[tuple[int, bytes]]:
    return [(n, b"%d" % n) for span in spans for n in span]


def test_a_range_is_read_in_pieces(log: FakeLog) -> None:
    log.topics["orders"][0].append([Message(bytes(70_000))])
    append(log, 10)
    before = len(log.requests)
    found = read(log, Range(FIRST, 25, 36, 1, 1))
    assert [offset for offset, _ in found] == list(range(25, 36))
    assert len(log.requests) - before == 3


@pytest.mark.parametrize(
    ("happens", "words", "expected"),
    [
        ("trimmed", "15 records were removed", rows(range(20, 25))),
        ("shortened", "ends at offset 20", rows(range(5, 20))),
        ("replaced", "written in epoch 2", rows(range(5, 20))),
        ("replaced before", "lost its records from offset 0 on", []),
        ("emptied", "25 records were removed", []),
        ("deleted", "is no longer there", []),
        ("created again", "created again", []),
        ("created again shorter", "created again", []),
        ("fewer partitions", "is no longer there", []),
        ("gap", "has offset 20 where 5", rows(range(20, 25))),
    ],
)
def test_losses_after_the_planning_are_noticed(log: FakeLog, happens: str, words: str, expected: list[tuple[int, bytes]]) -> None:
    partition = log.topics["orders"][0]
    match happens:
        case "trimmed":
            partition.trim(20)
        case "shortened":
            partition.batches.pop()
            partition.end = 20
        case "replaced":
            partition.power_loss(20)
            append(log, 10)
        case "replaced before":
            partition.power_loss(0)
        case "emptied":
            partition.trim(30)
        case "deleted":
            del log.topics["orders"]
        case "created again":
            log.create("orders", number=9)
            append(log, 40)
        case "created again shorter":
            log.create("orders", number=9)
        case "fewer partitions":
            log.topics["orders"].clear()
        case _:
            partition.batches = partition.batches[2:]
    wanted = Range(FIRST, 5, 25, 1, 1)
    with pytest.raises(DataLoss, match=words):
        read(log, wanted)
    with pytest.warns(RuntimeWarning, match=words):
        assert read(log, wanted, failOnDataLoss="false") == expected


def test_a_newer_epoch_behind_the_range_does_not_matter(log: FakeLog) -> None:
    log.topics["orders"][0].power_loss(20)
    append(log, 10)
    assert read(log, Range(FIRST, 5, 20, 1, 1)) == rows(range(5, 20))


def test_only_what_comes_before_the_new_epoch_is_read_of_a_chunk(log: FakeLog) -> None:
    """The next batch of the query begins at 20 and would read the rest again."""
    log.topics["orders"][0].power_loss(20)
    append(log, 10)
    with pytest.warns(RuntimeWarning, match="offset 20 was written in epoch 2"):
        assert read(log, Range(FIRST, 22, 25, 1, 1), failOnDataLoss="false") == []


@pytest.mark.parametrize("readable", [0, 3, 10])
@pytest.mark.parametrize("fail", ["true", "false"])
def test_records_that_may_not_be_read_yet_are_waited_for(log: FakeLog, readable: int, fail: str) -> None:
    partition = log.topics["orders"][0]
    partition.held_back = 30 - readable
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            partition.held_back = 0

    assert read(log, Range(FIRST, 5, 25, 1, 1), sleep, failOnDataLoss=fail) == rows(range(5, 25))
    assert pauses == [0.05, 0.1, 0.2]


@pytest.mark.parametrize("fail", ["true", "false"])
def test_records_that_are_there_and_stay_unreadable_are_an_error_and_not_left_out(log: FakeLog, fail: str) -> None:
    log.topics["orders"][0].held_back = 10
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    options = Options.parse(
        {"server": log.address, "subscribe": "orders", "retryTimeoutMs": "5000", "failOnDataLoss": fail}, streaming=True
    )
    with contextlib.closing(LogClient(log.address)) as client:
        found = reading.read_range(client, Range(FIRST, 0, 25, 1, 1), options, sleep=sleep, monotonic=lambda: now[0])
        assert next(found).num_rows == 20
        with pytest.raises(DeadlineExceeded, match="holds offset 20, but it cannot be read yet, after 5 s"):
            next(found)
    assert 4 < now[0] <= 5


def test_a_refusal_that_is_not_about_the_topic_is_no_loss(log: FakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = (503, {"Content-Type": "application/json"}, b'{"error": "STORE_FAILED", "message": "damaged"}')
    answer = log.answer
    monkeypatch.setattr(log, "answer", lambda path: damaged if "records" in path else answer(path))
    with pytest.raises(Refusal, match="damaged"):
        read(log, Range(FIRST, 5, 25, 1, 1), failOnDataLoss="false")
    log.topics["orders"][0].held_back = 30
    monkeypatch.setattr(log, "answer", lambda path: answer(path) if "records" in path else damaged)
    with pytest.raises(Refusal, match="damaged"):
        read(log, Range(FIRST, 5, 25, 1, 1), failOnDataLoss="false")


def test_one_client_serves_all_tasks_of_a_worker() -> None:
    options = Options.parse({"server": "127.0.0.1:1", "subscribe": "a"}, streaming=True)
    assert reading.client_of(options, "127.0.0.1:1") is reading.client_of(options, "127.0.0.1:1")
    assert reading.client_of(options, "127.0.0.1:1") is not reading.client_of(options, "127.0.0.1:2")


def test_what_readers_pass_over_gives_no_row(log: FakeLog) -> None:
    for number in range(3):
        log.topics["orders"][0].append([Message(b"%d" % number)], attributes=ATTRIBUTE_RENEWED)
    assert read(log, Range(FIRST, 30, 33, 1, 1)) == []
    append(log, 10)
    assert read(log, Range(FIRST, 29, 34, 1, 1)) == rows(range(29, 30), range(33, 34))
