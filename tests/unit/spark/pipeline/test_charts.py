"""Charts as SVG: well-formed, within their frame, with every name escaped."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from polymq.spark.pipeline import charts


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (12, "12"), (1234, "1234"), (12345, "12.3k"), (5.6e6, "5.6M"), (7e9, "7G"), (0.25, "0.25"), (123.4, "123")],
)
def test_numbers_are_short(value: float, text: str) -> None:
    assert charts.short(value) == text


@pytest.mark.parametrize("most", [1, 3, 7.2, 99, 100, 12345, 0.03])
def test_ticks_are_round_and_reach_the_top(most: float) -> None:
    found = charts.ticks(most)
    assert found[0] == 0
    assert found[-1] >= most * (1 - 1e-9)
    assert 3 <= len(found) <= 6


def test_ticks_of_nothing() -> None:
    assert charts.ticks(0) == charts.ticks(float("nan")) == [0.0, 1.0]


def test_lines_are_well_formed_and_within_the_frame() -> None:
    drawn = charts.lines({"a<b>": [(60.0 * n, float(n % 7)) for n in range(5000)], "one": [(0.0, 3.0)]}, unit=" ms")
    root = ET.fromstring(f"<div>{drawn}</div>")
    assert "a<b>" in "".join(root.itertext())
    (line,) = root.iter("polyline")
    points = [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
    assert len(points) <= 300
    assert all(0 <= x <= charts.WIDTH and 0 <= y <= charts.HEIGHT for x, y in points)
    assert len(list(root.iter("circle"))) == 1


def test_there_are_as_many_lines_as_colours() -> None:
    drawn = charts.lines({str(n): [(0.0, 1.0), (60.0, 1.0)] for n in range(20)})
    assert len(re.findall("<polyline", drawn)) == charts.SERIES_MAX


def test_nothing_is_said_in_words() -> None:
    assert "Nothing yet" in charts.lines({"a": []})
    assert "None" in charts.bars([])


def test_bars_are_shares_of_the_largest() -> None:
    drawn = charts.bars([("x" * 99, 200.0), ('<"&>', 50.0)])
    root = ET.fromstring(drawn)
    assert re.findall(r"width:([\d.]+)%", drawn) == ["100.0", "25.0"]
    assert [row.attrib["title"] for row in root] == ["x" * 99, '<"&>']
