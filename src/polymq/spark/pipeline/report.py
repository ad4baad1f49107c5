"""The report: one HTML file with charts of traffic, latency, lag, topics and failures. It loads nothing, and needs no Spark to be made."""

from __future__ import annotations

import html
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from polymq.spark.pipeline import charts
from polymq.spark.pipeline.catalog import gold_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from polymq.spark.pipeline.catalog import Catalog, Progress

__all__ = ["Figures", "gather", "render"]

# Topics and groups with a line of their own; the others are one line.
_LINES_MAX: Final = 7
_BARS_MAX: Final = 12
_OWN_ROWS_MAX: Final = 20
_OWN_CELL_SIZE: Final = 80
_OTHERS: Final = "all others"
_MINUTE_SECONDS: Final = 60

_STYLE: Final = """
:root{color-scheme:light dark;--ground:#f6f7f9;--card:#fff;--ink:#1d2430;--soft:#5c6675;--line:#e2e6ec;--s0:#2f6fde;--s1:#d9622b;--s2:#2a9d5c;--s3:#9850c9;
--s4:#c23a5e;--s5:#12899c;--s6:#a98413;--s7:#76808f}
@media (prefers-color-scheme:dark){:root{--ground:#12161c;--card:#1b2129;--ink:#e6eaf0;--soft:#98a3b3;--line:#2c3540;--s0:#6ea2ff;--s1:#ff9a68;--s2:#5bd093;
--s3:#c792ee;--s4:#f2799a;--s5:#4cc3d6;--s6:#e0bd50;--s7:#9aa5b4}}
*{box-sizing:border-box}body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,sans-serif}
main{max-width:1180px;margin:0 auto;padding:20px 16px 48px}h1{font-size:1.5rem;margin:0}h2{font-size:1.02rem;margin:0 0 2px}
p{margin:2px 0 8px;color:var(--soft)}.cards{display:grid;gap:14px;grid-template-columns:repeat(auto-fit,minmax(min(100%,430px),1fr))}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:14px 16px;min-width:0;overflow-x:auto}
.facts{display:grid;grid-template-columns:repeat(auto-fit,minmax(132px,1fr));gap:14px;margin:16px 0}
.facts div{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:10px 14px;color:var(--soft);font-size:.86rem}
.facts b{display:block;color:var(--ink);font-size:1.4rem;line-height:1.3}.bad b{color:var(--s4)}
svg{width:100%;height:auto;display:block}svg text{fill:var(--soft);font-size:12px}.grid{stroke:var(--line)}polyline{fill:none;stroke-width:2;stroke-linejoin:round}
.legend{list-style:none;display:flex;flex-wrap:wrap;gap:2px 14px;padding:0;margin:6px 0 0;font-size:.86rem;color:var(--soft);overflow-wrap:anywhere}
.legend i{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px}
table{border-collapse:collapse;width:100%;font-size:.88rem}th{text-align:left;font-weight:500;padding:3px 10px 3px 0;overflow-wrap:anywhere}
td{padding:3px 8px 3px 0}.bars td:nth-child(2){width:55%}.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.bar{height:12px;border-radius:3px;min-width:2px}.own td,.own th{border-top:1px solid var(--line);white-space:nowrap}.none{font-style:italic}
"""


@dataclass(slots=True)
class Figures:
    """What the report shows, as rows of the gold tables; `own` are the user's aggregates."""

    name: str
    traffic: list[dict[str, Any]] = field(default_factory=list)
    failures: list[dict[str, Any]] = field(default_factory=list)
    groups: list[dict[str, Any]] = field(default_factory=list)
    progress: Sequence[Progress] = ()
    own: dict[str, tuple[list[str], list[list[Any]]]] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


