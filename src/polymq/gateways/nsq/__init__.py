"""NSQ's side of the gateways: the TCP protocol (`tcp.py`), its HTTP endpoints and statistics (`http.py`, `stats.py`)."""
