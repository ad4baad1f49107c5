"""The gold table: flights, cancellations and departure delay per carrier and scheduled hour.

Computed twice: by Spark from the archive, and by pandas from the package's own table. `differences` compares the two
cell by cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pandas as pd
from examples.flights.data import IDENTITY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["KEYS", "VALUES", "differences", "gold_of_archive", "gold_of_table", "names_of_archive", "without_repeats"]

KEYS: Final = ["carrier", "hour"]
VALUES: Final = ["flights", "cancelled", "delay_mean", "delay_p95"]

# Counts must be equal; means and percentiles are sums of the same numbers in another order.
_TOLERANCE: Final = 1e-9


def without_repeats(archive: DataFrame) -> DataFrame:
    """Keep one record of every flight. A batch job over the whole archive needs no watermark for that."""
    return archive.dropDuplicates(list(IDENTITY))


def names_of_archive(archive: DataFrame) -> pd.DataFrame:
    """Count for every flight its records (`copies`), and tell whether all of them say the same (`agree`)."""
    from pyspark.sql import functions as f

    fields = [name for name in archive.columns if name not in {"partition", "offset", "stored_at"}]
    content = f.xxhash64(*fields)
    counted = archive.groupBy(*IDENTITY).agg(f.count("*").alias("copies"), (f.min(content) == f.max(content)).alias("agree"))
    names: pd.DataFrame = counted.toPandas()
    return names


def gold_of_archive(flights: DataFrame) -> pd.DataFrame:
    """Aggregate in Spark. A flight that never left has no departure delay and counts as cancelled."""
    from pyspark.sql import functions as f

    gold = flights.groupBy(*KEYS).agg(
        f.count("*").alias("flights"),
        f.count_if(f.col("dep_delay").isNull()).alias("cancelled"),
        f.avg("dep_delay").alias("delay_mean"),
        f.percentile("dep_delay", 0.95).alias("delay_p95"),
    )
    table: pd.DataFrame = gold.orderBy(*KEYS).toPandas()
    return table


def gold_of_table(flights: pd.DataFrame) -> pd.DataFrame:
    """Aggregate in pandas."""
    delays = flights.assign(dep_delay=flights["dep_delay"].astype("float64"))
    groups = delays.groupby(KEYS)["dep_delay"]
    gold = pd.DataFrame(
        {
            "flights": groups.size(),
            "cancelled": groups.size() - groups.count(),
            "delay_mean": groups.mean(),
            "delay_p95": groups.quantile(0.95),
        }
    )
    return gold.reset_index().sort_values(KEYS, ignore_index=True)


def differences(found: pd.DataFrame, expected: pd.DataFrame) -> list[str]:
    """Name every cell of the two tables that differs, for people."""
    problems = []
    both = found.merge(expected, on=KEYS, how="outer", suffixes=("", "_expected"), indicator=True)
    for row in both.to_dict("records"):
        name = f"{row['carrier']} at {row['hour']}"
        if row["_merge"] != "both":
            problems.append(f"{name} is only in {'the archive' if row['_merge'] == 'left_only' else 'the table'}")
            continue
        for value in VALUES:
            have, want = row[value], row[f"{value}_expected"]
            if pd.isna(have) and pd.isna(want):
                continue
            if pd.isna(have) or pd.isna(want) or abs(have - want) > _TOLERANCE * max(1.0, abs(want)):
                problems.append(f"{value} of {name} is {have}, not {want}")
    return problems
