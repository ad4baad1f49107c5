"""Kill a real broker under load, again and again: `python -m tests.crash --kills 200` (`make crash KILLS=200`).

The broker runs as users run it (`polymq serve`); publishers and consumers publish, defer, settle, give back, extend and
hang up meanwhile. A ledger outside decides by the acknowledgement table of docs/ARCHITECTURE.md: nothing acknowledged is
lost, nothing settled comes back, what is deferred keeps its due time, committed offsets never go back, an MPUB is whole or absent. 200 kills or more
leave a report in docs/crash-results.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from polymq.testing.promises import PromiseBrokenError
from tests.crash.broker import RealBroker
from tests.crash.world import SENDS, CrashWorld

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_KILLS_PER_DRAIN: Final = 10
_KILLS_REPORTED: Final = 200
_RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "crash-results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=20, help="how often the broker is killed (default 20)")
    parser.add_argument("--port", type=int, default=27_100, help="where it listens (default 27100)")
    parser.add_argument(
        "--seed", type=int, default=None, help="of what the clients do (default: by the clock); kills are by the clock in any case"
    )
    options = parser.parse_args(arguments)
    seed = time.time_ns() % 1_000_000 if options.seed is None else options.seed
    with tempfile.TemporaryDirectory(prefix="polymq-crash-") as folder:
        broker = RealBroker(Path(folder), options.port)
        world = CrashWorld(broker, seed)
        began = time.monotonic()
        try:
            run(broker, world, options.kills)
        except PromiseBrokenError as error:
            print("\n".join(world.trace.tail(80)))
            print(f"BROKEN after {world.kills} kills (seed {seed}): {error}")
            print(broker.log_tail())
            return 1
        finally:
            broker.close()
        lines = report(world, seed, time.monotonic() - began)
    print("\n".join(lines))
    if options.kills >= _KILLS_REPORTED:
        _RESULTS.mkdir(exist_ok=True)
        target = _RESULTS / f"{dt.datetime.now(dt.UTC):%Y-%m-%d}.md"
        target.write_text("\n".join(lines) + "\n")
        print(f"written to {target}")
    return 0


def run(broker: RealBroker, world: CrashWorld, kills: int) -> None:
    """Kill the broker so often, drain now and then, and compare the logs in the end; raises PromiseBrokenError."""
    broker.create_topics(world.topics, world.groups)
    while world.kills < kills:
        world.live()
        if world.kills % _KILLS_PER_DRAIN == 0 or world.kills >= kills:
            world.drain()
            print(f"{world.kills} kills, {world.published} messages, {world.ledger.delivered_count} deliveries: nothing broken", flush=True)
    world.judge()


def report(world: CrashWorld, seed: int, took_s: float) -> list[str]:
    """Say what was done, in Markdown."""
    publications = world.ledger.publications.values()
    acknowledged = [publication for publication in publications if publication.acknowledged_ns is not None]
    shares = [share for channel in world.ledger.channels.values() for share in channel.shares.values()]
    rows = [
        ("kills (SIGKILL)", world.kills),
        ("messages published", len(publications)),
        ("… acknowledged", len(acknowledged)),
        ("… deferred", sum(bool(publication.due_wall_ns) for publication in publications)),
        ("… in an MPUB or a batch of two or more", sum(publication.count > 1 for publication in publications)),
        ("NSQ deliveries", world.ledger.delivered_count),
        ("… beyond the first", sum(max(0, share.delivered - 1) for share in shares)),
        ("… whose settle was confirmed", sum(share.finished_ns is not None for share in shares)),
        ("NSQ, messages", len(publications) - sum(world.sent[what] for what in SENDS)),
        *((f"{what}, messages", count) for what, count in sorted(world.sent.items())),
        ("RocketMQ offset commits that were confirmed", world.witness.positions.commits),
        ("PHPMQ dispatches", world.witness.windows.dispatches),
        ("PHPMQ settles that were confirmed by a freed slot", world.witness.windows.settled),
        *((f"kills with clients of {protocol}", count) for protocol, count in sorted(world.kills_of.items())),
    ]
    machine = f"Python {platform.python_version()}, {platform.system()} {platform.release()}, {os.cpu_count()} cores"
    return [
        f"# {world.kills} kills, {dt.datetime.now(dt.UTC):%Y-%m-%d}",
        "",
        f"`python -m tests.crash --kills {world.kills}`: {took_s:.0f} s, seed {seed}, {machine}.",
        "",
        "| what | count |",
        "|---|---|",
        *(f"| {name} | {count:,} |" for name, count in rows),
        "",
        "The checker ends a run, without a report, at the first promise that is broken: something acknowledged that is lost, settled",
        "that comes again, deferred that comes early, an MPUB that is torn. This run came to its end.",
        "",
        f"Start to accepting, process start included: median {median(world.starts_s):.2f} s, longest {max(world.starts_s):.2f} s.",
        "Topics: with 1, 2 and 4 partitions, some with answers from the page cache, some with answers after the sync; one that clients of all",
        "protocols publish to and read. Kills with clients of a protocol: those of some lives have clients of several.",
    ]


if __name__ == "__main__":
    sys.exit(main())
