"""What the pipeline reads: any of our sources, as a stream of `columns.COLUMNS`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from polymq.spark.columns import COLUMNS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

__all__ = ["load_stream", "with_all_columns"]


def load_stream(spark: SparkSession, name: str, options: Mapping[str, str]) -> DataFrame:
    """Open a source as a stream."""
    return with_all_columns(spark.readStream.format(name).options(**options).load())


def with_all_columns(messages: DataFrame) -> DataFrame:
    """Fill in what a source was told to leave out."""
    have = set(messages.columns)
    kinds = {name: kind for name, (kind, _) in COLUMNS.items()}
    chosen = []
    for name, kind in kinds.items():
        if name in have:
            chosen.append(f.col(name))
        else:
            chosen.append(f.lit(None).cast(kind).alias(name))
    return messages.select(*chosen)
