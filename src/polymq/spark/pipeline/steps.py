"""One step of each layer: takes what is new, writes it, and tells the catalog, so that a step that is done again does nothing twice.

The position of a layer is the version of the catalog through which it has come, and changes together with the layer's files.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from polymq.errors import RemoteProtocolError
from polymq.spark.pipeline import bronze, gold, shapes, silver, tables
from polymq.spark.pipeline.archive import bronze_writer
from polymq.spark.pipeline.catalog import BRONZE, GOLD, QUARANTINE, STATISTICS, gold_table, silver_table
from polymq.spark.pipeline.compact import first_date
from polymq.spark.pipeline.registry import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from polymq.spark.pipeline.catalog import Catalog, Entry
    from polymq.spark.pipeline.config import PipelineConfig
    from polymq.spark.pipeline.registry import Version

__all__ = ["Steps", "silver_writer", "view_name"]

SCHEMAS_FOLDER: Final = "schemas"
# A step takes at most so many files of bronze, so that what has piled up is worked off piece by piece.
FILES_PER_STEP_MAX: Final = 400
_TEXT_VERSION: Final = 0
_US: Final = 1_000_000
_NS: Final = 10**9


def silver_writer(topic: str) -> str:
    """Name the position of a topic's silver."""
    return f"silver/{topic}"


def view_name(topic: str) -> str:
    """Name the view of a topic's silver table for SQL: silver_, and the topic with _ for what a name may not have."""
    return "silver_" + "".join(each if each.isascii() and each.isalnum() else "_" for each in topic)


