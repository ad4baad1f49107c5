"""System calls for many files: the same in both builds, whatever becomes of single files."""

from __future__ import annotations

import errno
import os
from array import array
from pathlib import Path

import pytest

from polymq.store import bulk


def names(*paths: Path) -> bytes:
    return b"".join(os.fsencode(path) + b"\0" for path in paths)


def synced(*paths: Path) -> list[int]:
    codes = array("i", [99] * len(paths))
    bulk.sync_each(names(*paths), codes)
    return codes.tolist()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    found = [tmp_path / f"file-{i}" for i in range(3)]
    for path in found:
        path.write_bytes(b"x" * 100)
    return found


def test_every_file_is_synced(files: list[Path]) -> None:
    assert synced(*files) == [0, 0, 0]
    assert [path.read_bytes() for path in files] == [b"x" * 100] * 3


def test_a_file_that_is_not_there_holds_nobody_up(files: list[Path], tmp_path: Path) -> None:
    assert synced(files[0], tmp_path / "missing", files[1], tmp_path) == [0, -errno.ENOENT, 0, -errno.EISDIR]


def test_a_sync_that_fails_is_told_from_a_file_that_cannot_be_opened(files: list[Path], tmp_path: Path) -> None:
    # Nothing can be synced in a pipe: the call fails on a file that was opened.
    os.mkfifo(tmp_path / "pipe")
    assert synced(files[0], tmp_path / "pipe", files[1]) == [0, errno.EINVAL, 0]


def test_descriptors_are_given_back(files: list[Path], tmp_path: Path) -> None:
    before = descriptors()
    os.mkfifo(tmp_path / "pipe")
    for _ in range(5):
        synced(*files, tmp_path / "pipe", tmp_path / "missing")
        bulk.hasten_each(names(*files, tmp_path / "missing"), 4)
        bulk.prepare_one(names(tmp_path / "new"), 1000)
        bulk.prepare_one(names(tmp_path / "no" / "new"), 1000)
    assert descriptors() == before


def test_hastening_reports_nothing(files: list[Path], tmp_path: Path) -> None:
    bulk.hasten_each(names(files[0], tmp_path / "missing", files[1]), 3)
    assert [path.read_bytes() for path in files] == [b"x" * 100] * 3


@pytest.mark.parametrize("size", [1, 4096, 65536, 65537, 300_000])
def test_a_prepared_file_is_zeros_in_real_blocks(tmp_path: Path, size: int) -> None:
    path = tmp_path / "next"
    path.write_bytes(b"stale" * 100_000)
    assert bulk.prepare_one(names(path), size) == 0
    assert path.read_bytes() == bytes(size)
    assert path.stat().st_blocks * 512 >= size


def test_what_cannot_be_prepared_says_why(tmp_path: Path) -> None:
    assert bulk.prepare_one(names(tmp_path / "no" / "next"), 10) == -errno.ENOENT
    os.mkfifo(tmp_path / "pipe")
    assert bulk.prepare_one(names(tmp_path / "pipe"), 10) == errno.EINVAL


def test_what_is_in_the_page_cache_is_found_there_and_holes_are_not(files: list[Path]) -> None:
    descriptor = os.open(files[0], os.O_RDWR)
    try:
        os.pwrite(descriptor, b"x" * 3_000_000, 0)
        os.ftruncate(descriptor, 9_000_000)
        assert bulk.in_cache(descriptor, 0, 3_000_000)
        assert bulk.in_cache(descriptor, 2_999_000, 1_000)
        assert bulk.in_cache(descriptor, 1_234_567, 0)
        # Python has no call for it: uncompiled, whatever is asked for counts as being there.
        unknown = bulk.__file__.endswith(".py")
        assert bulk.in_cache(descriptor, 0, 3_100_000) is unknown
        assert bulk.in_cache(descriptor, 2_990_000, 1_000_000) is unknown
        assert bulk.in_cache(descriptor, 8_000_000, 1) is unknown
        # Asking brings nothing in.
        assert bulk.in_cache(descriptor, 8_000_000, 1) is unknown
    finally:
        os.close(descriptor)
    assert bulk.in_cache(descriptor, 0, 1)
