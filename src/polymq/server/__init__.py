<<<<<<< HEAD
"""The server: what drives the broker, and the only place on its side that knows sockets and asyncio.

Read in this order: `pump.py` (a turn), `connection.py` and `intake.py` (what it keeps), `shell.py` (who wakes it),
`layers.py` (TLS and the like), `node.py`, `mounts.py` and `serve.py` (how a broker is put together).
=======
"""The server: sockets, turns, time and the process. Nothing else here waits for anything.

Read in this order: `ports.py`, `pump.py` (the turn), `shell.py` (who wakes it), `node.py` and `mounts.py` (how the
parts are put together), `serve.py` (the process).
>>>>>>> main
"""
