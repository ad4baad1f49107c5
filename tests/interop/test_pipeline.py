"""The pipeline as its commands, over a real broker; and the same tables by Spark Declarative Pipelines."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

import polymq
from polymq.clients import broker_sync
from polymq.spark.pipeline.catalog import Catalog

if TYPE_CHECKING:
    from polymq.testing.server import PolymqServer

pytestmark = pytest.mark.timeout(600)
# What depends on when a table was made.
TIMES = {"archived_at", "latency_ms_p50", "latency_ms_p95", "latency_ms_p99", "latency_ms_max"}


def environment() -> dict[str, str]:
    paths = [str(Path(polymq.__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    binaries = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PATH": binaries,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def run(folder: Path, *words: str) -> str:
    done = subprocess.run(words, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-6000:]
    return done.stdout


def pipeline(folder: Path, *arguments: str) -> str:
    return run(folder, sys.executable, "-m", "polymq.cli", "pipeline", *arguments)


def rows_of(base: Path, paths: list[Path]) -> list[str]:
    """Read files, with the names of their folders as columns, as texts in order."""
    rows: list[dict[str, Any]] = []
    for path in paths:
        folders = dict(part.split("=", 1) for part in path.relative_to(base).parts[:-1] if "=" in part)
        named = {name: unquote(value) for name, value in folders.items()}
        rows += [row | named for row in pq.ParquetFile(path).read().to_pylist()]
    return sorted(repr(sorted((name, value) for name, value in row.items() if name not in TIMES)) for row in rows)


def test_both_runners_make_the_same_tables(polymq_server: PolymqServer, tmp_path: Path) -> None:
    with broker_sync.connect(f"nsq://{polymq_server.nsq}") as broker:
        broker.publish_many("orders", [*(b'{"id": %d, "who": {"name": "n%d"}}' % (n, n % 3) for n in range(40)), b"poison", b'{"id": 1.5}'])
        broker.publish_many("notes.a", [b'{"text": "x"}', b"[]"])
    pipeline(tmp_path, "init", "--server", polymq_server.http, "--topics", "orders,notes.a", "--name", "both")
    pipeline(tmp_path, "once")
    status = json.loads(pipeline(tmp_path, "status", "--json"))
    assert status["tables"]["bronze"]["rows"] == 44
    assert status["problems"] == {}
    pipeline(tmp_path, "report")
    assert "orders" in (tmp_path / "report.html").read_text()

    words = pipeline(tmp_path, "declare", "project")
    run(tmp_path, *shlex.split(words.partition("Next: ")[2]))
    catalog = Catalog(tmp_path / "archive")
    tables = {"bronze": "bronze", "quarantine": "quarantine", "silver/orders": "silver_orders", "silver/notes.a": "silver_notes_a"}
    tables |= {"gold/traffic": "traffic", "gold/failures": "failures"}
    warehouse = tmp_path / "project" / "warehouse"
    for ours, theirs in tables.items():
        found = rows_of(catalog.storage, [catalog.storage / each.path for each in catalog.files(ours)])
        declared = rows_of(warehouse, sorted((warehouse / theirs).rglob("*.parquet")))
        assert found == declared, ours
        assert found, ours
    catalog.close()
