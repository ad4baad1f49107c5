"""Spark over the log: the data source `polymq`. Start at `source.py`."""
