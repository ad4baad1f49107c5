"""HTTPS, and what plain HTTP may do beside it, as nsqd does it."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from typing import TYPE_CHECKING

import pytest

from tests.interop.conftest import chosen_kinds
from tests.interop.servers import ROOT, Running, free_ports, running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

IDENTITY = ROOT / "tests" / "unit" / "wire" / "self_signed.pem"
BOTH = pytest.mark.parametrize("kind", chosen_kinds())


class Secured:
    """A server with HTTPS."""

    def __init__(self, server: Running, port: int) -> None:
        self.server = server
        self.port = port

    def ask(self, method: str, path: str, body: bytes = b"", *, certificate: bool = False) -> tuple[int, bytes]:
        """One request over HTTPS."""
        with contextlib.closing(self.connect(certificate=certificate)) as connection:
            connection.request(method, path, body if method == "POST" else None)
            response = connection.getresponse()
            return response.status, response.read()

    def connect(self, *, certificate: bool = False) -> http.client.HTTPSConnection:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if certificate:
            context.load_cert_chain(IDENTITY)
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=20, context=context)


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Callable[..., Secured]]:
    with contextlib.ExitStack() as stack:

        def start(kind: str, **options: str) -> Secured:
            (port,) = free_ports(1)
            identity = {"tls_cert": str(IDENTITY), "tls_key": str(IDENTITY), "https_address": f"127.0.0.1:{port}"}
            folder = tmp_path / kind
            folder.mkdir()
            return Secured(stack.enter_context(running(kind, folder, options=identity | options)), port)

        yield start


@BOTH
def test_the_same_endpoints_behind_both_doors(kind: str, secured: Callable[..., Secured]) -> None:
    server = secured(kind)
    assert server.ask("GET", "/ping") == (200, b"OK")
    assert server.server.request("GET", "/ping") == (200, b"OK")
    assert server.ask("POST", "/pub?topic=t", b"x" * 1_000_000) == (200, b"OK")
    assert server.ask("POST", "/mpub?topic=t", b"a\nb") == (200, b"OK")
    assert server.server.topic("t")["message_count"] == 3
    with contextlib.closing(server.connect()) as connection:
        for _ in range(3):
            connection.request("GET", "/stats?format=json")
            assert b'"message_bytes":1000002' in connection.getresponse().read()


@BOTH
def test_plain_http_at_the_https_port(kind: str, secured: Callable[..., Secured]) -> None:
    server = secured(kind)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as plain:
        plain.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        while more := plain.recv(1000):
            answer += more
    assert answer == b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


@BOTH
def test_tls_required_closes_plain_http(kind: str, secured: Callable[..., Secured]) -> None:
    server = secured(kind, tls_required="true")
    refused = (403, b'{"message": "TLS_REQUIRED", "https_port": %d}' % server.port)
    assert server.server.request("GET", "/ping") == refused
    assert server.server.request("POST", "/pub?topic=t", b"x") == refused
    assert server.ask("POST", "/pub?topic=t", b"x") == (200, b"OK")
    assert server.ask("GET", "/config/tls_required") == (200, b"2")


@BOTH
def test_tls_required_except_for_http(kind: str, secured: Callable[..., Secured]) -> None:
    server = secured(kind, tls_required="tcp-https")
    assert server.server.request("GET", "/ping") == (200, b"OK")
    assert server.ask("GET", "/ping") == (200, b"OK")
    assert server.ask("GET", "/config/tls_required") == (200, b"1")


@BOTH
@pytest.mark.parametrize("policy", ["require", "require-verify"])
def test_policies_for_clients_certificates(kind: str, policy: str, secured: Callable[..., Secured]) -> None:
    server = secured(kind, tls_client_auth_policy=policy, tls_root_ca_file=str(IDENTITY))
    with pytest.raises((ssl.SSLError, ConnectionError, http.client.RemoteDisconnected)):
        server.ask("GET", "/ping")
    assert server.ask("GET", "/ping", certificate=True) == (200, b"OK")
    assert server.server.request("GET", "/ping")[0] == 403
    assert server.ask("GET", "/config/tls_client_auth_policy", certificate=True) == (200, policy.encode())
