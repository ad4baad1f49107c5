"""The data source `rocketmq` as Spark uses it, over polymq's own RocketMQ door."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.rocketmq_messages import OutgoingMessage
from polymq.clients.rocketmq_sync import Producer

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from polymq.testing.server import PolymqServer

pytestmark = pytest.mark.timeout(300)


def send(server: PolymqServer, topic: str, first: int, count: int) -> None:
    """Send messages whose bodies are numbers: some in batches, some large enough to be packed, with tags, keys, properties."""
    with Producer(server.rocketmq) as producer:
        for start in range(first, first + count, 20):
            numbers = range(start, start + 20)
            if start % 40:
                producer.send_batch([OutgoingMessage(topic, b"%d" % n, tags="odd" if n % 2 else "even", keys=str(n)) for n in numbers])
            else:
                for n in numbers:
                    producer.send(OutgoingMessage(topic, b"%d" % n + b" " * (5000 if n % 20 == 7 else 0), properties={"colour": f"c{n}"}))


def frame(spark: SparkSession, server: PolymqServer, *, streaming: bool = False, **options: object) -> DataFrame:
    reader: Any = spark.readStream if streaming else spark.read
    given = {"namesrvAddr": server.rocketmq, "retryTimeoutMs": "20000", **{name: str(value) for name, value in options.items()}}
    loaded: DataFrame = reader.format("rocketmq").options(**given).load()
    return loaded


def archive(stream: DataFrame, folder: Path) -> list[dict[str, Any]]:
    """Run a query over what is there into Parquet; give the progress of its batches."""
    writer = (
        stream.writeStream.format("parquet").option("path", str(folder / "out")).option("checkpointLocation", str(folder / "checkpoint"))
    )
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
    return [json.loads(progress.json) for progress in query.recentProgress]


def uncommit(folder: Path) -> None:
    """Make the last batch one that is planned but not committed."""
    newest = max((folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)


def test_a_batch_read_gives_every_column(spark: SparkSession, polymq_server: PolymqServer) -> None:
    send(polymq_server, "orders", 0, 80)
    before = dt.datetime.now(dt.UTC)
    rows = frame(spark, polymq_server, subscribe="orders").collect()
    found = {int(bytes(row.value)): row for row in rows}
    assert sorted(found) == list(range(80))
    assert len({(row.topic, row.partition, row.offset) for row in rows}) == 80
    plain, tagged = found[7], found[21]
    assert (plain.topic, plain.protocol, plain.attempts, plain.key, plain.tags) == ("orders", "rocketmq", 1, None, None)
    assert bytes(plain.value) == b"7" + b" " * 5000
    assert [(each.key, bytes(each.value)) for each in plain.headers] == [("colour", b"c7")]
    assert (bytes(tagged.key), tagged.tags, [(each.key, bytes(each.value)) for each in tagged.headers]) == (
        b"21",
        "odd",
        [("TAGS", b"odd")],
    )
    assert len(plain.message_id) == 32
    assert (plain.reply_to, plain.expires_at) == (None, None)
    assert abs(before - plain.timestamp.astimezone(dt.UTC)) < dt.timedelta(minutes=2)

    odd = frame(spark, polymq_server, subscribe="orders", tags="odd", columns="tags,value", minPartitions=4)
    assert odd.columns == ["value", "tags"]
    assert sorted(int(bytes(row.value)) for row in odd.collect()) == [n for n in range(80) if n % 2 and n % 40 >= 20]
    view = f"CREATE OR REPLACE TEMPORARY VIEW o USING rocketmq OPTIONS (servers '{polymq_server.rocketmq}', subscribePattern 'ord.*')"
    spark.sql(view)
    assert spark.sql("SELECT count(*) FROM o WHERE partition >= 0").collect()[0][0] == 80


def test_a_stream_has_every_message_once_over_a_killed_broker(spark: SparkSession, polymq_server: PolymqServer, tmp_path: Path) -> None:
    send(polymq_server, "orders", 0, 200)
    options = {"subscribe": "orders", "startingOffsets": "earliest", "maxOffsetsPerTrigger": 60, "commitGroupOffsets": "true"}
    stream = frame(spark, polymq_server, streaming=True, **options)
    progress = archive(stream, tmp_path)
    assert [each["numInputRows"] for each in progress if each["numInputRows"]] == [60, 60, 60, 20]
    latest = progress[0]["sources"][0]["latestOffset"]["orders"]
    assert sum(position["offset"] for queues in latest.values() for position in queues.values()) == 200
    polymq_server.kill()
    polymq_server.start()
    uncommit(tmp_path)
    send(polymq_server, "orders", 200, 100)
    archive(stream, tmp_path)
    found = sorted(int(bytes(row.value)) for row in spark.read.parquet(str(tmp_path / "out")).collect())
    assert found == list(range(300))


def test_unknown_options_are_refused_with_the_list(spark: SparkSession, polymq_server: PolymqServer) -> None:
    with pytest.raises(Exception, match="did you mean startingOffsets") as caught:
        frame(spark, polymq_server, subscribe="orders", startingOfsets="earliest").count()
    assert "maxOffsetsPerTrigger" in str(caught.value)
