"""The table says what was measured: medians, spread, ratios, goals, and errors where there is no figure."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from bench.harness.report import Outcome, Table, markdown, save
from bench.harness.rows import ROWS, Bench, Figures, Goal, Metric, Row
from bench.run import result_name

if TYPE_CHECKING:
    from pathlib import Path


def no_measure(_bench: Bench, _kind: str) -> Figures:
    return {}


RATE = Row("rate", "a load", (Metric("rate", "", "messages/s", Goal(ratio_min=2.5)),), no_measure)
DELAY = Row("delay", "a wait", (Metric("p99", "p99", "ms", Goal(below_peer=True, limit=5)),), no_measure)


def outcome(row: Row, **values: list[float]) -> Outcome:
    made = Outcome(row)
    for kind, series in values.items():
        for value in series:
            made.add(kind, {row.metrics[0].key: value})
    return made


def line(made: Outcome) -> list[str]:
    table = Table(datetime(2026, 1, 2, tzinfo=UTC), {"cores": 2}, quick=False, rounds=5, outcomes=[made])
    (found,) = [each for each in markdown(table).splitlines() if each.startswith(f"| {made.row.title}")]
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_medians_spread_ratio_and_goal() -> None:
    assert line(outcome(RATE, nsqd=[1000, 2000, 900], polymq=[2500, 2600, 2400])) == [
        "a load", "messages/s", "1,000 (900 … 2,000)", "2,500 (2,400 … 2,600)", "2.50", "≥ 2.5 x nsqd", "yes", "-", "3",
    ]  # fmt: skip


def test_a_goal_that_is_missed_is_said() -> None:
    assert line(outcome(RATE, nsqd=[1000], polymq=[2499]))[6] == "**no**"
    assert line(outcome(DELAY, nsqd=[9], polymq=[6]))[6] == "**no**"
    assert line(outcome(DELAY, nsqd=[3], polymq=[4]))[6] == "**no**"
    assert line(outcome(DELAY, nsqd=[9], polymq=[4]))[6] == "yes"


def test_a_goal_without_figures_is_not_met() -> None:
    assert line(outcome(RATE, polymq=[5000]))[6] == "**not measured**"
    failed = outcome(RATE, nsqd=[1000], polymq=[5000, 5000])
    failed.errors["polymq"] = "it fell over"
    assert line(failed)[3:7] == ["error", "-", "≥ 2.5 x nsqd", "**not measured**"]
    table = Table(datetime(2026, 1, 2, tzinfo=UTC), {}, quick=False, rounds=1, outcomes=[failed])
    assert "- rate, polymq, **error**: it fell over" in markdown(table)


def test_tools_read_what_people_read(tmp_path: Path) -> None:
    table = Table(datetime(2026, 1, 2, tzinfo=UTC), {"cores": 2}, quick=False, rounds=1, outcomes=[outcome(RATE, nsqd=[1], polymq=[4])])
    text, data = save(table, tmp_path, "result")
    assert "| yes |" in text.read_text(encoding="utf-8")
    assert json.loads(data.read_text(encoding="utf-8"))["rows"][0]["metrics"][0]["met"] is True


def test_a_part_does_not_stand_where_a_result_is_expected() -> None:
    table = Table(datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC), {}, quick=False, rounds=5)
    assert result_name(table, whole=True).startswith("2026-01-02-")
    assert result_name(table, whole=False) == "partial-2026-01-02-030405"


def test_rows_have_names_and_every_goal_a_figure_of_polymq() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all("polymq" in row.kinds for row in ROWS)
    assert all("nsqd" in row.kinds for row in ROWS for metric in row.metrics if metric.goal)
