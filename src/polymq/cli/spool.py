"""`polymq spool`: fill a spool for Spark in a process of its own, and see how it is."""

from __future__ import annotations

import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from polymq.errors import ConfigError, StoreFailed

if TYPE_CHECKING:
    from polymq.spool.feed import Feed
    from polymq.spool.settings import SpoolSettings
    from polymq.spool.spooler import Spooler

__all__ = ["app"]

INTERRUPTED: Final = 130
# A spooler says once a second how it is; one that has not for so long is not there.
STALE_SECONDS: Final = 10.0
EXAMPLES: Final = """[bold]Examples[/bold]

[cyan]polymq spool run nsq /var/spool/polymq/orders -o servers=nsq1:4150,nsq2:4150 -o subscribe=orders -o channel=spark[/cyan]
fill a spool from two nsqds until SIGTERM; the query says spoolLocation=/var/spool/polymq/orders and receiver=process

[cyan]polymq spool run nsq /var/spool/polymq/orders --options /etc/polymq/orders.toml[/cyan]
the same with the options in a file, as servers = "nsq1:4150,nsq2:4150"

[cyan]polymq spool run nats /var/spool/polymq/events -o server=nats:4222 -o subscribe='events.>' -o queueGroup=spark -o tokenFile=/etc/polymq/token[/cyan]
subjects of NATS, which sends everything once: what comes while no spooler runs is not in the spool

[cyan]polymq spool status /var/spool/polymq/orders[/cyan]
how far it is, how fast, how many redeliveries were dropped, what is wrong; exit status 1 if no spooler runs

[bold]Promise[/bold]: NSQ and PHPMQ get their FIN and 004 once a message is synced to the disk, on the connection it came over. Killed at any moment, the next
one loses nothing and writes nothing twice: what comes again is dropped by its id (windowCount, windowMs). docs/SPOOL.md has the whole of it.
"""

app = typer.Typer(rich_markup_mode="rich", add_completion=False, no_args_is_help=True)


class ProtocolName(StrEnum):
    """What is spoken."""

    NSQ = "nsq"
    NATS = "nats"
    PHPMQ = "phpmq"


FolderArgument = Annotated[Path, typer.Argument(metavar="FOLDER", show_default=False, help="the spool: the query's spoolLocation")]
OptionOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="NAME=VALUE", show_default=False, help="an option, as the Spark source has it; as often as you like"
    ),
]
FileOption = Annotated[
    Path | None, typer.Option("--options", metavar="FILE", show_default=False, help="options from a TOML file; -o comes before it")
]


@app.callback(epilog=EXAMPLES)
def spool_group() -> None:
    """Fill a spool for Spark's sources nsq, nats and phpmq in a process of its own; see how one is."""


@app.command(epilog=EXAMPLES)
def run(protocol: ProtocolName, folder: FolderArgument, option: OptionOption = None, options: FileOption = None) -> None:
    """Receive, write, sync, acknowledge, until SIGTERM. A name that is no option is refused with the list of all of them."""
    import asyncio
    import logging

    from polymq.spool.spooler import Spooler

    feed, settings = read(protocol.value, given(option or [], options))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger(__name__).info("%s → %s", feed.shown(), folder)
    if not asyncio.run(_until_signals(lambda: Spooler(folder, feed, settings))):
        raise typer.Exit(INTERRUPTED)


async def _until_signals(make: Any) -> bool:
    """Run; the first SIGINT or SIGTERM ends it in order, the second at once. Says whether it ended in order."""
    import asyncio
    import signal

    loop = asyncio.get_running_loop()
    spooler: Spooler = make()
    running = asyncio.create_task(spooler.run(), name="spooler")
    asked: list[bool] = []

    def interrupt() -> None:
        if asked:
            running.cancel()
        asked.append(True)
        spooler.stop()

    for each in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(each, interrupt)
    try:
        await running
    except asyncio.CancelledError:
        return False
    return True


def given(pairs: list[str], file: Path | None) -> dict[str, str]:
    """Collect options from the file and the command line. Raises ConfigError."""
    found: dict[str, str] = {}
    if file is not None:
        import tomllib

        try:
            with file.open("rb") as opened:
                values = tomllib.load(opened)
        except (OSError, ValueError) as error:
            raise ConfigError([f"--options {file}: {getattr(error, 'strerror', None) or error}"]) from error
        for name, value in _flat(values).items():
            if isinstance(value, dict | list | float):
                raise ConfigError([f"--options {file}: {name} must be a text, a whole number or true or false"])
            found[name] = str(value).lower() if isinstance(value, bool) else str(value)
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ConfigError([f"-o {pair!r}: expected NAME=VALUE"])
        found = {known: text for known, text in found.items() if known.lower() != name.lower()} | {name: value}
    return found


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Write tables of TOML as names with dots, which they are: nsq.snappy is snappy in nsq."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def read(protocol: str, options: dict[str, str]) -> tuple[Feed, SpoolSettings]:
    """Read options as the Spark source does. Raises ConfigError with every problem."""
    from polymq.spark.option_values import OptionReader
    from polymq.spool.feed import FEED_OPTIONS, SPOOL_OPTIONS, read_feed, read_settings

    reader = OptionReader(options, FEED_OPTIONS[protocol] | SPOOL_OPTIONS)
    reader.refuse_unknown()
    settings = read_settings(reader)
    feed = read_feed(protocol, reader)
    reader.finish()
    return feed, settings


@app.command()
def status(
    folder: FolderArgument,
    json: Annotated[bool, typer.Option("--json", help="as the spooler wrote it, with the age of it in seconds")] = False,
) -> None:
    """Say how far a spool is, how fast it fills, and what is wrong. Exit status 1 if no spooler runs."""
    from polymq.spool import folder as files

    said = files.status(folder)
    if files.identity(folder) is None or said is None:
        raise StoreFailed(f"no spooler has ever been at work in {folder}")
    found = dict(said)
    found["age"] = round(max(0.0, time.time() - float(found.get("at", 0))), 1)
    found["committed"] = files.committed(folder)
    is_there = found["age"] < STALE_SECONDS and found.get("state") not in {"stopped", "failed"}
    if json:
        import json as json_module

        print(json_module.dumps(found))
    else:
        print(described(found, is_there=is_there))
    if not is_there:
        raise typer.Exit(1)


def described(found: dict[str, Any], *, is_there: bool) -> str:
    """Put a status into words."""
    state = found.get("state") if is_there or found.get("state") in {"stopped", "failed"} else "gone"
    end, committed = int(found["end"]), int(found["committed"])
    lines = [
        f"{state}: {found['source']} (process {found['pid']}, {found['age']:g} s ago)",
        f"records {found['start']:,} to {end:,}, {found['size_bytes']:,} bytes; {max(0, end - committed):,} not committed by the query",
        f"stored {found['stored']:,} at {found['rate']:,.0f}/s; {found['redelivered']:,} redeliveries dropped",
    ]
    if found.get("trouble"):
        lines.append(f"{found['troubles']:,} troubles, the last one: {found['trouble']}")
    return "\n".join(lines)
