"""A data folder keeps its id, and nobody gets one that is not kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.server.folder_id import FOLDER_ID_NAME, folder_id

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_a_folder_keeps_its_id(tmp_path: Path) -> None:
    made = folder_id(tmp_path)
    assert len(bytes.fromhex(made)) == 8
    assert folder_id(tmp_path) == made
    assert [path.name for path in tmp_path.iterdir()] == [FOLDER_ID_NAME]


def test_every_folder_has_another(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    assert folder_id(tmp_path) != folder_id(tmp_path / "other")


def test_what_is_no_id_stays_and_stands_for_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for wrong in (b"nonsense\n", b"\xff"):
        (tmp_path / FOLDER_ID_NAME).write_bytes(wrong)
        assert folder_id(tmp_path) == ""
        assert (tmp_path / FOLDER_ID_NAME).read_bytes() == wrong
    assert "begin new checkpoints" in caplog.text


def test_an_id_that_cannot_be_kept_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert folder_id(tmp_path / "nowhere") == ""
    assert "cannot read this node together with others" in caplog.text
