"""What `polymq pipeline` shows: one line that changes on a terminal, else a line now and then; the status; and how a range is written."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Final, Self

from polymq.errors import ConfigError

if TYPE_CHECKING:
    from types import TracebackType

    from rich.table import Table

    from polymq.spark.pipeline.catalog import Catalog
    from polymq.spark.pipeline.config import PipelineConfig
    from polymq.spark.pipeline.replay import Range
    from polymq.spark.pipeline.runner import Seen

__all__ = ["Watch", "range_of", "status_of", "status_table"]

_LINE_SECONDS: Final = 10.0
_NS_PER_US: Final = 1000
_NS: Final = 10**9


class Watch:
    """Shows a line as long as its block lasts."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._status: Any = None
        self._lined_at = time.monotonic()
        self._lined = ""

    def __enter__(self) -> Self:
        """Begin."""
        if sys.stderr.isatty():
            from rich.console import Console

            self._status = Console(stderr=True, highlight=False).status(f"{self._name}: starting")
            self._status.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End."""
        if self._status is not None:
            self._status.stop()

    def tick(self, seen: Seen) -> None:
        """Show how far a runner is."""
        self.say(line_of(seen))

    def say(self, line: str) -> None:
        """Show a line."""
        if self._status is not None:
            self._status.update(f"{self._name}: {line}")
        elif line != self._lined and time.monotonic() - self._lined_at >= _LINE_SECONDS:
            self._lined_at, self._lined = time.monotonic(), line
            print(f"{self._name}: {line}", file=sys.stderr, flush=True)


def line_of(seen: Seen) -> str:
    """Say how far a runner is."""
    parts = [f"{seen.messages:,} archived", f"{seen.rate:,.0f}/s", f"{seen.decoded:,} through silver"]
    parts.append("lag unknown" if seen.lag is None else f"lag {seen.lag:,}")
    if seen.failures:
        parts.append(f"{seen.failures:,} failures, the last: {seen.last_error[:120]}")
    return " · ".join(parts)


def status_of(config: PipelineConfig, catalog: Catalog) -> dict[str, Any]:
    """Gather what `status` shows."""
    tables = {name: {"files": files, "rows": rows, "bytes": size} for name, (files, rows, size) in sorted(catalog.tables().items())}
    batches = catalog.progress()
    last = batches[-1] if batches else None
    return {
        "name": config.name,
        "storage": str(config.storage),
        "source": config.source_format,
        "tables": tables,
        "last_batch": None
        if last is None
        else {"at": last.at_ns / _NS, "batch": last.batch, "messages": last.rows, "duration_ms": last.duration_ms, "lag": last.lag},
        "problems": catalog.notes(),
    }


def status_table(found: dict[str, Any]) -> Table:
    """Lay the status out."""
    from rich.table import Table

    last = found["last_batch"]
    words = "nothing taken in yet"
    if last is not None:
        ago = max(0, round(time.time() - last["at"]))
        lag = "unknown" if last["lag"] is None else f"{last['lag']:,}"
        words = f"last batch {ago:,} s ago: {last['messages']:,} messages in {last['duration_ms']:,} ms, lag {lag}"
    table = Table(box=None, pad_edge=False, title=f"{found['name']}, in {found['storage']}: {words}", title_justify="left")
    table.add_column("table", overflow="fold")
    for title in ("rows", "files", "bytes"):
        table.add_column(title, justify="right", no_wrap=True)
    for name, numbers in found["tables"].items():
        table.add_row(name, f"{numbers['rows']:,}", f"{numbers['files']:,}", f"{numbers['bytes']:,}")
    return table


def range_of(topics: list[str], begin: str | None, until: str | None, offsets: str | None, partitions: list[int]) -> Range:
    """Read what is put back; raises ConfigError."""
    from polymq.spark.pipeline.replay import Range

    first: int | None = None
    last: int | None = None
    if offsets is not None:
        low, dots, high = offsets.partition("..")
        if not dots or not all(part == "" or (part.isascii() and part.isdecimal()) for part in (low, high)):
            raise ConfigError([f"--offsets {offsets!r}: expected A..B, such as 1000..1999, or 1000.."])
        first, last = int(low) if low else None, int(high) if high else None
    return Range(tuple(topics), _moment("--from", begin), _moment("--until", until), first, last, tuple(partitions))


def _moment(option: str, text: str | None) -> int | None:
    """Read a time, or how long ago, as microseconds since 1970."""
    from datetime import datetime

    from polymq.config_values import parse_duration

    if text is None:
        return None
    try:
        return (time.time_ns() - parse_duration(text)) // _NS_PER_US
    except ValueError:
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise ConfigError([f"{option} {text!r}: expected a time (2026-05-01T12:00Z) or how long ago (2h)"]) from error
        return round((moment if moment.tzinfo else moment.astimezone()).timestamp() * 1_000_000)
