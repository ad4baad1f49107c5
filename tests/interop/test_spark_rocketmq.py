"""Spark over real RocketMQ brokers: every message once, over a SIGKILL of the broker and a query that is started again."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from polymq.clients.rocketmq import OutgoingMessage, RocketMQOptions, RocketMQProducer
from polymq.clients.rocketmq_queues import QueueClient
from tests.interop.matrix_spark import session
from tests.interop.rocketmq_servers import REAL_KINDS, RocketmqServer, rocketmq_server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(600)
TOPIC = "orders"
FIRST, ALL = 12_000, 20_000
LARGE = 8_000


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    with session(tmp_path_factory.mktemp("spark")) as made:
        yield made


@pytest.fixture(params=REAL_KINDS)
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RocketmqServer]:
    with rocketmq_server(request.param, tmp_path / "server") as started:
        started.make_topic(TOPIC)
        yield started


def outgoing(number: int) -> OutgoingMessage:
    """Message `number`: some have tags, keys and properties, some are large enough to be packed."""
    body = b"%d" % number + b" " * (LARGE if number % 100 == 0 else number % 50)
    tags = ("", "TagA", "TagB")[number % 3]
    return OutgoingMessage(TOPIC, body, tags, (f"k{number}",) if number % 2 else (), {"colour": f"c{number}"} if number % 5 else {})


async def send(server: RocketmqServer, first: int, end: int) -> None:
    """Send messages in batches, but for the large ones, which go one by one."""
    options = RocketMQOptions(send_seconds=30.0, request_seconds=30.0, send_retries=0)
    async with RocketMQProducer(server.name_server, options) as producer:
        for start in range(first, end, 100):
            await asyncio.gather(*(producer.send(outgoing(number)) for number in range(start, start + 10)))
            await producer.send_batch([outgoing(number) for number in range(start + 10, start + 100)])


def start(stream: DataFrame, folder: Path, *, once: bool = False):  # type: ignore[no-untyped-def]
    writer = (
        stream.writeStream.format("parquet").option("path", str(folder / "out")).option("checkpointLocation", str(folder / "checkpoint"))
    )
    return (writer.trigger(availableNow=True) if once else writer).start()


def uncommit(folder: Path) -> None:
    """Make the last batch one that is planned but not committed."""
    newest = max((folder / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    newest.unlink()
    (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)


def test_every_message_once(spark: SparkSession, server: RocketmqServer, tmp_path: Path) -> None:
    asyncio.run(send(server, 0, FIRST))
    options = {"namesrvAddr": server.name_server, "subscribe": TOPIC, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "3000"}
    stream = spark.readStream.format("rocketmq").options(**options).load()
    query = start(stream, tmp_path)
    deadline = time.monotonic() + 120
    while query.lastProgress is None:
        assert query.exception() is None
        assert time.monotonic() < deadline
        time.sleep(0.05)
    server.kill()
    server.start()
    server.await_route(TOPIC)
    asyncio.run(send(server, FIRST, ALL - 2000))
    query.processAllAvailable()
    query.stop()

    uncommit(tmp_path)
    asyncio.run(send(server, ALL - 2000, ALL))
    assert start(stream, tmp_path, once=True).awaitTermination(120)

    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert len({(row.topic, row.partition, row.offset) for row in rows}) == len(rows)
    assert len({row.message_id for row in rows}) == len(rows)
    assert sorted(int(bytes(row.value)) for row in rows) == list(range(ALL))
    for row in rows:
        wanted = outgoing(int(bytes(row.value)))
        assert bytes(row.value) == wanted.body
        assert (row.tags or "", bytes(row.key or b"").decode()) == (wanted.tags, " ".join(wanted.keys))
        named = dict(wanted.properties)
        if wanted.tags:
            named["TAGS"] = wanted.tags
        assert {each.key: bytes(each.value).decode() for each in row.headers} == named
        assert (row.protocol, row.attempts, row.topic) == ("rocketmq", 1, TOPIC)
        assert 0 <= row.partition < 4

    tagged = spark.read.format("rocketmq").options(namesrvAddr=server.name_server, subscribe=TOPIC, tags="TagA", columns="value").load()
    assert sorted(int(bytes(row.value)) for row in tagged.collect()) == list(range(1, ALL, 3))


def test_times_are_found_as_they_are_asked_for(server: RocketmqServer) -> None:
    """The broker's own answer is some message near the time."""
    for first in range(0, 1000, 200):
        asyncio.run(send(server, first, first + 200))
    client = QueueClient(server.name_server, "g", RocketMQOptions())
    route = client.route(TOPIC)
    assert route is not None
    for queue in route.read_queues:
        extent = client.extents([queue])[queue]
        assert extent.first == 0
        found = []
        for offset in range(extent.end):
            stored = client._stored_at(queue, offset)
            assert stored is not None
            assert stored[0] == offset
            found.append(stored[1])
        for time_ms in {0, *found[:: max(1, len(found) // 10)], *[each + 1 for each in found[:: max(1, len(found) // 10)]]}:
            expected = next((offset for offset, at in enumerate(found) if at >= time_ms), extent.end)
            assert client.offset_at(queue, time_ms) == expected
    client.close()
