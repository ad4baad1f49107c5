"""Replay: the right range, in order, once when nothing fails, and on from the cursor when something does."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from polymq.errors import ConfigError, ConnectionLost, Refusal, RefusalCode, StoreFailed
from polymq.spark.pipeline import replay as module
from polymq.spark.pipeline.catalog import Catalog, Entry
from polymq.spark.pipeline.replay import Cursor, Range, count, replay, slices
from tests.unit.spark.pipeline.archives import BEGIN_US, bronze_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from polymq.clients.broker_messages import Outgoing
    from polymq.errors import PolyMQError


class Target:
    """Takes what is published, except for bodies that it was told to fail."""

    def __init__(self, wrong: dict[bytes, PolyMQError] | None = None) -> None:
        self.got: list[Outgoing] = []
        self.wrong = wrong or {}
        self.flights: list[int] = []

    def publish_each(self, messages: Sequence[Outgoing]) -> list[PolyMQError | None]:
        self.flights.append(len(messages))
        outcomes = [self.wrong.get(each.body) for each in messages]
        self.got += [each for each, outcome in zip(messages, outcomes, strict=True) if outcome is None]
        return outcomes

    @property
    def bodies(self) -> list[int]:
        return [int(each.body) for each in self.got]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    found = Catalog(tmp_path / "archive")
    yield found
    found.close()


def put_back(catalog: Catalog, wanted: Range, publisher: Target, **options: object) -> module.Done:
    options = {"protocol": "nsq", "target": "again", "cursor": Cursor(None, "")} | options
    return replay(catalog, wanted, publisher, **options)  # type: ignore[arg-type]


def test_everything_comes_back_in_order_whatever_files_it_lies_in(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_PER_SLICE", 7)
    for offsets in (range(40, 60), range(10), range(20, 40), range(10, 20)):
        bronze_file(catalog, offsets)
    target = Target()
    done = put_back(catalog, Range(), target)
    assert target.bodies == list(range(60))
    assert (done.sent, done.is_complete, {each.topic for each in target.got}) == (60, True, {"again"})


@pytest.mark.parametrize(
    ("wanted", "bodies"),
    [
        (Range(("orders",)), range(20)),
        (Range(("nothing",)), range(0)),
        (Range(first_offset=5, last_offset=7), range(5, 8)),
        (Range(first_offset=18), range(18, 20)),
        (Range(begin_us=BEGIN_US + 3_000_000, end_us=BEGIN_US + 6_000_000), range(3, 6)),
        (Range(begin_us=BEGIN_US + 19_000_000), range(19, 20)),
        (Range(end_us=BEGIN_US), range(0)),
        (Range(partitions=(1,)), range(0)),
    ],
)
def test_the_range_that_was_asked_for(catalog: Catalog, wanted: Range, bodies: range) -> None:
    bronze_file(catalog, range(10))
    bronze_file(catalog, range(10, 20))
    target = Target()
    assert put_back(catalog, wanted, target).sent == len(bodies)
    assert target.bodies == list(bodies)
    assert count(catalog, wanted) >= len(bodies)


def test_partitions_are_in_order_each_and_topics_may_keep_their_names(catalog: Catalog) -> None:
    bronze_file(catalog, range(100, 105), topic="a", partition=1)
    bronze_file(catalog, range(5), topic="a")
    bronze_file(catalog, range(3), topic="b%2Fc")
    target = Target()
    put_back(catalog, Range(), target, target="old-{topic}", protocol="rocketmq")
    assert [(each.topic, int(each.body), each.order) for each in target.got] == [
        *(("old-a", offset, 0) for offset in range(5)),
        *(("old-a", offset, 1) for offset in range(100, 105)),
        *(("old-b/c", offset, 0) for offset in range(3)),
    ]


def test_fields_come_back_as_far_as_the_target_can_say_them(catalog: Catalog) -> None:
    bronze_file(catalog, range(1), headers=[{"key": "a", "value": b"1"}], tags="red")
    target = Target()
    put_back(catalog, Range(), target, protocol="rocketmq")
    assert (target.got[0].tags, target.got[0].headers) == ("red", {"a": "1"})
    assert put_back(catalog, Range(), Target(), protocol="nsq").dropped == {"header": 2}


def test_a_replay_that_was_ended_goes_on_behind_what_the_target_has(catalog: Catalog, tmp_path: Path) -> None:
    bronze_file(catalog, range(2500))
    path = tmp_path / "cursor"
    first = Target()
    done = put_back(catalog, Range(), first, cursor=Cursor(path, "x"), tick=lambda _: False)
    assert (first.bodies, done.is_complete) == (list(range(module.FLIGHT_COUNT)), False)
    second = Target({b"1500": ConnectionLost("gone")})
    with pytest.raises(ConnectionLost):
        put_back(catalog, Range(), second, cursor=Cursor(path, "x"))
    third = Target()
    done = put_back(catalog, Range(), third, cursor=Cursor(path, "x"))
    assert third.bodies == list(range(1500, 2500))
    assert (done.sent, done.before) == (1000, 1500)
    with pytest.raises(ConfigError, match="of another replay: x"):
        Cursor(path, "y")
    path.write_text("[]")
    with pytest.raises(StoreFailed, match="cannot be read"):
        Cursor(path, "x")


def test_an_offset_that_the_archive_has_twice_is_put_back_twice(catalog: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLIGHT_COUNT", 3)
    bronze_file(catalog, range(4), name="old")
    bronze_file(catalog, range(4), name="new")
    bronze_file(catalog, range(2), partition=1)
    target = Target()
    assert put_back(catalog, Range(), target).before == 0
    assert sorted(target.bodies) == sorted([*range(4), *range(4), *range(2)])
    # Ended after any flight, and by a failure between two of one offset, it goes on without a gap.
    path = tmp_path / "cursor"
    parts = Target()
    while not put_back(catalog, Range(), parts, cursor=Cursor(path, "x"), tick=lambda _: False).is_complete:
        pass
    assert sorted(parts.bodies) == sorted(target.bodies)


def test_an_offset_is_done_when_all_of_its_messages_are(catalog: Catalog, tmp_path: Path) -> None:
    bronze_file(catalog, range(2), name="old")
    bronze_file(catalog, range(2), name="new")

    class Falls(Target):
        def publish_each(self, messages: Sequence[Outgoing]) -> list[PolyMQError | None]:
            outcomes: list[PolyMQError | None] = [None] * len(messages)
            return [*outcomes[:-1], ConnectionLost("gone")]

    with pytest.raises(ConnectionLost):
        put_back(catalog, Range(), Falls(), cursor=Cursor(tmp_path / "cursor", "x"))
    target = Target()
    assert put_back(catalog, Range(), target, cursor=Cursor(tmp_path / "cursor", "x")).before == 2
    assert target.bodies == [1, 1]


def test_what_is_refused_ends_it_or_is_left_out(catalog: Catalog) -> None:
    bronze_file(catalog, range(5))
    refusal = Refusal(RefusalCode.BATCH_TOO_LARGE)
    with pytest.raises(Refusal):
        put_back(catalog, Range(), Target({b"2": refusal}))
    target = Target({b"2": refusal})
    done = put_back(catalog, Range(), target, skip_refused=True)
    assert (target.bodies, done.refused, done.sent) == ([0, 1, 3, 4], 1, 4)


def test_a_rate_is_kept(catalog: Catalog) -> None:
    bronze_file(catalog, range(50))
    slept: list[float] = []
    now = [0.0]

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    target = Target()
    put_back(catalog, Range(), target, rate=100.0, monotonic=lambda: now[0], sleep=sleep)
    assert max(target.flights) == 10
    assert now[0] == pytest.approx(0.5)


def entry(first: int, last: int, rows: int) -> Entry:
    return Entry("bronze", f"{first}-{last}", rows, 1, first_offset=first, last_offset=last)


def test_slices_cover_every_offset_once_in_order() -> None:
    chance = random.Random(7)
    for _ in range(200):
        entries = []
        for _ in range(chance.randrange(1, 12)):
            first = chance.randrange(100)
            size = chance.randrange(1, 60)
            entries.append(entry(first, first + size - 1, chance.randrange(1, size + 1)))
        found = list(slices(entries, rows_max=chance.randrange(1, 40)))
        assert all(before[1] < after[0] for before, after in pairwise(found))
        for each in entries:
            assert each.first_offset is not None
            assert each.last_offset is not None
            for offset in range(each.first_offset, each.last_offset + 1):
                assert any(first <= offset <= last and each in members for first, last, members in found)


def test_slices_are_bounded_in_rows_and_in_number() -> None:
    assert [(first, last) for first, last, _ in slices([entry(0, 99, 100)], rows_max=30)] == [(0, 29), (30, 59), (60, 89), (90, 99)]
    # Positions in a spool are bytes: there are far fewer rows than offsets.
    assert len(list(slices([entry(0, 10**12, 100)], rows_max=30))) <= 5
    assert len(list(slices([entry(n * 10, n * 10 + 9, 10) for n in range(100)], rows_max=100))) == 10
    assert list(slices([])) == []
