"""The runner over a real broker: bronze once, whatever is repeated; silver, quarantine, schemas that change, gold, compaction, replay."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients import broker_sync
from polymq.errors import ConfigError, StoreFailed
from polymq.spark.pipeline import compact, config, replay, session
from polymq.spark.pipeline.catalog import Catalog
from polymq.spark.pipeline.runner import Runner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from polymq.spark.pipeline.runner import Seen
    from polymq.testing.server import PolymqServer

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(autouse=True)
def settings(spark: SparkSession) -> Iterator[None]:
    for name, value in session.NEEDED.items():
        spark.conf.set(name, value)
    yield
    for name in session.NEEDED:
        spark.conf.unset(name)
    spark.conf.set("spark.sql.session.timeZone", "UTC")


class Pipeline:
    """A pipeline over a broker, with what its tests look at."""

    def __init__(self, spark: SparkSession, server: PolymqServer, folder: Path) -> None:
        text = f"""
        [source.options]
        server = "{server.http}"
        subscribe = "orders,notes"
        startingOffsets = "earliest"
        [topics.notes]
        decode = "text"
        [gold.totals]
        sql = "SELECT count(*) AS orders, sum(body.price) AS price FROM silver_orders"
        [gold.wrong]
        sql = "SELECT nothing FROM nowhere"
        """
        self.spark = spark
        self.server = server
        self.settings = dataclasses.replace(config.parse(text, folder), files_min=2)
        self.catalog = Catalog(self.settings.storage)

    def once(self) -> Seen:
        return Runner(self.spark, self.settings, self.catalog).once()

    def publish(self, topic: str, *bodies: bytes) -> None:
        with broker_sync.connect(f"nsq://{self.server.nsq}") as broker:
            broker.publish_many(topic, list(bodies))

    def sql(self, query: str) -> list[tuple[Any, ...]]:
        Runner(self.spark, self.settings, self.catalog).steps.make_views()
        return [tuple(row) for row in self.spark.sql(query).collect()]


@pytest.fixture
def pipeline(spark: SparkSession, polymq_server: PolymqServer, tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(spark, polymq_server, tmp_path)
    made.publish("notes", b"hello")
    yield made
    made.catalog.close()


def forget_last_commit(pipeline: Pipeline) -> None:
    """Have Spark believe that its last batch was not committed: it is planned, and will be done again."""
    folder = pipeline.settings.storage / "_checkpoint" / "commits"
    last = max(int(path.name) for path in folder.iterdir() if path.name.isdecimal())
    for path in (folder / str(last), folder / f".{last}.crc"):
        path.unlink(missing_ok=True)


def test_from_messages_to_tables_and_back(pipeline: Pipeline) -> None:
    pipeline.publish("orders", *(b'{"id": %d, "price": %d}' % (n, n) for n in range(50)), b"poison")
    seen = pipeline.once()
    assert (seen.messages, seen.decoded, seen.lag) == (52, 52, 0)
    assert pipeline.sql("SELECT count(*), count(DISTINCT id), sum(body.price) FROM silver_orders") == [(50, 50, 1225)]
    assert pipeline.sql("SELECT body FROM silver_notes") == [("hello",)]
    assert sorted(pipeline.sql("SELECT topic, reason FROM quarantine")) == [
        ("notes", "not UTF-8"),
        ("orders", "not JSON"),
        ("orders", "not JSON"),
    ]
    assert sorted(pipeline.sql("SELECT topic, sum(messages) FROM traffic GROUP BY topic")) == [("notes", 1), ("orders", 51)]
    read = pipeline.spark.read.parquet(*(str(pipeline.catalog.storage / each.path) for each in pipeline.catalog.files("gold/totals")))
    assert [tuple(row) for row in read.collect()] == [(50, 1225)]
    assert "nowhere" in pipeline.catalog.notes()["[gold.wrong] sql"]

    # Aggregates are looked at above; from here on they only take time.
    pipeline.settings = dataclasses.replace(pipeline.settings, gold={})

    # A batch that was committed here and not at Spark's is planned again, and changes nothing.
    forget_last_commit(pipeline)
    assert pipeline.once().messages == 0
    assert pipeline.sql("SELECT count(*), count(DISTINCT topic, offset) FROM bronze") == [(52, 52)]

    # Fields are added and widened; a type that is another is no reason to stop.
    pipeline.publish("orders", b'{"id": 50, "price": 0.5, "who": {"name": "x"}}', b'{"id": [1]}')
    pipeline.once()
    assert [version.body for version in (pipeline_version(pipeline, 1), pipeline_version(pipeline, 2))] == [
        "struct<id: bigint, price: bigint>",
        "struct<id: bigint, price: double, who: struct<name: string>>",
    ]
    assert pipeline.sql("SELECT count(*), sum(body.price), max(body.who.name) FROM silver_orders") == [(51, 1225.5, "x")]
    assert pipeline.sql("SELECT reason, detail FROM quarantine WHERE topic = 'orders' AND detail IS NOT NULL") == [
        ("does not fit version 2 of the schema", "OBJECT<id: ARRAY<BIGINT>>")
    ]
    # Put together, everything is still there once; and silver goes on behind it.
    before = pipeline.sql("SELECT topic, offset, value, size, timestamp, date FROM bronze ORDER BY topic, offset")
    assert compact.compact(pipeline.catalog, pipeline.settings, time.time_ns()).after >= 1
    assert pipeline.sql("SELECT topic, offset, value, size, timestamp, date FROM bronze ORDER BY topic, offset") == before
    compact.sweep(pipeline.catalog, time.time_ns(), grace_seconds=-1)
    pipeline.publish("orders", b'{"id": 51}')
    assert pipeline.once().decoded == 1
    assert pipeline.sql("SELECT count(*) FROM silver_orders") == [(52,)]

    # A range back into a topic of another protocol's.
    with broker_sync.connect(f"phpmq://{pipeline.server.phpmq}") as broker:
        wanted = replay.Range(("orders",), first_offset=10, last_offset=12)
        done = replay.replay(pipeline.catalog, wanted, broker, protocol="phpmq", target="again", cursor=replay.Cursor(None, ""))
        got = [message.body for message in broker.subscribe("again").messages(timeout_seconds=1)]
    assert done.sent == 3
    assert got == [b'{"id": %d, "price": %d}' % (n, n) for n in (10, 11, 12)]

    # Decoded anew from bronze, whatever files it lies in by now.
    compact.rebuild(pipeline.catalog, "orders", time.time_ns())
    pipeline.once()
    assert pipeline.sql("SELECT count(*), count(DISTINCT id), sum(body.price) FROM silver_orders") == [(52, 52, 1225.5)]


def pipeline_version(pipeline: Pipeline, number: int) -> Any:
    return Runner(pipeline.spark, pipeline.settings, pipeline.catalog).steps.registry.version("orders", number)


def test_what_a_kill_leaves_is_done_again_once(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed between the files and the catalog, in bronze and in silver: nothing is lost, nothing twice."""
    pipeline.publish("orders", *(b'{"id": %d}' % n for n in range(20)))
    commit = Catalog.commit
    falls = [2]

    def commit_or_fall(self: Catalog, **change: Any) -> int:
        if change.get("add") and falls[0] > 0 and len(change.get("positions") or {}) == 1:
            falls[0] -= 1
            raise StoreFailed("fallen")
        return commit(self, **change)

    pipeline.settings = dataclasses.replace(pipeline.settings, gold={})
    monkeypatch.setattr(Catalog, "commit", commit_or_fall)
    seen = pipeline.once()
    assert (falls[0], seen.failures) == (0, 2)
    assert pipeline.sql("SELECT count(*), count(DISTINCT topic, offset) FROM bronze") == [(21, 21)]
    assert pipeline.sql("SELECT count(*), count(DISTINCT body.id) FROM silver_orders") == [(20, 20)]
    assert pipeline.catalog.notes() == {}


