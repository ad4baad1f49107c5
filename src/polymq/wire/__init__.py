"""What every layer shares: integers, checksums, the record batch, and the shapes in which messages travel.

Start at `records.py`; the byte layout is in docs/INTERNALS.md.
"""
