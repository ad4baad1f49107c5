"""The report: one page that loads nothing, with every figure of the gold tables."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest

from polymq.spark.pipeline import report
from polymq.spark.pipeline.catalog import Catalog, Progress
from tests.unit.spark.pipeline.archives import gold_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

BEGIN = datetime(2026, 5, 1, 12, tzinfo=UTC)
NOW_NS = round((BEGIN + timedelta(hours=2)).timestamp()) * 10**9


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    found = Catalog(tmp_path)
    yield found
    found.close()


def traffic(topic: str, minute: int, messages: int) -> dict[str, Any]:
    latency = {f"latency_ms_{share}": 5.0 * minute for share in ("p50", "p95", "p99", "max")}
    return {
        "topic": topic,
        "minute": BEGIN + timedelta(minutes=minute),
        "messages": messages,
        "bytes": messages * 9,
        "redeliveries": 1,
    } | latency


def fill(catalog: Catalog) -> None:
    gold_file(catalog, "traffic", [traffic(f"topic{number}", minute, 10 + number) for number in range(12) for minute in range(30)])
    gold_file(catalog, "failures", [{"topic": "<b>topic3", "minute": BEGIN, "reason": "not JSON", "messages": 4}])
    group = {"topic": "topic1", "group": "billing", "minute": BEGIN, "redeliveries": 3.0, "dead_letters": 2.0, "depth_max": 17.0}
    gold_file(
        catalog,
        "groups",
        [group | {"latency_ms_p99": None}, group | {"minute": BEGIN + timedelta(minutes=9), "latency_ms_p99": 8.0, "redeliveries": None}],
    )
    gold_file(catalog, "own", [{"name": "<script>", "n": 12345, "share": 0.123456, "none": None}], date="")
    catalog.note_progress(Progress(NOW_NS, 1, 100, 250, 42))
    catalog.note("silver", "a <problem>")


class Page(HTMLParser):
    """Checks that elements are closed in order, and gathers what is loaded and what is said."""

    VOID = ("meta", "br", "line")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loaded: list[str] = []
        self.words = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.loaded += [str(value) for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_data(self, data: str) -> None:
        self.words += data + "\n"


def read(text: str) -> Page:
    page = Page()
    page.feed(text)
    assert page.open == []
    return page


def test_the_page_has_every_figure_and_loads_nothing(catalog: Catalog) -> None:
    fill(catalog)
    text = report.render(report.gather(catalog, "the <shop>", NOW_NS), NOW_NS)
    page = read(text)
    assert page.loaded == []
    assert not re.search(r"https?://|@import|url\(|<script", text)
    for words in (
        "the <shop>",
        "Traffic",
        "topic11",
        "all others",
        "topic1 · billing",
        "<b>topic3 · not JSON",
        "12,345",
        "0.1235",
        "a <problem>",
    ):
        assert words in page.words, words
    assert str(sum(30 * (10 + number) for number in range(12))) in page.words
    assert "2026-05-01 12:00 to 2026-05-01 12:29." in page.words


def test_only_the_last_days_are_shown(catalog: Catalog) -> None:
    fill(catalog)
    later_ns = NOW_NS + 3 * 86400 * 10**9
    assert report.gather(catalog, "x", later_ns, days=3).traffic == []
    assert len(report.gather(catalog, "x", later_ns, days=4).traffic) == 360


def test_a_pipeline_without_messages_has_a_page(catalog: Catalog) -> None:
    page = read(report.render(report.gather(catalog, "x", NOW_NS), NOW_NS))
    assert "No messages yet." in page.words


def test_a_silence_is_a_silence(catalog: Catalog) -> None:
    gold_file(catalog, "traffic", [traffic("a", 0, 5), traffic("a", 10, 6)])
    rows = report.gather(catalog, "x", NOW_NS).traffic
    points = report._series(rows, "messages", sum)
    assert [value for _, value in points] == [5.0, 0.0, 0.0, 6.0]
