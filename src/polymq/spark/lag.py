"""How far queries are behind: from their progress, whichever source of polymq's they read.

A source says in the progress how far the log goes (`latestOffset`) beside how far the query is (`endOffset`); Spark makes
no metric of it for sources written in Python.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent

__all__ = ["Lag", "LagListener", "lag_of"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Lag:
    """What a query had still to read after one of its micro-batches: records by topic. `query` is its name, or its id without one."""

    query: str
    batch: int
    records: dict[str, int]

    @property
    def total(self) -> int:
        """Records of all topics."""
        return sum(self.records.values())


class LagListener(StreamingQueryListener):
    """Keeps the latest lag of every query that runs, logs it, and hands it on.

    >>> listener = LagListener()
    >>> spark.streams.addListener(listener)

    `tell` is called with each, in a thread of Spark's; what it raises is Spark's to log. Queries over other sources that
    say what their latest offset is are in `lags` as well, as far as their offsets are numbers.
    """

    def __init__(self, tell: Callable[[Lag], None] | None = None) -> None:
        self.lags: dict[str, Lag] = {}
        self._tell = tell
        self._names: dict[str, str] = {}

    def __repr__(self) -> str:
        behind = ", ".join(f"{name} {lag.total}" for name, lag in sorted(self.lags.items()))
        return f"<LagListener {behind or 'nothing running'}>"

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802  Spark's name
        """Do nothing: there is no lag before the first progress."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802  Spark's name
        """Work out the lag."""
        progress = event.progress
        records: dict[str, int] = {}
        for source in progress.sources:
            for topic, count in lag_of(source.latestOffset, source.endOffset).items():
                records[topic] = records.get(topic, 0) + count
        if not records:
            return
        lag = Lag(progress.name or str(progress.id), progress.batchId, records)
        self._names[str(progress.runId)] = lag.query
        self.lags[lag.query] = lag
        log.info("%s is %d records behind after batch %d: %s", lag.query, lag.total, lag.batch, records)
        if self._tell is not None:
            self._tell(lag)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802  Spark's name
        """Forget it."""
        self.lags.pop(self._names.pop(str(event.runId), ""), None)


def lag_of(latest: str | None, end: str | None) -> dict[str, int]:
    """Tell how many records by topic lie between two offsets of a source, as JSON; nothing where they are of another kind.

    A partition that the query has not begun with counts from offset 0, though its log may start later.
    """
    try:
        to, at = json.loads(latest or "null"), json.loads(end or "null")
    except ValueError:
        return {}
    if not isinstance(to, dict):
        return {}
    reached = at if isinstance(at, dict) else {}
    return {topic: _between(latest_of, reached.get(topic)) for topic, latest_of in to.items() if isinstance(latest_of, dict)}


def _between(latest: Any, end: Any) -> int:
    """Add up what lies between offsets, however deep they are: of partitions, or of queues of brokers."""
    if isinstance(latest, dict):
        if "offset" not in latest:
            reached = end if isinstance(end, dict) else {}
            return sum(_between(value, reached.get(key)) for key, value in latest.items())
        is_same = isinstance(end, dict) and end.get("log") == latest.get("log")
        return _between(latest["offset"], end["offset"] if is_same else 0)
    if not isinstance(latest, int):
        return 0
    return max(0, latest - end) if isinstance(end, int) else max(0, latest)
