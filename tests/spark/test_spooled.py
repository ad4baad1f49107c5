"""The sources nsq, nats and phpmq as Spark uses them, with a polymq that speaks the three protocols."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from polymq.clients.nats import NatsPublisher
from polymq.clients.nsq import NsqProducer
from polymq.clients.phpmq import PhpmqProducer
from polymq.spool import folder
from polymq.spool.feed import Feed
from polymq.spool.settings import SpoolSettings
from polymq.spool.spooler import Spooler
from polymq.testing.server import PolymqServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# The first test pays for the start of Spark and of its Python workers.
pytestmark = pytest.mark.timeout(900)

# Longer than a busy machine takes to deliver what is there.
PAUSE_MS = 1500


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PolymqServer]:
    with PolymqServer(tmp_path_factory.mktemp("polymq"), {"nsq.msg_timeout": "2s"}) as started:
        yield started


def publish_nsq(server: PolymqServer, topic: str, bodies: list[bytes]) -> None:
    async def publish() -> None:
        async with NsqProducer(server.nsq) as producer:
            await producer.publish_many(topic, bodies)

    asyncio.run(publish())


def nsq_stream(spark: SparkSession, server: PolymqServer, topic: str, tmp_path: Path, **options: object) -> DataFrame:
    wanted: dict[str, object] = {"servers": server.nsq, "subscribe": topic, "channel": "spark", "availableNowPauseMs": PAUSE_MS}
    wanted |= {"spoolLocation": tmp_path / "spool", **options}
    return spark.readStream.format("nsq").options(**{name: str(value) for name, value in wanted.items()}).load()


def started(frame: DataFrame, tmp_path: Path, *, now: bool = True) -> StreamingQuery:
    writing = frame.writeStream.format("parquet").option("path", str(tmp_path / "out"))
    writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
    return (writing.trigger(availableNow=True) if now else writing.trigger(processingTime="100 milliseconds")).start()


def archive(frame: DataFrame, tmp_path: Path) -> list[dict[str, Any]]:
    """Run a query over what there is now into Parquet; give the progress of its batches."""
    query = started(frame, tmp_path)
    assert query.awaitTermination(240)
    return [json.loads(progress.json) for progress in query.recentProgress]


def values(spark: SparkSession, tmp_path: Path) -> list[bytes]:
    return sorted(bytes(row.value) for row in spark.read.parquet(str(tmp_path / "out")).select("value").collect())


def wait_until(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_nsq_arrives_with_its_columns_and_goes_on_where_it_was(spark: SparkSession, server: PolymqServer, tmp_path: Path) -> None:
    publish_nsq(server, "first", [b"a%03d" % n for n in range(100)])
    progress = archive(nsq_stream(spark, server, "first", tmp_path, maxOffsetsPerTrigger=40), tmp_path)
    assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [40, 40, 20]
    assert progress[0]["sources"][0]["latestOffset"]["spool"]["0"]["offset"] == 100
    row = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").first()
    assert row is not None
    assert (bytes(row.value), row.topic, row.partition, row.offset, row.protocol, row.attempts) == (b"a000", "first", 0, 0, "nsq", 1)
    assert len(row.message_id) == 16
    assert (row.key, row.headers, row.tags, row.reply_to, row.expires_at) == (None, [], None, None, None)
    publish_nsq(server, "first", [b"b%03d" % n for n in range(50)])
    archive(nsq_stream(spark, server, "first", tmp_path), tmp_path)
    # A batch that was planned and is not committed: Spark asks for its partitions before anything else.
    newest = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
    # As after a power loss: the records are there, and nothing says how far they go.
    (tmp_path / "spool" / folder.POSITION).unlink()
    publish_nsq(server, "first", [b"c%03d" % n for n in range(10)])
    archive(nsq_stream(spark, server, "first", tmp_path, minPartitions=3), tmp_path)
    assert values(spark, tmp_path) == sorted(
        [b"a%03d" % n for n in range(100)] + [b"b%03d" % n for n in range(50)] + [b"c%03d" % n for n in range(10)]
    )
    assert folder.committed(tmp_path / "spool") >= 100


def test_a_batch_read_gives_what_is_in_the_spool(spark: SparkSession, server: PolymqServer, tmp_path: Path) -> None:
    publish_nsq(server, "batch", [b"%03d" % n for n in range(100)])
    feed = Feed("nsq", ("batch",), (server.nsq,), channel="spark")
    spooler = Spooler(tmp_path / "spool", feed, SpoolSettings())

    async def fill() -> None:
        running = asyncio.create_task(spooler.run())
        while spooler.report.stored_count < 100:
            await asyncio.sleep(0.01)
            assert not running.done()
        spooler.stop()
        await running

    asyncio.run(fill())
    reader = spark.read.format("nsq").option("spoolLocation", str(tmp_path / "spool")).option("columns", "value,offset,message_id")
    frame = reader.option("maxRecordsPerPartition", 30).option("startingOffsets", '{"spool": {"0": 5}}').load()
    assert frame.columns == ["value", "offset", "message_id"]
    assert frame.rdd.getNumPartitions() == 4
    assert sorted((row.offset, bytes(row.value)) for row in frame.collect()) == [(n, b"%03d" % n) for n in range(5, 100)]
    # The same spool as a stream that does not receive.
    options = {"spoolLocation": str(tmp_path / "spool"), "receiver": "process", "columns": "value"}
    archive(spark.readStream.format("nsq").options(**options).load(), tmp_path)
    assert len(values(spark, tmp_path)) == 100
    with pytest.raises(Exception, match="is for nsq, not for nats"):
        spark.read.format("nats").option("spoolLocation", str(tmp_path / "spool")).load().count()
    with pytest.raises(Exception, match="did you mean spoolLocation"):
        spark.read.format("nsq").option("spoolLocatoin", str(tmp_path / "spool")).load().count()


def test_nats_and_phpmq_arrive_with_their_columns(spark: SparkSession, server: PolymqServer, tmp_path: Path) -> None:
    nats = {"server": server.nats, "subscribe": "city.*", "spoolLocation": str(tmp_path / "nats-spool")}
    query = started(spark.readStream.format("nats").options(**nats).load(), tmp_path / "nats", now=False)
    try:
        wait_until(lambda: (folder.status(tmp_path / "nats-spool") or {}).get("state") == "receiving")

        async def publish() -> None:
            async with NatsPublisher(server.nats) as publisher:
                await publisher.publish_each([(f"city.{n % 3}", b"n%d" % n, {"gate": "A7"} if n % 2 else {}) for n in range(60)])
            async with PhpmqProducer(server.phpmq) as producer:
                await producer.publish("mails", b"forever")
                await producer.publish("mails", b"for an hour", ttl_seconds=3600)
                await producer.confirm()

        asyncio.run(publish())
        wait_until(lambda: folder.position(tmp_path / "nats-spool").end == 60)  # type: ignore[union-attr]
        query.processAllAvailable()
    finally:
        query.stop()
    rows = spark.read.parquet(str(tmp_path / "nats" / "out")).orderBy("offset").collect()
    assert [bytes(row.value) for row in rows] == [b"n%d" % n for n in range(60)]
    assert (rows[4].topic, rows[4].headers, rows[4].message_id, rows[4].attempts) == ("city.1", [], None, None)
    assert [(each.key, bytes(each.value)) for each in rows[5].headers] == [("gate", b"A7")]
    phpmq = {
        "server": server.phpmq,
        "subscribe": "mails",
        "spoolLocation": str(tmp_path / "phpmq-spool"),
        "availableNowPauseMs": str(PAUSE_MS),
    }
    archive(spark.readStream.format("phpmq").options(**phpmq).load(), tmp_path / "phpmq")
    mails = spark.read.parquet(str(tmp_path / "phpmq" / "out")).orderBy("offset").collect()
    assert [bytes(row.value) for row in mails] == [b"forever", b"for an hour"]
    assert mails[0].expires_at is None
    assert 3500 < (mails[1].expires_at - mails[1].timestamp).total_seconds() <= 3600


def kill_source(spool: Path) -> None:
    """SIGKILL the process that fills the spool, as soon as it has received something."""
    wait_until(lambda: (folder.position(spool) or folder.Position(0, 0, 0, 0)).end > 0 and folder.status(spool) is not None)
    os.kill(int((folder.status(spool) or {})["pid"]), signal.SIGKILL)


def test_a_killed_source_loses_nothing_and_doubles_nothing(spark: SparkSession, server: PolymqServer, tmp_path: Path) -> None:
    bodies = [b"%04d" % n for n in range(500)]
    publish_nsq(server, "killed", bodies)
    query = started(nsq_stream(spark, server, "killed", tmp_path, maxInFlight=50), tmp_path, now=False)
    kill_source(tmp_path / "spool")
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(120)
    publish_nsq(server, "killed", [b"more"])
    archive(nsq_stream(spark, server, "killed", tmp_path, availableNowPauseMs=2500), tmp_path)
    assert values(spark, tmp_path) == sorted([*bodies, b"more"])


def test_the_snippets_of_the_document_run(
    spark: SparkSession, server: PolymqServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    publish_nsq(server, "orders", [b"a", b"b", b"c"])
    page = Path(__file__).parents[2].joinpath("docs", "SPOOL.md").read_text(encoding="utf-8")
    first, second, third = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"spark": spark}
    run = first.replace("127.0.0.1:4150", server.nsq)
    for relative in ("spool/orders", "archive", "checkpoint"):
        run = run.replace(f'"{relative}"', f'"{tmp_path / relative}"')
    exec(run, names)
    try:
        wait_until(lambda: (folder.position(tmp_path / "spool" / "orders") or folder.Position(0, 0, 0, 0)).end == 3)
        names["query"].processAllAvailable()
    finally:
        names["query"].stop()
    assert sorted(bytes(row.value) for row in spark.read.parquet(str(tmp_path / "archive")).collect()) == [b"a", b"b", b"c"]
    spool = f'"{tmp_path / "spool" / "orders"}"'
    assert eval(second.replace('"spool/orders"', spool), names) == 3
    exec(third.replace('"spool/orders"', spool), names)
    assert names["events"].isStreaming
