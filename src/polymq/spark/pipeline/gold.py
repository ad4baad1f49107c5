"""Gold: what happened per topic, group and minute. Pure functions from DataFrame to DataFrame; each row belongs to one date (UTC).

`traffic` is counted from the messages themselves, `groups` is what the broker counts for its groups, sampled. What a column means is in
docs/PIPELINE.md, and nowhere is a figure guessed: what nobody knows is null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as f
from pyspark.sql.window import Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

__all__ = ["FAILURES_SCHEMA", "GROUPS_SCHEMA", "STATISTICS_SCHEMA", "TRAFFIC_SCHEMA", "failures", "groups", "traffic"]

TRAFFIC_SCHEMA: Final = (
    "topic string, protocol string, minute timestamp, messages bigint, bytes bigint, redelivered bigint, redeliveries bigint, "
    "latency_ms_p50 double, latency_ms_p95 double, latency_ms_p99 double, latency_ms_max double, date string"
)
FAILURES_SCHEMA: Final = "topic string, minute timestamp, reason string, messages bigint, date string"
GROUPS_SCHEMA: Final = (
    "namespace string, topic string, group string, minute timestamp, messages double, settled double, requeues double, timeouts double, "
    "redeliveries double, dead_letters double, expired double, dropped double, depth_max double, leased_max double, deferred_max double, "
    "consumers_max double, latency_ms_p50 double, latency_ms_p95 double, latency_ms_p99 double, date string"
)
_COUNTERS: Final = ("messages", "settled", "requeues", "timeouts", "dead_letters", "expired", "dropped")
_LEVELS: Final = ("depth", "leased", "deferred", "consumers")
_LATENCIES: Final = ("p50", "p95", "p99")
# One row per group and sample, as `statistics.py` writes them.
STATISTICS_SCHEMA: Final = (
    "sampled_at timestamp, started_at double, namespace string, topic string, group string, "
    + ", ".join(f"{name} double" for name in (*_COUNTERS, *_LEVELS, *(f"latency_{each}" for each in _LATENCIES)))
    + ", date string"
)


def traffic(bronze: DataFrame) -> DataFrame:
    """Count messages per topic, protocol and minute, and how long they took from the broker's store to the archive."""
    latency_ms = (f.col("archived_at").cast("double") - f.col("timestamp").cast("double")) * 1000
    # A clock that is behind ours is no negative time.
    latency = f.greatest(latency_ms, f.lit(0.0))
    shares = f.percentile_approx(latency, [0.5, 0.95, 0.99], 1000)
    counted = bronze.groupBy("topic", "protocol", _minute("timestamp").alias("minute"), "date").agg(
        f.count("*").alias("messages"),
        f.sum("size").alias("bytes"),
        f.count_if(f.col("attempts") > 1).alias("redelivered"),
        f.coalesce(f.sum(f.greatest(f.col("attempts") - 1, f.lit(0))), f.lit(0)).cast("bigint").alias("redeliveries"),
        shares.alias("_shares"),
        f.max(latency).alias("latency_ms_max"),
    )
    named = [f.col("_shares")[place].alias(f"latency_ms_{name}") for place, name in enumerate(_LATENCIES)]
    kept = ["topic", "protocol", "minute", "messages", "bytes", "redelivered", "redeliveries"]
    return counted.select(*kept, *named, "latency_ms_max", "date")


def failures(quarantine: DataFrame) -> DataFrame:
    """Count what could not be decoded, per topic, minute and reason."""
    counted = quarantine.groupBy("topic", _minute("timestamp").alias("minute"), "reason", "date").agg(f.count("*").alias("messages"))
    return counted.select("topic", "minute", "reason", "messages", "date")


def groups(statistics: DataFrame) -> DataFrame:
    """Make figures per group and minute of samples of the broker's counters.

    A counter's increase belongs to the minute of the later sample; what was counted before the first sample of all is left out, and
    a broker that was started again counts from 0.
    """
    order = Window.partitionBy("namespace", "topic", "group").orderBy("sampled_at")
    started_before = f.lag("started_at").over(order)
    increases = []
    for name in _COUNTERS:
        before = f.lag(name).over(order)
        is_new = (f.col("started_at") != started_before) | (f.col(name) < before)
        increase = f.when(before.isNull(), None).when(is_new, f.col(name)).otherwise(f.col(name) - before)
        increases.append(increase.alias(f"_{name}"))
    sampled = statistics.select("*", *increases)
    sums = [f.sum(f"_{name}").alias(name) for name in _COUNTERS]
    levels = [f.max(name).alias(f"{name}_max") for name in _LEVELS]
    latencies = [(f.max(f"latency_{name}") * 1000).alias(f"latency_ms_{name}") for name in _LATENCIES]
    counted = sampled.groupBy("namespace", "topic", "group", _minute("sampled_at").alias("minute"), "date").agg(*sums, *levels, *latencies)
    redeliveries = (f.col("requeues") + f.col("timeouts")).alias("redeliveries")
    names = [part.split()[0] for part in GROUPS_SCHEMA.split(", ")]
    return counted.select("*", redeliveries).select(*names)


def _minute(column: str) -> Column:
    return f.date_trunc("minute", f.col(column))