def gather(catalog: Catalog, name: str, now_ns: int, days: int = 7) -> Figures:
    """Read what the report shows of the last days."""
    begin = f"{datetime.fromtimestamp(now_ns / 1e9, UTC) - timedelta(days=days - 1):%Y-%m-%d}"

    def rows(table: str) -> list[dict[str, Any]]:
        files = [each for each in catalog.files(gold_table(table)) if each.date >= begin]
        found = [row for each in files for row in _table(catalog, each.path).to_pylist()]
        return sorted(found, key=lambda row: row["minute"])

    figures = Figures(name, rows("traffic"), rows("failures"), rows("groups"), catalog.progress(), notes=catalog.notes())
    for table in sorted(catalog.tables()):
        own = table.removeprefix("gold/")
        if table.startswith("gold/") and own not in ("traffic", "failures", "groups"):
            cells = pa.concat_tables([_table(catalog, each.path) for each in catalog.files(table)], promote_options="default")
            shown = cells.slice(0, _OWN_ROWS_MAX)
            figures.own[own] = (cells.column_names, [list(row.values()) for row in shown.to_pylist()])
    return figures


def render(figures: Figures, now_ns: int) -> str:
    """Make the page."""
    traffic, groups = figures.traffic, figures.groups
    cards = [
        _card("Traffic", "Messages per minute, by topic.", charts.lines(_by(traffic, "topic", "messages", sum))),
        _card("Volume", "Bytes of bodies per minute, by topic.", charts.lines(_by(traffic, "topic", "bytes", sum))),
        _card(
            "Latency into the archive",
            "Milliseconds from the broker's store to bronze, all topics: the largest percentile of the minute.",
            charts.lines({share: _series(traffic, f"latency_ms_{share}", max) for share in ("p50", "p95", "p99")}, unit=" ms"),
        ),
        _card(
            "Delivery latency of groups",
            "Milliseconds from publish to settle, 99th percentile, as the broker measured it over a window of the past.",
            charts.lines(_by(groups, ("topic", "group"), "latency_ms_p99", max), unit=" ms"),
        ),
        _card(
            "Lag of the pipeline",
            "Offsets that were there and not taken in, at each micro-batch.",
            charts.lines({"lag": [(each.at_ns / 1e9, each.lag) for each in figures.progress if each.lag is not None]}),
        ),
        _card(
            "Waiting for consumers",
            "Messages of each group, the most of the minute.",
            charts.lines(_by(groups, ("topic", "group"), "depth_max", sum)),
        ),
        _card("Top topics", "Messages in all.", charts.bars(_top(traffic, "topic", "messages"))),
        _card(
            "Redeliveries",
            "Messages given back, or whose lease ran out, by group.",
            charts.bars(_top(groups, ("topic", "group"), "redeliveries"), series=1),
        ),
        _card(
            "Dead letters",
            "Messages that were given up, by group.",
            charts.bars(_top(groups, ("topic", "group"), "dead_letters"), series=4),
        ),
        _card(
            "Not decoded",
            "Messages in quarantine, by topic and reason.",
            charts.bars(_top(figures.failures, ("topic", "reason"), "messages"), series=4),
        ),
    ]
    cards += [_card(name, f"[gold.{name}]", _own(columns, rows)) for name, (columns, rows) in figures.own.items()]
    problems = "".join(f"<p><b>{html.escape(name)}</b>: {html.escape(text)}</p>" for name, text in figures.notes.items())
    made_at = datetime.fromtimestamp(now_ns / 1e9, UTC)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{html.escape(figures.name)}</title><style>{_STYLE}{_colours()}</style></head><body><main>"
        f"<h1>{html.escape(figures.name)}</h1><p>{_period(traffic)} Made {made_at:%Y-%m-%d %H:%M} UTC. All times are UTC.</p>"
        f'<div class="facts">{_facts(figures)}</div>'
        + (f"<section><h2>Problems</h2>{problems}</section><br>" if problems else "")
        + f'<div class="cards">{"".join(cards)}</div></main></body></html>\n'
    )


def _table(catalog: Catalog, path: str) -> pa.Table:
    return pq.ParquetFile(catalog.storage / path).read()


def _key(row: Mapping[str, Any], names: str | tuple[str, ...]) -> str:
    return str(row[names]) if isinstance(names, str) else " · ".join(str(row[name]) for name in names)


