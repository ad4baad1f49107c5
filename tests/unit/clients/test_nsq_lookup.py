from __future__ import annotations

import asyncio
import http.server
import threading
from typing import TYPE_CHECKING

import pytest

from polymq.clients.nsq_lookup import find_servers
from polymq.errors import ConnectFailed, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Callable

ONE = b'{"channels":["c"],"producers":[{"broadcast_address":"a.invalid","hostname":"h","tcp_port":4150,"http_port":4151}]}'


def found(status: int, body: bytes) -> set[str]:
    return asyncio.run(find_servers("x:4161", "t", ask=lambda *_: (status, body)))


def failing(error: Exception) -> Callable[[str, str, str, float], tuple[int, bytes]]:
    def ask(*_: object) -> tuple[int, bytes]:
        raise error

    return ask


def test_answers() -> None:
    assert found(200, ONE) == {"a.invalid:4150"}
    assert found(200, b'{"data":' + ONE + b"}") == {"a.invalid:4150"}
    assert found(200, b'{"producers":[{"hostname":"h","tcp_port":1},{"broadcast_address":"::1","tcp_port":2}]}') == {"h:1", "[::1]:2"}
    assert found(200, b'{"producers":[]}') == set()
    assert found(404, b'{"message":"TOPIC_NOT_FOUND"}') == set()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff",
        b'{"producers":5}',
        b'{"producers":[5]}',
        b'{"producers":[{}]}',
        b'{"producers":[{"hostname":7,"tcp_port":1}]}',
        b'{"producers":[{"hostname":"h","tcp_port":"1"}]}',
        b'{"producers":[{"hostname":"h","tcp_port":0}]}',
        b'{"producers":[{"hostname":"h","tcp_port":65536}]}',
        b"[" * 100_000,
    ],
)
def test_answers_that_make_no_sense(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="no sense"):
        found(200, body)


def test_other_answers_and_none() -> None:
    with pytest.raises(RemoteProtocolError, match="status 500"):
        found(500, b"")
    for error in (OSError("no route"), TimeoutError("late"), http.client.BadStatusLine("?")):
        with pytest.raises(ConnectFailed, match="x:4161"):
            asyncio.run(find_servers("x:4161", "t", ask=failing(error)))


def serve_two(server: http.server.HTTPServer) -> None:
    server.handle_request()
    server.handle_request()


def test_the_request() -> None:
    seen: list[tuple[str, str | None, str | None]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["Accept"], self.headers["Authorization"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(ONE)

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=serve_two, args=(server,))
        thread.start()
        address = f"127.0.0.1:{server.server_port}"
        assert asyncio.run(find_servers(address, "a#ephemeral")) == {"a.invalid:4150"}
        assert asyncio.run(find_servers(address, "a", secret="s")) == {"a.invalid:4150"}
        thread.join()
    accept = "application/vnd.nsq; version=1.0"
    assert seen == [("/lookup?topic=a%23ephemeral", accept, None), ("/lookup?topic=a", accept, "Bearer s")]
