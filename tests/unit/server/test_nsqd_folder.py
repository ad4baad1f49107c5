from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from polymq.errors import ConfigError
from polymq.protocols.nsq.datafolder import ChannelEntry, TopicEntry
from polymq.server import nsqd_folder
from polymq.server.nsqd_folder import Maps, NsqdFolder, Part

from .nsqd_folders import message, write_metadata, write_queue

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

M = [message(number) for number in range(10)]
SIZE = 30 + 2


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "nsq"
    write_metadata(folder, {"t": ["c"], "lone": []}, paused=("t:c",))
    return folder


@pytest.fixture
def opened(path: Path) -> Iterator[list[NsqdFolder]]:
    """Opens the folder once it is complete: append the path."""
    folders: list[NsqdFolder] = []
    yield folders
    for folder in folders:
        folder.close()


def parts(folder: NsqdFolder, queue: str) -> list[tuple[str, int, int]]:
    topic, _, channel = queue.partition(":")
    return [(part.path.name, part.start, part.end) for part in folder.queue(topic, channel).parts]


def look(path: Path, queue: str = "t:c") -> tuple[list[tuple[str, int, int]], list[str], list[str]]:
    folder = NsqdFolder(path)
    try:
        found = parts(folder, queue)
        return (
            found,
            [str(problem).replace(f"{path}/", "") for problem in folder.problems],
            [note.replace(f"{path}/", "") for note in folder.notes],
        )
    finally:
        folder.close()


def test_topics_channels_and_queues_are_found(path: Path) -> None:
    write_queue(path, "t:c", M[:4], M[4:6], read=2, first=3)
    write_queue(path, "lone", M[:1])
    folder = NsqdFolder(path)
    assert folder.topics == (TopicEntry("t", False, (ChannelEntry("c", paused=True),)), TopicEntry("lone", False, ()))
    assert parts(folder, "t:c") == [("t:c.diskqueue.000003.dat", 2 * SIZE, 4 * SIZE), ("t:c.diskqueue.000004.dat", 0, 2 * SIZE)]
    assert folder.queue("t", "c").size_bytes == 4 * SIZE
    assert parts(folder, "t") == []
    assert parts(folder, "lone") == [("lone.diskqueue.000000.dat", 0, SIZE)]
    assert folder.size_bytes == 7 * SIZE
    assert (folder.problems, folder.notes) == ([], [])
    folder.close()
    folder.close()


def test_a_folder_in_use_is_refused_and_ours_keeps_nsqd_out(path: Path) -> None:
    folder = NsqdFolder(path)
    with pytest.raises(ConfigError, match="stop that nsqd first"):
        NsqdFolder(path)
    taken = "import fcntl,os,sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    assert subprocess.run([sys.executable, "-c", taken, str(path)], stderr=subprocess.DEVNULL, check=False).returncode != 0
    folder.close()
    NsqdFolder(path).close()


@pytest.mark.parametrize("what", ["missing", "file", "empty"])
def test_what_is_no_data_folder_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "nowhere"
    if what == "file":
        path.write_text("")
    elif what == "empty":
        path.mkdir()
    with pytest.raises(ConfigError, match="not the data folder of an nsqd" if what == "empty" else "not a folder"):
        NsqdFolder(path)


def test_a_queue_that_was_read_to_its_end_has_nothing(path: Path) -> None:
    write_queue(path, "t:c", M[:4], read=4)
    assert look(path) == ([], [], [])
    (path / "t:c.diskqueue.000000.dat").unlink()
    assert look(path) == ([], [], []), "nsqd removes files that were read"


def test_files_before_the_read_position_were_read(path: Path) -> None:
    write_queue(path, "t:c", M[:4], M[4:5])
    (path / "t:c.diskqueue.meta.dat").write_text(f"1\n1,0\n1,{SIZE}\n")
    assert look(path) == ([("t:c.diskqueue.000001.dat", 0, SIZE)], [], [])


def test_what_was_written_after_the_last_sync_is_imported(path: Path) -> None:
    write_queue(path, "t:c", M[:4])
    (path / "t:c.diskqueue.meta.dat").write_text(f"1\n0,{SIZE}\n0,{2 * SIZE}\n")
    found, problems, notes = look(path)
    assert found == [("t:c.diskqueue.000000.dat", SIZE, 4 * SIZE)]
    assert problems == []
    assert "killed after its last sync" in notes[0]


