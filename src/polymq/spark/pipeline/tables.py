"""Tables as Spark sees them: reads the files that the catalog names, and writes frames as files that it can be told of.

A frame is written into a folder of its own below `_staging`, then its files are moved to `<table>/topic=…/date=…/`, and then the catalog
is told. What lies there without being known to it is from a batch that did not end; the next start removes it.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

import pyarrow.parquet as pq

from polymq.spark.pipeline.catalog import BRONZE, QUARANTINE, STATISTICS, Entry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from polymq.spark.pipeline.catalog import Catalog

__all__ = ["described", "discard_strays", "read", "stage"]

STAGING: Final = "_staging"
TABLE_FOLDERS: Final = (BRONZE, QUARANTINE, STATISTICS, "silver", "gold")


def folder_of(name: str) -> str:
    """Give the folder of a table below the storage: a topic may have characters that a file name may not."""
    layer, _, rest = name.partition("/")
    return f"{layer}/{quote(rest, safe='') if rest not in ('.', '..') else rest.replace('.', '%2E')}" if rest else layer


def read(spark: SparkSession, catalog: Catalog, entries: Sequence[Entry], schema: str) -> DataFrame:
    """Read files of one table. `schema` has all columns; those that are names of folders as well."""
    if not entries:
        return spark.createDataFrame([], schema)
    base = str(catalog.storage / folder_of(entries[0].name))
    paths = [str(catalog.storage / each.path) for each in entries]
    return spark.read.schema(schema).option("basePath", base).parquet(*paths)


def stage(
    catalog: Catalog, frame: DataFrame, name: str, label: str, *, partitions: Sequence[str] = (), files: int | None = None, schema: int = 0
) -> list[Entry]:
    """Write a frame as files of a table and give them for `Catalog.commit`; `label` is what this writing is called, once and for all.

    Done again under the same label it replaces what was there, unless that has been committed.
    """
    staging = catalog.storage / STAGING / label
    written = frame if files is None else frame.coalesce(files)
    writer = written.write.mode("overwrite")
    if partitions:
        writer = writer.partitionBy(*partitions)
    writer.parquet(str(staging))
    base = catalog.storage / folder_of(name)
    entries = []
    for number, path in enumerate(sorted(staging.rglob("*.parquet"))):
        target = base / path.relative_to(staging).parent / f"{label}-{number:05d}.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        entry = described(path, name, str(target.relative_to(catalog.storage)), schema=schema)
        if entry.rows:
            path.replace(target)
            entries.append(entry)
    shutil.rmtree(staging, ignore_errors=True)
    return entries


def described(path: Path, name: str, target: str, *, schema: int = 0, is_rewritten: bool = False) -> Entry:
    """Describe a file by its footer, as the one that will be at `target`."""
    with pq.ParquetFile(path) as file:
        metadata = file.metadata
        places = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
        first_us, last_us = _bounds(metadata, places.get("timestamp"), is_time=True)
        first_offset, last_offset = _bounds(metadata, places.get("offset"))
        rows = metadata.num_rows
    folders = dict(part.split("=", 1) for part in target.split("/")[:-1] if "=" in part and not part.startswith("="))
    topic = name.removeprefix("silver/") if name.startswith("silver/") else unquote(folders.get("topic", ""))
    return Entry(
        name=name,
        path=target,
        rows=rows,
        size_bytes=path.stat().st_size,
        topic=topic,
        date=folders.get("date", ""),
        first_us=first_us,
        last_us=last_us,
        first_offset=first_offset,
        last_offset=last_offset,
        schema=schema,
        is_rewritten=is_rewritten,
    )


def discard_strays(catalog: Catalog) -> int:
    """Remove what writers that were killed have left; tells how many files.

    Only the one writer may do this, once `archive.begin` knows that the catalog is the one of these files.
    """
    shutil.rmtree(catalog.storage / STAGING, ignore_errors=True)
    known = catalog.paths()
    removed = 0
    for folder in TABLE_FOLDERS:
        for path in (catalog.storage / folder).rglob("*.parquet"):
            if str(path.relative_to(catalog.storage)) not in known:
                path.unlink()
                removed += 1
    return removed


def _bounds(metadata: pq.FileMetaData, place: int | None, *, is_time: bool = False) -> tuple[int | None, int | None]:
    """Give the smallest and the largest value of a column by its statistics; None if they do not say."""
    low: int | None = None
    high: int | None = None
    if place is None:
        return None, None
    for index in range(metadata.num_row_groups):
        statistics = metadata.row_group(index).column(place).statistics
        if statistics is None or not statistics.has_min_max:
            continue
        least, most = statistics.min, statistics.max
        if is_time:
            least, most = round(least.timestamp() * 1e6), round(most.timestamp() * 1e6)
        low = least if low is None else min(low, least)
        high = most if high is None else max(high, most)
    return low, high
