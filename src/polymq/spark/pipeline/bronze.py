"""Bronze: every message as it came, with its date, its size and when it was archived. Pure functions from DataFrame to DataFrame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f

from polymq.spark.columns import COLUMNS, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["PARTITIONS", "SCHEMA", "TOPIC_HEADER", "archived"]

# In the names of the folders, so that a topic and a day are found without reading.
PARTITIONS: Final = ("topic", "date")
TOPIC_HEADER: Final = "polymq-topic"
# File systems allow 255 bytes, of which "topic=" takes some.
_FOLDER_SIZE_MAX: Final = 240
_CUT_SIZE: Final = 80
SCHEMA: Final = f"{spark_schema(tuple(COLUMNS))}, size bigint, archived_at timestamp, date string"


def archived(messages: DataFrame) -> DataFrame:
    """Make bronze of messages: all columns of the source, `size` of the body, `archived_at`, and `date` (UTC) of `timestamp`.

    A topic whose name is too long for a folder is archived under the beginning of it and a hash, with its name in the header TOPIC_HEADER.
    Spark keeps the time of a micro-batch with its offsets, so a batch that is repeated gets the same `archived_at`.
    """
    now = f.current_timestamp()
    # As a folder's name, what is not allowed in one takes three bytes: %2F.
    plain = f.regexp_replace("topic", "[^A-Za-z0-9._~ -]", "")
    folder_size = f.octet_length("topic") * 3 - f.octet_length(plain) * 2
    is_long = folder_size > _FOLDER_SIZE_MAX
    cut = f.concat(f.regexp_replace(f.substring("topic", 1, _CUT_SIZE), "[^A-Za-z0-9._-]", "_"), f.lit("~"), f.md5("topic"))
    original = f.array(f.struct(f.lit(TOPIC_HEADER).alias("key"), f.encode("topic", "UTF-8").alias("value")))
    known = {
        "topic": f.when(is_long, cut).otherwise(f.col("topic")),
        "headers": f.when(is_long, f.concat("headers", original)).otherwise(f.col("headers")),
    }
    return messages.select(
        *(known.get(name, f.col(name)).alias(name) for name in COLUMNS),
        f.coalesce(f.octet_length("value"), f.lit(0)).cast("bigint").alias("size"),
        now.alias("archived_at"),
        f.date_format(f.coalesce("timestamp", now), "yyyy-MM-dd").alias("date"),
    )
