"""`polymq pipeline`: everything published becomes tables, continuously or once; replay and report from them."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from polymq.errors import ConfigError, StoreFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polymq.spark.pipeline.catalog import Catalog
    from polymq.spark.pipeline.config import PipelineConfig
    from polymq.spark.pipeline.replay import Done, Range
    from polymq.spark.pipeline.runner import Runner, Seen

__all__ = ["app"]

INTERRUPTED: Final = 130
_EXAMPLES: Final = """[bold]Examples: from nothing to a report[/bold]

[cyan]pip install 'polymq\\[spark]'[/cyan]                                   and Java 17
[cyan]polymq pipeline init --server 127.0.0.1:4171 --topics orders[/cyan]   writes polymq-pipeline.toml
[cyan]polymq pipeline once[/cyan]                                          takes in what is there
[cyan]polymq pipeline report[/cyan]                                        writes report.html
[cyan]polymq pipeline run[/cyan]                                           goes on for ever

[bold]The tables[/bold], below the storage folder, in Parquet: bronze (every message as it came) · silver/<topic> (bodies decoded, repeats left out) ·
quarantine (what could not be decoded, with the reason) · gold/traffic, gold/failures, gold/groups, and those of your SQL.
docs/PIPELINE.md has their columns.
"""
_REPLAY_EXAMPLES: Final = """[bold]Examples[/bold]

[cyan]polymq pipeline replay nsq://127.0.0.1:4150/orders-again --topic orders --from 2026-05-01T12:00Z --until 2026-05-01T13:00Z[/cyan]
an hour of one topic, into another one

[cyan]polymq pipeline replay rocketmq://ns:9876/{topic} --cursor replay.json --rate 5000[/cyan]
everything, into topics of the same names, 5,000 a second; started again, it goes on where it was

[cyan]polymq pipeline replay nats://hub:4222/orders.again --topic orders --offsets 1000..1999[/cyan]
a thousand messages

