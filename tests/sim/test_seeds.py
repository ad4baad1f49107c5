"""The broker as it is keeps every promise in these runs. `make sim SEED=n` replays one."""

import pytest

from polymq.testing.simulate import simulate

SEEDS = range(150)


@pytest.mark.parametrize("first", range(0, len(SEEDS), 10))
def test_seeds_keep_every_promise(first: int) -> None:
    for seed in SEEDS[first : first + 10]:
        outcome = simulate(seed)
        assert not outcome.failure, outcome.report


def test_a_seed_decides_everything() -> None:
    for seed in range(3):
        assert simulate(seed) == simulate(seed)
