"""The product's own HTTP endpoints: the log for readers such as Spark, statistics, health.

Plain functions from a request and a `Door` to an answer; `endpoints.py` is the table that the server mounts. Nothing
here publishes or settles, and nothing here knows how a request travels.
"""
