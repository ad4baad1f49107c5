"""Bronze: every message as it came, with its date, its size and when it was archived. Pure functions from DataFrame to DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from polymq.spark.columns import COLUMNS, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PARTITIONS", "SCHEMA", "archived"]

# In the names of the folders, so that a topic and a day are found without reading.
PARTITIONS: Final = ("topic", "date")
SCHEMA: Final = f"{spark_schema(tuple(COLUMNS))}, size bigint, archived_at timestamp, date string"


def archived(messages: DataFrame) -> DataFrame:
    """Make bronze of messages: all columns of the source, `size` of the body, `archived_at`, and `date` (UTC) of `timestamp`.

    Spark keeps the time of a micro-batch with its offsets, so a batch that is repeated gets the same `archived_at`.
    """
    now = f.current_timestamp()
    return messages.select(
        *COLUMNS,
        f.coalesce(f.octet_length("value"), f.lit(0)).cast("bigint").alias("size"),
        now.alias("archived_at"),
        f.date_format(f.coalesce("timestamp", now), "yyyy-MM-dd").alias("date"),
    )
