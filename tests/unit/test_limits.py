"""Every limit is public, positive, final and explained; the relations between them are asserted when the module loads."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from polymq import limits

SOURCE = Path(limits.__file__).read_text(encoding="utf-8")
CONSTANTS = [node for node in ast.parse(SOURCE).body if isinstance(node, ast.AnnAssign)]


def name_of(node: ast.AnnAssign) -> str:
    assert isinstance(node.target, ast.Name)
    return node.target.id


def test_all_of_them_are_public() -> None:
    assert sorted(map(name_of, CONSTANTS)) == sorted(limits.__all__)


@pytest.mark.parametrize("name", limits.__all__)
def test_each_is_a_positive_number(name: str) -> None:
    value = getattr(limits, name)
    assert isinstance(value, int | float)
    assert value > 0


@pytest.mark.parametrize("node", CONSTANTS, ids=name_of)
def test_each_is_explained_above(node: ast.AnnAssign) -> None:
    lines = SOURCE.splitlines()
    line = node.lineno - 2
    # A comment stands above the first of a group.
    while lines[line] and not lines[line].startswith("#"):
        line -= 1
    assert lines[line].startswith("#"), f"{name_of(node)} has no reason"


def test_an_id_fits_a_positive_64_bit_integer() -> None:
    assert limits.PARTITION_NUMBER_MAX << limits.OFFSET_BITS | limits.OFFSET_MAX == 2**63 - 1
