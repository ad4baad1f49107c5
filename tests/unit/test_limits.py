"""Relations between limits are asserted at import; each limit is reached in the test of the module that keeps it."""

from __future__ import annotations

import ast
from pathlib import Path

from polymq import limits


def test_every_limit_is_public_and_explained() -> None:
    source = Path(limits.__file__).read_text(encoding="utf-8")
    lines = source.splitlines()
    names = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.append(node.target.id)
            above = node.lineno - 2
            while lines[above].startswith(tuple(names)) or not lines[above]:
                above -= 1
            assert lines[above].startswith("#") or lines[above].startswith(tuple(limits.__all__)), node.target.id
    assert sorted(names) == sorted(limits.__all__)


def test_a_message_id_is_positive_in_every_language() -> None:
    largest = limits.PARTITION_NUMBER_MAX << limits.OFFSET_BITS | limits.OFFSET_MAX
    assert largest == 2**63 - 1


def test_every_limit_is_used() -> None:
    root = Path(limits.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in root.rglob("*.py") if path.name != "limits.py")
    derived = {"PARTITION_BITS"}
    assert [name for name in limits.__all__ if name not in text and name not in derived] == []
