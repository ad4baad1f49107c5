"""The sink into polymq on a real broker: each row once, whatever is killed, repeated or written twice."""

from __future__ import annotations

import json
import re
import time
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException

from polymq.clients.broker_sync import connect
from polymq.clients.log import LogClient
from polymq.testing.server import PolymqServer
from polymq.wire.records import read_messages
from tests.project.layout import ROOT

from . import faulty_sink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[PolymqServer]:
    with PolymqServer(tmp_path / "broker", deadline_seconds=60) as server:
        yield server


def messages_of(broker: PolymqServer, topic: str) -> list[Any]:
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


def bodies_of(broker: PolymqServer, topic: str) -> list[bytes]:
    return sorted(message.body for message in messages_of(broker, topic))


def stream(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).json(str(folder))


def put(folder: Path, number: int, rows: list[str]) -> None:
    folder.mkdir(exist_ok=True)
    temporary = folder / f".{number}"
    temporary.write_text("".join(json.dumps({"value": row}) + "\n" for row in rows))
    temporary.rename(folder / f"{number:03d}.json")


def run(frame: DataFrame, broker: PolymqServer, checkpoint: Path, **options: str) -> StreamingQuery:
    writer = frame.writeStream.format("polymq").options(server=broker.http, topic="t", **options)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination(200)
    return query


