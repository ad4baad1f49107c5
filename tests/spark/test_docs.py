"""Every snippet of Python in the documents of Spark runs, one behind the other, against brokers with something in them.

A document's snippets share their names, so a later one may use what an earlier one has made; `spark` is there from the
beginning. The standard addresses that the documents speak of become those of the brokers. Another document: a line in
DOCUMENTS. Queries that a snippet starts and leaves running get to the end of what there is, and are then stopped.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.project.layout import ROOT
from tests.spark.brokers import Broker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


pytestmark = pytest.mark.timeout(300)

DOCUMENTS = ["docs/spark.md", "docs/SPARK_ROCKETMQ.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
FLIGHTS = [json.dumps({"flight": f"DL{n}", "delay": n % 7}).encode() for n in range(50)]


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, Broker]]:
    folder = tmp_path_factory.mktemp("brokers")
    with Broker(folder / "one") as first, Broker(folder / "two") as second:
        for broker in (first, second):
            broker.publish("flights", FLIGHTS)
            broker.publish("orders", [b"%d" % n for n in range(20)])
        yield first, second


def addresses(brokers: tuple[Broker, Broker]) -> dict[str, str]:
    """What the documents call these brokers."""
    first, second = brokers
    return {
        "127.0.0.1:4171": first.http,
        "127.0.0.1:4150": first.nsq,
        "127.0.0.1:4151": first.nsq_http,
        "127.0.0.1:4161": first.lookup_http,
        "127.0.0.1:4222": first.nats,
        "127.0.0.1:9876": first.rocketmq,
        "127.0.0.1:9100": first.phpmq,
        "127.0.0.1:5171": second.http,
        "127.0.0.1:5150": second.nsq,
    }


def snippets(document: str) -> list[tuple[int, str]]:
    """The blocks of Python with the lines on which they begin."""
    text = ROOT.joinpath(document).read_text(encoding="utf-8")
    return [(text.count("\n", 0, found.start(1)), found[1]) for found in BLOCK.finditer(text)]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_snippet_runs(
    document: str, spark: SparkSession, brokers: tuple[Broker, Broker], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    # Spark's own process is elsewhere: a relative path would be below that.
    names: dict[str, Any] = {"spark": spark, "__name__": "snippet"}
    found = snippets(document)
    assert found
    for line, code in found:
        for documented, address in addresses(brokers).items():
            code = code.replace(documented, address)
        code = re.sub(r'"((?:[a-z]+-)?checkpoint|archive)"', lambda path: repr(os.fspath(tmp_path / path[1])), code)
        exec(compile("\n" * line + code, document, "exec"), names)
        for query in spark.streams.active:
            query.processAllAvailable()
            query.stop()
            assert query.exception() is None
    names["spark"].catalog.dropTempView("flights")
    for listener in [value for value in names.values() if type(value).__name__ == "LagListener"]:
        spark.streams.removeListener(listener)


def test_the_documents_snippets_are_found() -> None:
    assert len(snippets("docs/spark.md")) >= 7
