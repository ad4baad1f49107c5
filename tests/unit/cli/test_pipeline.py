"""`polymq pipeline`: what the command line may say. What needs Spark is in tests/spark."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from polymq.cli.main import app
from polymq.errors import ConfigError, StoreFailed
from polymq.spark.pipeline.catalog import Catalog
from tests.unit.spark.pipeline.archives import bronze_file

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["pipeline", *arguments])


def fill(folder: Path) -> None:
    catalog = Catalog(folder / "archive")
    for first in range(0, 100, 10):
        bronze_file(catalog, range(first, first + 10))
    catalog.commit(at_ns=1, positions={"silver/orders": catalog.version()})
    catalog.note("silver", "what is wrong")
    catalog.close()


def test_help_names_every_command() -> None:
    text = run("--help").output
    for command in ("init", "run", "once", "status", "replay", "compact", "rebuild", "report"):
        assert command in text


def test_a_file_is_written_once(folder: Path) -> None:
    assert run("init", "--topics", "orders").exit_code == 0
    assert isinstance(run("init").exception, ConfigError)
    assert run("init", "--force").exit_code == 0


def test_compact_says_what_it_could_not_put_together(folder: Path) -> None:
    run("init")
    fill(folder)
    next((folder / "archive" / "bronze").rglob("*.parquet")).write_bytes(b"nothing")
    done = run("compact")
    assert done.output.startswith("0 small files")
    assert isinstance(done.exception, StoreFailed)
    assert "not put together: bronze, 10 files" in str(done.exception)
    assert "compaction of files" in json.loads(run("status", "--json").output)["problems"]


def test_from_nothing_to_a_report_without_spark(folder: Path) -> None:
    run("init")
    fill(folder)
    assert "10 small files put together into 1" in run("compact").output
    found = json.loads(run("status", "--json").output)
    assert found["tables"]["bronze"] == {"files": 1, "rows": 100, "bytes": found["tables"]["bronze"]["bytes"]}
    assert found["problems"] == {"silver": "what is wrong"}
    shown = run("status").output
    assert "bronze" in shown
    assert "what is wrong" in shown
    assert run("report").exit_code == 0
    assert (folder / "report.html").read_text().startswith("<!doctype html>")
    assert "0 files are forgotten" in run("rebuild", "orders").output


def test_a_replay_can_be_counted(folder: Path) -> None:
    run("init")
    fill(folder)
    assert (
        "up to 20 messages to nsq://127.0.0.1:4150/again"
        in run("replay", "nsq://127.0.0.1:4150/again", "--offsets", "15..25", "--dry-run").output
    )
    assert isinstance(run("replay", "http://x/y", "--dry-run").exception, Exception)


def test_without_spark_or_java_it_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("init")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    error = run("once").exception
    assert isinstance(error, ConfigError)
    assert "pip install 'polymq[spark]'" in error.problems[0]
    assert "Java 17" in error.problems[1]
    assert isinstance(run("report").exception, ConfigError)


def test_asking_for_help_imports_neither_spark_nor_arrow() -> None:
    program = "import sys, polymq.cli.pipeline; assert not {'pyspark', 'pyarrow', 'polymq.spark'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
