"""Makes `format("nats")` known to Spark by itself.

Spark imports every top-level package named `pyspark_*` and registers its `DefaultSource`. Nothing else is here.
"""

from __future__ import annotations

from polymq.spark.spooled.source import NatsDataSource as DefaultSource

__all__ = ["DefaultSource"]
