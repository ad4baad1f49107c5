"""The broker as it is keeps every promise in these runs. `make sim SEED=n` replays one."""

import os
import subprocess
import sys

import pytest

from polymq.testing.others import OTHERS_FROM
from polymq.testing.simulate import main, simulate

SEEDS = range(150)
SEEDS_WITH_OTHERS = range(OTHERS_FROM, OTHERS_FROM + 30)


@pytest.mark.parametrize("first", [*SEEDS[::10], *SEEDS_WITH_OTHERS[::10]])
def test_seeds_keep_every_promise(first: int) -> None:
    for seed in range(first, first + 10):
        outcome = simulate(seed)
        assert not outcome.failure, outcome.report


@pytest.mark.parametrize("hash_seed", ["1", "2"])
def test_a_seed_decides_everything(hash_seed: str) -> None:
    program = "from polymq.testing.simulate import simulate; print([simulate(seed).fingerprint for seed in (0, 1, 2, 1000000, 1000001)])"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    found = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True)
    assert found.stdout.strip() == str([simulate(seed).fingerprint for seed in (0, 1, 2, 1000000, 1000001)])


def test_the_command_line_replays_a_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "3", "--verbose"]) == 0
    output = capsys.readouterr().out
    assert "the broker serves" in output
    assert "1 seeds, 0 failed" in output
