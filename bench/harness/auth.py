"""An authentication server that allows everybody everything, for an hour: what is measured is what the broker makes of it."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["AuthServer"]

ANSWER = json.dumps(
    {
        "ttl": 3600,
        "identity": "bench",
        "identity_url": "",
        "authorizations": [{"topic": ".*", "channels": [".*"], "permissions": ["subscribe", "publish"]}],
    }
).encode()


class Handler(BaseHTTPRequestHandler):
    """Answers each question alike."""

    def do_GET(self) -> None:
        """Say yes."""
        self.send_response(200)
        self.send_header("Content-Length", str(len(ANSWER)))
        self.end_headers()
        self.wfile.write(ANSWER)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class AuthServer:
    """The server, in a thread of the bench. Each connection asks once, before the clock starts."""

    def __enter__(self) -> str:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        return f"127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
