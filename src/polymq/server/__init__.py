"""The server: sockets, turns, time and the process. Nothing else here waits for anything.

Read in this order: `ports.py`, `pump.py` (the turn), `shell.py` (who wakes it), `node.py` and `mounts.py` (how the
parts are put together), `serve.py` (the process).
"""
