"""The runner: bronze once, whatever is repeated; silver, quarantine, schemas that change, gold, compaction; and all of it over a real broker.

Most tests read Parquet files as their source, which Spark does without another process.
"""

from __future__ import annotations

import dataclasses
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from polymq.clients import broker_sync
from polymq.errors import ConfigError, StoreFailed
from polymq.spark import columns
from polymq.spark.pipeline import compact, config, replay, session
from polymq.spark.pipeline.catalog import Catalog, Entry
from polymq.spark.pipeline.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from polymq.spark.pipeline.runner import Seen
    from polymq.testing.server import PolymqServer

pytestmark = pytest.mark.timeout(300)
BEGIN = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.fixture(autouse=True)
def settings(spark: SparkSession) -> Iterator[None]:
    names = ["spark.sql.session.timeZone", *session.NEEDED]
    before = {name: spark.conf.get(name) for name in names}
    for name, value in session.NEEDED.items():
        spark.conf.set(name, value)
    yield
    for name, old in before.items():
        assert old is not None
        spark.conf.set(name, old)


class Pipeline:
    """A pipeline over files, with what its tests look at."""

    def __init__(self, spark: SparkSession, folder: Path, text: str = "") -> None:
        self.spark = spark
        self.settings = dataclasses.replace(config.parse(text, folder), files_min=2)
        self.catalog = Catalog(self.settings.storage)
        self.incoming = folder / "incoming"
        self.incoming.mkdir()
        self.ends: dict[str, int] = {}

    def publish(self, topic: str, *bodies: bytes) -> None:
        begin = self.ends.get(topic, 0)
        self.ends[topic] = begin + len(bodies)
        offsets = range(begin, begin + len(bodies))
        arrays = {
            "value": pa.array(bodies, pa.binary()),
            "topic": topic,
            "partition": 0,
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array([BEGIN + timedelta(seconds=offset) for offset in offsets], pa.timestamp("us", tz="UTC")),
            "headers": pa.array([[]] * len(bodies), columns.COLUMNS["headers"][1]),
        }
        batch = columns.record_batch(tuple(columns.COLUMNS), len(bodies), arrays)
        pq.write_table(pa.Table.from_batches([batch]), self.incoming / f"{topic}-{begin}.parquet")

    def runner(self) -> Runner:
        def load(spark: SparkSession, name: str, options: dict[str, str]) -> DataFrame:
            return spark.readStream.schema(columns.spark_schema(tuple(columns.COLUMNS))).parquet(str(self.incoming))

        return Runner(self.spark, self.settings, self.catalog, load=load)

    def once(self) -> Seen:
        seen = self.runner().once()
        self.runner().steps.make_views()
        return seen

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(query).collect()]


@pytest.fixture
def pipeline(spark: SparkSession, tmp_path: Path) -> Iterator[Pipeline]:
    text = """
    [topics.notes]
    decode = "text"
    [gold.totals]
    sql = "SELECT count(*) AS orders, sum(body.price) AS price FROM silver_orders"
    [gold.wrong]
    sql = "SELECT nothing FROM nowhere"
    """
    made = Pipeline(spark, tmp_path, text)
    yield made
    made.catalog.close()


