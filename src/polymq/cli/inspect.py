"""`polymq inspect`: look into a data folder, and check every checksum, without changing anything."""

from __future__ import annotations

import itertools
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from polymq.cli.render import Form, Shown, render
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from polymq.store.files import Files

__all__ = ["app", "inspect"]

EXAMPLES: Final = """[bold]Examples[/bold]

[cyan]polymq inspect polymq-data[/cyan]
every segment of every partition and the journal, with what is wrong, if anything is

[cyan]polymq inspect polymq-data --partition 3 --batches[/cyan]
the batches of one partition

[cyan]polymq inspect polymq-data --partition 3 --records --from 1000 --count 20[/cyan]
twenty records from an offset on

[cyan]polymq inspect polymq-data --journal[/cyan]
what the journal says, entry by entry

Works beside a running broker; the end of a file may then be seen in the middle of a write. Exit status 1: something
is damaged.
"""

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


class Report:
    """Writes lines, and remembers whether any of them was bad."""

    def __init__(self, target: BinaryIO, count: int | None) -> None:
        self.target = target
        self.count = count
        self.damaged = 0

    def line(self, text: str, verdict: str = "") -> None:
        """Write a line; a verdict makes it a bad one."""
        self.damaged += bool(verdict)
        mark = f"  BAD: {verdict}" if verdict else ""
        self.target.write(f"{text}{mark}\n".encode())


def time_text(time_ns: int) -> str:
    """Write a time in UTC, to the second."""
    return datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S") if time_ns else "-"


def show_segments(files: Files, numbers: list[int], report: Report) -> None:
    """One line per segment file."""
    from polymq.store import inspect as store

    for number in numbers:
        for row in store.segments(files, number):
            report.line(
                f"{row.path}  offsets {row.base_offset}..{row.end_offset}  {row.records} records in {row.batches} batches"
                f"  {row.used_bytes} of {row.size_bytes} bytes  last {time_text(row.last_time_ns)}",
                row.verdict,
            )


def show_journal_summary(files: Files, report: Report) -> None:
    """One line per segment of the journal."""
    from polymq.store import inspect as store

    for path, group in itertools.groupby(store.frames(files), lambda row: row.path):
        rows = list(group)
        good = [row for row in rows if not row.verdict]
        sequences = f"frames {good[0].sequence}..{good[-1].sequence}, synced up to {good[-1].synced_sequence}" if good else "no frames"
        report.line(
            f"{path}  {sequences}  {sum(row.entry_count for row in good)} entries  {sum(row.size_bytes for row in good)} bytes",
            "; ".join(row.verdict for row in rows if row.verdict),
        )


def show_journal(files: Files, report: Report) -> None:
    """One line per entry of the journal."""
    from polymq.store import inspect as store

    for row in itertools.islice(store.entries(files), report.count):
        report.line(f"frame {row.sequence}  {row.size_bytes} bytes  {row.text}")


def show_batches(files: Files, numbers: list[int], report: Report) -> None:
    """One line per batch, with the fields of its header that are not the same everywhere."""
    from polymq.store import inspect as store

    rows = (
        batch
        for number in numbers
        for segment in store.segments(files, number)
        for batch in store.batches(files, number, segment.base_offset)
    )
    for row in itertools.islice(rows, report.count):
        text = f"{row.path} at byte {row.position}"
        if row.header is not None:
            header = row.header
            producer = "" if header.producer_id < 0 else f"  producer {header.producer_id}.{header.producer_epoch} #{header.sequence}"
            text += (
                f"  offsets {header.base_offset}..{header.base_offset + header.count}  {header.size} bytes  {time_text(header.base_time_ns)}"
                f"  epoch {header.epoch}  origin {header.origin}  crc {header.crc:08x}{producer}"
            )
        report.line(text, row.verdict)


def show_records(files: Files, numbers: list[int], report: Report, offset: int, form: Form) -> None:
    """One line, JSON object or body per record."""
    from polymq.store import inspect as store

    rows = (record for number in numbers for record in store.records(files, number, offset=offset))
    for row in itertools.islice(rows, report.count):
        facts = {"partition": row.partition, "offset": row.offset}
        report.target.write(
            render(Shown(row.message.time_ns, f"{row.partition}:{row.offset}", row.message.body, row.message.key, facts), form)
        )


def open_folder(path: Path) -> Files:
    """Open a data folder for looking. Raises ConfigError if it is none: looking must not make one."""
    from polymq.store.files import RealFiles

    if not (path / "FORMAT").is_file():
        what = "is not a data folder (it has no file FORMAT)" if path.is_dir() else "does not exist"
        raise ConfigError([f"{path} {what}; polymq serve --data says which folder the broker uses, polymq-data by default"])
    return RealFiles(path)


@app.command(epilog=EXAMPLES)
def inspect(
    data: Annotated[Path, typer.Argument(metavar="DATA", show_default=False, help="the data folder")],
    partition: Annotated[int | None, typer.Option(metavar="N", min=0, show_default=False, help="only the partition of this number")] = None,
    batches: Annotated[bool, typer.Option("--batches", help="list batches")] = False,
    records: Annotated[bool, typer.Option("--records", help="list records")] = False,
    journal: Annotated[bool, typer.Option("--journal", help="list the journal's entries")] = False,
    offset: Annotated[int, typer.Option("--from", min=0, metavar="OFFSET", help="list records from here on")] = 0,
    count: Annotated[int | None, typer.Option(metavar="N", min=1, show_default=False, help="list so many at most")] = None,
    form: Annotated[Form, typer.Option("--format", help="how records are written: a line each, JSON, or the bare body")] = Form.LINE,
) -> None:
    """Show what lies in a data folder, and check it. Changes nothing."""
    from polymq.store import inspect as store

    files = open_folder(data)
    report = Report(sys.stdout.buffer, count)
    try:
        numbers = store.partitions(files)
        if partition is not None and partition not in numbers:
            raise ConfigError([f"--partition {partition}: this folder has {_ranges(numbers)}"])
        numbers = numbers if partition is None else [partition]
        if journal:
            show_journal(files, report)
        elif records:
            show_records(files, numbers, report, offset, form)
        elif batches:
            show_batches(files, numbers, report)
        else:
            show_segments(files, numbers, report)
            show_journal_summary(files, report)
    except OSError as error:
        raise ConfigError([f"{data} cannot be read: {error}"]) from error
    report.target.flush()
    if report.damaged:
        print(f"polymq: {report.damaged} damaged; docs/DATA_FILES.md says what that means and what can be done", file=sys.stderr)
        raise typer.Exit(1)


def _ranges(numbers: list[int]) -> str:
    if not numbers:
        return "no partitions"
    return (
        f"partitions {numbers[0]} to {numbers[-1]}"
        if numbers == list(range(numbers[0], numbers[-1] + 1))
        else f"partitions {', '.join(map(str, numbers[:20]))}"
    )
