"""Every planted bug is found within a thousand seeds, and it is the bug that is found."""

from __future__ import annotations

import pytest

from polymq.testing.simulate import simulate
from tests.sim.found_at import FOUND_AT, SEEDS_MAX, search
from tests.sim.planting import BUGS, Bug


@pytest.mark.parametrize("bug", BUGS, ids=str)
def test_planted_bug_is_found(bug: Bug) -> None:
    found = search(bug)
    assert found is not None, f"{bug} was not found in {SEEDS_MAX} seeds"
    clean = simulate(found)
    assert not clean.failure, f"seed {found} fails without the bug, too: {clean.report}"


def test_the_list_is_long_enough_and_has_no_name_twice() -> None:
    assert len({bug.name for bug in BUGS}) == len(BUGS) >= 12
    assert set(FOUND_AT) <= {bug.name for bug in BUGS}
    assert all(bug.first <= FOUND_AT[bug.name] < bug.first + SEEDS_MAX for bug in BUGS if bug.name in FOUND_AT)
