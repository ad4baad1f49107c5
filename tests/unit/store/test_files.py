"""The real disk: what the port promises, on the file system that the tests run on."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

import pytest

from polymq.store import files as files_module
from polymq.store.files import RealFiles

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def files(tmp_path: Path) -> RealFiles:
    return RealFiles(tmp_path / "new" / "data")


def test_a_file_keeps_what_is_written_where_it_is_written(files: RealFiles) -> None:
    file = files.open("a", create=True)
    file.allocate(8192)
    assert file.size() == 8192
    assert file.pread(10, 100) == bytes(10)
    file.pwrite(memoryview(b"hello"), 100)
    file.pwrite(bytearray(b"world"), 8192)
    assert file.pread(100, 98)[:9] == b"\0\0hello\0\0"
    assert file.pread(100, 8190) == b"\0\0world"
    assert file.pread(10, 9000) == b""
    file.sync()
    file.truncate(102)
    assert (file.size(), file.pread(10, 100)) == (102, b"he")
    file.close()
    file.close()
    with pytest.raises(OSError, match="descriptor"):
        file.size()


def test_a_map_shows_later_writes_and_outlives_its_file(files: RealFiles) -> None:
    file = files.open("a", create=True)
    file.allocate(4096)
    view = file.map(4096)
    file.pwrite(b"later", 10)
    assert bytes(view[10:15]) == b"later"
    assert view.readonly
    file.close()
    files.remove("a")
    assert bytes(view[10:15]) == b"later"


def test_what_was_just_written_is_read_from_the_page_cache(files: RealFiles) -> None:
    file = files.open("a", create=True)
    file.pwrite(b"x" * 5000, 0)
    cached = file.pread_cached(5000, 0)
    assert cached in (None, b"x" * 5000)
    if cached is not None:
        assert file.pread_cached(100, 4990) == b"x" * 10
        assert file.pread_cached(100, 6000) == b""


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EOPNOTSUPP])
def test_what_is_not_in_the_page_cache_is_none(files: RealFiles, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def preadv(*_: object) -> int:
        raise OSError(code, "no")

    monkeypatch.setattr(os, "preadv", preadv, raising=False)
    monkeypatch.setattr(files_module, "_READ_NOWAIT", 8)
    file = files.open("a", create=True)
    file.pwrite(b"x", 0)
    assert file.pread_cached(1, 0) is None


def test_a_broken_disk_is_an_error_even_for_the_page_cache(files: RealFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def preadv(*_: object) -> int:
        raise OSError(errno.EIO, "broken")

    monkeypatch.setattr(os, "preadv", preadv, raising=False)
    monkeypatch.setattr(files_module, "_READ_NOWAIT", 8)
    file = files.open("a", create=True)
    file.pwrite(b"x", 0)
    with pytest.raises(OSError, match="broken"):
        file.pread_cached(1, 0)


def test_a_read_is_not_tried_when_it_would_bring_something_in(files: RealFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    def preadv(*_: object) -> int:
        raise AssertionError

    monkeypatch.setattr(os, "preadv", preadv, raising=False)
    monkeypatch.setattr(files_module, "_READ_NOWAIT", 8)
    monkeypatch.setattr(files_module, "in_cache", lambda *_: False)
    assert files.open("a", create=True).pread_cached(1, 0) is None


def test_random_reads_are_announced_where_the_system_wants_to_know(files: RealFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[object] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda *words: told.append(words[1:]), raising=False)
    monkeypatch.setattr(files_module, "_ADVISE_RANDOM", 1)
    file = files.open("a", create=True)
    file.expect_random_reads()
    assert told == [(0, 0, 1)]
    monkeypatch.setattr(files_module, "_ADVISE_RANDOM", None)
    file.expect_random_reads()
    assert len(told) == 1


def test_a_part_of_it_in_the_page_cache_is_not_enough(files: RealFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    file = files.open("a", create=True)
    file.pwrite(b"x" * 100, 0)
    monkeypatch.setattr(os, "preadv", lambda *_: 40, raising=False)
    monkeypatch.setattr(files_module, "_READ_NOWAIT", 8)
    assert file.pread_cached(100, 0) is None


def test_systems_without_the_flag_count_nothing_as_cached(files: RealFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "_READ_NOWAIT", None)
    assert files.open("a", create=True).pread_cached(1, 0) is None


def test_short_writes_and_reads_go_on(files: RealFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: pwrite(descriptor, memoryview(data)[:3], at))
    monkeypatch.setattr(os, "pread", lambda descriptor, size, at: pread(descriptor, min(size, 4), at))
    file = files.open("a", create=True)
    file.pwrite(b"0123456789", 5)
    assert file.pread(100, 5) == b"0123456789"
    assert file.pread(7, 5) == b"0123456"


def test_folders_hold_names(files: RealFiles) -> None:
    assert list(files.list("no/such")) == []
    files.make_folder("a/b")
    files.make_folder("a/b")
    with pytest.raises(FileNotFoundError):
        files.open("a/b/c")
    files.open("a/b/c", create=True).close()
    files.rename("a/b/c", "a/b/d")
    assert files.list("a/b") == ["d"]
    assert files.exists("a/b/d")
    assert not files.exists("a/b/c")
    files.sync_folder("a/b")
    files.sync_folder("")
    with pytest.raises(OSError, match="not empty"):
        files.remove("a/b")
    files.remove("a/b/d")
    files.remove("a/b")
    assert not files.exists("a/b")
    with pytest.raises(FileNotFoundError):
        files.remove("a/b/d")


def test_room_is_told_in_bytes(files: RealFiles) -> None:
    assert 0 < files.free_bytes() <= files.total_bytes()


def test_only_one_process_has_the_folder(files: RealFiles, tmp_path: Path) -> None:
    files.lock()
    other = RealFiles(tmp_path / "new" / "data")
    with pytest.raises(BlockingIOError):
        other.lock()
    files.close()
    files.close()
    other.lock()
    other.close()


def test_hastening_touches_nothing(tmp_path: Path) -> None:
    files = RealFiles(str(tmp_path))
    file = files.open("a", create=True)
    file.pwrite(b"x", 0)
    files.hasten(["a", "missing"])
    assert file.pread(2, 0) == b"x"
    file.close()


def test_many_files_are_synced_and_each_has_its_code(files: RealFiles) -> None:
    for name in ("a", "b"):
        files.open(name, create=True).close()
    assert list(files.sync_files(["a", "missing", "b"])) == [0, -errno.ENOENT, 0]
    assert list(files.sync_files([])) == []


def test_a_file_is_prepared_or_says_why_not(files: RealFiles) -> None:
    files.prepare("next", 70_000)
    file = files.open("next")
    assert (file.size(), any(file.pread(70_000, 0))) == (70_000, False)
    file.close()
    with pytest.raises(FileNotFoundError):
        files.prepare("no/next", 10)
