"""Measure polymq beside nsqd, nats-server and RocketMQ's broker and write the table.

    make bench                          everything (about three quarters of an hour)
    make bench ARGS=--quick             a smoke run of every row, in a minute or two; its figures mean little
    make bench ARGS="--only mpub,start"  some rows
    make bench ARGS=--list              what the rows are

Each row alternates the servers, each run on a fresh data folder, and takes medians. Results go to
bench/results/<date>-<machine>.json and .md. docs/BENCHMARKS.md says how to read them.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from bench.harness.generator import Generator, LoadError
from bench.harness.machine import facts, warm_memory
from bench.harness.process import MissingServerError, Setup
from bench.harness.report import Outcome, Table, print_row, save
from bench.harness.rows import ROWS, Bench, Row
from bench.harness.servers import default_polymq

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
# What one run takes of memory, page cache included; a virtual machine's host takes free memory back within seconds.
WARM_BYTES = 3 << 30
EXPECTED_ERRORS = (LoadError, MissingServerError, OSError, ValueError, KeyError)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="rows by name, separated by commas")
    parser.add_argument(
        "--kinds",
        default="",
        help="servers by kind, separated by commas: nsqd, nats-server, nats-server-2.9, rocketmq-4.9, rocketmq-5.3, polymq, …",
    )
    parser.add_argument("--rounds", type=int, default=5, help="runs of each server in rows with a ratio (default 5)")
    parser.add_argument("--quick", action="store_true", help="a smoke run: a fiftieth of the messages, one round")
    parser.add_argument("--list", action="store_true", help="print the rows and end")
    parser.add_argument("--no-warm", action="store_true", help="do not touch memory first")
    parser.add_argument(
        "--scratch", type=Path, default=ROOT / "build" / "bench", help="folder for data and logs; on the disk to be measured"
    )
    parser.add_argument("--port", type=int, default=25200, help="first of fifty ports to use")
    parser.add_argument("--results", type=Path, help="where the table goes; a whole run's to bench/results, a part's to the scratch folder")
    parser.add_argument("--serve-options", default="", help="more options for `polymq serve`; for experiments, kept in the results")
    return parser.parse_args()


def choose_rows(only: str) -> list[Row]:
    """Find the rows that were asked for, in the order of the table."""
    names = [name for name in only.split(",") if name]
    unknown = set(names) - {row.name for row in ROWS}
    if unknown:
        sys.exit(f"no such row: {', '.join(sorted(unknown))}; there are {', '.join(row.name for row in ROWS)}")
    return [row for row in ROWS if not names or row.name in names]


def result_name(table: Table, *, whole: bool) -> str:
    """Name a result. Only a whole run gets the name that is looked for, so that a part never stands in its place."""
    if not whole:
        return f"partial-{table.started:%Y-%m-%d-%H%M%S}"
    return f"{table.started:%Y-%m-%d}-{platform.machine()}-{os.cpu_count()}-cores"


def run_row(row: Row, bench: Bench, kinds: list[str], rounds: int, progress: Progress, *, warm: bool) -> Outcome:
    """Measure one row: the servers in turn, in another order in every round, each on memory that was touched just before."""
    outcome = Outcome(row)
    rounds = 1 if row.once else rounds
    task = progress.add_task(row.name, total=rounds * len(kinds), what="")
    for number in range(rounds):
        shift = number % len(kinds)
        for kind in kinds[shift:] + kinds[:shift]:
            progress.update(task, what=f"{kind} {number + 1}/{rounds}")
            if kind not in outcome.errors:
                if warm:
                    warm_memory(WARM_BYTES)
                try:
                    outcome.add(kind, row.measure(bench, kind))
                except EXPECTED_ERRORS as error:
                    outcome.errors[kind] = f"{type(error).__name__}: {error}"
            progress.advance(task)
    progress.update(task, what="done")
    return outcome


def main() -> int:
    """Measure, print, save; 1 when a row could not be measured."""
    arguments = parse_arguments()
    console = Console()
    if arguments.list:
        for row in ROWS:
            console.print(f"[bold]{row.name:16}[/] {row.title}")
        return 0
    rows = choose_rows(arguments.only)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    scratch = arguments.scratch.resolve()
    scratch.mkdir(parents=True, exist_ok=True)
    setup = Setup(scratch, arguments.port, ROOT / ".peers" / "bin", default_polymq(), arguments.serve_options.split())
    try:
        bench = Bench(setup, Generator(scratch), arguments.quick)
    except MissingServerError as error:
        sys.exit(f"bench: {error}")
    machine: dict[str, Any] = {**facts(scratch), "open_files": soft}
    warm = not arguments.no_warm and not arguments.quick
    machine["memory_warmed"] = f"{warm_memory(WARM_BYTES)} at first, as much again before each run" if warm else "no"
    table = Table(datetime.now(UTC), machine, arguments.quick, arguments.rounds if not arguments.quick else 1)
    columns = (
        TextColumn("{task.description:16}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[what]}"),
    )
    wanted = [kind for kind in arguments.kinds.split(",") if kind]
    with Progress(*columns, console=console) as progress, bench.kept:
        for row in rows:
            kinds = [kind for kind in row.kinds if not wanted or kind in wanted]
            if not kinds:
                continue
            outcome = run_row(row, bench, kinds, table.rounds, progress, warm=warm)
            table.outcomes.append(outcome)
            print_row(progress.console, outcome)
    whole = not (arguments.quick or arguments.only or wanted or arguments.serve_options)
    paths = save(table, arguments.results or (RESULTS if whole else scratch), result_name(table, whole=whole))
    console.print(f"written: {', '.join(str(path) for path in paths)}")
    return 1 if any(outcome.errors for outcome in table.outcomes) else 0