def test_it_runs_until_it_is_stopped_and_through_a_broker_that_is_killed(pipeline: Pipeline) -> None:
    pipeline.settings = dataclasses.replace(
        pipeline.settings,
        every=dict.fromkeys(pipeline.settings.every, 0.2),
        source_options={**pipeline.settings.source_options, "retryTimeoutMs": "100"},
        gold={},
    )
    pipeline.publish("orders", b'{"id": 0}')
    runner = Runner(pipeline.spark, pipeline.settings, pipeline.catalog)

    def start_again() -> None:
        pipeline.server.start()
        pipeline.publish("orders", b'{"id": 1}')

    # What has been seen, and what is done then.
    acts: list[tuple[Callable[[Seen], bool], Callable[[], None]]] = [
        (lambda seen: seen.decoded >= 2, pipeline.server.kill),
        (lambda seen: seen.failures > 0, start_again),
        (lambda seen: seen.decoded >= 3 and seen.lag == 0, runner.stop),
    ]

    def tick(seen: Seen) -> None:
        if acts and acts[0][0](seen):
            acts.pop(0)[1]()

    runner.run(tick)
    assert pipeline.sql("SELECT body.id FROM silver_orders ORDER BY 1") == [(0,), (1,)]


def test_an_archive_without_its_checkpoint_is_not_begun_anew(pipeline: Pipeline) -> None:
    pipeline.settings = dataclasses.replace(pipeline.settings, gold={})
    pipeline.once()
    (pipeline.settings.storage / "_checkpoint" / "metadata").unlink()
    with pytest.raises(ConfigError, match="is gone"):
        pipeline.once()
