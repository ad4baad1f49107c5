"""The programs around the project: every task is explained, every script can be read, the build's state is told."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from bench.harness.rows import ROWS
from tests.project.layout import ROOT, hot_modules, unit_tests_of
from tools import build_state

SCRIPTS = (".ci/run", "tools/fuzz", "tools/setup")


def test_every_task_is_explained() -> None:
    text = ROOT.joinpath("Makefile").read_text(encoding="utf-8")
    tasks = set(re.findall(r"^\.PHONY: ([a-z-]+)$", text, re.MULTILINE))
    assert {"setup", "run", "test", "check", "interop", "bench", "crash", "sim", "help"} <= tasks
    assert set(re.findall(r"^([a-z-]+):.*## \w", text, re.MULTILINE)) == tasks


# Which part of peers/build.sh each server of the benchmarks comes from.
PEERS = {"nsqd": "nsq", "nats-server": "nats", "nats-server-2.9": "nats-2.9", "rocketmq-4.9": "rocketmq", "rocketmq-5.3": "rocketmq"}


def test_the_benchmarks_bring_every_peer_that_they_need() -> None:
    text = ROOT.joinpath("Makefile").read_text(encoding="utf-8")
    (parts,) = re.findall(r"^bench:.*\n\t@peers/build\.sh (.*)$", text, re.MULTILINE)
    # polymq's own need none, nor does the loop, which is a program of the benchmarks.
    kinds = {kind for row in ROWS for kind in row.kinds if kind != "loop" and not kind.startswith("polymq")}
    assert {PEERS[kind] for kind in kinds} == set(parts.split())


@pytest.mark.parametrize("script", SCRIPTS)
def test_scripts_are_valid_and_can_be_run(script: str) -> None:
    path = ROOT / script
    assert path.stat().st_mode & 0o111
    assert subprocess.run(["bash", "-n", str(path)], capture_output=True, check=False, text=True).stderr == ""


def test_modules_that_tools_run_exist() -> None:
    text = ROOT.joinpath("Makefile").read_text(encoding="utf-8")
    missing = []
    for name in re.findall(r"python -m ([a-z_.]+)", text):
        path = Path(*name.split("."))
        places = [base / path.with_suffix(".py") for base in (ROOT, ROOT / "src")] + [
            base / path / "__main__.py" for base in (ROOT, ROOT / "src")
        ]
        if name != "pytest" and not any(place.exists() for place in places):
            missing.append(name)
    assert missing == []


def test_hot_modules_have_tests_to_run_uncompiled() -> None:
    printed = subprocess.run(
        [sys.executable, str(ROOT / "tests/project/layout.py")], capture_output=True, check=True, text=True
    ).stdout.split()
    assert printed == [str(path.relative_to(ROOT)) for name in hot_modules() for path in unit_tests_of(name)]
    assert all(unit_tests_of(name) for name in hot_modules())


@pytest.mark.parametrize(("mode", "status"), [("no such mode", 1)])
def test_another_mode_than_the_one_that_was_built_is_not_current(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], mode: str, status: int
) -> None:
    monkeypatch.setattr(sys, "argv", ["build_state.py", "--mode", mode, "--explain"])
    assert build_state.main() == status
    assert f"wanted mode {mode}" in capsys.readouterr().out
