"""Runs a pipeline: one streaming query takes messages into bronze, and between its batches the other layers take their steps.

    source ──query, foreachBatch──▶ bronze ──step──▶ silver, quarantine ──step──▶ gold
    broker's statistics ──sample──▶ statistics ──────────────────────────────────▶ gold

What fails is begun again after a pause that grows: the query from its checkpoint, a step from its position. Nothing is done twice,
because each layer's files and its position are one change of the catalog.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import PySparkException

from polymq.clients.log import LogClient
from polymq.errors import ConfigError, PolyMQError, StoreFailed
from polymq.spark.pipeline import archive, compact, samples
from polymq.spark.pipeline.archive import CHECKPOINT_FOLDER, query_id
from polymq.spark.pipeline.catalog import Catalog, Progress
from polymq.spark.pipeline.lag import lag_of
from polymq.spark.pipeline.source import load_stream
from polymq.spark.pipeline.steps import Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from polymq.spark.pipeline.config import PipelineConfig

__all__ = ["Runner", "Seen"]

PAUSE_SECONDS_FIRST: Final = 1.0
PAUSE_SECONDS_MAX: Final = 60.0
# In one run of `once`, a layer is begun again so often.
ATTEMPTS_MAX: Final = 3
_TICK_SECONDS: Final = 0.2
_STATISTICS_SECONDS: Final = 5.0
_NS: Final = 10**9


@dataclass(slots=True)
class Seen:
    """What has been done, for whoever watches."""

    messages: int = 0
    batches: int = 0
    decoded: int = 0
    lag: int | None = None
    rate: float = 0.0
    failures: int = 0
    last_error: str = ""
    made: list[str] = field(default_factory=list)


class Runner:
    """A pipeline over a Spark session; the caller holds the lock of the storage folder. `say` gets a line for people now and then."""

    def __init__(
        self,
        spark: SparkSession,
        config: PipelineConfig,
        catalog: Catalog,
        *,
        say: Callable[[str], None] = lambda _: None,
        now_ns: Callable[[], int] = time.time_ns,
        load: Callable[[SparkSession, str, dict[str, str]], DataFrame] = load_stream,
    ) -> None:
        self._spark = spark
        self._config = config
        self._catalog = catalog
        self._say = say
        self._now_ns = now_ns
        self._load = load
        self._query: StreamingQuery | None = None
        self._last_batch = -1
        self._is_stopping = False
        self._statistics: LogClient | None = None
        self._pauses: dict[str, tuple[float, float]] = {}
        self.steps = Steps(spark, config, catalog, now_ns)
        self.seen = Seen()

    def once(self, tick: Callable[[Seen], None] = lambda _: None) -> Seen:
        """Take in what is there now, through all layers, and end; `tick` is called now and then. Raises StoreFailed for what stays wrong."""
        archive.begin(self._catalog, self._now_ns())
        try:
            self._insist("bronze", lambda: self._bronze_once(tick))
            self._insist("silver", self._silver)
            self._attempt("statistics", self._sample)
            self._insist("gold", self._gold)
            self._attempt("compaction", self._tidy)
        finally:
            self._close()
        return self.seen

    def run(self, tick: Callable[[Seen], None] = lambda _: None) -> Seen:
        """Run until `stop`; `tick` is called some times a second."""
        archive.begin(self._catalog, self._now_ns())
        due = dict.fromkeys(self._config.every, 0.0)
        # Nothing is old when a run begins.
        due["compaction"] = time.monotonic() + self._config.every["compaction"]
        layers: dict[str, Callable[[], None]] = {
            "silver": self._silver,
            "statistics": self._sample,
            "gold": self._gold,
            "compaction": self._tidy,
        }
        try:
            while not self._is_stopping:
                self._attempt("bronze", self._keep_query)
                for name, step in layers.items():
                    if not self._is_stopping and time.monotonic() >= due[name] and self._attempt(name, step):
                        due[name] = time.monotonic() + self._config.every[name]
                self._watch()
                tick(self.seen)
                time.sleep(_TICK_SECONDS)
        finally:
            self._end_query()
            self._close()
        return self.seen

    def stop(self) -> None:
        """Have `run` end when what it is doing is done; may be called from a signal's handler."""
        self._is_stopping = True

    def _start_query(self, **trigger: Any) -> StreamingQuery:
        checkpoint = self._config.storage / CHECKPOINT_FOLDER
        frame = self._load(self._spark, self._config.source_format, dict(self._config.source_options))
        writer = frame.writeStream.foreachBatch(self._take).option("checkpointLocation", str(checkpoint.absolute()))
        return writer.trigger(**trigger).start()

    def _take(self, messages: DataFrame, batch: int) -> None:
        """Write one micro-batch into bronze."""
        begun = time.monotonic()
        rows = self.steps.write_bronze(messages, query_id(self._config.storage / CHECKPOINT_FOLDER), batch)
        duration_ms = round((time.monotonic() - begun) * 1000)
        if rows:
            self._catalog.note_progress(Progress(self._now_ns(), batch, rows, duration_ms, self.seen.lag))
        self.seen.messages += rows
        self.seen.batches += 1

    def _bronze_once(self, tick: Callable[[Seen], None]) -> None:
        query = self._query = self._start_query(availableNow=True)
        try:
            while query.isActive:
                self._watch()
                tick(self.seen)
                if self._is_stopping:
                    query.stop()
                time.sleep(_TICK_SECONDS)
            self._watch()
            error = query.exception()
            if error is not None:
                raise error
        finally:
            self._query = None

    def _keep_query(self) -> None:
        if self._query is not None and self._query.isActive:
            return
        error = None if self._query is None else self._query.exception()
        self._query = None
        if error is not None:
            raise error
        self._query = self._start_query(processingTime=f"{self._config.every['bronze'] * 1000:.0f} milliseconds")

    def _end_query(self) -> None:
        query, self._query = self._query, None
        if query is not None and query.isActive:
            # Stopped within a batch, Spark may complain at length; what is not committed is done again anyhow.
            deadline = time.monotonic() + 30
            while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
                time.sleep(0.05)
            query.stop()

    def _close(self) -> None:
        if self._statistics is not None:
            self._statistics.close()

    def _silver(self) -> None:
        self.seen.decoded += self.steps.silver()

    def _gold(self) -> None:
        self.seen.made = self.steps.gold() or self.seen.made

    def _tidy(self) -> None:
        now_ns = self._now_ns()
        outcome = compact.compact(self._catalog, self._config, now_ns)
        outcome.expired = compact.expire(self._catalog, self._config, now_ns)
        compact.sweep(self._catalog, now_ns)
        if outcome.before or outcome.expired:
            self._say(f"{outcome.before} small files put together into {outcome.after}; {outcome.expired} too old")
        for each in outcome.failed:
            self._say(f"not put together: {each}")

    def _sample(self) -> None:
        """Ask the broker for its statistics, where there is a polymq node to be asked."""
        if not self._config.statistics_server:
            return
        if self._statistics is None:
            self._statistics = LogClient(self._config.statistics_server, secret=self._secret(), timeout_seconds=_STATISTICS_SECONDS)
        now_ns = self._now_ns()
        add = samples.stage_sample(self._catalog, samples.sample(self._statistics.statistics(), now_ns), now_ns)
        if add:
            self._catalog.commit(at_ns=now_ns, add=add)

    def _secret(self) -> str:
        config = self._config
        try:
            if config.statistics_secret_file:
                with open(config.statistics_secret_file, encoding="utf-8") as file:  # noqa: PTH123
                    return file.read(65536).strip()
            return os.environ[config.statistics_secret_env].strip() if config.statistics_secret_env else ""
        except (OSError, UnicodeDecodeError, KeyError) as error:
            raise ConfigError(["[statistics] the secret cannot be read"]) from error

    def _watch(self) -> None:
        """Take what the query says of itself."""
        if self._query is None:
            return
        progress = self._query.lastProgress
        if progress is not None:
            told = json.loads(progress.json)
            if told["batchId"] != self._last_batch:
                self._last_batch = told["batchId"]
                self.seen.rate = float(told.get("processedRowsPerSecond") or 0.0)
            self.seen.lag = lag_of(told["sources"])

    def _attempt(self, name: str, step: Callable[[], None]) -> bool:
        """Take a step unless it has just failed; tells whether it was done."""
        resume_at, pause = self._pauses.get(name, (0.0, 0.0))
        if time.monotonic() < resume_at:
            return False
        try:
            step()
        except (PySparkException, PolyMQError, OSError, ValueError) as error:
            pause = min(max(pause * 2, PAUSE_SECONDS_FIRST), PAUSE_SECONDS_MAX)
            self._pauses[name] = time.monotonic() + pause, pause
            self._failed(name, error, f"again in {pause:.0f} s")
            return False
        if name in self._pauses and self._is_proved(name):
            del self._pauses[name]
            self._catalog.note(name, "")
        return True

    def _is_proved(self, name: str) -> bool:
        """Tell whether a step that was taken has shown that it works: a query that was only started has not."""
        return name != "bronze" or (self._query is not None and self._query.lastProgress is not None)

    def _insist(self, name: str, step: Callable[[], None]) -> None:
        """Take a step, some times if need be. Raises ConfigError as it is, and StoreFailed for what stays."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                step()
            except ConfigError:
                raise
            except (PySparkException, PolyMQError, OSError, ValueError) as error:
                self._failed(name, error, f"attempt {attempt} of {ATTEMPTS_MAX}")
                if attempt == ATTEMPTS_MAX:
                    raise StoreFailed(f"{name} fails: {_first_words(error)}") from error
                time.sleep(PAUSE_SECONDS_FIRST)
            else:
                self._catalog.note(name, "")
                return

    def _failed(self, name: str, error: Exception, then: str) -> None:
        self.seen.failures += 1
        self.seen.last_error = f"{name}: {_first_words(error)}"
        self._catalog.note(name, _first_words(error))
        self._say(f"{self.seen.last_error} ({then})")


def _first_words(error: Exception) -> str:
    """Take what a person wants to read of an error of Spark's, which has pages."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if line.startswith(("polymq.errors.", "pyspark.errors."))] or lines
    return (told[-1] if told[:1] and told is not lines else told[0] if told else type(error).__name__)[:500]
