"""What the job says at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.panel import Panel
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    from examples.flights.verify import Proof
    from rich.console import Console

__all__ = ["carriers", "show"]


def carriers(gold: pd.DataFrame) -> list[tuple[str, int, int, float, int, float]]:
    """Sum the gold table up by carrier: flights, cancelled, mean delay, the worst hour and its 95th percentile."""
    rows = []
    for carrier, cells in gold.reset_index(drop=True).groupby("carrier"):
        flown = (cells["flights"] - cells["cancelled"]).sum()
        mean = float((cells["delay_mean"].fillna(0) * (cells["flights"] - cells["cancelled"])).sum() / flown) if flown else 0.0
        # An hour with a handful of flights says nothing about a carrier.
        usual = cells[cells["flights"] >= min(100, cells["flights"].max())].dropna(subset="delay_p95")
        worst = usual.loc[usual["delay_p95"].idxmax()] if len(usual) else cells.iloc[0]
        row = (
            str(carrier),
            int(cells["flights"].sum()),
            int(cells["cancelled"].sum()),
            mean,
            int(worst["hour"]),
            float(worst["delay_p95"]),
        )
        rows.append(row)
    return sorted(rows, key=lambda row: -row[1])


def show(
    console: Console, gold: pd.DataFrame, proofs: Sequence[Proof], facts: Mapping[str, str], out: Path, commands: Mapping[str, str]
) -> None:
    """Print the table, the proofs, where everything is, and what to try next."""
    table = Table(title="Departures from New York, 2013, from the archive", title_justify="left")
    for name, right in (
        ("carrier", False),
        ("flights", True),
        ("cancelled", True),
        ("mean delay", True),
        ("worst hour", True),
        ("p95 then", True),
    ):
        table.add_column(name, justify="right" if right else "left")
    for carrier, flights, cancelled, mean, hour, worst in carriers(gold)[:10]:
        table.add_row(carrier, f"{flights:,}", f"{cancelled:,}", f"{mean:.1f} min", f"{hour}:00", f"{worst:.0f} min")
    console.print(table)
    console.print(_two_columns(facts))
    console.print()
    for proof in proofs:
        mark = "[bold green]proved[/]" if proof.holds else "[bold red]FAILED[/]"
        console.print(f"{mark}  {proof.statement}: {proof.numbers}", highlight=False, soft_wrap=True)
    console.print()
    places = {
        "archive/": "the flights in Parquet, by month",
        "gold.csv, gold.parquet": "the gold table",
        "picture.png": "what happened, and the delays",
        "settled/": "what each consumer settled",
        "data/": "the broker's data folder",
        "broker.log, spark.log": "what the broker and Spark said",
    }
    console.print(f"In {out}:", highlight=False)
    console.print(_two_columns(places))
    console.print(Panel(_two_columns(commands), title="What to try next", title_align="left", expand=False))


def _two_columns(rows: Mapping[str, str]) -> Table:
    """Lay names and texts out beside each other."""
    grid = Table.grid(padding=(0, 3))
    for name, text in rows.items():
        grid.add_row(Text(name, style="bold"), text)
    return grid
