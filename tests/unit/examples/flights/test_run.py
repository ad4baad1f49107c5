from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from examples.flights.run import parse_arguments, prepare_folder

if TYPE_CHECKING:
    from pathlib import Path


def test_only_a_folder_of_its_own_is_emptied(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    prepare_folder(mine)
    (mine / "old").touch()
    prepare_folder(mine)
    assert not (mine / "old").exists()
    other.mkdir()
    (other / "precious").touch()
    with pytest.raises(SystemExit, match="not made by this job"):
        prepare_folder(other)
    assert (other / "precious").exists()


def test_arguments() -> None:
    job = parse_arguments(["--flights", "10", "--no-kill"])
    assert (job.limit, job.kill, job.producers) == (10, False, 4)
