"""Where things are in the repository, for the tests of the project itself.

As a program it prints the unit tests of the hot modules, which `make test` runs a second time uncompiled.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["ROOT", "SOURCE", "UNIT_TESTS", "Module", "hot_modules", "modules", "unit_tests_of"]

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "polymq"
UNIT_TESTS = ROOT / "tests" / "unit"


@dataclass(frozen=True, slots=True)
class Module:
    """One source file: its dotted name below the package root, and its syntax tree."""

    name: str
    path: Path

    @property
    def tree(self) -> ast.Module:
        """Parse the file."""
        return ast.parse(self.path.read_text(encoding="utf-8"), filename=str(self.path))


def modules(source: Path = SOURCE) -> Iterator[Module]:
    """List every module of the package at `source`; a package's `__init__` has the package's name."""
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source.parent).with_suffix("").parts
        yield Module(".".join(parts[:-1] if parts[-1] == "__init__" else parts), path)


def hot_modules() -> tuple[str, ...]:
    """Read the list that the build compiles."""
    return tuple(ROOT.joinpath("hot_modules.txt").read_text(encoding="utf-8").split())


def unit_tests_of(name: str, unit_tests: Path = UNIT_TESTS) -> list[Path]:
    """List the test files of a module: `polymq.a.b` has tests/unit/a/test_b.py, and may have test_b_<aspect>.py."""
    folder, _, last = name.removeprefix("polymq.").rpartition(".")
    base = unit_tests.joinpath(*folder.split(".")) if folder else unit_tests
    return sorted([*base.glob(f"test_{last.lstrip('_')}.py"), *base.glob(f"test_{last.lstrip('_')}_*.py")])


if __name__ == "__main__":
    for hot in hot_modules():
        for test in unit_tests_of(hot):
            print(test.relative_to(ROOT))
