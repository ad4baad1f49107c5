"""An authentication server that does what a secret says, well or badly, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.parse
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["AuthServer", "auth_server", "authorization", "good"]

HANG_S = 20.0  # longer than anybody waits


def authorization(topic: str = ".*", channels: tuple[str, ...] = (".*",), permissions: tuple[str, ...] = ("subscribe", "publish")) -> Any:
    return {"topic": topic, "channels": list(channels), "permissions": list(permissions)}


def good(*authorizations: Any, ttl: int = 3600, **more: Any) -> tuple[int, bytes]:
    """An answer."""
    found = {
        "ttl": ttl,
        "identity": "me",
        "identity_url": "http://me.invalid",
        "authorizations": list(authorizations or (authorization(),)),
    }
    return 200, json.dumps(found | more).encode()


@dataclass
class AuthServer:
    """The server; `answers` has one for each secret, or a function that has the connection for itself."""

    address: str = ""
    answers: dict[str, tuple[int, bytes] | Callable[[BaseHTTPRequestHandler], None]] = field(default_factory=dict)
    asked: list[dict[str, str]] = field(default_factory=list)
    heads: list[dict[str, str]] = field(default_factory=list)
    ending: threading.Event = field(default_factory=threading.Event)

    def count(self, secret: str) -> int:
        """How often a secret was asked for."""
        return sum(each["secret"] == secret for each in self.asked)

    def answer(self, handler: BaseHTTPRequestHandler, arguments: dict[str, str]) -> None:
        self.asked.append(arguments)
        self.heads.append(dict(handler.headers.items()))
        answer = self.answers.get(arguments.get("secret", ""), (403, b"forbidden"))
        if callable(answer):
            answer(handler)
            return
        status, body = answer
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    # Ways to misbehave

    def hang(self, _handler: BaseHTTPRequestHandler) -> None:
        """Say nothing."""
        self.ending.wait(HANG_S)

    def drip(self, handler: BaseHTTPRequestHandler) -> None:
        """Send a byte at a time, without end."""
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not self.ending.wait(0.05):
            handler.wfile.write(b"x")
            handler.wfile.flush()

    def flood(self, handler: BaseHTTPRequestHandler) -> None:
        """Send an answer without end."""
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{")
        while not self.ending.is_set():
            handler.wfile.write(b" " * 65536)

    def hang_up(self, handler: BaseHTTPRequestHandler) -> None:
        """Break off in the middle of an answer."""
        handler.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"ttl":')

    def talk_nonsense(self, handler: BaseHTTPRequestHandler) -> None:
        """Speak another protocol."""
        handler.wfile.write(b"220 mail.invalid ESMTP\r\n" * 1000)

    def redirect_in_a_circle(self, handler: BaseHTTPRequestHandler) -> None:
        """Send the client back to the same place."""
        handler.send_response(302)
        handler.send_header("Location", handler.path)
        handler.end_headers()


@contextlib.contextmanager
def auth_server() -> Iterator[AuthServer]:
    """Run one."""
    server = AuthServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            arguments = {name: values[0] for name, values in urllib.parse.parse_qs(query, keep_blank_values=True).items()}
            self._answer({"path": path, **arguments})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._answer({"path": self.path, **{name: values[0] for name, values in body.items()}})

        def _answer(self, arguments: dict[str, str]) -> None:
            with contextlib.suppress(ConnectionError):
                server.answer(self, arguments)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *_: object) -> None:
            """Clients that hang up are what is being tested."""

    with Quiet(("127.0.0.1", 0), Handler) as listening:
        server.address = f"127.0.0.1:{listening.server_address[1]}"
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield server
        finally:
            server.ending.set()
            listening.shutdown()
            thread.join()
