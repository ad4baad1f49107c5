"""The results: medians and spread, ratio to the peer and goal, as JSON for tools and as a Markdown table for people."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from rich.console import Console

    from bench.harness.rows import Figures, Metric, Row

__all__ = ["Outcome", "Table", "print_row", "save"]

TITLES = {
    "nsqd": "nsqd 1.3.0",
    "nats-server": "nats-server 2.15.2",
    "nats-server-2.9": "nats-server 2.9.10",
    "rocketmq-4.9": "RocketMQ 4.9.7",
    "rocketmq-5.3": "RocketMQ 5.3.3",
    "polymq-fsync": "polymq, fsync",
}
NSQ_NOT_ALIKE = """\
nsqd is started with room for all messages in memory and keeps them there: a kill loses them. polymq writes every message to
its log before it answers (the page cache; synced within a second), and with `durability = "fsync"` (last column) it answers
after the disk has it, with a tenth of the messages. Generator and server share the machine; polymq uses one core, nsqd all it can get.
"""
NATS_NOT_ALIKE = """\
Both nats-servers run with their defaults, without JetStream: 2.15.2 from its Go module, 2.9.10 as Debian packages it. No server keeps
a message here, except where a row says so. A goal is met if it is met against the better of the two. Generator and server share the
machine; polymq uses one core, nats-server all it can get.
"""
PHPMQ_NOT_ALIKE = """\
The reference server cannot be had for a run side by side. The goals are 50 and 20 times what was measured of it elsewhere, in memory and with bodies
of 200 B: 49.8 messages a second in a window of 10, 7,834 in one of 1,000. Generator and server share the machine; polymq uses one core.
"""
ROCKETMQ_NOT_ALIKE = """\
RocketMQ 4.9.7 and 5.3.3 are the brokers from Maven, each with its nameserver, a JVM each (1 GB and 256 MB of heap, the collector's settings of their
scripts), asynchronous flush; polymq is nameserver and broker in one process. All answer when a message is in the page cache. The servers stay up from
row to row, and every load is preceded by a warm-up that is not counted. A goal is met if it is met against the better of the two. Generator and
server share the machine; polymq uses one core, a JVM all it can get.
"""
CROSS_REMARK = """\
One polymq serves all four protocols here, and nobody else does: a pair is held against the slower of what its two protocols do alone, in the same run. A
process of the generator publishes while another one consumes, each as fast as it can, on the machine that they share with the server; polymq uses one core.
"""


@dataclass(frozen=True, slots=True)
class Sheet:
    """One table of the page. A kind that a row does not measure is a dash; `last` stands behind the verdict, as its figures are no part of it."""

    protocol: str
    remark: str
    columns: tuple[str, ...]
    last: tuple[str, ...] = ()


SHEETS = (
    Sheet("NSQ", NSQ_NOT_ALIKE, ("nsqd", "polymq"), ("polymq-fsync",)),
    Sheet("NATS", NATS_NOT_ALIKE, ("nats-server", "nats-server-2.9", "polymq")),
    Sheet("RocketMQ", ROCKETMQ_NOT_ALIKE, ("rocketmq-4.9", "rocketmq-5.3", "polymq")),
    Sheet("PHPMQ", PHPMQ_NOT_ALIKE, ("polymq",), ("polymq-fsync",)),
    Sheet("All four", CROSS_REMARK, ("polymq",)),
)


@dataclass(slots=True)
class Outcome:
    """The figures of one row, by kind of server and metric."""

    row: Row
    values: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, figures: Figures) -> None:
        """Take the figures of one run."""
        for key, value in figures.items():
            series = self.values.setdefault(kind, {}).setdefault(key, [])
            series.extend(value if isinstance(value, list) else [value])

    def median(self, kind: str, key: str) -> float | None:
        """The median, or None when there is no figure; a run that failed spoils its kind."""
        series = self.values.get(kind, {}).get(key)
        return statistics.median(series) if series and kind not in self.errors else None


@dataclass(slots=True)
class Table:
    """All outcomes of one bench, and where and when it ran."""

    started: datetime
    machine: dict[str, Any]
    quick: bool
    rounds: int
    outcomes: list[Outcome] = field(default_factory=list)


def number(value: float) -> str:
    """Three significant figures, thousands separated."""
    if abs(value) >= 1000:
        digits = len(str(int(abs(value)))) - 3
        return f"{round(value, -digits):,.0f}"
    return f"{value:.3g}"


def cell(outcome: Outcome, kind: str, metric: Metric) -> str:
    """One figure with its spread, or the error, or a dash."""
    if kind in outcome.errors:
        return "error"
    series = outcome.values.get(kind, {}).get(metric.key)
    if not series:
        return "-"
    text = number(statistics.median(series))
    return text if len(series) == 1 else f"{text} ({number(min(series))} … {number(max(series))})"


def peer_figure(outcome: Outcome, metric: Metric) -> float | None:
    """The figure to beat: the best of all servers that the row is against; None when one is missing."""
    figures = [outcome.median(kind, metric.key) for kind in outcome.row.against]
    found = [figure for figure in figures if figure is not None]
    if not found or len(found) < len(figures):
        return None
    return min(found) if metric.goal is not None and metric.goal.less_is_better else max(found)


def ratio(outcome: Outcome, metric: Metric) -> str:
    ours, peer = outcome.median("polymq", metric.key), peer_figure(outcome, metric)
    return f"{ours / peer:.2f}" if ours is not None and peer else "-"


def verdict(outcome: Outcome, metric: Metric) -> str:
    """Whether the goal is met; a figure that is missing does not meet one."""
    if metric.goal is None:
        return ""
    ours = outcome.median("polymq", metric.key)
    met = None if ours is None else metric.goal.met(ours, peer_figure(outcome, metric))
    return {True: "yes", False: "**no**", None: "**not measured**"}[met]


def runs(outcome: Outcome, metric: Metric) -> int:
    return max((len(values.get(metric.key, [])) for values in outcome.values.values()), default=0)


def markdown(table: Table) -> str:
    """The whole page."""
    lines = [f"# Benchmark of {table.started:%Y-%m-%d %H:%M} UTC", ""]
    if table.quick:
        lines += ["A smoke run (`--quick`): few messages, one round. The figures show that the rows run, nothing else.", ""]
    lines += [f"- {key.replace('_', ' ')}: {value}" for key, value in table.machine.items()]
    lines += ["", "Figures are medians (lowest … highest); `n` is the number of runs of each server.", ""]
    for sheet in SHEETS:
        outcomes = [outcome for outcome in table.outcomes if outcome.row.protocol == sheet.protocol]
        if outcomes:
            lines += [f"## {sheet.protocol}", "", sheet.remark, *rows_of(sheet, outcomes), "", *remarks(sheet, outcomes), ""]
    return "\n".join(lines).rstrip() + "\n"


def rows_of(sheet: Sheet, outcomes: list[Outcome]) -> list[str]:
    """The table itself."""
    before, after = ([TITLES.get(kind, kind) for kind in kinds] for kinds in (sheet.columns, sheet.last))
    heads = ["load", "unit", *before, "ratio", "goal", "met", *after, "n"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for outcome in outcomes:
        for metric in outcome.row.metrics:
            columns = [
                f"{outcome.row.title}{': ' if metric.title else ''}{metric.title}",
                metric.unit,
                *(cell(outcome, kind, metric) for kind in sheet.columns),
                ratio(outcome, metric),
                goal_text(outcome, metric) or "",
                verdict(outcome, metric),
                *(cell(outcome, kind, metric) for kind in sheet.last),
                str(runs(outcome, metric)),
            ]
            lines.append("| " + " | ".join(columns) + " |")
    return lines


def goal_text(outcome: Outcome, metric: Metric) -> str | None:
    return metric.goal.text(metric.unit, next(iter(outcome.row.against), "")) if metric.goal else None


def remarks(sheet: Sheet, outcomes: list[Outcome]) -> list[str]:
    """What stands below a table: notes, other servers, errors."""
    lines = []
    for outcome in outcomes:
        if outcome.row.note:
            lines.append(f"- {outcome.row.name}: {outcome.row.note}.")
        others = [kind for kind in outcome.values if kind not in sheet.columns + sheet.last]
        for kind in others:
            figures = ", ".join(f"{metric.title or 'rate'} {cell(outcome, kind, metric)} {metric.unit}" for metric in outcome.row.metrics)
            lines.append(f"- {outcome.row.name}, {kind}: {figures}.")
        lines += [f"- {outcome.row.name}, {kind}, **error**: {error}" for kind, error in outcome.errors.items()]
    return lines


def as_json(table: Table) -> dict[str, Any]:
    return {
        "started": table.started.isoformat(),
        "machine": table.machine,
        "quick": table.quick,
        "rows": [
            {
                "name": outcome.row.name,
                "title": outcome.row.title,
                "note": outcome.row.note,
                "values": outcome.values,
                "errors": outcome.errors,
                "metrics": [
                    {
                        "key": metric.key,
                        "title": metric.title,
                        "unit": metric.unit,
                        "goal": goal_text(outcome, metric),
                        "met": verdict(outcome, metric) == "yes" if metric.goal else None,
                        "medians": {kind: outcome.median(kind, metric.key) for kind in outcome.values},
                    }
                    for metric in outcome.row.metrics
                ],
            }
            for outcome in table.outcomes
        ],
    }


def save(table: Table, folder: Path, name: str) -> list[Path]:
    """Write both forms."""
    folder.mkdir(parents=True, exist_ok=True)
    json_path, markdown_path = folder / f"{name}.json", folder / f"{name}.md"
    json_path.write_text(json.dumps(as_json(table), indent=1) + "\n")
    markdown_path.write_text(markdown(table))
    return [markdown_path, json_path]


def print_row(console: Console, outcome: Outcome) -> None:
    """Show a row as soon as it is measured."""
    console.print(f"[bold]{outcome.row.name}[/]  {outcome.row.title}")
    for metric in outcome.row.metrics:
        figures = "   ".join(
            f"{kind} {cell(outcome, kind, metric)}" for kind in (*outcome.values, *(k for k in outcome.errors if k not in outcome.values))
        )
        goal = f"   ratio {ratio(outcome, metric)}, goal {goal_text(outcome, metric)}: {verdict(outcome, metric)}" if metric.goal else ""
        console.print(f"  {metric.title or 'rate'} [{metric.unit}]  {figures}{goal}", markup=False)
    for kind, error in outcome.errors.items():
        console.print(f"  {kind}: {error}", markup=False)
