"""The story of the main job, in order.

1. Start the broker on a fresh data folder, and Spark.
2. Several producers publish the flights, a few at first, and all once Spark has warmed up; consumers settle them on the channel `delays`; a streaming query archives the
   topic to Parquet. All at the same time.
3. In the middle of it the broker is killed with SIGKILL, and started again. Everybody goes on by themselves.
4. Prove from what was written that nothing was lost and nothing counted twice.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import shutil
import sys
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from examples.flights import data, gold, picture, report, verify
from examples.flights.archive import Archive, start_spark
from examples.flights.broker import Broker
from examples.flights.consume import Consumed, consume
from examples.flights.data import CHANNEL, TOPIC
from examples.flights.link import Link
from examples.flights.publish import Pace, Published, publish
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from polymq.clients.log import LogClient
from polymq.clients.nsq import NsqConsumer, NsqProducer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from examples.flights.broker import ChannelState
    from pyspark.sql import SparkSession
    from rich.progress import TaskID

__all__ = ["Job", "Live", "main", "parse_arguments", "prepare_folder"]

# A folder with this file in it was made by this job, so this job may empty it.
_MARK: Final = ".made-by-the-flights-job"
_KILL_AT: Final = 0.45
# Flights that are published while Spark is still getting ready for its first batch.
_HEAD_START: Final = 5_000
_QUIET_SECONDS: Final = 0.3
_AWAY_SECONDS: Final = 1.5
# Batches that each producer has on the way at a time.
_IN_FLIGHT: Final = 4
_WATCH_SECONDS: Final = 0.25
_DRAIN_SECONDS_MAX: Final = 240.0


@dataclass(frozen=True, slots=True)
class Job:
    """What is asked for on the command line."""

    out: Path
    limit: int | None
    producers: int
    consumers: int
    batch_size: int
    per_second: float
    kill: bool


@dataclass
class Live:
    """What the live part of the job has come to."""

    published: Published = field(default_factory=Published)
    consumed: Consumed = field(default_factory=Consumed)
    timeline: picture.Timeline = field(default_factory=picture.Timeline)
    archived: int = 0
    offsets: int = 0
    channel: ChannelState | None = None


def parse_arguments(arguments: Sequence[str] | None = None) -> Job:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m examples.flights", description="Real flights through the broker, proved complete.")
    parser.add_argument("--out", type=Path, default=Path("out/flights"), help="folder for everything that is written (%(default)s)")
    parser.add_argument("--flights", type=int, default=None, dest="limit", metavar="N", help="only the first N flights (all 336,776)")
    parser.add_argument("--producers", type=int, default=4, help="connections that publish (%(default)s)")
    parser.add_argument("--consumers", type=int, default=2, help="connections that consume (%(default)s)")
    parser.add_argument("--batch", type=int, default=200, dest="batch_size", help="flights per publish (%(default)s)")
    parser.add_argument("--per-second", type=float, default=12_000, help="flights a second, all producers together (%(default)s)")
    parser.add_argument("--no-kill", action="store_false", dest="kill", help="leave the broker alone")
    return Job(**vars(parser.parse_args(arguments)))


def prepare_folder(folder: Path) -> None:
    """Make an empty folder; empties one that an earlier run has made, and no other."""
    if folder.exists() and any(folder.iterdir()):
        if not (folder / _MARK).exists():
            raise SystemExit(f"{folder} is not empty and was not made by this job: choose another one with --out.")
        shutil.rmtree(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _MARK).touch()
    (folder / "settled").mkdir()


class Stage:
    """The live part: producers, consumers and the archive at once, and the kill in the middle."""

    def __init__(self, job: Job, broker: Broker, archive: Archive, bodies: list[bytes], progress: Progress) -> None:
        self.live = Live()
        self._job = job
        self._broker = broker
        self._archive = archive
        self._work = deque(data.batches(bodies, job.batch_size))
        self._total = len(bodies)
        self._progress = progress
        self._bars: list[TaskID] = [progress.add_task(name, total=self._total) for name in ("published", "settled", "archived")]
        self._began = time.monotonic()
        self._link: Link | None = None
        self._pace = Pace(job.per_second, time.monotonic, head_start=_HEAD_START)

    async def run(self) -> Live:
        """Play it all; returns when every flight has been settled and archived."""
        address = f"127.0.0.1:{self._broker.nsq_port}"
        async with contextlib.AsyncExitStack() as stack:
            consumers = [
                await stack.enter_async_context(NsqConsumer(address, TOPIC, CHANNEL, max_in_flight=1000))
                for _ in range(self._job.consumers)
            ]
            self._link = await stack.enter_async_context(Link(self._broker.nsq_port))
            ways = [f"127.0.0.1:{self._link.port}"] + [address] * (self._job.producers - 1)
            producers = [await stack.enter_async_context(NsqProducer(way)) for way in ways]
            tasks = [asyncio.create_task(self._kill_and_start_again(), name="kill")]
            tasks += [
                asyncio.create_task(publish(producer, self._work, self._pace, self.live.published), name=f"producer {index}")
                for index, producer in enumerate(producers * _IN_FLIGHT)
            ]
            settled = self._job.out / "settled"
            consuming = [
                asyncio.create_task(consume(consumer, settled / f"consumer-{index}.tsv", self.live.consumed), name=f"consumer {index}")
                for index, consumer in enumerate(consumers)
            ]
            try:
                while not all(task.done() for task in tasks):
                    await self._watch(tasks + consuming)
                await self._drain(consuming)
            finally:
                for task in (*tasks, *consuming):
                    task.cancel()
                await asyncio.gather(*tasks, *consuming, return_exceptions=True)
        return self.live

    async def _kill_and_start_again(self) -> None:
        """Kill the broker when nearly half of the flights are published, and start it again a moment later."""
        if not self._job.kill:
            return
        assert self._link is not None
        await self.live.published.reaches(int(self._total * _KILL_AT))
        # From here on one producer sees no answer, though what it sends arrives.
        self._link.quiet = True
        await asyncio.sleep(_QUIET_SECONDS)
        self.live.timeline.killed = time.monotonic() - self._began
        self._broker.kill()
        self._link.quiet = False
        self._progress.console.print(
            f"SIGKILL to the broker after {self.live.published.acknowledged:,} acknowledged flights", highlight=False
        )
        await asyncio.sleep(_AWAY_SECONDS)
        seconds = await asyncio.to_thread(self._broker.start)
        self.live.timeline.back = time.monotonic() - self._began
        self._progress.console.print(f"The broker is back: it answered {seconds:.2f} s after its start", highlight=False)

    async def _watch(self, tasks: list[asyncio.Task[None]]) -> None:
        """Look at how far everything is, and show it; raises what has ended one of the tasks."""
        await asyncio.sleep(_WATCH_SECONDS)
        for task in tasks:
            if task.done():
                task.result()
        self.live.archived = await asyncio.to_thread(self._archive.offset)
        if self.live.archived:
            self._pace.open()
        counts = (self.live.published.acknowledged, len(self.live.consumed.flights), self.live.archived)
        for bar, count in zip(self._bars, counts, strict=True):
            self._progress.update(bar, completed=min(count, self._total))
        self.live.timeline.add(time.monotonic() - self._began, published=counts[0], settled=counts[1], archived=counts[2])

    async def _drain(self, consuming: list[asyncio.Task[None]]) -> None:
        """Wait until the channel has nothing left and the archive has reached the end of the log."""
        deadline = time.monotonic() + _DRAIN_SECONDS_MAX
        with contextlib.closing(LogClient(self._broker.log_address, retry_seconds=10)) as client:
            self.live.offsets = sum(info.readable for info in (await asyncio.to_thread(client.topic, TOPIC)).partitions)
        while time.monotonic() < deadline:
            await self._watch(consuming)
            self.live.channel = await asyncio.to_thread(self._broker.channel, TOPIC, CHANNEL)
            drained = self.live.channel is not None and self.live.channel.drained
            if drained and self.live.archived >= self.live.offsets and len(self.live.consumed.flights) == self._total:
                return
        self._progress.console.print("[red]Not everything has been settled and archived in time.[/]")


def prove(job: Job, spark: SparkSession, live: Live, archive: Archive, flights: pd.DataFrame) -> tuple[list[verify.Proof], pd.DataFrame]:
    """Read everything back from disk, compute the gold table, and prove."""
    expected = data.identities(flights)
    stored = spark.read.parquet(str(archive.path))
    names = gold.names_of_archive(stored)
    table = gold.gold_of_archive(gold.without_repeats(stored))
    table.to_csv(job.out / "gold.csv", index=False)
    table.to_parquet(job.out / "gold.parquet", index=False)
    problems = gold.differences(table, gold.gold_of_table(flights))
    settled, count = verify.read_settled(job.out / "settled")
    proofs = [
        verify.prove_archive(names, expected),
        verify.prove_log(int(names["copies"].sum()), live.offsets),
        verify.prove_settled(settled, count, live.channel, expected),
        verify.prove_gold(problems, len(table) * len(gold.VALUES)),
    ]
    return proofs, table


def play(job: Job, progress: Progress) -> tuple[list[verify.Proof], pd.DataFrame, Live, dict[str, str]]:
    """Do everything that takes time."""
    began = time.monotonic()
    steps = progress.add_task("setting up", total=3)
    broker = Broker(job.out / "data")
    with ThreadPoolExecutor(1) as pool:
        starting = pool.submit(start_spark, job.out)
        flights = data.load(job.limit)
        bodies = data.encode(flights)
        progress.advance(steps)
        try:
            broker.start()
            broker.create(TOPIC, CHANNEL)
            progress.advance(steps)
            spark = starting.result()
            archive = Archive(spark, job.out, server=broker.log_address, topic=TOPIC)
            archive.start()
            progress.advance(steps)
            live = asyncio.run(Stage(job, broker, archive, bodies, progress).run())
            archive.stop()
        finally:
            status = broker.stop()
    steps = progress.add_task("proving", total=2)
    proofs, table = prove(job, spark, live, archive, flights)
    proofs.append(verify.Proof("the broker stopped in order", status == 0, f"exit status {status}"))
    progress.advance(steps)
    picture.draw(live.timeline, table, job.out / "picture.png", total=len(flights))
    progress.advance(steps)
    spark.stop()
    facts = {
        "messages": f"{len(flights):,} flights, {sum(map(len, bodies)) / 1e6:.0f} MB of JSON",
        "published again": f"{live.published.repeated} batches whose acknowledgement was not seen",
        "more than 15 min late": f"{live.consumed.late:,} deliveries on the channel",
        "archive restarts": f"{archive.restarts}",
        "time": f"{time.monotonic() - began:.0f} s",
    }
    return proofs, table, live, facts


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the job; exit status 1 if any proof fails."""
    job = parse_arguments(arguments)
    prepare_folder(job.out)
    console = Console()
    columns = (SpinnerColumn(), TextColumn("{task.description:<11}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        proofs, table, _, facts = play(job, progress)
    commands = {
        f"polymq inspect {job.out / 'data'}": "what lies in the log's files",
        "make run ARGS='--per-second 60000'": "the same, faster",
        "make bench": "beside nsqd, measured",
        "make sim SEED=17": "the whole broker in a simulated world",
        "docs/spark.md": "the data source, option by option",
    }
    report.show(console, table, proofs, facts, job.out, commands)
    sys.exit(0 if all(proof.holds for proof in proofs) else 1)
