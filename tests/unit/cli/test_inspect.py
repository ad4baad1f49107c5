"""`polymq inspect` shows a real data folder, finds damage, and changes nothing."""

from __future__ import annotations

import io
import json
import shutil
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from polymq.cli.inspect import Report, open_folder, time_text
from polymq.cli.main import app
from polymq.errors import ConfigError
from polymq.store.files import RealFiles
from tests.unit.store.harness import Harness

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two partitions: number 1 with 40 messages in several segments, number 3 with 2."""
    data = tmp_path / "data"
    harness = Harness()
    store = harness.open(RealFiles(data))
    first, other = store.create_log(1, sync=False), store.create_log(3, sync=False)
    for number in range(40):
        harness.publish(first, [b"message %d " % number + b"." * 200])
    harness.publish(other, [b"a", b"b"])
    harness.settle()
    store.journal.append(b"\x20core")
    harness.settle()
    store.close(clean=True)
    return data


def run(*arguments: str | Path) -> tuple[int, list[str]]:
    done = CliRunner().invoke(app, ["inspect", *map(str, arguments)])
    if isinstance(done.exception, ConfigError):
        return -1, list(done.exception.problems)
    return done.exit_code, done.stdout.splitlines()


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_segments_and_journal(folder: Path) -> None:
    before = contents(folder)
    status, lines = run(folder)
    assert status == 0
    segments = [line for line in lines if line.startswith("partitions/0000001/")]
    assert len(segments) == 2
    assert segments[0].startswith("partitions/0000001/00000000000000000000.seg  offsets 0..")
    assert any(line.startswith("partitions/0000003/00000000000000000000.seg  offsets 0..2  2 records in 1 batches") for line in lines)
    assert any(line.startswith("journal/") and "synced up to" in line for line in lines)
    assert contents(folder) == before


def test_one_partition_batches_records_and_journal(folder: Path) -> None:
    assert [line.split("  ")[1] for line in run(folder, "--partition", "3", "--batches")[1]] == ["offsets 0..2"]
    assert [line.split("  ", 1)[1] for line in run(folder, "--partition", "3", "--records")[1]] == ["3:0  a", "3:1  b"]
    status, lines = run(folder, "--records", "--partition", "1", "--from", "37", "--count", "2", "--format", "json")
    assert (status, [json.loads(line)["offset"] for line in lines]) == (0, [37, 38])
    entries = run(folder, "--journal")[1]
    assert any("start in epoch 1" in line for line in entries)
    assert any("the core's, kind 32" in line for line in entries)
    assert len(run(folder, "--journal", "--count", "1")[1]) == 1


def test_damage_is_found_and_is_the_exit_status(folder: Path) -> None:
    path = folder / "partitions" / "0000003" / "00000000000000000000.seg"
    data = bytearray(path.read_bytes())
    data[data.index(b"a", 64 + 80)] ^= 1
    path.write_bytes(data)
    status, lines = run(folder)
    assert status == 1
    (bad,) = [line for line in lines if "BAD" in line]
    assert bad.startswith("partitions/0000003/")
    status, lines = run(folder, "--partition", "3", "--batches")
    assert (status, len(lines)) == (1, 1)
    assert "at byte 64  BAD: " in lines[0]
    assert run(folder, "--partition", "1")[0] == 0
    done = CliRunner().invoke(app, ["inspect", str(folder), "--records"])
    assert (done.exit_code, len(done.stdout.splitlines())) == (1, 40)
    assert done.stderr.startswith("partition 3 at record 0  BAD: ")
    assert "records 0 to 2 were synced" in done.stderr
    assert run(folder, "--records", "--partition", "1")[0] == 0


@pytest.mark.parametrize("arguments", [[], ["--batches"], ["--records"], ["--records", "--count", "50"], ["--partition", "3"]])
def test_synced_batches_that_became_zeros(folder: Path, arguments: list[str]) -> None:
    path = folder / "partitions" / "0000003" / "00000000000000000000.seg"
    data = path.read_bytes()
    path.write_bytes(data[:64] + bytes(len(data) - 64))
    done = CliRunner().invoke(app, ["inspect", str(folder), *arguments])
    assert done.exit_code == 1
    assert "BAD: the rest is zeros; records 0 to 2 were synced" in done.output


@pytest.mark.parametrize("arguments", [[], ["--batches"], ["--records"], ["--partition", "3"]])
def test_a_partition_folder_that_is_gone(folder: Path, arguments: list[str]) -> None:
    shutil.rmtree(folder / "partitions" / "0000003")
    done = CliRunner().invoke(app, ["inspect", str(folder), *arguments])
    assert done.exit_code == 1
    assert "BAD: its files are missing; records 0 to 2 were synced" in done.output


@pytest.mark.parametrize("arguments", [[], ["--batches"], ["--records"], ["--journal"], ["--journal", "--count", "1"]])
def test_a_damaged_journal(folder: Path, arguments: list[str]) -> None:
    (path,) = (path for path in (folder / "journal").iterdir() if path.stem.isdigit())
    data = bytearray(path.read_bytes())
    data[64 + 45] ^= 1
    path.write_bytes(data)
    done = CliRunner().invoke(app, ["inspect", str(folder), *arguments])
    assert done.exit_code == 1
    assert "journal frame 1, which was synced" in done.output


def test_a_torn_tail_is_said_and_is_no_damage(folder: Path) -> None:
    path = folder / "partitions" / "0000003" / "00000000000000000000.seg"
    data = bytearray(path.read_bytes())
    data[-1] = 1
    path.write_bytes(data)
    status, lines = run(folder)
    assert status == 0
    assert [
        line
        for line in lines
        if line.endswith("(torn tail behind record 2, up to which it is synced: there are bytes behind the last batch)")
    ]


@pytest.mark.parametrize(
    ("arguments", "says"), [(["--partition", "2"], "this folder has partitions 1, 3"), (["--partition", "9"], "partitions 1, 3")]
)
def test_a_partition_that_is_not_there(folder: Path, arguments: list[str], says: str) -> None:
    status, problems = run(folder, *arguments)
    assert status == -1
    assert says in problems[0]


def test_looking_makes_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        open_folder(tmp_path / "absent")
    assert not (tmp_path / "absent").exists()
    with pytest.raises(ConfigError, match="has no file FORMAT"):
        open_folder(tmp_path)
    tmp_path.joinpath("FORMAT").write_text("1\n")
    assert run(tmp_path, "--partition", "0") == (-1, ["--partition 0: this folder has no partitions"])


def test_a_folder_that_cannot_be_read(folder: Path) -> None:
    path = folder / "partitions" / "0000003" / "00000000000000000000.seg"
    path.unlink()
    path.mkdir()
    status, problems = run(folder)
    assert status == -1
    assert "cannot be read" in problems[0]


def test_producers_and_times() -> None:
    target = io.BytesIO()
    report = Report(target, None)
    report.line("good")
    report.line("line", "torn")
    report.line("other", note="torn tail")
    assert (target.getvalue(), report.damaged) == (b"good\nline  BAD: torn\nother  (torn tail)\n", 1)
    assert (time_text(0), time_text(10**9)) == ("-", "1970-01-01 00:00:01")
