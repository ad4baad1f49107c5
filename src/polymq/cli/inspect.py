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
    from collections.abc import Mapping

    from polymq.store.entries import Checkpoint
    from polymq.store.files import Files
    from polymq.wire.records import BatchHeader

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

What is there is compared with what the journal says was synced. Works beside a running broker; the end of a file may
then be seen in the middle of a write, as a torn tail, which is not damage. Exit status 1: something is damaged.
"""

app = typer.Typer(rich_markup_mode="rich", add_completion=False)


class Report:
    """Writes lines, and remembers whether any of them was bad."""

    def __init__(self, target: BinaryIO, count: int | None) -> None:
        self.target = target
        self.count = count
        self.damaged = 0

    def line(self, text: str, verdict: str = "", note: str = "") -> None:
        """Write a line; a verdict makes it a bad one, a note does not."""
        self.target.write(f"{text}{self._mark(verdict, note)}\n".encode())

    def aside(self, text: str, verdict: str, note: str = "") -> None:
        """Write a line to stderr, where records go to stdout and nothing else may."""
        self.target.flush()
        print(f"{text}{self._mark(verdict, note)}", file=sys.stderr)

    def _mark(self, verdict: str, note: str) -> str:
        self.damaged += bool(verdict)
        if verdict:
            return f"  BAD: {verdict}"
        return f"  ({note})" if note else ""


def time_text(time_ns: int) -> str:
    """Write a time in UTC, to the second."""
    return datetime.fromtimestamp(time_ns // 10**9, UTC).strftime("%Y-%m-%d %H:%M:%S") if time_ns else "-"


def show_segments(files: Files, numbers: list[int], points: Mapping[int, Checkpoint], report: Report) -> None:
    """One line per segment file, and one per partition of which files are missing."""
    from polymq.store import inspect as store

    for number in numbers:
        for row in store.segments(files, number, points):
            report.line(
                f"{row.path}  offsets {row.base_offset}..{row.end_offset}  {row.records} records in {row.batches} batches"
                f"  {row.used_bytes} of {row.size_bytes} bytes  last {time_text(row.last_time_ns)}",
                row.verdict,
                row.note,
            )
        show_missing(files, number, points, report)


def show_missing(files: Files, number: int, points: Mapping[int, Checkpoint], report: Report) -> None:
    """One line if segments of a partition are not there."""
    from polymq.store import inspect as store

    verdict = store.missing(files, number, points)
    if verdict:
        report.line(f"partition {number}", verdict)


def show_journal_summary(files: Files, report: Report) -> None:
    """One line per segment of the journal."""
    from polymq.store import inspect as store

    for path, group in itertools.groupby(store.frames(files), lambda row: row.path):
        rows = list(group)
        good = [row for row in rows if row.sequence]
        sequences = f"frames {good[0].sequence}..{good[-1].sequence}, synced up to {good[-1].synced_sequence}" if good else "no frames"
        report.line(
            f"{path}  {sequences}  {sum(row.entry_count for row in good)} entries  {sum(row.size_bytes for row in good)} bytes",
            "; ".join(row.verdict for row in rows if row.verdict),
            "; ".join(row.note for row in rows if row.note),
        )


def show_journal(files: Files, report: Report) -> None:
    """One line per entry of the journal."""
    from polymq.store import inspect as store

    shown = 0
    for row in store.entries(files):
        if not row.kind:
            report.line(row.text, row.verdict, row.note)
        elif report.count is None or shown < report.count:
            report.line(f"frame {row.sequence}  {row.size_bytes} bytes  {row.text}")
            shown += 1


def show_batches(files: Files, numbers: list[int], points: Mapping[int, Checkpoint], report: Report) -> None:
    """One line per batch, and one where a segment ends too early."""
    from polymq.store import inspect as store

    shown = 0
    for number in numbers:
        for segment in store.segments(files, number, points):
            for row in store.batches(files, number, segment.base_offset):
                if row.header is not None and (report.count is None or shown < report.count):
                    report.line(_batch_text(row.path, row.position, row.header))
                    shown += 1
            if segment.verdict or segment.note:
                report.line(f"{segment.path} at byte {segment.used_bytes}", segment.verdict, segment.note)
            if shown == report.count:
                return
        show_missing(files, number, points, report)


def _batch_text(path: str, position: int, header: BatchHeader) -> str:
    """Write the fields of a batch's header that are not the same everywhere."""
    producer = "" if header.producer_id < 0 else f"  producer {header.producer_id}.{header.producer_epoch} #{header.sequence}"
    return (
        f"{path} at byte {position}"
        f"  offsets {header.base_offset}..{header.base_offset + header.count}  {header.size} bytes  {time_text(header.base_time_ns)}"
        f"  epoch {header.epoch}  origin {header.origin}  crc {header.crc:08x}{producer}"
    )


def show_records(files: Files, numbers: list[int], points: Mapping[int, Checkpoint], report: Report, *, offset: int, form: Form) -> None:
    """One line, JSON object or body per record; on stderr, one where a partition's records end too early."""
    from polymq.store import inspect as store

    shown = 0
    for row in (record for number in numbers for record in store.records(files, number, offset=offset, points=points)):
        if row.message is None:
            report.aside(f"partition {row.partition} at record {row.offset}", row.verdict, row.note)
            continue
        facts = {"partition": row.partition, "offset": row.offset}
        report.target.write(
            render(Shown(row.message.time_ns, f"{row.partition}:{row.offset}", row.message.body, row.message.key, facts), form)
        )
        shown += 1
        if shown == report.count:
            return


def show_journal_damage(files: Files, report: Report) -> None:
    """One line on stderr if the journal is damaged: then it may not know of everything that was synced."""
    from polymq.store import inspect as store

    if verdict := store.journal_damage(files):
        report.aside("journal", verdict)


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
        points = store.synced_points(files)
        numbers = store.partitions(files, points)
        if partition is not None and partition not in numbers:
            raise ConfigError([f"--partition {partition}: this folder has {_ranges(numbers)}"])
        numbers = numbers if partition is None else [partition]
        if journal:
            show_journal(files, report)
        elif records:
            show_records(files, numbers, points, report, offset=offset, form=form)
            show_journal_damage(files, report)
        elif batches:
            show_batches(files, numbers, points, report)
            show_journal_damage(files, report)
        else:
            show_segments(files, numbers, points, report)
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
