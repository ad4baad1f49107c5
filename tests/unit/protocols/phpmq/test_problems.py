from __future__ import annotations

from polymq.protocols.phpmq.problems import Problem


def test_every_problem_has_its_label() -> None:
    assert len({problem.value for problem in Problem}) == len(Problem)
