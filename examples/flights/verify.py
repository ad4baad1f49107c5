"""The proofs, from outputs alone: what lies in the archive and in the consumers' files, and what the broker counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from examples.flights.data import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Iterable, Set
    from pathlib import Path

    import pandas as pd
    from examples.flights.broker import ChannelState

__all__ = ["Identity", "Proof", "prove_archive", "prove_gold", "prove_log", "prove_settled", "read_settled"]

Identity = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Proof:
    """One statement, whether it holds, and the numbers behind it."""

    statement: str
    holds: bool
    numbers: str


def read_settled(folder: Path) -> tuple[set[Identity], int]:
    """Read the consumers' files: which flights were settled, and how many times altogether."""
    flights: set[Identity] = set()
    count = 0
    for path in sorted(folder.glob("*.tsv")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                time_hour, carrier, flight, _ = line.rstrip("\n").split("\t")
                flights.add((time_hour, carrier, int(flight)))
                count += 1
    return flights, count


def prove_archive(names: pd.DataFrame, expected: Set[Identity]) -> Proof:
    """Every flight is in the archive exactly once when repeats are removed, and repeats are true repeats.

    `names` has one row for each flight that the archive names, with `copies` (records of it) and `agree` (all alike).
    """
    rows = int(names["copies"].sum())
    found = set(names[list(IDENTITY)].itertuples(index=False, name=None))
    missing, strange, conflicting = len(expected - found), len(found - expected), int((~names["agree"].astype(bool)).sum())
    numbers = f"{rows:,} rows, {len(found):,} flights, {rows - len(found):,} repeats removed"
    if missing or strange or conflicting:
        numbers += f"; {missing:,} missing, {strange:,} unknown, {conflicting:,} with contradicting repeats"
    return Proof("every flight is in the archive exactly once", not (missing or strange or conflicting), numbers)


def prove_log(rows: int, offsets: int) -> Proof:
    """The archive holds each offset of the log once: nothing was left out and nothing was read twice."""
    return Proof("the archive holds every record of the log once", rows == offsets, f"{offsets:,} offsets in the log, {rows:,} rows")


def prove_settled(settled: Set[Identity], count: int, channel: ChannelState | None, expected: Set[Identity]) -> Proof:
    """Every flight was settled on the channel, and the broker has nothing left for it."""
    missing = len(expected - settled)
    holds = not missing and settled <= expected and channel is not None and channel.drained
    left = "the broker does not answer" if channel is None else f"{channel.depth} waiting, {channel.in_flight} in flight"
    numbers = f"{len(settled):,} flights settled ({count:,} deliveries); {left}"
    return Proof("every flight was settled on the channel", holds, numbers + (f"; {missing:,} missing" if missing else ""))


def prove_gold(problems: Iterable[str], cells: int) -> Proof:
    """Every cell of the gold table is what pandas computes from the package's own table."""
    wrong = list(problems)
    numbers = f"{cells:,} cells compared" if not wrong else f"{len(wrong):,} of {cells:,} differ, first: {wrong[0]}"
    return Proof("every cell of the gold table equals that of pandas", not wrong, numbers)
