"""The main job: real flights through the broker, a kill -9 in the middle, into Parquet, and proved complete.

Run it with `make run` or `python -m examples.flights`. Read `run.py` first: it tells the story; the other files are
one step of it each.
"""
