"""GET /metrics: the registry in Prometheus' text format 0.0.4, or as OpenMetrics for who asks for that.

The text is made while it is sent, so that thousands of topics hold no turn. Of each family so many samples are
listed, always the oldest topics and groups, and what is left out is added up in one sample whose labels are empty; so
sums over a family are right, and a scrape has a bounded size. How many were left out is a metric itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from polymq import limits
from polymq.admin.door import endpoint
from polymq.core.statistics import Kind
from polymq.wire.exchange import Response

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from polymq.admin.door import Door
    from polymq.core.statistics import Family, Sample
    from polymq.wire.exchange import Request

__all__ = ["OPEN_METRICS", "TEXT", "choose", "render", "show_metrics"]

TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

_TOTAL: Final = "_total"
# What cannot be added up is left out without a sum.
_QUANTILE: Final = "quantile"
_LEFT_OUT: Final = "polymq_metrics_left_out_samples"
_PIECE_SIZE_BYTES: Final = 32 * 1024
# Samples that make no text still take time: after so many, others have their turn.
_SILENT_SAMPLES_MAX: Final = 500


@endpoint
def show_metrics(request: Request, door: Door) -> Response:
    """GET /metrics."""
    accept = b",".join(value for name, value in request.headers if name == b"accept")
    form = choose(accept.decode("latin-1"))
    return Response(headers=(("Content-Type", form),), body=render(door.statistics, form))


def choose(accept: str) -> str:
    """Give the content type to answer with: OpenMetrics if the peer prefers it to plain text."""
    open_metrics = text = 0.0
    for item in accept.lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        options = dict(part.split("=", 1) for part in parameters if "=" in part)
        weight = _weight(options.get("q", "1"))
        if name == "application/openmetrics-text" and options.get("version", "1.0.0") in ("1.0.0", "0.0.1"):
            open_metrics = max(open_metrics, weight)
        elif name in ("text/plain", "text/*", "*/*"):
            text = max(text, weight)
    return OPEN_METRICS if open_metrics > text else TEXT


def _weight(text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        return 0.0
    return weight if 0 <= weight <= 1 else 0.0


def render(families: Iterable[Family], form: str) -> Iterator[bytes]:
    """Write families in pieces; b"" is a pause.

    Source: prometheus.io "Exposition formats", text format 0.0.4; OpenMetrics 1.0.0.
    """
    is_open = form == OPEN_METRICS
    gathered: list[str] = []
    size = left_out = 0
    for family in families:
        name = family.name.removesuffix(_TOTAL) if is_open else family.name
        gathered.append(f"# HELP {name} {_escaped(family.help, quotes=is_open)}\n# TYPE {name} {family.kind.value}\n")
        rest = _Rest()
        for index, sample in enumerate(family.collect()):
            if index < limits.METRICS_SAMPLES_PER_FAMILY_MAX:
                gathered.append(_line(family, sample.labels, sample.value))
                size += len(gathered[-1])
            else:
                rest.add(sample)
                if rest.count % _SILENT_SAMPLES_MAX == 0:
                    yield b""
            if size >= _PIECE_SIZE_BYTES:
                yield "".join(gathered).encode("utf-8")
                gathered.clear()
                size = 0
        if rest.labels is not None:
            gathered.append(_line(family, rest.labels, rest.sum))
        left_out += rest.count
    gathered.append(f"# HELP {_LEFT_OUT} Samples above the limit of their family, added up in one without labels.\n")
    gathered.append(f"# TYPE {_LEFT_OUT} {Kind.GAUGE.value}\n{_LEFT_OUT} {left_out}\n")
    if is_open:
        gathered.append("# EOF\n")
    yield "".join(gathered).encode("utf-8")


class _Rest:
    """The samples of a family that are not listed."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0.0
        self.labels: Mapping[str, str] | None = None

    def add(self, sample: Sample) -> None:
        self.count += 1
        if _QUANTILE in sample.labels:
            return
        self.sum += sample.value
        if self.labels is None:
            self.labels = dict.fromkeys(sample.labels, "")


def _line(family: Family, labels: Mapping[str, str], value: float) -> str:
    if not labels:
        return f"{family.name} {_number(value)}\n"
    pairs = ",".join([f'{name}="{_escaped(text, quotes=True)}"' for name, text in labels.items()])
    return f"{family.name}{{{pairs}}} {_number(value)}\n"


def _number(value: float) -> str:
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(value)


def _escaped(text: str, *, quotes: bool) -> str:
    if "\\" in text or "\n" in text or (quotes and '"' in text):
        text = text.replace("\\", "\\\\").replace("\n", "\\n")
        if quotes:
            text = text.replace('"', '\\"')
    return text
