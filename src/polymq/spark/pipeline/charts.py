"""Small charts as SVG: lines over time, and bars. Colours are CSS variables of the page, so they follow light and dark."""

from __future__ import annotations

import html
import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["bars", "lines", "short", "ticks"]

WIDTH: Final = 640
HEIGHT: Final = 230
_LEFT: Final = 52
_RIGHT: Final = 12
_TOP: Final = 10
_BOTTOM: Final = 26
# Colours of the page's style, --s0 … --s7; what has none is added up before it comes here.
SERIES_MAX: Final = 8
# More points than pixels show nothing more; of a bucket the largest value stays.
_POINTS_MAX: Final = 300
_NAME_SIZE: Final = 34


def short(value: float) -> str:
    """Write a number in a few characters: 12, 3.4k, 5.6M."""
    size = abs(value)
    for limit, factor, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if size >= limit:
            return f"{value / factor:.3g}{unit}"
    return f"{value:.0f}" if size >= 100 or value == int(value) else f"{value:.3g}"


def ticks(most: float, count: int = 4) -> list[float]:
    """Choose round values from 0 up to `most` or just above it."""
    if not most > 0 or not math.isfinite(most):
        return [0.0, 1.0]
    step = most / count
    scale = 10.0 ** math.floor(math.log10(step))
    step = next(factor * scale for factor in (1, 2, 2.5, 5, 10) if factor * scale >= step * (1 - 1e-9))
    return [step * index for index in range(math.ceil(most / step - 1e-9) + 1)]


def lines(series: Mapping[str, Sequence[tuple[float, float]]], *, unit: str = "") -> str:
    """Draw lines over time: name → (seconds since 1970, value) in order of time; nothing to draw is said in words."""
    shown = {name: _thinned(points) for name, points in list(series.items())[:SERIES_MAX] if points}
    if not shown:
        return '<p class="none">Nothing yet.</p>'
    first = min(points[0][0] for points in shown.values())
    last = max(points[-1][0] for points in shown.values())
    span = max(last - first, 60.0)
    marks = ticks(max(value for points in shown.values() for _, value in points))
    parts = [_frame(marks, unit), _times(first, span)]
    for index, (name, points) in enumerate(shown.items()):
        places = " ".join(f"{_x((at - first) / span):.1f},{_y(value / marks[-1]):.1f}" for at, value in points)
        title = f"<title>{html.escape(name)}: {short(points[-1][1])}{html.escape(unit)} at the end</title>"
        if len(points) == 1:
            x, y = places.split(",")
            parts.append(f'<circle class="s{index}" cx="{x}" cy="{y}" r="3.5">{title}</circle>')
        else:
            parts.append(f'<polyline class="s{index}" points="{places}">{title}</polyline>')
    names = "".join(f'<li><i class="s{index}"></i>{html.escape(name)}</li>' for index, name in enumerate(shown))
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{"".join(parts)}</svg><ul class="legend">{names}</ul>'


def bars(values: Sequence[tuple[str, float]], *, unit: str = "", series: int = 0) -> str:
    """Draw bars with their names, in the order given."""
    if not values:
        return '<p class="none">None.</p>'
    most = max(value for _, value in values) or 1.0
    rows = []
    for name, value in values:
        cut = name if len(name) <= _NAME_SIZE else f"{name[: _NAME_SIZE - 1]}…"
        share = max(0.0, value / most) * 100
        rows.append(
            f'<tr title="{html.escape(name, quote=True)}"><th>{html.escape(cut)}</th>'
            f'<td><div class="bar s{series}" style="width:{share:.1f}%"></div></td><td class="n">{short(value)}{html.escape(unit)}</td></tr>'
        )
    return f'<table class="bars">{"".join(rows)}</table>'


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    size = -(-len(points) // _POINTS_MAX)
    return [max(points[at : at + size], key=lambda point: point[1]) for at in range(0, len(points), size)]


def _x(share: float) -> float:
    return _LEFT + share * (WIDTH - _LEFT - _RIGHT)


def _y(share: float) -> float:
    return HEIGHT - _BOTTOM - share * (HEIGHT - _TOP - _BOTTOM)


def _frame(marks: Sequence[float], unit: str) -> str:
    parts = []
    for mark in marks:
        y = _y(mark / marks[-1])
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(mark)}{html.escape(unit)}</text>')
    return "".join(parts)


def _times(first: float, span: float) -> str:
    pattern = "%H:%M" if span <= 2 * 86400 else "%b %d"
    parts = []
    for place, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        moment = datetime.fromtimestamp(first + span * place, UTC)
        parts.append(f'<text x="{_x(place):.1f}" y="{HEIGHT - 8}" text-anchor="{anchor}">{moment:{pattern}}</text>')
    return "".join(parts)
