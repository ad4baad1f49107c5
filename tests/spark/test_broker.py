"""The data source over a real broker: what NSQ publishes is what Spark reads, also after a kill -9."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import polymq
from polymq.clients.nsq import NsqProducer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


pytestmark = pytest.mark.timeout(300)


class Broker:
    """`polymq serve` on ports of its own."""

    def __init__(self, folder: Path) -> None:
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
        self.nsq, self.nsq_http, self.http = (f"127.0.0.1:{each.getsockname()[1]}" for each in sockets)
        for each in sockets:
            each.close()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "polymq.cli", "serve", "--data", str(self._folder / "data")]
        command += ["--nsq", self.nsq, "--nsq-http", self.nsq_http, "--http", self.http]
        command += ["--nsq-lookup", "off", "--nsq-lookup-http", "off"]
        environment = os.environ | {"PYTHONPATH": str(Path(polymq.__file__).parents[1])}
        with (self._folder / "broker.log").open("ab") as words:
            self._process = subprocess.Popen(command, stdout=words, stderr=words, env=environment)
        deadline = time.monotonic() + 30
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "broker.log").read_text()
            assert time.monotonic() < deadline

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(30)

    def publish(self, topic: str, bodies: list[bytes]) -> None:
        async def play() -> None:
            async with NsqProducer(self.nsq) as producer:
                for first in range(0, len(bodies), 100):
                    await producer.publish_many(topic, bodies[first : first + 100])

        asyncio.run(play())

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://{self.http}/v1/topics", timeout=5):
                return True
        except OSError:
            return False


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    broker.start()
    yield broker
    assert broker.stop() == 0


def test_what_nsq_publishes_is_what_spark_reads(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    def options(name: str) -> dict[str, str]:
        return {"server": broker.http, "subscribe": "orders", name: "65536" if name == "maxFetchBytes" else "1500"}

    bodies = [b"%d " % n + os.urandom(n % 200) for n in range(5000)]
    broker.publish("orders", bodies[:3000])
    before = time.time()
    rows = spark.read.format("polymq").options(**options("maxFetchBytes")).load().orderBy("offset").collect()
    assert [bytes(row.value) for row in rows] == bodies[:3000]
    assert [row.offset for row in rows] == list(range(3000))
    assert all(before - 60 < row.timestamp.timestamp() < before + 60 for row in rows)

    frame = spark.readStream.format("polymq").options(startingOffsets="earliest", **options("maxOffsetsPerTrigger")).load()
    writer = (
        frame.writeStream.format("parquet").option("path", str(tmp_path / "out")).option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    query = writer.start()
    try:
        query.processAllAvailable()
        broker.stop(signal.SIGKILL)
        broker.start()
        broker.publish("orders", bodies[3000:])
        query.processAllAvailable()
    finally:
        query.stop()
    archived = spark.read.parquet(str(tmp_path / "out")).orderBy("offset").collect()
    assert [(row.offset, bytes(row.value)) for row in archived] == list(enumerate(bodies))
