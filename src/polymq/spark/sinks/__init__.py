"""Sinks: what Spark writes goes to polymq exactly once, and to other brokers at least once. See docs/SPARK_SINKS.md."""
