"""Run seeds: `python -m polymq.testing.simulate --seed 7 --verbose`, or `--count 500` from a first one on.

A seed decides everything, so a failure is repeated by its number. What is printed for one: the promise that was
broken, the options that the seed drew, and the last events.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from polymq.testing.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polymq.testing.trace import Trace

__all__ = ["Outcome", "main", "simulate"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one seed went. `failure` is empty if nothing was wrong, `report` says everything about it."""

    seed: int
    failure: str
    report: str
    fingerprint: int
    delivered: int


def simulate(seed: int, *, verbose: bool = False, tail: int = 60) -> Outcome:
    """Run one seed to its end."""
    world = World(seed, echo=_print if verbose else None)
    failure = report = ""
    try:
        with _log_to(world.trace):
            world.run()
    except Exception as error:
        failure = f"{type(error).__name__}: {error}"
        where = "".join(traceback.format_exception(error)[-6:])
        events = "\n".join(world.trace.tail(tail))
        report = (
            f"seed {seed}: {failure}\n\noptions:\n{world.options.describe()}\n\n{where}\nlast events:\n{events}\n\nseed {seed}: {failure}"
        )
    return Outcome(seed, failure, report, world.trace.fingerprint(), world.ledger.delivered_count)


@contextmanager
def _log_to(trace: Trace) -> Iterator[None]:
    """Make the broker's own log a part of the trace."""
    logger = logging.getLogger("polymq")
    handler = _TraceHandler(trace)
    logger.addHandler(handler)
    propagated, logger.propagate = logger.propagate, False
    try:
        yield
    finally:
        logger.propagate = propagated
        logger.removeHandler(handler)


class _TraceHandler(logging.Handler):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self._trace = trace

    def emit(self, record: logging.LogRecord) -> None:
        self._trace("the broker logs: %s", record.getMessage())


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m polymq.testing.simulate", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--count", type=int, default=1, help="how many seeds (default 1)")
    parser.add_argument("--tail", type=int, default=60, help="events printed for a failure (default 60)")
    parser.add_argument("--verbose", action="store_true", help="print every event")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first failure; print one line for each")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    failed = delivered = 0
    for seed in range(options.seed, options.seed + options.count):
        outcome = simulate(seed, verbose=options.verbose, tail=options.tail)
        delivered += outcome.delivered
        if outcome.failure:
            failed += 1
            _print(f"seed {seed}: {outcome.failure}" if options.keep_going else outcome.report)
            if not options.keep_going:
                break
    took = time.perf_counter() - began
    _print(f"{options.count} seeds, {failed} failed, {delivered} deliveries, {took / options.count * 1000:.0f} ms per seed")
    return 1 if failed else 0


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
