"""The rows of several protocols at once: who publishes and who consumes are there, and what is counted has passed."""

from __future__ import annotations

import contextlib
import random
import socket
import sys
from typing import TYPE_CHECKING

import pytest
from bench.harness.cross_rows import CROSS_ROWS, LEAD, PROTOCOLS, TOPIC, CrossServer, consuming, pair, publishing, side_by_side
from bench.harness.generator import LoadError
from bench.harness.process import Setup
from bench.harness.row import Bench

if TYPE_CHECKING:
    from pathlib import Path

    from bench.harness.generator import Generator

COUNT = 1600
# Behind a base, as many as the rows of all protocols take.
PORTS = range(44, 50)


def free_base() -> int:
    """A base of ports that nothing listens on where these rows have theirs."""
    for _ in range(100):
        base = random.randrange(12_000, 30_000, 50)
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            for port in PORTS:
                stack.enter_context(socket.create_server(("127.0.0.1", base + port)))
            return base
    raise AssertionError("no free ports")


@pytest.fixture
def bench(tmp_path: Path, generator: Generator) -> Bench:
    return Bench(Setup(tmp_path, free_base(), tmp_path, [sys.executable, "-m", "polymq.cli"]), generator, quick=True)


def test_there_is_a_figure_for_each_pair_and_a_goal_for_each_that_crosses() -> None:
    cross, together = CROSS_ROWS
    goals = {metric.key: metric.goal.least for metric in cross.metrics if metric.goal}
    assert goals == {f"share_{p}_{q}": 0.7 for p in PROTOCOLS for q in PROTOCOLS if p != q}
    assert {metric.key for metric in cross.metrics if not metric.goal} == {f"rate_{p}_{q}" for p in PROTOCOLS for q in PROTOCOLS}
    goals = {metric.key: metric.goal.least for metric in together.metrics if metric.goal}
    assert goals == {**{f"share_{name}": 0.2 for name in PROTOCOLS}, "sum": 0.8}


# Each protocol once on either side.
@pytest.mark.parametrize(("source", "target"), [("nsq", "nats"), ("nats", "rocketmq"), ("rocketmq", "phpmq"), ("phpmq", "nsq")])
def test_what_one_publishes_the_other_consumes(bench: Bench, source: str, target: str) -> None:
    figures = pair(bench, "polymq", source, target, COUNT)
    assert all(float(str(figures[key])) > 0 for key in ("rate", "published"))


def test_all_four_run_side_by_side_until_their_time_is_over(bench: Bench) -> None:
    rates = side_by_side(bench, "polymq", list(PROTOCOLS), 1.0)
    assert list(rates) == list(PROTOCOLS)
    # On a busy machine one or the other may have been too late.
    assert sum(rates.values()) > 0


@pytest.mark.parametrize("name", PROTOCOLS)
def test_who_publishes_stays_near_who_consumes(bench: Bench, tmp_path: Path, name: str) -> None:
    told = tmp_path / "told"
    told.write_bytes(bytes(8))
    with CrossServer("polymq", bench.setup) as server:
        server.create_topic(TOPIC, name)
        with publishing(bench, server, name, TOPIC, 1.0, 10 * LEAD * COUNT, told) as load:
            result = bench.generator.finish(load, whole=False)
    # What is under way beyond it: a round, a window, a batch for each connection.
    assert 0 < result["messages"] <= 1.5 * LEAD
    assert result["complete"] is False


def test_somebody_who_cannot_consume_says_why(bench: Bench) -> None:
    server = CrossServer("polymq", bench.setup)
    with pytest.raises(LoadError, match="connect"), consuming(bench, server, "nats", TOPIC, 1, COUNT):
        raise AssertionError("nobody is there")
