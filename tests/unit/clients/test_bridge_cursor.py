"""A cursor says what was written last, belongs to one bridge at a time, and is never half of one."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from polymq.clients.bridge_cursor import Cursor, Position
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

POSITIONS = {0: Position(7, 1, 100), 11: Position(8, 3, 0)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "orders.cursor"


def written(path: Path) -> bytes:
    with Cursor(path, "s", "t") as cursor:
        assert cursor.is_new
        cursor.write(POSITIONS, 42)
    return path.read_bytes()


def test_what_was_written_is_read(path: Path) -> None:
    written(path)
    with Cursor(path, "s", "t") as cursor:
        assert (cursor.positions, cursor.moved, cursor.is_new) == (POSITIONS, 42, False)
        cursor.write({}, 43)
    with Cursor(path, "s", "t") as cursor:
        assert (cursor.positions, cursor.moved) == ({}, 43)


def test_two_bridges_do_not_have_one_cursor(path: Path) -> None:
    with Cursor(path, "s", "t"):
        for _ in range(2):
            with pytest.raises(ConfigError, match="another bridge"):
                Cursor(path, "s", "t")
    Cursor(path, "s", "t").close()


def test_every_way_to_tear_a_cursor_is_seen(path: Path) -> None:
    whole = written(path)
    for size in range(len(whole) - 1):  # the last byte is the end of a line
        path.write_bytes(whole[:size])
        with pytest.raises(ConfigError, match="damaged"):
            Cursor(path, "s", "t")
    for damage in (
        whole.replace(b"100", b"101"),
        whole.replace(b'"format": 1', b'"format": 2'),
        b"[]",
        b"{}",
        b"null",
        b"\xff",
        b"[" * 100_000,
    ):
        path.write_bytes(damage)
        with pytest.raises(ConfigError, match="damaged"):
            Cursor(path, "s", "t")
    path.write_bytes(whole)
    Cursor(path, "s", "t").close()  # and the lock of none of them is left


def test_a_crash_while_writing_leaves_the_old_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = written(path)

    def crash(_descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", crash)
    with Cursor(path, "s", "t") as cursor, pytest.raises(KeyboardInterrupt):
        cursor.write({}, 99)
    assert path.read_bytes() == whole
    monkeypatch.undo()
    assert Cursor(path, "s", "t").moved == 42  # what was begun beside it does no harm


def test_a_cursor_belongs_to_its_ends(path: Path) -> None:
    written(path)
    with pytest.raises(ConfigError, match="its target is t, not u"):
        Cursor(path, "s", "u")
    with pytest.raises(ConfigError, match="its source is s, not r"):
        Cursor(path, "r", "t")


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be locked"):
        Cursor(tmp_path / "not" / "there", "s", "t")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="cannot be read"):
        Cursor(tmp_path / "folder", "s", "t")


def test_a_cursor_that_cannot_be_written_is_said(path: Path) -> None:
    with Cursor(path, "s", "t") as cursor:
        path.with_name(path.name + ".new").mkdir()
        with pytest.raises(ConfigError, match="cannot be written"):
            cursor.write(POSITIONS, 1)


def test_more_than_a_cursor_can_be_is_not_read(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(16 * 1024 * 1024 + 1)
    with pytest.raises(ConfigError, match="damaged"):
        Cursor(path, "s", "t")


def test_it_can_be_read_by_people(path: Path) -> None:
    said = json.loads(written(path))
    assert said["partitions"]["11"] == {"number": 8, "epoch": 3, "offset": 0}
    assert (said["source"], said["target"], said["moved"]) == ("s", "t", 42)
