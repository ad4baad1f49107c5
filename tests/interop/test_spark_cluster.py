"""The program of docs/SPARK_CLUSTER.md on a cluster: a worker and a broker are killed, and the table has what was acknowledged, once."""

from __future__ import annotations

import itertools
import json
import random
import re
import time
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pytest

from polymq.clients.log import LogClient
from polymq.testing.server import PolymqServer
from tests.crash.spark_table import committed_rows, numbers_of
from tests.crash.spark_traffic import Traffic
from tests.interop.servers import ROOT
from tests.interop.spark_cluster import SparkCluster, install

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

pytestmark = pytest.mark.timeout(900)
TOPICS = ("crash.a", "crash.b")
SETTINGS = {"store.partitions": 2, "nats.capture": "crash.>"}
# Some seconds each on a machine that has nothing else to do.
PATIENCE_S = 240
# Runs before the page's program, in its session: says where the executors have polymq from.
PROBE = """
import json
import pathlib
import polymq
from pyspark.sql import SparkSession
spark = SparkSession.builder.appName("archive").getOrCreate()
found = spark.sparkContext.parallelize(range(8), 8).map(lambda _: __import__("polymq").__file__).distinct().collect()
pathlib.Path("places").write_text(json.dumps([polymq.__file__, *found]))
"""


def block(language: str) -> str:
    """The only piece of the page in a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / "docs" / "SPARK_CLUSTER.md").read_text(), re.MULTILINE | re.DOTALL)
    return str(found)


def wait(what: str, until: Callable[[], bool], cluster: SparkCluster) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not until():
        assert cluster.is_running("driver"), cluster.words("driver")
        assert time.monotonic() < deadline, f"{what}: not after {PATIENCE_S} s\n{cluster.words('driver')}"
        time.sleep(0.1)


def lengths(*servers: PolymqServer) -> list[tuple[str, int]]:
    """How many messages each log has, with its topic."""
    found = []
    for server in servers:
        client = LogClient(server.http, retry_seconds=10)
        found += [(topic.name, partition.end) for topic in map(client.topic, TOPICS) for partition in topic.partitions]
        client.close()
    return sorted(found)


def written_lengths(rows: pa.Table) -> list[tuple[str, int]]:
    """How many rows each partition has, with its topic; they have to be the offsets from 0 on."""
    found = []
    for topic, partition in {*zip(rows["topic"].to_pylist(), rows["partition"].to_pylist(), strict=True)}:
        chosen = rows.filter(pc.and_(pc.equal(rows["topic"], topic), pc.equal(rows["partition"], partition)))
        assert sorted(chosen["offset"].to_pylist()) == list(range(chosen.num_rows)), (topic, partition)
        found.append((topic, chosen.num_rows))
    return sorted(found)


def test_a_cluster_that_loses_a_worker_and_a_broker_loses_no_message(tmp_path: Path) -> None:
    site = install(tmp_path / "package")
    table = tmp_path / "archive" / "table"
    program, settings = tmp_path / "archive.py", tmp_path / "archive.conf"
    program.write_text(PROBE + block("python"))
    settings.write_text(block("properties"))
    numbers = itertools.count()

    def count() -> int:
        return int(committed_rows(table, ["offset"]).num_rows)

    def more_than(before: int) -> Callable[[], bool]:
        return lambda: count() > before

    with (
        PolymqServer(tmp_path / "one", SETTINGS, deadline_seconds=60) as one,
        PolymqServer(tmp_path / "two", SETTINGS, deadline_seconds=60) as two,
        SparkCluster(tmp_path, site) as cluster,
    ):
        with (
            Traffic(one, TOPICS, random.Random(1), protocols=("nsq", "nats"), numbers=numbers) as first,
            Traffic(two, TOPICS, random.Random(2), protocols=("rocketmq", "phpmq"), numbers=numbers) as second,
        ):
            arguments = [f"{one.http},{two.http}", ",".join(TOPICS), str(tmp_path / "archive")]
            cluster.submit("driver", ["--properties-file", str(settings), str(program), *arguments])
            wait("the first rows", more_than(0), cluster)

            cluster.kill_worker_at_work("worker0")
            wait("rows after a worker was killed", more_than(count()), cluster)

            one.kill()
            at_the_kill = count()
            time.sleep(1)
            one.start()
            wait("rows after a broker was killed", more_than(at_the_kill), cluster)
        wait("everything", lambda: count() >= sum(end for _, end in lengths(one, two)), cluster)
        cluster.kill("driver")
        ends = lengths(one, two)
    rows = committed_rows(table, ["topic", "partition", "offset", "value"])
    found = numbers_of(rows["value"]).tolist()
    places = json.loads((tmp_path / "places").read_text())
    assert {str(site / "polymq" / "__init__.py")} == set(places)
    assert all(count > 0 for traffic in (first, second) for count in traffic.by_protocol.values())
    assert first.doubts > 0
    assert (first.acknowledged | second.acknowledged) - set(found) == set()
    assert len(set(found)) == len(found)
    assert written_lengths(rows) == [each for each in ends if each[1]]
    assert set(found) <= first.sent | second.sent
