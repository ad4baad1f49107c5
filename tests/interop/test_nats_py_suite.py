"""nats-py's own tests of core NATS, with polymq in the place of `nats-server`: a script of that name on PATH passes the flags on.

The tests come with nats-py's sdist (the last one that has them), and are fetched when this runs; the servers around them are started by
`nats_py/utils.py`. What is left out, with reasons, is in `nats_py/left_out.toml`. The real server is played as well: what fails there would
be our harness's fault.

Most of the time goes into starting servers and into waits of the tests, so they are played in lanes, side by side. Ports are written in
the tests, and so each lane has a copy of the source with ports of its own. What fails is played once more, alone: it may have been the company.
"""

from __future__ import annotations

import os
import queue
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count, groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.interop.nats_servers import NATS_KINDS, PEERS, POLYMQ
from tests.interop.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.unit.wire.authority import Authority

RELEASE = "2.14.0"
HERE = Path(__file__).with_name("nats_py")
LEFT_OUT = tomllib.loads((HERE / "left_out.toml").read_text(encoding="utf-8"))
TIMEOUT_S = 900
TESTS_MIN = 110
LANES = 3
# Tests of one class that are played in one go: enough that starting pytest does not matter, few enough that lanes end together.
TESTS_AT_ONCE = 12
# The ports that the tests name, and those of routes. Lanes are apart by more than there are in a row.
PORTS = re.compile(r"\b(422[1-5]|4555|622[2-5]|8080|9999)\b")
PORTS_APART = 20


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of nats-py's source; its tests have our `utils.py` beside them."""
    folder = tmp_path_factory.mktemp("nats_py")
    fetch = ["download", "-q", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", f"nats-py=={RELEASE}", "-d", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", *fetch], check=True, timeout=300)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    (found,) = (each for each in folder.iterdir() if each.is_dir())
    shutil.copy(HERE / "utils.py", found / "tests" / "utils.py")
    (found / "tests" / "__init__.py").touch()
    return found


def lane_of(source: Path, folder: Path, number: int) -> Path:
    """Make a copy of the source that has ports of its own."""
    lane = folder / f"lane-{number}"
    shutil.copytree(source, lane)
    for path in [*lane.glob("tests/*.py"), *lane.glob("src/**/*.py")]:
        text = path.read_text(encoding="utf-8")
        path.write_text(PORTS.sub(lambda found: str(int(found[0]) + PORTS_APART * number), text), encoding="utf-8")
    return lane


def stand_in(kind: str, folder: Path) -> Path:
    """Make a folder whose `nats-server` is a server of this kind."""
    folder.mkdir()
    if kind == POLYMQ:
        ours = os.environ.get("POLYMQ_COMMAND", f"{shlex.quote(sys.executable)} -m polymq.cli")
        command = f'exec {ours} nats-server "$@" --polymq-set server.data="$(mktemp -d -p "$PWD")"'
    else:
        command = f'exec {PEERS / kind} "$@"'
    script = folder / "nats-server"
    script.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
    script.chmod(0o755)
    return folder


@dataclass(slots=True)
class Played:
    """What has come of tests, by their names for pytest; `said` is what pytest said of those that did not pass."""

    passed: set[str]
    skipped: set[str]
    failed: dict[str, str]


