"""A small archive for tests without Spark: files of bronze and gold, and the catalog that knows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from polymq.spark.columns import COLUMNS
from polymq.spark.pipeline.catalog import BRONZE, Entry
from polymq.spark.pipeline.tables import described

if TYPE_CHECKING:
    from pathlib import Path

    from polymq.spark.pipeline.catalog import Catalog

MINUTE_US = 60_000_000
BEGIN_US = round(datetime(2026, 5, 1, 12, tzinfo=UTC).timestamp() * 1e6)
_SCHEMA = pa.schema([pa.field(name, kind) for name, (_, kind) in COLUMNS.items() if name != "topic"])


def bronze_file(
    catalog: Catalog,
    offsets: range,
    *,
    topic: str = "orders",
    partition: int = 0,
    name: str = "",
    headers: Any = None,
    tags: str | None = None,
) -> Entry:
    """Write a file of bronze: of one partition, a message a second, each with its offset as its body."""
    columns: dict[str, Any] = {
        "value": [b"%d" % offset for offset in offsets],
        "partition": [partition] * len(offsets),
        "offset": list(offsets),
        "timestamp": [BEGIN_US + offset * 1_000_000 for offset in offsets],
        "headers": [headers or []] * len(offsets),
        "tags": [tags] * len(offsets),
    }
    table = pa.table(
        {each.name: pa.array(columns.get(each.name, [None] * len(offsets)), each.type) for each in _SCHEMA},
        schema=_SCHEMA,
    )
    target = f"{BRONZE}/topic={topic}/date=2026-05-01/{name or f'{partition}-{offsets.start}'}.parquet"
    entry = described(write(catalog.storage / target, table), BRONZE, target)
    catalog.commit(at_ns=1, add=[entry])
    return entry


def write(path: Path, table: pa.Table) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def gold_file(catalog: Catalog, name: str, rows: list[dict[str, Any]], date: str = "2026-05-01") -> None:
    """Write a file of an aggregate."""
    target = f"gold/{name}/date={date}/one.parquet"
    entry = described(write(catalog.storage / target, pa.Table.from_pylist(rows)), f"gold/{name}", target)
    catalog.commit(at_ns=1, add=[entry])
