"""Spark's data sources and sinks, and the pipeline over them. docs/spark.md is for users; `columns.py` has what all sources give.

A folder each: `log` is the source over polymq's own log. pyspark is imported nowhere else in this project.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from polymq.spark.lag import LagListener

__all__ = ["LagListener"]


def __getattr__(name: str) -> Any:
    # Only when it is asked for: Spark imports this package in every worker.
    if name == "LagListener":
        from polymq.spark.lag import LagListener

        return LagListener
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