def test_without_positions_the_whole_queue_is_imported(path: Path) -> None:
    write_queue(path, "t:c", M[:4], meta=False)
    found, problems, notes = look(path)
    assert found == [("t:c.diskqueue.000000.dat", 0, 4 * SIZE)]
    assert problems == []
    assert notes[0].startswith("t:c.diskqueue.meta.dat is missing: the whole queue is imported")


def test_damaged_positions_are_a_problem(path: Path) -> None:
    write_queue(path, "t:c", M[:4])
    (path / "t:c.diskqueue.meta.dat").write_text("garbage")
    found, problems, _ = look(path)
    assert found == [("t:c.diskqueue.000000.dat", 0, 4 * SIZE)]
    assert problems[0].startswith("t:c.diskqueue.meta.dat at byte 0: not three lines")


def test_a_truncated_file_is_a_problem(path: Path) -> None:
    write_queue(path, "t:c", M[:4], read=3)
    os.truncate(path / "t:c.diskqueue.000000.dat", 2 * SIZE)
    found, problems, _ = look(path)
    assert found == []
    assert problems == [
        f"t:c.diskqueue.000000.dat at byte {2 * SIZE}: ends here, but nsqd had written up to byte {4 * SIZE}",
        f"t:c.diskqueue.000000.dat at byte {2 * SIZE}: ends here, but nsqd had read up to byte {3 * SIZE}",
    ]


def test_missing_files_are_problems(path: Path) -> None:
    write_queue(path, "t:c", *([each] for each in M[:6]))
    for number in (1, 2, 4):
        (path / f"t:c.diskqueue.{number:06d}.dat").unlink()
    found, problems, _ = look(path)
    assert [name for name, _, _ in found] == [f"t:c.diskqueue.{number:06d}.dat" for number in (0, 3, 5)]
    assert problems == [
        "t:c.diskqueue.000001.dat: is missing, and so are all up to number 2",
        "t:c.diskqueue.000004.dat: is missing",
    ]
    for name, _, _ in found:
        (path / name).unlink()
    assert look(path)[1] == ["t:c.diskqueue.000000.dat: is missing, and so are all up to number 5"]


def test_metadata_that_cannot_be_read_leaves_the_names_of_the_files(path: Path) -> None:
    write_queue(path, "t:c", M[:4])
    write_queue(path, "u", M[:1])
    for damage in ("missing", "damaged"):
        if damage == "missing":
            (path / "nsqd.dat").unlink()
        else:
            (path / "nsqd.dat").write_text("{")
        folder = NsqdFolder(path)
        assert folder.topics == (TopicEntry("t", False, (ChannelEntry("c", paused=False),)), TopicEntry("u", False, ()))
        assert "topics and channels are those that have disk queues" in str(folder.problems[0])
        folder.close()


def test_queues_that_nsqd_does_not_know_are_problems(path: Path) -> None:
    write_queue(path, "t:gone", M[:4])
    write_queue(path, "old", M[:4], read=4)
    for name in ("x#ephemeral:c", "t:y#ephemeral", "x#ephemeral"):
        write_queue(path, name, M[:4])
    (path / "t.diskqueue.000000.dat.bad").write_text("")
    (path / "another file").write_text("")
    _, problems, notes = look(path)
    assert problems == ["t:gone.diskqueue.000000.dat: belongs to no topic or channel of nsqd.dat, so nsqd would not read it; not imported"]
    assert notes == ["t.diskqueue.000000.dat.bad: nsqd could not read this file and put it aside; it is not imported"]


def test_names_that_nsqd_would_not_take_are_noted(path: Path) -> None:
    write_metadata(path, {"no good": [], "t": []})
    assert "'no good' is not a valid name" in look(path)[2][0]


def test_few_files_are_open_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsqd_folder, "_MAPS_MAX", 2)
    for number in range(4):
        (tmp_path / str(number)).write_bytes(b"%d" % number * 3)
    with Maps([Part(tmp_path / str(number), 0, 3) for number in range(4)]) as maps:
        for number in (0, 1, 2, 3, 0, 0, 3):
            assert bytes(maps.view(number)) == b"%d" % number * 3
            assert len(maps._open) <= 2
    assert maps._open == {}