Addresses are those of [bold]polymq bridge[/bold]; a polymq node is reached by any protocol that it speaks. In order within each partition, at least once: what was
on its way when a replay was killed is sent again. Fields that the target's protocol cannot say are left out, and counted; lifetimes
and reply subjects are not put back.
"""

app = typer.Typer(rich_markup_mode="rich", add_completion=False, no_args_is_help=True)

ConfigOption = Annotated[Path, typer.Option("--config", "-c", metavar="FILE", help="the pipeline's file")]
_DEFAULT_FILE: Final = Path("polymq-pipeline.toml")


@app.callback(epilog=_EXAMPLES)
def pipeline() -> None:
    """Make tables of everything that is published: archived, decoded, aggregated, reported, and put back when wanted."""


@app.command()
def init(
    config: ConfigOption = _DEFAULT_FILE,
    server: Annotated[str, typer.Option(metavar="HOST:PORT", help="the HTTP door of a polymq node")] = "127.0.0.1:4171",
    topics: Annotated[str, typer.Option(metavar="A,B", help="what is taken in")] = "orders",
    name: Annotated[str, typer.Option(help="what the pipeline is called")] = "pipeline",
    force: Annotated[bool, typer.Option("--force", help="replace a file that is there")] = False,
) -> None:
    """Write a file that explains itself."""
    from polymq.spark.pipeline import template

    if config.exists() and not force:
        raise ConfigError([f"{config} is there already; --force replaces it"])
    config.write_text(template.write(name=name, server=server, topics=topics), encoding="utf-8")
    print(f"{config} is written. Next: polymq pipeline once")


@app.command()
def run(config: ConfigOption = _DEFAULT_FILE) -> None:
    """Run until Ctrl-C: take in, decode, aggregate, compact; begin again after what fails."""
    with _running(config) as (settings, runner):
        from polymq.cli.pipeline_progress import Watch

        with _signals(runner), Watch(settings.name) as watch:
            seen = runner.run(watch.tick)
    _note(_summary(seen))


@app.command()
def once(config: ConfigOption = _DEFAULT_FILE) -> None:
    """Take in what is there now, bring all tables up to date, and end."""
    with _running(config) as (settings, runner):
        from polymq.cli.pipeline_progress import Watch

        with _signals(runner), Watch(settings.name) as watch:
            seen = runner.once(watch.tick)
    _note(_summary(seen))


@app.command()
def status(config: ConfigOption = _DEFAULT_FILE, as_json: Annotated[bool, typer.Option("--json", help="for scripts")] = False) -> None:
    """Show the tables, how far they are, and what is wrong."""
    _need_arrow()
    import json

    from polymq.cli.pipeline_progress import status_of, status_table

    with _open(config) as (settings, catalog):
        found = status_of(settings, catalog)
    if as_json:
        print(json.dumps(found, indent=1))
        return
    from rich.console import Console

    console = Console()
    console.print(status_table(found))
    for name, text in found["problems"].items():
        console.print(f"[red]{name}[/red]: {text}", highlight=False, soft_wrap=True)


@app.command(epilog=_REPLAY_EXAMPLES, no_args_is_help=True)
def replay(
    target: Annotated[
        str, typer.Argument(metavar="DST", show_default=False, help="where to: PROTOCOL://HOST:PORT/TOPIC; {topic} is the message's own")
    ],
    config: ConfigOption = _DEFAULT_FILE,
    topic: Annotated[list[str] | None, typer.Option(metavar="T", show_default=False, help="of these topics (all)")] = None,
    begin: Annotated[
        str | None, typer.Option("--from", metavar="TIME", show_default=False, help="stored since: 2026-05-01T12:00Z, or 2h ago")
    ] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", show_default=False, help="stored before")] = None,
    offsets: Annotated[str | None, typer.Option(metavar="A..B", show_default=False, help="offsets from A to B, both included")] = None,
    partition: Annotated[list[int] | None, typer.Option(metavar="N", show_default=False, help="of these partitions (all)")] = None,
    rate: Annotated[float, typer.Option(metavar="N", min=0, help="messages a second at most; 0: as fast as it goes")] = 0.0,
    cursor: Annotated[
        Path | None, typer.Option(metavar="FILE", show_default=False, help="keep how far it is here, and go on there")
    ] = None,
    skip_refused: Annotated[bool, typer.Option("--skip-refused", help="leave out, and count, messages that the target refuses")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say how many messages there are, and send none")] = False,
) -> None:
    """Put a range of the archive back into a topic, by any of the four protocols."""
    _need_arrow()
    from polymq.cli.pipeline_progress import range_of
    from polymq.clients.bridge_address import parse_end
    from polymq.spark.pipeline import replay as replaying

    end = parse_end(target.replace("{topic}", "%7Btopic%7D"), is_source=False, topic="{topic}")
    wanted = range_of(topic or [], begin, until, offsets, partition or [])
    with _open(config) as (_, catalog):
        if dry_run:
            print(f"up to {replaying.count(catalog, wanted):,} messages to {end.shown}")
            return
        asked = [topic or "all", begin, until, offsets, partition or "all", end.shown]
        kept = replaying.Cursor(cursor, " ".join(str(each) for each in asked))
        done = _replay(catalog, wanted, end, kept, rate, skip_refused=skip_refused)
    words = [f"sent {done.sent:,} messages"]
    words += [f"{done.before:,} were there before"] * bool(done.before) + [f"{done.refused:,} refused and left out"] * bool(done.refused)
    if done.dropped:
        words.append("not carried by the target's protocol: " + ", ".join(f"{n:,} × {field}" for field, n in sorted(done.dropped.items())))
    _note("; ".join(words))
    if not done.is_complete:
        raise typer.Exit(INTERRUPTED)


@app.command()
def compact(config: ConfigOption = _DEFAULT_FILE) -> None:
    """Put small files together and remove old ones; `run` does that by itself."""
    _need_arrow()
    import time

    from polymq.spark.pipeline import compact as compacting
    from polymq.spark.pipeline.catalog import locked

    with _open(config) as (settings, catalog), locked(settings.storage):
        now_ns = time.time_ns()
        outcome = compacting.compact(catalog, settings, now_ns)
        gone = compacting.expire(catalog, settings, now_ns)
        swept = compacting.sweep(catalog, now_ns)
    print(f"{outcome.before} small files put together into {outcome.after}; {gone} too old; {swept} removed from the disk")
    if outcome.failed:
        raise StoreFailed("not put together: " + "; ".join(outcome.failed))


@app.command()
def rebuild(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False, help="whose bodies are decoded again")],
    config: ConfigOption = _DEFAULT_FILE,
) -> None:
    """Forget what a topic's bodies were decoded to, and its schema: the next `once` or `run` decodes all of its bronze again."""
    _need_arrow()
    import time

    from polymq.spark.pipeline import compact as compacting
    from polymq.spark.pipeline.catalog import locked

    with _open(config) as (settings, catalog), locked(settings.storage):
        files = compacting.rebuild(catalog, topic, time.time_ns())
    print(f"{files} files are forgotten. Next: polymq pipeline once")


