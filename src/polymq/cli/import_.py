"""`polymq import`: take over what another broker has left. So far: `polymq import nsqd`."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from polymq.server.nsqd_folder import NsqdFolder
    from polymq.server.takeover import TakenTopic

__all__ = ["app", "nsqd"]

EXAMPLES: Final = """[bold]Examples[/bold]

[cyan]polymq import nsqd /var/lib/nsqd --data /var/lib/polymq --dry-run[/cyan]
what there is and whether it can be read; changes nothing

[cyan]polymq import nsqd /var/lib/nsqd --data /var/lib/polymq[/cyan]
the same, and then all of it lies in the new data folder

[cyan]polymq nsqd -config=/etc/nsqd.cfg -data-path=/var/lib/polymq[/cyan]
serves it, under the addresses that the clients know

Stop the nsqd first (SIGTERM; it writes out what it has in memory). Its folder is not changed, so it can be started
again. The new folder is made as a whole or not at all: an import that was interrupted is simply begun again.
Exit status 1: something could not be read, and is named; everything else is imported.
"""

app = typer.Typer(rich_markup_mode="rich", add_completion=False, no_args_is_help=True)


@app.callback(epilog=EXAMPLES)
def import_() -> None:
    """Take over what another broker has left in its data folder."""


class Table:
    """Gathers what was taken, queue by queue, for people."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str, str, str]] = []
        self.stored = 0
        self.deliveries = 0
        self.contradictions = 0
        self.repeated = 0

    def add(self, taken: TakenTopic) -> None:
        """Take note of one topic."""
        channels = len(taken.queues) - 1
        for queue in taken.queues:
            if not queue.channel and channels and not queue.messages and not queue.paused:
                continue
            whose = queue.channel or ("(for every channel)" if channels and not queue.paused else "(no channel yet)")
            paused = "paused" if queue.paused else ""
            self.rows.append((queue.topic, whose, f"{queue.messages:,}", f"{queue.tried:,}" if queue.tried else "", paused))
            self.deliveries += queue.messages * (channels if not queue.channel and channels and not queue.paused else 1)
            self.repeated += queue.repeated
        self.stored += taken.messages
        self.contradictions += taken.contradictions

    def show(self) -> None:
        """Print it all."""
        from rich.console import Console
        from rich.table import Table as RichTable

        table = RichTable(box=None, pad_edge=False)
        for title, justify in (("topic", "left"), ("channel", "left"), ("messages", "right"), ("tried before", "right"), ("", "left")):
            table.add_column(title, justify="right" if justify == "right" else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        Console(highlight=False, markup=False).print(table)


@contextmanager
def shown_progress(size_bytes: int, what: str) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr, if that is a terminal; gives the function to call with bytes done."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=size_bytes)
        yield lambda done: bar.update(task, advance=done)


def report(folder: NsqdFolder, table: Table) -> None:
    """Say what the table does not."""
    for note in folder.notes:
        print(f"note: {note}", file=sys.stderr)
    if table.contradictions:
        print(
            f"note: channels of a topic had their messages in different orders ({table.contradictions:,} times);"
            " there the older one comes first",
            file=sys.stderr,
        )
    if table.repeated:
        print(
            f"note: {table.repeated:,} messages lay twice in a queue, as a killed nsqd leaves them; each is imported once", file=sys.stderr
        )
    for problem in folder.problems:
        print(f"NOT READ: {problem}", file=sys.stderr)


@app.command(epilog=EXAMPLES)
def nsqd(
    data_path: Annotated[Path, typer.Argument(metavar="DATA_PATH", show_default=False, help="the -data-path of the stopped nsqd")],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="DIR", show_default=False, help="the data folder to make; empty, or not there yet")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only read, and say what there is")] = False,
    config: Annotated[
        Path | None, typer.Option("--config", metavar="FILE", show_default=False, help="settings, as for polymq serve")
    ] = None,
    pairs: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", show_default=False, help="give any setting; can be repeated")
    ] = None,
) -> None:
    """Take over the topics, channels and messages of a stopped nsqd."""
    from polymq.cli.serving import read_settings
    from polymq.server.nsqd_folder import NsqdFolder
    from polymq.server.takeover import Target, read_topic, take_over

    if data is None and not dry_run:
        raise ConfigError(["--data DIR: say where the new data folder is to be (or --dry-run, only to look)"])
    settings = read_settings(config, pairs or [], {"server.data": None if data is None else str(data)})
    if data is not None and data.absolute().resolve().is_relative_to(data_path.absolute().resolve()):
        raise ConfigError([f"--data {data}: choose a place outside of {data_path}, which stays as it is"])
    table = Table()
    started = time.monotonic()
    folder = NsqdFolder(data_path)
    try:
        if dry_run:
            with shown_progress(folder.size_bytes, "reading") as progress:
                for entry in folder.topics:
                    table.add(read_topic(folder, entry, progress))
        else:
            target = Target(settings)
            try:
                with shown_progress(2 * folder.size_bytes, "importing") as progress:
                    take_over(folder, target, table.add, progress)
            finally:
                target.close()
    except OSError as error:
        raise ConfigError([f"{error.filename or data_path}: {error.strerror or error}; nothing was imported"]) from error
    finally:
        folder.close()
    table.show()
    report(folder, table)
    seconds = time.monotonic() - started
    done = "would be imported" if dry_run else f"imported into {data}"
    print(f"{table.stored:,} messages {done} ({table.deliveries:,} to deliver) in {seconds:.1f} s", file=sys.stderr)
    if folder.problems:
        print(f"polymq: {len(folder.problems)} problems, named above; everything else {done}", file=sys.stderr)
        raise typer.Exit(1)
