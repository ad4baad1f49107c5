"""One receiver for each protocol, on our own asyncio clients. Read next: `polymq/spool/portion.py`, which is what they give."""
