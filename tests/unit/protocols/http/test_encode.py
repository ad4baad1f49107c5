"""Answers into bytes, as Go's server spells them. The vectors were captured from nsqd 1.3.0."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.protocols.http import encode
from polymq.protocols.http.decode import Violation
from polymq.wire.exchange import Request, Response

WALL_NS = 1795219465_123456789
DATE = "Sat, 21 Nov 2026 00:04:25 GMT"
JSON = (("Content-Type", "application/json; charset=utf-8"), ("X-NSQ-Content-Type", "nsq; version=1.0"))
GET = Request("GET", "/")


def encoded(request: Request, response: Response) -> tuple[bytes, bool]:
    assert isinstance(response.body, bytes)
    return encode.encode(request, response, response.body, wall_ns=WALL_NS)


def test_plain_text() -> None:
    expected = f"HTTP/1.1 200 OK\r\nDate: {DATE}\r\nContent-Length: 2\r\nContent-Type: text/plain; charset=utf-8\r\n\r\nOK"
    assert encoded(GET, Response(body=b"OK")) == (expected.encode(), True)


def test_own_headers_come_first_and_sorted() -> None:
    expected = (
        "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, OPTIONS\r\nContent-Type: application/json; charset=utf-8\r\n"
        f"X-Nsq-Content-Type: nsq; version=1.0\r\nDate: {DATE}\r\nContent-Length: 2\r\n\r\n{{}}"
    )
    response = Response(405, (*JSON, ("Allow", "GET, OPTIONS")), b"{}")
    assert encoded(GET, response) == (expected.encode(), True)


def test_closing_answer() -> None:
    expected = (
        "HTTP/1.1 413 Request Entity Too Large\r\nContent-Type: application/json; charset=utf-8\r\n"
        f"X-Nsq-Content-Type: nsq; version=1.0\r\nDate: {DATE}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}"
    )
    assert encoded(Request("GET", "/", keep_alive=False), Response(413, JSON, b"{}")) == (expected.encode(), False)


def test_empty_body_has_no_type() -> None:
    expected = f"HTTP/1.1 200 OK\r\nDate: {DATE}\r\nContent-Length: 0\r\n\r\n"
    assert encoded(GET, Response()) == (expected.encode(), True)


def test_large_body_goes_in_chunks() -> None:
    data, keep_alive = encoded(GET, Response(body=b"x" * 2049))
    assert keep_alive
    assert b"Content-Length" not in data
    assert data.endswith(b"\r\nTransfer-Encoding: chunked\r\n\r\n801\r\n" + b"x" * 2049 + b"\r\n0\r\n\r\n")


def test_largest_body_with_a_length() -> None:
    data, _ = encoded(GET, Response(body=b"x" * 2048))
    assert b"Content-Length: 2048\r\n" in data


def test_http_1_0() -> None:
    request = Request("GET", "/", version_minor=0, keep_alive=False)
    data, keep_alive = encoded(request, Response(body=b"OK"))
    assert not keep_alive
    assert data.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"Connection" not in data


def test_http_1_0_kept_alive() -> None:
    data, keep_alive = encoded(Request("GET", "/", version_minor=0), Response(body=b"OK"))
    assert keep_alive
    assert b"\r\nConnection: keep-alive\r\n" in data


def test_http_1_0_large_body_ends_with_the_connection() -> None:
    data, keep_alive = encoded(Request("GET", "/", version_minor=0), Response(body=b"x" * 2049))
    assert not keep_alive
    assert data.endswith(b"charset=utf-8\r\n\r\n" + b"x" * 2049)
    assert b"Transfer-Encoding" not in data
    assert b"Connection" not in data


def test_head_has_no_body() -> None:
    data, _ = encoded(Request("HEAD", "/"), Response(404, JSON, b"{}"))
    assert data.endswith(b"Content-Length: 2\r\n\r\n")


def test_own_connection_header_is_not_repeated() -> None:
    data, _ = encoded(GET, Response(417, (("Connection", "close"),), close=True))
    assert data.count(b"Connection") == 1


def test_violation() -> None:
    line = "400 Bad Request: missing required Host header"
    assert encode.encode_violation(Violation(line, line)) == (
        b"HTTP/1.1 400 Bad Request: missing required Host header\r\nContent-Type: text/plain; charset=utf-8\r\n"
        b"Connection: close\r\n\r\n400 Bad Request: missing required Host header"
    )


def test_a_chunk_is_never_empty() -> None:
    with pytest.raises(AssertionError):
        encode.chunk(b"")


@given(st.binary(max_size=5000), st.sampled_from([200, 400, 404, 413, 416, 500]), st.booleans(), st.sampled_from([0, 1]))
def test_an_independent_client_reads_it_back(body: bytes, status: int, keep_alive: bool, minor: int) -> None:
    request = Request("GET", "/", keep_alive=keep_alive, version_minor=minor)
    data, stays = encoded(request, Response(status, JSON, body))
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("Host", "h")]))
    client.send(h11.EndOfMessage())
    client.receive_data(data)
    client.receive_data(b"")
    response = client.next_event()
    assert isinstance(response, h11.Response)
    assert response.status_code == status
    got = b""
    while isinstance(event := client.next_event(), h11.Data):
        got += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert got == body
    assert (stays or b"close" in data) if minor else True
