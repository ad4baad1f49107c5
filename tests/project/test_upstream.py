"""The list of NSQ's own tests (docs/UPSTREAM.md) names tests of ours that exist."""

from __future__ import annotations

import ast
import re

import pytest
from tests.project.layout import ROOT

LINES = ROOT.joinpath("docs", "UPSTREAM.md").read_text(encoding="utf-8").splitlines()
ROWS = [line.strip("|").split(" | ") for line in LINES if line.startswith("| ") and not line.startswith("| there")]
NAMED = sorted({found for row in ROWS for found in re.findall(r"`([a-z0-9_/]+\.py::[a-z0-9_]+)`", row[-1])})


def functions(path: str) -> set[str]:
    tree = ast.parse(ROOT.joinpath("tests", path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("path", sorted({each.partition("::")[0] for each in NAMED}))
def test_every_test_that_is_named_exists(path: str) -> None:
    wanted = {each.partition("::")[2] for each in NAMED if each.startswith(f"{path}::")}
    assert wanted - functions(path) == set()


def test_every_behaviour_has_a_test_or_says_why_not() -> None:
    assert len(ROWS) >= 50
    assert [row[0] for row in ROWS if "::" not in row[-1] and "not served" not in row[-1]] == []