def test_a_batch_that_spark_repeats_is_there_once(spark: SparkSession, broker: PolymqServer, tmp_path: Path) -> None:
    for number in range(2):
        put(tmp_path / "in", number, [f"{number}.{row}" for row in range(100)])
    wanted = sorted(b"%d.%d" % (number, row) for number in range(2) for row in range(100))
    run(stream(spark, tmp_path / "in"), broker, tmp_path / "checkpoint")
    assert bodies_of(broker, "t") == wanted
    # The driver died after the commit and before it wrote that down: Spark does the last batch again.
    commits = sorted(each for each in (tmp_path / "checkpoint" / "commits").iterdir() if each.name.isdigit())
    commits[-1].unlink()
    (tmp_path / "checkpoint" / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    # The rows come in another order, and the topic is read by NSQ meanwhile.
    run(stream(spark, tmp_path / "in").repartition(3), broker, tmp_path / "checkpoint")
    assert bodies_of(broker, "t") == wanted


def in_two_topics(frame: DataFrame) -> DataFrame:
    return frame.selectExpr("value", "if(value like '%7', 'u', 't') as topic", "substr(value, 1, 3) as key")


def start_faulty(frame: DataFrame, broker: PolymqServer, folder: Path) -> StreamingQuery:
    writer = frame.writeStream.format("faulty_polymq").options(server=broker.http, path=str(folder / "faults"))
    return writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()


def kill(broker: PolymqServer, seconds: float = 0.0) -> None:
    time.sleep(seconds)
    broker.kill()
    broker.start()


def test_lost_attempts_and_kills_of_the_broker_leave_each_row_once(spark: SparkSession, broker: PolymqServer, tmp_path: Path) -> None:
    cloudpickle.register_pickle_by_value(faulty_sink)  # type: ignore[no-untyped-call]
    spark.dataSource.register(faulty_sink.FaultySink)
    faults = tmp_path / "faults"
    faults.mkdir()
    sizes = (50, 60, 20_000)
    for number, size in enumerate(sizes):
        put(tmp_path / "in", number, [f"{number}.{row}" for row in range(size)])
    wanted = sorted(b"%d.%d" % (number, row) for number, size in enumerate(sizes) for row in range(size))
    frame = in_two_topics(stream(spark, tmp_path / "in")).repartition(2)
    (faults / "fail").touch()
    with pytest.raises(StreamingQueryException, match="lost behind its last row"):
        start_faulty(frame, broker, tmp_path).awaitTermination(200)
    (faults / "fail").unlink()
    assert bodies_of(broker, "t") == []

    for name in ("twice", "wait-1"):
        (faults / name).touch()
    query = start_faulty(frame, broker, tmp_path)
    faulty_sink.await_file(faults / "committing-1")
    kill(broker)
    (faults / "go-1").touch()
    faulty_sink.await_file(faults / "committing-2")
    kill(broker, 0.02)
    assert query.awaitTermination(200)
    assert sorted(bodies_of(broker, "t") + bodies_of(broker, "u")) == wanted
    assert (tmp_path / "checkpoint" / "commits" / "2").exists()
    # NSQ's readers get the same.
    found: list[bytes] = []
    with connect(f"nsq://{broker.nsq}") as reader:
        subscription = reader.subscribe("u", group="test", window=2000)
        for message in subscription.messages(timeout_seconds=30):
            message.done()
            found.append(message.body)
            if len(found) == sum(body.endswith(b"7") for body in wanted):
                break
    assert sorted(found) == [body for body in wanted if body.endswith(b"7")]


def test_a_table_is_written_with_all_that_its_columns_say(spark: SparkSession, broker: PolymqServer) -> None:
    frame = spark.range(2000).selectExpr(
        "cast(id as string) as value",
        "concat('k', id % 7) as key",
        "array(struct('h' as key, cast('v' as binary) as value)) as headers",
        "'T' as tags",
        "if(id = 0, 3600000L, null) as delay_ms",
        "60 as ttl_seconds",
    )
    before_ns = time.time_ns()
    frame.write.format("polymq").mode("append").options(server=broker.http, topic="t").save()
    found = messages_of(broker, "t")
    assert {message.body for message in found} == {b"%d" % row for row in range(1, 2000)}
    assert len(found) == 1999
    for message in found:
        assert message.key == b"k%d" % (int(message.body) % 7)
        assert message.headers == ((b"TAGS", b"T"), (b"h", b"v"))
        assert before_ns < message.expiry_ns - 60 * 10**9 < time.time_ns()
    options = {"server": broker.http, "topic": "v", "sinkId": "mine", "batchId": "3"}
    for _ in range(2):
        frame.write.format("polymq").mode("append").options(**options).save()
    assert len(messages_of(broker, "v")) == 1999


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("value", {"topic": "t", "topci": "t"}, "unknown option topci; did you mean topic?"),
        ("value", {}, "neither a column topic nor the option topic"),
        ("value, id", {"topic": "t"}, "unknown column id. Known columns: value"),
        ("value", {"topic": "t", "sinkId": "s"}, "both sinkId and batchId"),
    ],
)
def test_what_makes_no_sense_is_said(spark: SparkSession, columns: str, options: dict[str, str], said: str) -> None:
    frame = spark.range(1).selectExpr("cast(id as string) as value", "id").selectExpr(*columns.split(", "))
    with pytest.raises(Exception, match="DATA_SOURCE") as raised:
        frame.write.format("polymq").mode("append").options(server="127.0.0.1:1", **options).save()
    assert said in str(raised.value)


DOCUMENT = ROOT / "docs" / "SPARK_SINKS.md"
ADDRESSES = {"4171": "http", "4150": "nsq", "4222": "nats", "9876": "rocketmq", "9100": "phpmq"}


def test_every_snippet_of_the_document_runs(
    spark: SparkSession, broker: PolymqServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = DOCUMENT.read_text(encoding="utf-8")
    names: dict[str, Any] = {"spark": spark, "__name__": "snippet"}
    for found in re.finditer(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        code = found[1]
        for port, name in ADDRESSES.items():
            code = code.replace(f"127.0.0.1:{port}", getattr(broker, name))
        code = re.sub(r'"((?:[a-z]+-)?checkpoint)"', lambda path: repr(str(tmp_path / path[1])), code)
        exec(compile("\n" * text.count("\n", 0, found.start(1)) + code, str(DOCUMENT), "exec"), names)
    assert len(bodies_of(broker, "alerts")) == 3 * 10
    assert bodies_of(broker, "events") == [b"event %d" % n for n in range(10)]
    for topic in ("nsq-alerts", "RocketAlerts", "phpmq-alerts"):
        assert len(bodies_of(broker, topic)) == 10
