from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from polymq.server.memory import memory_bytes

if TYPE_CHECKING:
    from pathlib import Path

PHYSICAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def group(folder: Path, name: str, limit: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(limit + "\n")


def test_without_control_groups_it_is_the_machines(tmp_path: Path) -> None:
    assert memory_bytes(tmp_path / "none", tmp_path) == PHYSICAL
    (tmp_path / "cgroup").write_text("0::/a/b\nnonsense\n3:cpu:/\n")
    assert memory_bytes(tmp_path / "cgroup", tmp_path) == PHYSICAL


@pytest.mark.parametrize(
    ("line", "base", "name", "none"),
    [("0::/a/b", "", "memory.max", "max"), ("7:cpu,memory:/a/b", "memory", "memory.limit_in_bytes", "9223372036854771712")],
)
def test_the_least_limit_of_a_group_and_those_above_counts(tmp_path: Path, line: str, base: str, name: str, none: str) -> None:
    (tmp_path / "cgroup").write_text(line + "\n")
    root = tmp_path / "groups"
    group(root / base / "a" / "b", name, none)
    assert memory_bytes(tmp_path / "cgroup", root) == PHYSICAL
    group(root / base / "a", name, "4096000")
    assert memory_bytes(tmp_path / "cgroup", root) == 4_096_000
    group(root / base / "a" / "b", name, "2048000")
    assert memory_bytes(tmp_path / "cgroup", root) == 2_048_000
    # Not of this process.
    group(root / base / "c", name, "1")
    assert memory_bytes(tmp_path / "cgroup", root) == 2_048_000


def test_of_this_process_something_is_known() -> None:
    assert 0 < memory_bytes() <= PHYSICAL