def _by(
    rows: Sequence[Mapping[str, Any]], names: str | tuple[str, ...], column: str, join: Callable[[list[float]], float]
) -> dict[str, list[tuple[float, float]]]:
    """Make a line for each of the largest, and one for all others."""
    largest = [name for name, _ in _top(rows, names, column)[:_LINES_MAX]]
    parted: dict[str, list[Mapping[str, Any]]] = {name: [] for name in largest}
    for row in rows:
        name = _key(row, names)
        parted.setdefault(name if name in largest else _OTHERS, []).append(row)
    return {name: _series(members, column, join) for name, members in parted.items()}


def _series(rows: Iterable[Mapping[str, Any]], column: str, join: Callable[[list[float]], float]) -> list[tuple[float, float]]:
    """Make points of rows, one for each minute; a minute without any is 0 for what is counted, so that lines do not bridge silence."""
    minutes: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        if row[column] is not None and row["minute"] is not None:
            minutes[_seconds(row["minute"])].append(row[column])
    points: list[tuple[float, float]] = []
    for at in sorted(minutes):
        if join is sum and points and at - points[-1][0] > _MINUTE_SECONDS:
            points += [(points[-1][0] + _MINUTE_SECONDS, 0.0)] + [(at - _MINUTE_SECONDS, 0.0)] * (at - points[-1][0] > 2 * _MINUTE_SECONDS)
        points.append((at, float(join(minutes[at]))))
    return points


def _top(rows: Iterable[Mapping[str, Any]], names: str | tuple[str, ...], column: str) -> list[tuple[str, float]]:
    sums: dict[str, float] = defaultdict(float)
    for row in rows:
        sums[_key(row, names)] += row[column] or 0
    return sorted(((name, value) for name, value in sums.items() if value), key=lambda pair: (-pair[1], pair[0]))[:_BARS_MAX]


def _facts(figures: Figures) -> str:
    def total(rows: Iterable[Mapping[str, Any]], column: str) -> float:
        return sum(row[column] or 0 for row in rows)

    facts = [
        ("messages", total(figures.traffic, "messages"), False),
        ("bytes", total(figures.traffic, "bytes"), False),
        ("topics", len({row["topic"] for row in figures.traffic}), False),
        ("groups", len({(row["topic"], row["group"]) for row in figures.groups}), False),
        ("redeliveries", total(figures.groups, "redeliveries") + total(figures.traffic, "redeliveries"), False),
        ("dead letters", total(figures.groups, "dead_letters"), True),
        ("not decoded", total(figures.failures, "messages"), True),
    ]
    return "".join(f"<div{' class=bad' if bad and value else ''}><b>{charts.short(value)}</b>{name}</div>" for name, value, bad in facts)


def _period(traffic: Sequence[Mapping[str, Any]]) -> str:
    minutes = [row["minute"] for row in traffic if row["minute"] is not None]
    return f"{min(minutes):%Y-%m-%d %H:%M} to {max(minutes):%Y-%m-%d %H:%M}." if minutes else "No messages yet."


def _own(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    head = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
    return f'<table class="own"><tr>{head}</tr>{body}</table>'


def _cell(value: Any) -> str:
    if isinstance(value, float):
        value = f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    elif isinstance(value, int) and not isinstance(value, bool):
        value = f"{value:,}"
    elif value is None:
        value = "–"
    else:
        return f"<td>{html.escape(str(value)[:_OWN_CELL_SIZE])}</td>"
    return f'<td class="n">{value}</td>'


def _card(title: str, words: str, content: str) -> str:
    return f"<section><h2>{html.escape(title)}</h2><p>{html.escape(words)}</p>{content}</section>"


def _colours() -> str:
    return "".join(
        f"polyline.s{n}{{stroke:var(--s{n})}}circle.s{n}{{fill:var(--s{n})}}.legend .s{n},.bar.s{n}{{background:var(--s{n})}}"
        for n in range(charts.SERIES_MAX)
    )


def _seconds(minute: datetime) -> float:
    return (minute if minute.tzinfo else minute.replace(tzinfo=UTC)).timestamp()
