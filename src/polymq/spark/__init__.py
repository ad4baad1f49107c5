"""Spark's data sources and sinks, and the pipeline over them. docs/spark.md is for users; `columns.py` has what all sources give.

A folder each: `log` is the source over polymq's own log. pyspark is imported nowhere else in this project.
"""
