"""Samples of a broker's statistics: one row per group, asked for now and then by the pipeline's driver, for the gold table `groups`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq

from polymq.spark.pipeline.catalog import STATISTICS
from polymq.spark.pipeline.tables import described

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from polymq.clients.log import Family
    from polymq.spark.pipeline.catalog import Catalog, Entry

__all__ = ["sample", "stage_sample"]

_FAMILIES: Final = {
    "polymq_group_messages_total": "messages",
    "polymq_group_settled_total": "settled",
    "polymq_group_requeues_total": "requeues",
    "polymq_group_timeouts_total": "timeouts",
    "polymq_group_dead_letters_total": "dead_letters",
    "polymq_group_expired_total": "expired",
    "polymq_group_dropped_total": "dropped",
    "polymq_group_depth_messages": "depth",
    "polymq_group_leased_messages": "leased",
    "polymq_group_deferred_messages": "deferred",
    "polymq_group_consumers": "consumers",
}
_LATENCY: Final = "polymq_group_latency_seconds"
_SHARES: Final = {0.5: "latency_p50", 0.95: "latency_p95", 0.99: "latency_p99"}
_NUMBERS: Final = (*_FAMILIES.values(), *_SHARES.values())
_SCHEMA: Final = pa.schema(
    [
        pa.field("sampled_at", pa.timestamp("us", tz="UTC")),
        pa.field("started_at", pa.float64()),
        *(pa.field(name, pa.string()) for name in ("namespace", "topic", "group")),
        *(pa.field(name, pa.float64()) for name in _NUMBERS),
    ]
)


def sample(families: Iterable[Family], at_ns: int) -> pa.Table:
    """Make rows of what a broker counts: one per group that has a name, null where it does not tell."""
    rows: dict[tuple[str, str, str], dict[str, float]] = {}
    started_at: float | None = None
    for family in families:
        if family.name == "process_start_time_seconds":
            started_at = next((value for _, value in family.samples), None)
        name = _FAMILIES.get(family.name)
        for labels, value in family.samples:
            column = _SHARES.get(_share(labels)) if family.name == _LATENCY else name
            # What was left out of a family is in a sample whose labels are empty.
            if column is not None and labels.get("group"):
                place = labels.get("namespace", ""), labels.get("topic", ""), labels["group"]
                rows.setdefault(place, {})[column] = value
    columns: list[pa.Array] = [
        pa.array([at_ns // 1000] * len(rows), pa.timestamp("us", tz="UTC")),
        pa.array([started_at] * len(rows), pa.float64()),
        *(pa.array([place[index] for place in rows], pa.string()) for index in range(3)),
        *(pa.array([row.get(name) for row in rows.values()], pa.float64()) for name in _NUMBERS),
    ]
    return pa.Table.from_arrays(columns, schema=_SCHEMA)


def stage_sample(catalog: Catalog, rows: pa.Table, at_ns: int) -> list[Entry]:
    """Write a sample as a file, for `Catalog.commit`; no file for no rows."""
    if not rows.num_rows:
        return []
    date = f"{datetime.fromtimestamp(at_ns / 1e9, UTC):%Y-%m-%d}"
    target = f"{STATISTICS}/date={date}/sample-{at_ns}.parquet"
    path = catalog.storage / target
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, path)
    return [described(path, STATISTICS, target)]


def _share(labels: Mapping[str, str]) -> float:
    try:
        return float(labels.get("quantile", ""))
    except ValueError:
        return -1.0
