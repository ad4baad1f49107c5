"""Measures polymq beside the servers that it stands in for. Start in run.py; docs/BENCHMARKS.md explains the results."""
