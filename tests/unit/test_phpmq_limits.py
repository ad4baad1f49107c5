"""As for `limits`: each is public, explained and used; each is reached in the test of the module that keeps it."""

from __future__ import annotations

import ast
from pathlib import Path

from polymq import phpmq_limits


def test_every_limit_is_public_explained_and_used() -> None:
    path = Path(phpmq_limits.__file__)
    source = path.read_text(encoding="utf-8")
    lines = source.splitlines()
    nodes = [node for node in ast.parse(source).body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)]
    names = [node.target.id for node in nodes if isinstance(node.target, ast.Name)]
    assert sorted(names) == sorted(phpmq_limits.__all__)
    for node in nodes:
        above = node.lineno - 2
        while lines[above].startswith(tuple(names)) or not lines[above]:
            above -= 1
        assert lines[above].startswith("#"), lines[node.lineno - 1]
    text = "".join(each.read_text(encoding="utf-8") for each in path.parent.rglob("*.py"))
    assert [name for name in names if text.count(name) < 3] == []