@app.command()
def report(
    config: ConfigOption = _DEFAULT_FILE,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="the page")] = Path("report.html"),
    days: Annotated[int, typer.Option(min=1, max=3660, help="how far back")] = 7,
) -> None:
    """Write one HTML page with charts; it needs no network to be read, and no Spark to be made."""
    _need_arrow()
    import time

    from polymq.spark.pipeline import report as reporting

    with _open(config) as (settings, catalog):
        now_ns = time.time_ns()
        out.write_text(reporting.render(reporting.gather(catalog, settings.name, now_ns, days), now_ns), encoding="utf-8")
    print(f"{out} is written")


@app.command()
def declare(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", show_default=False, help="where the project is written")],
    config: ConfigOption = _DEFAULT_FILE,
) -> None:
    """Write a project for Spark Declarative Pipelines with the same tables, and say how it is run."""
    _need_spark()
    import shlex

    from polymq.spark.pipeline import declared

    words = declared.write_project(config, folder)
    print(f"{folder} is written. It needs pip install 'polymq[pipelines]'. Next: {shlex.join(words)}")


def _replay(catalog: Catalog, wanted: Range, end: Any, cursor: Any, rate: float, *, skip_refused: bool) -> Done:
    import signal

    from polymq.cli.pipeline_progress import Watch
    from polymq.clients import broker_sync
    from polymq.spark.pipeline import replay as replaying

    total = replaying.count(catalog, wanted)
    stopped: list[int] = []
    before = {number: signal.signal(number, lambda *_: stopped.append(1)) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with broker_sync.connect(end.url) as broker, Watch("replay") as watch:
            _note(f"up to {total:,} messages to {end.shown}")

            def tick(done: Done) -> bool:
                watch.say(f"sent {done.sent:,} of up to {total - done.before:,}")
                return not stopped

            return replaying.replay(
                catalog,
                wanted,
                broker,
                protocol=end.protocol,
                target=end.topic,
                cursor=cursor,
                rate=rate,
                skip_refused=skip_refused,
                tick=tick,
            )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[tuple[PipelineConfig, Catalog]]:
    """Open what a pipeline has stored."""
    from polymq.spark.pipeline.catalog import Catalog
    from polymq.spark.pipeline.config import load

    settings = load(path)
    catalog = Catalog(settings.storage)
    try:
        yield settings, catalog
    finally:
        catalog.close()


@contextlib.contextmanager
def _running(path: Path) -> Iterator[tuple[PipelineConfig, Runner]]:
    """Be the one writer of a pipeline's storage, with a Spark session."""
    from polymq.spark.pipeline.catalog import locked
    from polymq.spark.pipeline.config import load

    settings = load(path)
    _need_spark()
    from polymq.spark.pipeline import session
    from polymq.spark.pipeline.runner import Runner

    with locked(settings.storage), _open(path) as (_, catalog):
        _note(f"starting Spark ({settings.master}); its words are in {settings.storage / 'spark.log'}")
        spark = session.start(settings)
        try:
            yield settings, Runner(spark, settings, catalog, say=_note)
        finally:
            spark.stop()


@contextlib.contextmanager
def _signals(runner: Runner) -> Iterator[None]:
    """The first SIGINT or SIGTERM ends it in order, the second at once."""
    import signal

    def end(*_: object) -> None:
        if is_ending:
            raise KeyboardInterrupt
        is_ending.append(True)
        _note("ending; once more to end at once")
        runner.stop()

    is_ending: list[bool] = []
    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _need_arrow() -> None:
    if importlib.util.find_spec("pyarrow") is None:
        raise ConfigError(["the pipeline's tables need pyarrow: pip install 'polymq[spark]'"])


def _need_spark() -> None:
    """Raise ConfigError with what is to be installed, if something is."""
    problems = []
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        problems.append("the pipeline runs on Spark: pip install 'polymq[spark]'")
    import os

    home = os.environ.get("JAVA_HOME")
    if not (home and Path(home, "bin", "java").exists()) and shutil.which("java") is None:
        problems.append("Spark needs Java 17: apt install openjdk-17-jre-headless, or brew install openjdk@17; or set JAVA_HOME")
    if problems:
        raise ConfigError(problems)


def _summary(seen: Seen) -> str:
    words = [f"{seen.messages:,} messages archived", f"{seen.decoded:,} through silver"]
    if seen.made:
        words.append(f"gold: {', '.join(seen.made)}")
    return " · ".join(words)


def _note(text: str) -> None:
    print(f"pipeline: {text}", file=sys.stderr, flush=True)
