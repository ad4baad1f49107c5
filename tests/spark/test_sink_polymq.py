"""The sink into polymq on a real broker: each row once, whatever is killed, repeated or written twice."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.log import LogClient
from polymq.wire.records import read_messages

from .test_broker import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    broker.start()
    yield broker
    assert broker.stop() == 0


def messages_of(broker: Broker, topic: str) -> list[Any]:
    """Everything that a topic has, by its log."""
    client = LogClient(broker.http)
    found = []
    for partition in client.topic(topic).partitions:
        offset = partition.start
        while offset < client.topic(topic).partitions[partition.partition].readable:
            chunk = client.records(topic, partition.partition, offset, end=1 << 40, size_bytes_max=1 << 22)
            for at, end, header in chunk.batches():
                found += read_messages(chunk.data, at, 0, 0, header.count, end)
                offset = header.base_offset + header.count
    client.close()
    return found


def bodies_of(broker: Broker, topic: str) -> list[bytes]:
    return sorted(message.body for message in messages_of(broker, topic))


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).json(str(folder))


def put(folder: Path, number: int, rows: list[str]) -> None:
    folder.mkdir(exist_ok=True)
    temporary = folder / f".{number}"
    temporary.write_text("".join(json.dumps({"value": row}) + "\n" for row in rows))
    temporary.rename(folder / f"{number:03d}.json")


def run(frame: DataFrame, broker: Broker, checkpoint: Path, **options: str) -> StreamingQuery:
    writer = frame.writeStream.format("polymq").options(server=broker.http, topic="t", **options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination(60)
    return query


def test_a_batch_that_spark_repeats_is_there_once(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    for number in range(3):
        put(tmp_path / "in", number, [f"{number}.{row}" for row in range(100)])
    wanted = sorted(b"%d.%d" % (number, row) for number in range(3) for row in range(100))
    run(stream(spark, tmp_path / "in"), broker, tmp_path / "checkpoint")
    assert bodies_of(broker, "t") == wanted
    # The driver died after the commit and before it wrote that down: Spark does the last batch again.
    commits = sorted(each for each in (tmp_path / "checkpoint" / "commits").iterdir() if each.name.isdigit())
    commits[-1].unlink()
    (tmp_path / "checkpoint" / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    # The rows come in another order, and the topic is read by NSQ meanwhile.
    run(stream(spark, tmp_path / "in").repartition(3), broker, tmp_path / "checkpoint")
    assert bodies_of(broker, "t") == wanted
    # Another checkpoint is another query, which writes everything anew.
    shutil.rmtree(tmp_path / "checkpoint")
    run(stream(spark, tmp_path / "in"), broker, tmp_path / "checkpoint")
    assert bodies_of(broker, "t") == sorted(wanted * 2)