class Suite:
    """The tests, with servers of one kind."""

    def __init__(self, kind: str, source: Path, folder: Path, authority: Authority) -> None:
        certificates = folder / "certificates"
        certificates.mkdir()
        shutil.copy(authority.certificate, certificates / "ca.pem")
        shutil.copy(authority.issue("127.0.0.1"), certificates / "server.pem")
        shutil.copy(authority.issue("client"), certificates / "client.pem")
        self._folder = folder
        self._environment = {
            **os.environ,
            "PATH": f"{stand_in(kind, folder / 'bin')}:{os.environ['PATH']}",
            "NATS_SERVER_VERSION": "v2.12.0",
            "NATS_PY_CERTIFICATES": str(certificates),
        }
        self._numbers = count()
        self._lanes: queue.Queue[Path] = queue.Queue()
        for number in range(1, LANES + 1):
            self._lanes.put(lane_of(source, folder, number))

    def _run(self, lane: Path, *arguments: str) -> str:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=native", "-c", os.devnull, "--rootdir", str(lane)]
        environment = {**self._environment, "PYTHONPATH": f"{lane / 'src'}:{ROOT / 'src'}"}
        done = subprocess.run(
            [*command, *arguments], cwd=lane, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        return done.stdout + done.stderr

    def names(self, modules: Sequence[str]) -> list[str]:
        """All tests of some modules."""
        lane = self._lanes.get()
        try:
            said = self._run(lane, "--collect-only", *(f"tests/{name}" for name in modules))
        finally:
            self._lanes.put(lane)
        return [line for line in said.splitlines() if "::" in line]

    def play(self, names: Sequence[str]) -> Played:
        """Play tests one after the other, in a lane that is free."""
        lane = self._lanes.get()
        report = self._folder / f"report-{next(self._numbers)}.xml"
        try:
            said = self._run(lane, f"--junitxml={report}", *names)
        finally:
            self._lanes.put(lane)
        found = Played(set(), set(), {})
        by_end = {"::".join(name.split("::")[-2:]): name for name in names}
        for case in ET.parse(report).iter("testcase"):
            name = by_end[f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"]
            if case.find("failure") is not None or case.find("error") is not None:
                found.failed[name] = said
            else:
                (found.passed if case.find("skipped") is None else found.skipped).add(name)
        missing = set(names) - found.passed - found.skipped - set(found.failed)
        found.failed |= dict.fromkeys(missing, said)
        found.passed -= set(found.failed)
        return found

    def play_in_lanes(self, names: Sequence[str]) -> Played:
        """Play tests side by side, and what fails once more."""
        parts = []
        for _, group in groupby(names, lambda name: name.rpartition("::")[0]):
            some = list(group)
            parts += [some[first : first + TESTS_AT_ONCE] for first in range(0, len(some), TESTS_AT_ONCE)]
        whole = Played(set(), set(), {})
        with ThreadPoolExecutor(LANES) as pool:
            for found in pool.map(self.play, sorted(parts, key=len, reverse=True)):
                whole.passed |= found.passed
                whole.skipped |= found.skipped
                whole.failed |= found.failed
        for name in sorted(whole.failed):
            again = self.play([name])
            if name in again.passed:
                del whole.failed[name]
                whole.passed.add(name)
        return whole


@pytest.mark.timeout(TIMEOUT_S + 60)
@pytest.mark.parametrize("kind", [POLYMQ, NATS_KINDS[0]])
def test_nats_py_is_content(kind: str, source: Path, tmp_path: Path, authority: Authority) -> None:
    modules = sorted(each.name for each in (source / "tests").glob("test_*.py"))
    assert set(LEFT_OUT["modules"]) <= set(modules), "a module that is left out is not there"
    suite = Suite(kind, source, tmp_path, authority)
    names = suite.names([name for name in modules if name not in LEFT_OUT["modules"]])
    listed = {*LEFT_OUT["fails"], *LEFT_OUT["unsteady"]}
    assert listed <= set(names), "a test that is left out is not there"
    found = suite.play_in_lanes([name for name in names if name not in listed])
    assert not found.failed, "\n".join([*found.failed, *(said[-6000:] for said in found.failed.values())])
    assert len(found.passed) >= TESTS_MIN, found
    if kind == POLYMQ:
        for name in LEFT_OUT["fails"]:
            assert suite.play([name]).failed, f"{name} does not fail: take it off the list"


def test_what_is_left_out_has_a_reason() -> None:
    assert set(LEFT_OUT) == {"modules", "fails", "unsteady"}
    assert all(reason for part in LEFT_OUT.values() for reason in part.values())
