"""The store: append-only logs of record batches and one journal, in one data folder.

Start with `store.py`; `docs/DATA_FILES.md` describes what is on the disk.
"""
