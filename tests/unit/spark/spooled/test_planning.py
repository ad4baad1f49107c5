"""Planning without Spark, over real files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from polymq.errors import ConfigError
from polymq.spark.losses import DataLoss
from polymq.spark.spooled.options import Options
from polymq.spark.spooled.planning import Planner, decode, encode
from polymq.spool import folder
from tests.unit.spool.spools import filled

if TYPE_CHECKING:
    from pathlib import Path

BASE = {"receiver": "process"}


def parse(path: Path, *, streaming: bool = True, **given: str) -> Options:
    return Options.parse("nsq", BASE | {"spoolLocation": str(path)} | given, streaming=streaming)


def planner(path: Path, *, streaming: bool = True, **given: str) -> Planner:
    return Planner(parse(path, streaming=streaming, **given), sleep=lambda _: None)


def spans(tasks: list[Any]) -> list[tuple[int, int]]:
    return [(pieces[0].first, pieces[-1].end) for pieces in tasks]


@pytest.fixture
def spool(tmp_path: Path) -> Path:
    filled(tmp_path, [[b"%d" % n * 10] for n in range(200)])
    return tmp_path


def test_offsets_have_the_shape_of_all_our_sources() -> None:
    assert encode((255, 7)) == {"spool": {"0": {"offset": 7, "log": "00000000000000ff"}}}
    assert decode(encode((255, 7))) == (255, 7)
    with pytest.raises(DataLoss, match="not one of a query over a spool"):
        decode({"orders": {"0": 5}})


def test_batches_follow_one_another(spool: Path) -> None:
    plan = planner(spool, minPartitions="4", maxRecordsPerPartition="30")
    start = plan.starting()
    assert start[1] == 0
    end = plan.advance(start, 90)
    assert end == (start[0], 90)
    assert spans(plan.plan(start, end)) == [(0, 22), (22, 45), (45, 67), (67, 90)]
    last = plan.advance(end, None)
    assert last[1] == 200
    assert plan.advance(last, None) == last
    assert plan.plan(last, last) == []
    assert len(planner(spool).plan(end, last)) == 1
    # From the files alone, by a planner that has been asked nothing else.
    assert spans(planner(spool, maxRecordsPerPartition="100").plan(start, end)) == [(0, 90)]


def test_freezing_ends_a_run(spool: Path) -> None:
    plan = planner(spool)
    plan.freeze()
    filled(spool, [[b"more"]])
    assert plan.advance(plan.starting(), None)[1] == 200
    assert plan.newest()[1] == 201
    assert plan.advance((plan.newest()[0], 201), None)[1] == 201


def test_where_to_begin_and_to_end(spool: Path) -> None:
    assert planner(spool, startingOffsets="latest").starting()[1] == 200
    assert planner(spool, startingOffsets='{"spool": {"0": 7}}').starting()[1] == 7
    assert planner(spool, startingOffsets='{"spool": {"0": -1}}').starting()[1] == 200
    with pytest.raises(ConfigError):
        planner(spool, startingOffsets='{"spool": {"1": 7}}').starting()
    batch = planner(spool, streaming=False, startingOffsets='{"spool": {"0": 7}}', endingOffsets='{"spool": {"0": 9}}')
    assert spans(batch.plan_batch()) == [(7, 9)]
    with pytest.raises(DataLoss, match="before record 200, not 201"):
        planner(spool, streaming=False, endingOffsets='{"spool": {"0": 201}}').plan_batch()


def lose(spool: Path) -> int:
    bases = folder.segments(spool)
    (spool / folder.segment_name(bases[0])).unlink()
    return bases[1]


def test_loss_is_noticed_and_gone_on_from_if_that_is_wanted(spool: Path) -> None:
    start, end = planner(spool).starting(), planner(spool).newest()
    first = lose(spool)
    with pytest.raises(DataLoss, match="dropped unread"):
        planner(spool).advance(start, None)
    with pytest.raises(DataLoss, match="dropped unread"):
        planner(spool).plan(start, end)
    with pytest.raises(DataLoss, match=f"begins with record {first}"):
        planner(spool, streaming=False, startingOffsets='{"spool": {"0": 0}}').plan_batch()
    going_on = planner(spool, failOnDataLoss="false")
    with pytest.warns(RuntimeWarning, match="dropped unread"):
        assert spans(going_on.plan(start, end)) == [(first, 200)]


def test_another_spool_and_a_shorter_one_are_losses(spool: Path, tmp_path: Path) -> None:
    number, end = planner(spool).newest()
    with pytest.raises(DataLoss, match="another one"):
        planner(spool).advance((number + 1, 5), None)
    with pytest.raises(DataLoss, match="another one"):
        planner(spool).plan((number, 5), (number + 1, 9))
    with pytest.raises(DataLoss, match="ends before record 300"):
        planner(spool).advance((number, 300), None)
    with pytest.raises(DataLoss, match="ends before record 300"):
        planner(spool).plan((number, 5), (number, 300))
    going_on = planner(spool, failOnDataLoss="false")
    with pytest.warns(RuntimeWarning, match="another one"):
        assert going_on.advance((number + 1, 5), 10) == (number, 10)
    with pytest.warns(RuntimeWarning, match="ends before"):
        assert going_on.advance((number, 300), None) == (number, end)


def test_what_is_committed_only_goes_forward_and_is_for_this_spool(spool: Path) -> None:
    plan = planner(spool)
    number = plan.newest()[0]
    plan.commit((number, 50))
    plan.commit((number, 40))
    plan.commit((number + 1, 90))
    assert folder.committed(spool) == 50


def test_it_is_known_whether_the_files_say_enough(spool: Path) -> None:
    plan = planner(spool)
    number, end = plan.newest()
    assert plan.reaches((number, end))
    assert not plan.reaches((number, end + 1))
    # Another spool does not become the wanted one by waiting.
    assert plan.reaches((number + 1, end + 1))
    (spool / folder.POSITION).unlink()
    assert not plan.reaches((number, end))
    assert not planner(spool / "none").reaches((number, end))


def test_who_has_a_spooler_elsewhere_is_told_that_it_may_not_have_looked_yet(spool: Path) -> None:
    number, _ = planner(spool).newest()
    with pytest.raises(DataLoss, match="ends before record 300, which had been durable; if the machine lost power, start its spooler"):
        planner(spool).plan((number, 5), (number, 300))
