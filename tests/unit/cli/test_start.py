"""The entry picks the short way for a plain `polymq serve`, and says in words what went wrong."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from polymq.cli import main as main_module
from polymq.cli import serving
from polymq.cli.start import explain, start
from polymq.errors import ConfigError, ConnectFailed, PolyMQError, Refusal, RefusalCode, StoreFailed

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ConfigError(["one"]), "one"),
        (ConfigError(["one", "two"]), "2 problems:\n  - one\n  - two"),
        (
            ConnectFailed("no connection to h:1"),
            "no connection to h:1\nIs the broker running there? `polymq serve` starts one; --help shows how to name another address.",
        ),
        (StoreFailed("disk on fire"), "disk on fire\n`polymq inspect DATA` shows the data folder without changing it."),
        (Refusal(RefusalCode.TOPIC_NOT_FOUND), "topic not found"),
        (PolyMQError(), "PolyMQError"),
    ],
)
def test_errors_in_words(error: PolyMQError, text: str) -> None:
    assert explain(error) == text


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stand in for what is begun: collect which way was taken."""
    taken: list[str] = []

    def run(path: Path | None, pairs: list[str], flags: dict[str, str]) -> int:
        taken.append(f"{path} {pairs} {flags}")
        return 3

    monkeypatch.setattr(serving, "run_broker", run)
    monkeypatch.setattr(main_module, "app", lambda **_: taken.append("typer"))
    return taken


def test_a_plain_serve_needs_nobody_to_read_it(ways: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["polymq", "serve", "--nsq", "off"])
    with pytest.raises(SystemExit) as left:
        start()
    assert (left.value.code, ways) == (3, ["None [] {'nsq.tcp': 'off'}"])


@pytest.mark.parametrize("line", ["", "serve --help", "serve --nsq", "--version", "serve extra", "stats", "serve --nonsense=1"])
def test_all_else_is_for_who_knows_all_commands(ways: list[str], monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr(sys, "argv", ["polymq", *line.split()])
    start()
    assert ways == ["typer"]


def test_what_is_wrong_with_a_plain_serve_is_explained(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "polymq.cli", "serve", "--nsq", "nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "polymq: --nsq = 'nowhere': expected HOST:PORT, [IPV6]:PORT, unix:PATH or off\n"


def imported_by(tmp_path: Path, *arguments: str) -> set[str]:
    program = f"import sys; sys.argv = ['polymq', *{arguments!r}]\nfrom polymq.cli.start import start\ntry: start()\nexcept SystemExit: pass\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    return set(done.stdout.splitlines()[-1].split())


def test_a_start_loads_nothing_that_reads_other_command_lines(tmp_path: Path) -> None:
    heavy = {"asyncio", "rich", "typer", "pydantic", "http.client", "pyspark", "polymq.cli.tail"}
    assert imported_by(tmp_path, "serve", "--nsq", "wrong") & heavy == set()
    assert "typer" in imported_by(tmp_path, "serve", "--help")
