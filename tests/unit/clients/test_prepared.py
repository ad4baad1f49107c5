"""The client of prepared batches against a server that answers what a test says."""

from __future__ import annotations

import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.prepared import PreparedClient
from polymq.errors import ConnectFailed, ConnectionLost, Refusal, RefusalCode, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

Reply = tuple[int, "bytes | None"]


class Server:
    """Gives one answer after the other; None: hangs up."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.requests: list[tuple[str, bytes, str]] = []
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                server.requests.append((self.path, body, self.headers.get("Authorization", "")))
                status, answer = server.replies.pop(0)
                if answer is None:
                    self.close_connection = True
                    return
                self.send_response(status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_words: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.http.shutdown()
    server.http.server_close()


def client_of(server: Server, **more: Any) -> PreparedClient:
    return PreparedClient(server.address, secret="s", sleep=lambda _seconds: None, **more)


def test_it_says_what_the_door_wants(server: Server) -> None:
    server.replies = [(200, b"{}"), (202, b'{"state":"committing"}'), (200, b'{"state":"committed"}'), (200, b"{}")]
    server.replies.append((200, b'{"topics":{"t":3}}'))
    client = client_of(server)
    client.prepare("my/query", "p", 2, [("t", -1, 0, b"batch"), ("u", 1, 3, b"more")])
    client.commit("q", 7, [("p", 3, 9)], once=True)
    client.abort("q", ["p"])
    assert client.partitions(["t"]) == {"t": 3}
    client.close()
    (path, body, secret), *others = server.requests
    assert (path, secret) == ("/v1/prepared/my%2Fquery/parts/p?request=2", "Bearer s")
    size = struct.unpack_from("<I", body)[0]
    assert json.loads(body[4 : 4 + size]) == {"frames": [["t", -1, 0], ["u", 1, 3]]}
    assert body[4 + size :] == b"batchmore"
    assert [json.loads(each[1]) for each in others] == [
        {"batch": 7, "parts": [["p", 3, 9]], "once": True},
        {"batch": 7, "parts": [["p", 3, 9]], "once": True},
        {"parts": ["p"]},
        {"topics": ["t"]},
    ]
    assert repr(client) == f"<PreparedClient {server.address}>"


def test_it_tries_again_what_may_pass(server: Server) -> None:
    full = json.dumps({"error": "STORE_FULL", "message": "no room"}).encode()
    server.replies = [(200, None), (503, full), (200, b"{}")]
    client = client_of(server)
    client.abort("q", [])
    client.close()
    assert len(server.requests) == 3


def test_it_raises_what_does_not_pass(server: Server) -> None:
    gone = json.dumps({"error": "MESSAGE_NOT_FOUND", "message": "not there"}).encode()
    server.replies = [(404, gone), (500, b"?"), (200, b"[]"), (200, b"{}"), (200, None)]
    client = client_of(server, retry_seconds=0)
    with pytest.raises(Refusal) as refused:
        client.commit("q", 1, [])
    assert (refused.value.code, refused.value.text) == (RefusalCode.MESSAGE_NOT_FOUND, "not there")
    for call in (lambda: client.abort("q", []), lambda: client.abort("q", []), lambda: client.partitions(["t"])):
        with pytest.raises(RemoteProtocolError):
            call()
    with pytest.raises(ConnectionLost):
        client.abort("q", [])
    client.close()


def test_nobody_there(server: Server) -> None:
    server.http.shutdown()
    server.http.server_close()
    with pytest.raises(ConnectFailed):
        client_of(server, retry_seconds=0).abort("q", [])
