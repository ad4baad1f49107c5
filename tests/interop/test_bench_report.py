"""The table says what was measured: medians, spread, ratios, goals, and errors where there is no figure."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.harness.process import MissingServerError, ServerProcess, Setup
from bench.harness.report import SHEETS, TITLES, Outcome, Table, markdown, save
from bench.harness.rows import ROWS, Bench, Figures, Goal, Metric, Row
from bench.run import result_name

from tests.interop.servers import ROOT

if TYPE_CHECKING:
    from pathlib import Path


def no_measure(_bench: Bench, _kind: str) -> Figures:
    return {}


RATE = Row("rate", "a load", (Metric("rate", "", "messages/s", Goal(ratio_min=2.5)),), no_measure)
DELAY = Row("delay", "a wait", (Metric("p99", "p99", "ms", Goal(below_peer=True, limit=5)),), no_measure)
SERVERS = ("nats-server", "nats-server-2.9")
PASSED = Row("passed", "a load", (Metric("rate", "", "messages/s", Goal(ratio_min=2)),), no_measure, protocol="NATS", against=SERVERS)
ASKED = Row("asked", "a wait", (Metric("p50", "p50", "µs", Goal(ratio_max=1.2)),), no_measure, protocol="NATS", against=SERVERS)


def outcome(row: Row, /, **values: list[float]) -> Outcome:
    made = Outcome(row)
    for name, series in values.items():
        kind = {"newest": "nats-server", "old": "nats-server-2.9"}.get(name, name)
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


def test_a_goal_is_about_the_better_of_two_servers() -> None:
    assert line(outcome(PASSED, newest=[100], old=[90], polymq=[199])) == [
        "a load", "messages/s", "100", "90", "199", "1.99", "≥ 2 x nats-server", "**no**", "1",
    ]  # fmt: skip
    assert line(outcome(PASSED, newest=[100], old=[90], polymq=[200]))[7] == "yes"
    assert line(outcome(ASKED, newest=[100], old=[90], polymq=[109]))[5:8] == ["1.21", "≤ 1.2 x nats-server", "**no**"]
    assert line(outcome(ASKED, newest=[100], old=[90], polymq=[108]))[7] == "yes"
    assert line(outcome(PASSED, newest=[100], polymq=[200]))[5:8] == ["-", "≥ 2 x nats-server", "**not measured**"]


def test_each_protocol_has_its_table() -> None:
    made = [outcome(RATE, nsqd=[1], polymq=[4]), outcome(PASSED, newest=[1], old=[2], polymq=[4])]
    text = markdown(Table(datetime(2026, 1, 2, tzinfo=UTC), {}, quick=False, rounds=1, outcomes=made))
    assert re.findall(r"^## (\w+)$|^\| load (.*)$", text, re.MULTILINE) == [
        ("NSQ", ""),
        ("", "| unit | nsqd 1.3.0 | polymq | ratio | goal | met | polymq, fsync | n |"),
        ("NATS", ""),
        ("", "| unit | nats-server 2.15.2 | nats-server 2.9.10 | polymq | ratio | goal | met | n |"),
    ]


def test_the_versions_are_those_of_the_peers() -> None:
    versions = {"nsqd": "nsq", "nats-server": "nats", "nats-server-2.9": "nats-2.9"}
    for kind, folder in versions.items():
        text = ROOT.joinpath("peers", folder, "go.mod").read_text(encoding="utf-8")
        (version,) = re.findall(r"(?:nsqio/nsq|nats-server/v2) v(\S+)", text)
        assert TITLES[kind].endswith(f" {version}")


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
    compared = [row for row in ROWS if any(metric.goal and metric.goal.needs_peer for metric in row.metrics)]
    assert all({*row.against} <= {*row.kinds} for row in compared)
    shown = {sheet.protocol: {*sheet.columns} for sheet in SHEETS}
    assert all({*row.against} <= shown[row.protocol] for row in ROWS)


class Anybody(ServerProcess):
    """Somebody answers before it is started."""

    def command(self) -> list[str]:
        return ["true"]

    def accepts(self) -> bool:
        return True


def test_what_is_measured_is_what_was_started(tmp_path: Path) -> None:
    server = Anybody("polymq", Setup(tmp_path, 1, tmp_path, ["polymq"]))
    with pytest.raises(MissingServerError, match="something answers where polymq is to be started"):
        server.start()
    assert server.process is None
