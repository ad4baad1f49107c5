"""`polymq import nsqd`: what it says and how it ends; what it does is tested in tests/unit/server/test_takeover.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from polymq.cli.main import app
from polymq.errors import ConfigError
from tests.unit.server.nsqd_folders import message, write_metadata, write_queue

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result

M = [message(number) for number in range(20)]


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "nsq"
    write_metadata(path, {"orders": ["bill", "ship"], "lone": [], "quiet": ["c"]}, paused=("orders:ship", "quiet"))
    write_queue(path, "orders", M[10:12])
    write_queue(path, "orders:bill", [*M[:3], message(5, 2)])
    write_queue(path, "orders:ship", M[1:4])
    write_queue(path, "lone", M[:2])
    write_queue(path, "quiet", M[:1])
    return path


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["import", "nsqd", *map(str, arguments)])


def problems(result: Result) -> list[str]:
    assert isinstance(result.exception, ConfigError), result.output
    return list(result.exception.problems)


TABLE = """\
topic   channel              messages  tried before
orders  (for every channel)         2
orders  bill                        4             1
orders  ship                        3                paused
lone    (no channel yet)            2
quiet   (no channel yet)            1                paused
quiet   c                           0
"""


def table(result: Result) -> str:
    return "".join(line.rstrip() + "\n" for line in result.stdout.splitlines())


def test_everything_is_imported_and_listed(source: Path, tmp_path: Path) -> None:
    result = run(source, "--data", tmp_path / "data")
    assert result.exit_code == 0, result.output
    assert table(result) == TABLE
    assert f"10 messages imported into {tmp_path / 'data'} (14 to deliver) in " in result.stderr
    assert (tmp_path / "data" / "FORMAT").exists()


def test_a_dry_run_says_the_same_and_makes_nothing(source: Path, tmp_path: Path) -> None:
    result = run(source, "--dry-run")
    assert (result.exit_code, table(result)) == (0, TABLE)
    assert "10 messages would be imported (14 to deliver)" in result.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["nsq"]


def test_what_cannot_be_read_is_named_and_the_exit_status_says_so(source: Path, tmp_path: Path) -> None:
    path = source / "lone.diskqueue.000000.dat"
    path.write_bytes(path.read_bytes()[:-1])
    (source / "orders:bill.diskqueue.meta.dat").unlink()
    write_queue(source, "orders:ship", [M[1], M[1]])
    result = run(source, "--data", tmp_path / "data")
    assert result.exit_code == 1
    assert f"NOT READ: {path} at byte 32: no sound record begins here; the 31 bytes" in result.stderr
    assert f"NOT READ: {path} at byte 63: ends here, but nsqd had written up to byte 64" in result.stderr
    assert "note: " in result.stderr
    assert "meta.dat is missing" in result.stderr
    assert "1 messages lay twice in a queue" in result.stderr
    assert "2 problems, named above; everything else imported into" in result.stderr


def test_contradicting_orders_are_mentioned(source: Path) -> None:
    write_queue(source, "orders:bill", [M[1], M[2]])
    write_queue(source, "orders:ship", [M[2], M[1]])
    assert "in different orders (1 times)" in run(source, "--dry-run").stderr


def test_the_place_of_the_new_folder_must_be_said_and_be_elsewhere(source: Path, tmp_path: Path) -> None:
    assert "say where the new data folder is to be" in problems(run(source))[0]
    for place in (source, source / "new", tmp_path / "nsq" / ".." / "nsq"):
        assert "choose a place outside of" in problems(run(source, "--data", place))[0]
    assert "is not a folder" in problems(run(tmp_path / "nowhere", "--data", tmp_path / "data"))[0]


def test_settings_are_those_of_the_broker(source: Path, tmp_path: Path) -> None:
    assert "there is no setting 'store.duration'" in problems(run(source, "--data", tmp_path / "data", "--set", "store.duration=fsync"))[0]
    assert run(source, "--data", tmp_path / "data", "--set", "store.durability=fsync").exit_code == 0


def test_help_has_examples() -> None:
    assert "polymq import nsqd /var/lib/nsqd --data" in run("--help").output
    assert "nsqd" in CliRunner().invoke(app, ["import", "--help"]).output
