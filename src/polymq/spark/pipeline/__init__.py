"""The data pipeline: everything published anywhere becomes tables. docs/PIPELINE.md is for users, docs/adr/0026 has the choices.

`bronze.py`, `silver.py` and `gold.py` are pure functions from DataFrame to DataFrame; `runner.py` runs them continuously and
`declared.py` declares them once more as a Spark Declarative Pipeline. `catalog.py` says which files are a table's.
What needs no Spark (configuration, catalog, compaction, replay, report) imports none.
"""
