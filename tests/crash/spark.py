"""Kill a streaming query and its broker, again and again: `python -m tests.crash.spark --kills 50` (`make crash-spark KILLS=50`).

A program streams topics from a broker into Parquet while publishers of all four protocols publish. What is killed with SIGKILL at random
moments: the program with all its processes, one of its executors or Python workers, the process in which its source plans, the broker. A
supervisor begins again what has ended. Now and then publishing pauses and an AvailableNow run, which may be killed as well, brings the
rest; then the table is compared with what was acknowledged and with the log: nothing lost, nothing twice. The next round has a new table.
50 kills or more leave a report in docs/crash-results.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import signal
import sys
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from polymq.clients.log import LogClient
from polymq.testing.promises import PromiseBrokenError
from polymq.testing.server import PolymqServer
from tests.crash.spark_program import Program
from tests.crash.spark_table import committed_rows, faults
from tests.crash.spark_traffic import Traffic

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["main"]

_KILLS_PER_ROUND: Final = 25
_KILLS_REPORTED: Final = 50
_RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "crash-results"
_TOPICS: Final = ("crash.a", "crash.b")
_VALUE: Final = "value"
_MASTERS: Final = ("local[2]", "local-cluster[2,1,1024]")
# How often what is killed; `executor` only where there are any beside the program.
_WEIGHTS: Final = {"program": 2, "executor": 5, "python worker": 5, "planner": 4, "broker": 6}
_LIFE_S: Final = (0.1, 0.5, 2.0, 4.0)
_START_S_MAX: Final = 300.0
# A run that brings the rest may go on for as long as batches are committed.
_STILL_S_MAX: Final = 300.0
_POLL_S: Final = 0.002


class SparkWorld:
    """A broker, its publishers and one table after the other."""

    def __init__(self, folder: Path, seed: int, seconds: float) -> None:
        self.random = Random(seed)
        self.kills: Counter[str] = Counter()
        self.masters: Counter[str] = Counter()
        self.rows = 0
        self.batches = 0
        self.restarted_batches = 0
        self.server = PolymqServer(folder / "broker", {"store.partitions": 2, "nats.capture": "crash.>"}, deadline_seconds=60)
        self.traffic = Traffic(self.server, _TOPICS, Random(seed + 1))
        self._folder = folder
        self._began = time.monotonic()
        self._ends = self._began + seconds
        self._rounds = 0

    @property
    def is_over(self) -> bool:
        """Whether the time for kills is used up."""
        return time.monotonic() >= self._ends

    def round(self, kills: int, master: str) -> None:
        """Make a table, kill so often, then compare; raises PromiseBrokenError."""
        self._rounds += 1
        self.masters[master] += 1
        self.traffic.resume()
        folder = self._folder / f"round{self._rounds}"
        program = Program(folder, master, self.server.http, _TOPICS)
        try:
            self._kill_before_the_first_batch(program)
            for _ in range(kills - 1):
                if not self.is_over:
                    self._kill_one(program)
            self._drain(program)
        finally:
            program.kill()
        self._judge(folder)

    def _kill_before_the_first_batch(self, program: Program) -> None:
        """Kill the first start when it has begun its checkpoint and no batch is planned; leave what a rename that was cut short leaves."""
        program.start()
        self._wait(program, lambda: program.has_begun())
        program.kill()
        self._note("program, before batch 0" if not program.batches("offsets") else "program")
        offsets = program.checkpoint / "offsets"
        offsets.mkdir(exist_ok=True)
        if not program.batches("offsets"):
            (offsets / f".0.{uuid.UUID(int=self.random.getrandbits(128))}.tmp").write_bytes(b"v1\n{")

    def _kill_one(self, program: Program) -> None:
        """Let everything run for a moment from a working state on, and kill something."""
        if not program.is_running:
            program.start()
        committed = program.batches("commits")
        what = self._choice(program)
        # Those that start again do so at any time; the others are to be met at work.
        if what != "program" or self.random.random() < 0.5:
            self._wait(program, lambda: program.batches("commits") > committed)
        time.sleep(self.random.uniform(0.0, self.random.choice(_LIFE_S)))
        if what == "broker":
            self.server.kill()
            time.sleep(self.random.choice((0.0, 0.5, 2.0)))
            self.server.start()
        elif what == "program":
            program.kill()
            self.restarted_batches += program.batches("offsets") > program.batches("commits")
        elif not program.kill_one(what, self.random):
            return self._kill_one(program)
        self._note(what)
        return None

    def _note(self, what: str) -> None:
        self.kills[what] += 1
        print(f"{time.monotonic() - self._began:6.1f} s: kill {self.kills.total()}, {what}", flush=True)

    def _choice(self, program: Program) -> str:
        weights = {what: weight for what, weight in _WEIGHTS.items() if what != "executor" or program.has_executors}
        return self.random.choices(list(weights), list(weights.values()))[0]

    def _wait(self, program: Program, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START_S_MAX
        while not until():
            if time.monotonic() > deadline:
                raise PromiseBrokenError(f"the query stands still for {_START_S_MAX:.0f} s:\n{program.log_tail()}")
            if not program.is_running:
                raise PromiseBrokenError(f"the program ended by itself:\n{program.log_tail()}")
            time.sleep(_POLL_S)

    def _drain(self, program: Program) -> None:
        """Bring what is left with AvailableNow, after a first such run that is killed now and then."""
        program.kill()
        self.traffic.pause()
        if self.random.random() < 0.5:
            program.start("--once")
            self._wait(program, lambda: program.has_said_started())
            time.sleep(self.random.uniform(0.0, 2.0))
            program.kill()
            self._note("program, AvailableNow")
        program.start("--once")
        program.wait(_STILL_S_MAX)
        self.batches += program.batches("commits")

    def _judge(self, folder: Path) -> None:
        rows = committed_rows(folder / "table", ["topic", "partition", "offset", _VALUE])
        client = LogClient(self.server.http)
        ends = {(each.name, one.partition): one.end for each in map(client.topic, _TOPICS) for one in each.partitions}
        client.close()
        found = faults(rows, value=_VALUE, sent=self.traffic.sent, acknowledged=self.traffic.acknowledged, ends=ends)
        if found:
            raise PromiseBrokenError("; ".join(found))
        self.rows += rows.num_rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.spark", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=5, help="how often something is killed (default 5)")
    parser.add_argument("--seed", type=int, default=None, help="of what is killed (default: by the clock); when is by the clock as well")
    parser.add_argument("--seconds", type=float, default=3600, help="when so many are over nothing more is killed (default 3600)")
    options = parser.parse_args(arguments)
    seed = time.time_ns() % 1_000_000 if options.seed is None else options.seed
    began = time.monotonic()
    # As Ctrl-C does: nothing that runs is left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with tempfile.TemporaryDirectory(prefix="polymq-crash-spark-") as name:
        world = SparkWorld(Path(name), seed, options.seconds)
        try:
            with world.server, world.traffic:
                run(world, options.kills)
        except PromiseBrokenError as error:
            print(f"BROKEN after {world.kills.total()} kills (seed {seed}): {error}")
            return 1
        lines = report(world, options.kills, seed, time.monotonic() - began)
    print("\n".join(lines))
    if world.kills.total() >= _KILLS_REPORTED:
        target = _RESULTS / f"{dt.datetime.now(dt.UTC):%Y-%m-%d}-spark.md"
        target.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"written to {target}")
    return 0


def run(world: SparkWorld, kills: int) -> None:
    """Play rounds until there were so many kills, on one master after the other; raises PromiseBrokenError."""
    number = 0
    while (left := kills - world.kills.total()) > 0 and not world.is_over:
        master = _MASTERS[number % len(_MASTERS)]
        world.round(min(left, _KILLS_PER_ROUND), master)
        number += 1
        print(f"{world.kills.total()} kills, {len(world.traffic.acknowledged)} messages, table {number} ({master}) is right", flush=True)


def report(world: SparkWorld, kills: int, seed: int, took_s: float) -> list[str]:
    """Say what was done, in Markdown."""
    traffic = world.traffic
    rows = [
        ("kills (SIGKILL)", world.kills.total()),
        *((f"… of {what}", count) for what, count in sorted(world.kills.items())),
        ("kills of the program with a batch planned and not committed", world.restarted_batches),
        ("messages published", len(traffic.sent)),
        ("… acknowledged", len(traffic.acknowledged)),
        *((f"… by {protocol}", count) for protocol, count in sorted(traffic.by_protocol.items())),
        ("… in doubt, not sent again", traffic.doubts),
        ("rows in all tables", world.rows),
        ("micro-batches committed", world.batches),
    ]
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.release()}, {os.cpu_count()} cores"
    return [
        f"# Spark: {world.kills.total()} kills, {dt.datetime.now(dt.UTC):%Y-%m-%d}",
        "",
        f"`python -m tests.crash.spark --kills {kills}`: {took_s:.0f} s, seed {seed}, {machine}.",
        "",
        "| what | count |",
        "|---|---|",
        *(f"| {name} | {count:,} |" for name, count in rows),
        "",
        "A run ends, without a report, at the first table in which something acknowledged is missing, something is there twice, or the rows",
        "are not the log's offsets, each once. This run came to its end. Tables by master: "
        + ", ".join(f"{count} by `{master}`" for master, count in world.masters.items())
        + ".",
    ]


if __name__ == "__main__":
    sys.exit(main())
