"""The server: what drives the broker, and the only place on its side that knows sockets and asyncio.

Read in this order: `pump.py` (a turn), `connection.py` and `intake.py` (what it keeps), `shell.py` (who wakes it),
`layers.py` (TLS and the like), `node.py`, `mounts.py` and `serve.py` (how a broker is put together).
"""
