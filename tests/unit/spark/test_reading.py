"""Reading ranges without Spark, over a door in this process."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

from polymq.clients.log import LogClient
from polymq.spark import reading
from polymq.spark.offsets import DataLoss, Place, Range
from polymq.spark.options import Options
from polymq.wire.records import Message
from tests.unit.clients.fake_log import FakeLog

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def read(log: FakeLog, wanted: Range, **options: str) -> list[tuple[int, bytes]]:
    parsed = Options.parse({"server": log.address, "subscribe": "orders", "maxFetchBytes": "65536"} | options, streaming=True)
    with contextlib.closing(LogClient(log.address)) as client:
        batches = list(reading.read_range(client, wanted, parsed))
    assert all(batch.num_rows for batch in batches)
    return [(row["offset"], row["body"]) for batch in batches for row in batch.to_pylist()]


def rows(*spans: range) -> list[tuple[int, bytes]]:
    return [(n, b"%d" % n) for span in spans for n in span]


def test_a_range_is_read_in_pieces(log: FakeLog) -> None:
    log.topics["orders"][0].append([Message(bytes(70_000))])
    append(log, 10)
    before = len(log.requests)
    found = read(log, Range(FIRST, 25, 36, 1))
    assert [offset for offset, _ in found] == list(range(25, 36))
    assert len(log.requests) - before == 3


@pytest.mark.parametrize(
    ("happens", "words", "expected"),
    [
        ("trimmed", "holds offsets 20 to 30", rows(range(20, 25))),
        ("shortened", "ends at offset 20", rows(range(5, 20))),
        ("replaced", "written in epoch 2", rows(range(5, 25))),
        ("emptied", "holds offsets 30 to 30", []),
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
        case "replaced":
            partition.power_loss(20)
            append(log, 10)
        case "emptied":
            partition.trim(30)
        case _:
            partition.batches = partition.batches[2:]
    wanted = Range(FIRST, 5, 25, 1)
    with pytest.raises(DataLoss, match=words):
        read(log, wanted)
    with pytest.warns(RuntimeWarning, match=words):
        assert read(log, wanted, failOnDataLoss="false") == expected


def test_a_newer_epoch_behind_the_range_does_not_matter(log: FakeLog) -> None:
    log.topics["orders"][0].power_loss(20)
    append(log, 10)
    assert read(log, Range(FIRST, 5, 20, 1)) == rows(range(5, 20))


def test_one_client_serves_all_tasks_of_a_worker() -> None:
    options = Options.parse({"server": "127.0.0.1:1", "subscribe": "a"}, streaming=True)
    assert reading.client_of(options) is reading.client_of(options)