class Steps:
    """The layers behind bronze, over one storage folder. `now_ns` is the clock."""

    def __init__(self, spark: SparkSession, config: PipelineConfig, catalog: Catalog, now_ns: Callable[[], int]) -> None:
        self._spark = spark
        self._config = config
        self._catalog = catalog
        self._now_ns = now_ns
        self.registry = Registry(config.storage / SCHEMAS_FOLDER)

    def write_bronze(self, messages: DataFrame, query: str, batch: int) -> int:
        """Write a micro-batch of a query; nothing if it has been written. Gives the number of rows."""
        writer = bronze_writer(query)
        if batch <= self._catalog.position(writer):
            return 0
        frame = bronze.archived(messages)
        label = f"{query[:8]}-{batch:09d}"
        entries = tables.stage(self._catalog, frame, BRONZE, label, partitions=bronze.PARTITIONS)
        self._catalog.commit(at_ns=self._now_ns(), add=entries, positions={writer: batch})
        return sum(each.rows for each in entries)

    def silver(self) -> int:
        """Decode what is new in bronze, topic by topic; gives the number of rows that silver and quarantine got."""
        newest = self._catalog.version()
        rows = 0
        for topic in self._catalog.topics(BRONZE):
            if self._config.decoding_of(topic) == "none":
                continue
            while True:
                position = self._catalog.position(silver_writer(topic))
                # At the beginning files may have been put together already; behind it they are as they came, because
                # compaction waits for silver.
                is_first = position < 0
                entries = self._catalog.files(BRONZE, after=position, through=newest, original=not is_first, topic=topic)
                if not entries:
                    break
                taken = entries if is_first else _first_versions(entries)
                rows += self._decode(topic, taken, position, newest if is_first else taken[-1].added)
        return rows

    def gold(self) -> list[str]:
        """Make the aggregates again of the days that have changed, and the user's own; gives the names of those that were made."""
        newest = self._catalog.version()
        position = self._catalog.position(GOLD)
        made: list[str] = []
        parts: tuple[tuple[str, str, str, Callable[[DataFrame], DataFrame]], ...] = (
            ("traffic", BRONZE, bronze.SCHEMA, gold.traffic),
            ("failures", QUARANTINE, silver.QUARANTINE_SCHEMA, gold.failures),
            ("groups", STATISTICS, gold.STATISTICS_SCHEMA, gold.groups),
        )
        for name, source, schema, aggregate in parts:
            files = self._catalog.files(source, after=max(position, 0), through=newest)
            changed = {each.date for each in files if position < 0 or not each.is_rewritten}
            # Of a day that has gone out of the source, what is left says nothing about the whole.
            begin = first_date(self._config.retention[source], self._now_ns())
            for date in sorted(each for each in changed if each >= begin):
                self._make_day(name, source, schema, aggregate, date)
                made.append(name)
        if made or position < 0:
            made += [name for name in self._config.gold if self._make_own(name)]
        self._catalog.commit(at_ns=self._now_ns(), positions={GOLD: newest})
        return sorted(set(made))

    def silver_frame(self, topic: str) -> DataFrame:
        """Read a topic's silver table with the newest schema, whatever version its files are of."""
        latest = self.registry.latest(topic)
        is_text = self._config.decoding_of(topic) == "text" or latest is None
        wanted = "string" if is_text or latest is None else latest.body
        by_version: dict[int, list[Entry]] = {}
        for each in self._catalog.files(silver_table(topic)):
            by_version.setdefault(each.schema, []).append(each)
        joined = self._spark.createDataFrame([], silver.silver_schema(wanted))
        for number, files in sorted(by_version.items()):
            if number == _TEXT_VERSION:
                body = f.col("body") if is_text else f.from_json("body", wanted)
                kind = "string"
            elif is_text or latest is None:
                kind = self.registry.version(topic, number).body
                body = f.to_json("body")
            else:
                kind = shapes.spelt(shapes.narrowed(latest.shape, self.registry.version(topic, number).shape))
                body = f.col("body") if kind == wanted else f.col("body").cast(wanted)
            frame = tables.read(self._spark, self._catalog, files, silver.silver_schema(kind))
            joined = joined.unionByName(frame.withColumn("body", body))
        return joined

    def make_views(self) -> list[str]:
        """Make temporary views of all tables, for SQL; gives their names."""
        frames = {
            "bronze": tables.read(self._spark, self._catalog, self._catalog.files(BRONZE), bronze.SCHEMA),
            "quarantine": tables.read(self._spark, self._catalog, self._catalog.files(QUARANTINE), silver.QUARANTINE_SCHEMA),
            "statistics": tables.read(self._spark, self._catalog, self._catalog.files(STATISTICS), gold.STATISTICS_SCHEMA),
        }
        for name, schema in (("traffic", gold.TRAFFIC_SCHEMA), ("failures", gold.FAILURES_SCHEMA), ("groups", gold.GROUPS_SCHEMA)):
            frames[name] = tables.read(self._spark, self._catalog, self._catalog.files(gold_table(name)), schema)
        for topic in self._silver_topics():
            frames[view_name(topic)] = self.silver_frame(topic)
        for name, frame in frames.items():
            frame.createOrReplaceTempView(name)
        return sorted(frames)

    def _decode(self, topic: str, entries: list[Entry], position: int, through: int) -> int:
        """Decode the messages of some files of a topic, which are those behind `position`, through a version."""
        messages = silver.identified(tables.read(self._spark, self._catalog, entries, bronze.SCHEMA))
        window = self._config.repeat_window_seconds
        fresh = silver.without_repeats(messages, self._known(topic, entries, window), window).persist()
        label = f"{through:012d}-{max(position, 0):012d}"
        try:
            decoding = self._config.decoding_of(topic)
            version = None if decoding == "text" else self._version(topic, fresh)
            number, body = (_TEXT_VERSION, "string") if version is None else (version.number, version.body)
            decoded = silver.decoded(fresh, body, number, decoding)
            fitting = silver.fitting(decoded)
            add = tables.stage(
                self._catalog, fitting, silver_table(topic), label, partitions=("date",), files=_files_for(entries), schema=number
            )
            misfits = silver.misfits(decoded)
            safe = Path(tables.folder_of(silver_table(topic))).name[:80]
            add += tables.stage(self._catalog, misfits, QUARANTINE, f"{label}-{safe}", partitions=silver.PARTITIONS, files=1)
        finally:
            fresh.unpersist()
        self._catalog.commit(at_ns=self._now_ns(), add=add, positions={silver_writer(topic): through})
        return sum(each.rows for each in add)

    def _known(self, topic: str, entries: Iterable[Entry], window: float) -> DataFrame | None:
        """Give ids and times of what silver and quarantine have near these files; None if there is nothing near."""
        margin = round(window * _US)
        first = min((each.first_us for each in entries if each.first_us is not None), default=None)
        last = max((each.last_us for each in entries if each.last_us is not None), default=None)
        found: DataFrame | None = None
        for name in (silver_table(topic), QUARANTINE):
            near = [
                each
                for each in self._catalog.files(name, topic=topic)
                if first is None or last is None or each.first_us is None or each.last_us is None
                or (each.first_us <= last + margin and each.last_us >= first - margin)
            ]  # fmt: skip
            if near:
                frame = tables.read(self._spark, self._catalog, near, "id string, timestamp timestamp, date string")
                ids = frame.select(silver.IDENTITY, "timestamp")
                found = ids if found is None else found.unionByName(ids)
        return found

    def _version(self, topic: str, messages: DataFrame) -> Version:
        """Find out, or look up, the schema that decodes these messages."""
        at = f"{datetime.fromtimestamp(self._now_ns() / _NS, UTC):%Y-%m-%dT%H:%M:%SZ}"
        rules = self._config.topics.get(topic)
        if rules is not None and rules.schema:
            try:
                return self.registry.declare(topic, json.loads(StructType.fromDDL(rules.schema).json()), at)
            except PySparkException as error:
                self._catalog.note(f"[topics.{topic}] schema", f"cannot be read: {str(error)[:300]}")
                raise
        row = silver.shape(messages).first()
        try:
            seen = dict(shapes.EMPTY) if row is None or row["shape"] is None else shapes.parse(row["shape"])
        except RemoteProtocolError as error:
            # The last schema decodes what it can; the others are in quarantine.
            self._catalog.note(f"schema of {topic}", str(error))
            seen = dict(shapes.EMPTY)
        return self.registry.see(topic, seen, at)

    def _make_day(self, name: str, source: str, schema: str, aggregate: Callable[[DataFrame], DataFrame], date: str) -> None:
        """Make an aggregate again for one day: its files of that day are exchanged for one."""
        entries = [each for each in self._catalog.files(source) if each.date == date]
        if source == STATISTICS:
            # An increase over midnight begins with the last sample of the day before.
            before = f"{datetime.fromisoformat(date) - timedelta(days=1):%Y-%m-%d}"
            entries += [each for each in self._catalog.files(source) if each.date == before]
        frame = aggregate(tables.read(self._spark, self._catalog, entries, schema)).where(f.col("date") == date)
        label = f"{name}-{date}-{self._catalog.version():012d}"
        old = [each.path for each in self._catalog.files(gold_table(name)) if each.date == date]
        add = tables.stage(self._catalog, frame, gold_table(name), label, partitions=("date",), files=1)
        self._catalog.commit(at_ns=self._now_ns(), add=add, remove=old)

    def _make_own(self, name: str) -> bool:
        """Make one of the user's aggregates; one that fails keeps what it had, and `status` says why."""
        note = f"[gold.{name}] sql"
        try:
            self.make_views()
            frame = self._spark.sql(self._config.gold[name])
            old = [each.path for each in self._catalog.files(gold_table(name))]
            add = tables.stage(self._catalog, frame, gold_table(name), f"{name}-{self._catalog.version():012d}", files=1)
        except PySparkException as error:
            self._catalog.note(note, str(error).split("\n\n")[0][:500])
            return False
        self._catalog.commit(at_ns=self._now_ns(), add=add, remove=old)
        self._catalog.note(note, "")
        return True

    def _silver_topics(self) -> list[str]:
        return [name.removeprefix("silver/") for name in self._catalog.tables() if name.startswith("silver/")]


def _first_versions(entries: list[Entry]) -> list[Entry]:
    """Take the files of the first versions, whole versions, about so many as a step takes."""
    if len(entries) <= FILES_PER_STEP_MAX:
        return entries
    last = entries[FILES_PER_STEP_MAX - 1].added
    return [each for each in entries if each.added <= last]


def _files_for(entries: list[Entry]) -> int:
    """Tell how many files a step writes at most: one for every 64 MiB of its input."""
    return max(1, sum(each.size_bytes for each in entries) // (64 * 1024 * 1024))