def forget_last_commit(pipeline: Pipeline) -> None:
    """Have Spark believe that its last batch was not committed: it is planned, and will be done again."""
    folder = pipeline.settings.storage / "_checkpoint" / "commits"
    last = max(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    for path in folder.glob(f"*{last}*"):
        path.unlink()


def test_from_messages_to_tables(pipeline: Pipeline) -> None:
    pipeline.publish("notes", b"hello")
    pipeline.publish("orders", *(b'{"id": %d, "price": %d}' % (n, n) for n in range(50)), b"poison")
    seen = pipeline.once()
    assert (seen.messages, seen.decoded) == (52, 52)
    assert pipeline.sql("SELECT count(*), count(DISTINCT id), sum(body.price) FROM silver_orders") == [(50, 50, 1225)]
    assert pipeline.sql("SELECT body FROM silver_notes") == [("hello",)]
    assert pipeline.sql("SELECT topic, reason, date FROM quarantine") == [("orders", "not JSON", "2026-05-01")]
    assert sorted(pipeline.sql("SELECT topic, sum(messages) FROM traffic GROUP BY topic")) == [("notes", 1), ("orders", 51)]
    (totals,) = pipeline.catalog.files("gold/totals")
    assert pq.ParquetFile(pipeline.catalog.storage / totals.path).read().to_pylist() == [{"orders": 50, "price": 1225}]
    assert "nowhere" in pipeline.catalog.notes()["[gold.wrong] sql"]

    # A batch that was committed here and not at Spark's is done again, and changes nothing. Meanwhile fields are added and
    # widened; a type that is another is no reason to stop.
    pipeline.settings = dataclasses.replace(pipeline.settings, gold={})
    forget_last_commit(pipeline)
    pipeline.publish("orders", b'{"id": 50, "price": 0.5, "who": {"name": "x"}}', b'{"id": [1]}')
    assert pipeline.once().messages == 2
    assert pipeline.sql("SELECT count(*), count(DISTINCT topic, offset) FROM bronze") == [(54, 54)]
    registry = pipeline.runner().steps.registry
    assert [registry.version("orders", number).body for number in (1, 2)] == [
        "struct<id: bigint, price: bigint>",
        "struct<id: bigint, price: double, who: struct<name: string>>",
    ]
    assert pipeline.sql("SELECT count(*), sum(body.price), max(body.who.name) FROM silver_orders") == [(51, 1225.5, "x")]
    assert pipeline.sql("SELECT reason, detail FROM quarantine WHERE detail IS NOT NULL") == [
        ("does not fit version 2 of the schema", "OBJECT<id: ARRAY<BIGINT>>")
    ]

    # Put together, everything is still there once. Silver goes on behind it (notes), or begins again with it (orders).
    before = pipeline.sql("SELECT topic, offset, value, size, timestamp, date FROM bronze ORDER BY topic, offset")
    assert any(each.is_rewritten for each in pipeline.catalog.files("bronze"))
    compact.sweep(pipeline.catalog, time.time_ns(), grace_seconds=-1)
    compact.rebuild(pipeline.catalog, "orders", time.time_ns())
    pipeline.publish("notes", b"again")
    assert pipeline.once().decoded == 53 + 1
    assert (
        pipeline.sql("SELECT topic, offset, value, size, timestamp, date FROM bronze WHERE value != 'again' ORDER BY topic, offset")
        == before
    )
    # What is of two kinds from the beginning is a string.
    assert pipeline.sql("SELECT count(*), count(DISTINCT id), sum(body.price) FROM silver_orders") == [(52, 52, 1225.5)]
    assert sorted(pipeline.sql("SELECT body FROM silver_notes")) == [("again",), ("hello",)]


def test_what_a_kill_leaves_is_done_again_once(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ended between the files and the catalog, in bronze and in silver: nothing is lost, nothing twice."""
    pipeline.publish("orders", *(b'{"id": %d}' % n for n in range(20)))
    pipeline.settings = dataclasses.replace(pipeline.settings, gold={})
    commit = Catalog.commit
    falls = ["silver/orders", "bronze"]

    def commit_or_fall(self: Catalog, **change: Any) -> int:
        writers = list(change.get("positions") or {})
        if falls and change.get("add") and writers and writers[0].startswith(falls[-1]):
            falls.pop()
            raise StoreFailed("fallen")
        return commit(self, **change)

    monkeypatch.setattr(Catalog, "commit", commit_or_fall)
    seen = pipeline.once()
    assert (falls, seen.failures) == ([], 2)
    assert pipeline.sql("SELECT count(*), count(DISTINCT topic, offset) FROM bronze") == [(20, 20)]
    assert pipeline.sql("SELECT count(*), count(DISTINCT body.id) FROM silver_orders") == [(20, 20)]
    assert pipeline.catalog.notes() == {}
    known = {str(pipeline.catalog.storage / path) for path in pipeline.catalog.paths()}
    assert {str(path) for path in (pipeline.catalog.storage).rglob("*.parquet")} == known


def test_over_a_broker_that_is_killed_until_it_is_stopped_and_back(
    spark: SparkSession, polymq_server: PolymqServer, tmp_path: Path
) -> None:
    text = f"""
    [source.options]
    server = "{polymq_server.http}"
    subscribe = "orders"
    startingOffsets = "earliest"
    retryTimeoutMs = "100"
    """
    pipeline = Pipeline(spark, tmp_path, text)
    # Aggregates and compaction have tests of their own, and take time.
    often = dict.fromkeys(("bronze", "silver", "statistics"), 0.2)
    pipeline.settings = dataclasses.replace(pipeline.settings, every={**pipeline.settings.every, **often})
    runner = Runner(spark, pipeline.settings, pipeline.catalog)

    def publish(body: bytes) -> None:
        with broker_sync.connect(f"nsq://{polymq_server.nsq}") as broker:
            broker.publish("orders", body)
            broker.subscribe("orders", "group").close()

    def start_again() -> None:
        polymq_server.start()
        publish(b'{"id": 1}')

    # What has been seen, and what is done then.
    acts: list[tuple[Callable[[Seen], bool], Callable[[], None]]] = [
        (lambda seen: seen.decoded >= 1 and "statistics" in pipeline.catalog.tables(), polymq_server.kill),
        (lambda seen: "bronze" in pipeline.catalog.notes(), start_again),
        (lambda seen: seen.decoded >= 2 and seen.lag == 0 and not pipeline.catalog.notes(), runner.stop),
    ]

    def tick(seen: Seen) -> None:
        if acts and acts[0][0](seen):
            acts.pop(0)[1]()

    publish(b'{"id": 0}')
    runner.run(tick)
    assert sorted(row.body.id for row in runner.steps.silver_frame("orders").collect()) == [0, 1]

    # A range goes back into a topic, by another protocol.
    with broker_sync.connect(f"phpmq://{polymq_server.phpmq}") as broker:
        wanted = replay.Range(("orders",), first_offset=1)
        done = replay.replay(pipeline.catalog, wanted, broker, protocol="phpmq", target="again", cursor=replay.Cursor(None, ""))
        got = [message.body for message in broker.subscribe("again").messages(timeout_seconds=1)]
    assert (done.sent, got) == (1, [b'{"id": 1}'])
    pipeline.catalog.close()


def test_an_archive_without_its_checkpoint_is_not_begun_anew(pipeline: Pipeline) -> None:
    entry = Entry("bronze", "bronze/x.parquet", 1, 1)
    pipeline.catalog.commit(at_ns=1, add=[entry])
    unknown = pipeline.settings.storage / "bronze" / "y.parquet"
    unknown.parent.mkdir()
    unknown.touch()
    runner = pipeline.runner()
    for begin in (runner.once, runner.run):
        with pytest.raises(ConfigError, match="is gone"):
            begin()
    assert unknown.exists()
