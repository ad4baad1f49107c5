"""How commands talk to a broker over HTTP, and what they make of what it says."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from polymq.cli import nsq_http
from polymq.cli.nsq_http import NsqHttp, NsqHttpRefusal, connected, explained
from polymq.errors import ConfigError, ConnectFailed, ConnectionLost, DeadlineExceeded, PolyMQError, RefusalCode, RemoteProtocolError
from polymq.gateways.nsq.http_answers import REFUSALS

NAMES = {"topic": "t", "channel": "c", "id": "7", "partition": "3", "dead_letter": "d", "defer": "5", "max_in_flight": "6"}


def said(status: int, code: str, arguments: dict[str, str] | None = None) -> str:
    return explained(status, json.dumps({"message": code}).encode(), "h:1", "/p", NAMES if arguments is None else arguments)


@pytest.mark.parametrize("code", nsq_http._MEANINGS)
def test_every_explanation_has_what_it_speaks_of(code: str) -> None:
    text = said(400, code)
    assert "{" not in text
    assert "?" not in text


def test_an_explanation_of_something_that_was_not_asked_for() -> None:
    assert said(404, "TOPIC_NOT_FOUND", {}) == "there is no topic '?': polymq stats lists all"


@pytest.mark.parametrize("code", [RefusalCode.UNAUTHENTICATED, RefusalCode.FORBIDDEN, RefusalCode.STORE_FAILED, RefusalCode.SHUTTING_DOWN])
def test_what_a_user_can_do_something_about_is_explained(code: RefusalCode) -> None:
    assert "refused" not in said(*REFUSALS[code])


def test_other_codes_are_shown_as_they_are() -> None:
    assert said(400, "INVALID_COUNT") == "the broker at h:1 refused /p: INVALID_COUNT (400)"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"{}", b"7"])
def test_servers_that_are_none_of_ours(body: bytes) -> None:
    assert (
        explained(502, body, "h:1", "/p", {})
        == "the server at h:1 answered /p with status 502 and no reason that polymq knows: is it a broker?"
    )


class Pages:
    """A list of so many messages, three to a page at most."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.asked: list[str] = []

    def __call__(self, method: str, path: str, body: bytes = b"", headers: object = (), /) -> tuple[int, bytes]:
        assert (body, headers) == (b"", ())
        self.asked.append(path)
        arguments = dict(pair.split("=") for pair in path.partition("?")[2].split("&"))
        first = int(arguments.get("after", -1)) + 1
        rows = list(range(first, min(first + min(3, int(arguments["count"])), self.size)))
        return 200, json.dumps({"messages": rows, "next": rows[-1] if rows else None}).encode()


@pytest.mark.parametrize(("size", "count", "requests"), [(0, 10, 1), (2, 2, 1), (5, 2, 1), (7, 100, 4), (6, 6, 2)])
def test_pages_are_asked_for_until_there_is_enough(size: int, count: int, requests: int) -> None:
    pages = Pages(size)
    assert list(NsqHttp("h:1", pages).pages("/p", count, x="y", none=None)) == list(range(min(size, count)))
    assert len(pages.asked) == requests
    assert all("x=y" in path and "none" not in path for path in pages.asked)


def test_an_answer_that_is_no_json() -> None:
    with pytest.raises(RemoteProtocolError, match="the answer of h:1 to /p is not JSON"):
        NsqHttp("h:1", lambda *_: (200, b"<html>")).get("/p")


# Over a socket


@pytest.fixture
def serve() -> Any:
    """A server for one connection: gives what it is asked to `heard`, and says what it is told to."""
    listener = socket.create_server(("127.0.0.1", 0))
    threads: list[threading.Thread] = []
    heard: list[bytes] = []

    def start(*answers: bytes) -> tuple[str, list[bytes]]:
        def run() -> None:
            connection, _ = listener.accept()
            with connection:
                for answer in answers:
                    request = connection.recv(65536)
                    if b"Content-Length: 4\r\n" in request and not request.endswith(b"body"):
                        request += connection.recv(4, socket.MSG_WAITALL)
                    heard.append(request)
                    connection.sendall(answer)

        threads.append(threading.Thread(target=run))
        threads[0].start()
        return f"127.0.0.1:{listener.getsockname()[1]}", heard

    yield start
    for thread in threads:
        thread.join()
    listener.close()


Serve = Callable[..., tuple[str, list[bytes]]]
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


def test_one_connection_for_all_requests_with_the_secret(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYMQ_SECRET", "planted")
    address, heard = serve(OK, OK)
    with connected(address) as broker:
        broker.post("/a", x="1 2")
        assert broker.change("/b") == {}
    assert [request.split(b"\r\n")[0] for request in heard] == [b"POST /a?x=1+2 HTTP/1.1", b"POST /b? HTTP/1.1"]
    assert all(b"Authorization: Bearer planted\r\n" in request for request in heard)


def test_bodies_and_headers_that_come_several_times(serve: Serve) -> None:
    address, heard = serve(OK)
    with connected(address) as broker:
        broker.send("/a", b"body", [("X", b"1"), ("X", b"\xc3\xbc")], y=None)
    head, _, body = heard[0].partition(b"\r\n\r\n")
    assert (head.split(b"\r\n")[0], body) == (b"POST /a? HTTP/1.1", b"body")
    assert b"Content-Length: 4\r\n" in head
    assert head.endswith(b"X: 1\r\nX: \xc3\xbc")


def test_a_connection_that_was_not_used_for_long_is_not_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    class Connection:
        """As much of `http.client.HTTPConnection` as is used."""

        sock: object = None

        def __init__(self, host: str, _port: int, timeout: float) -> None:
            made.append(host)

        def connect(self) -> None:
            self.sock = self
            made.append("connected")

        def close(self) -> None:
            self.sock = None

        def nothing(self, *_: object) -> Any:
            return self

        putrequest = putheader = endheaders = getresponse = nothing
        status = 200

        def read(self, _size: int) -> bytes:
            return b"{}"

    now = [100.0]
    monkeypatch.setattr("http.client.HTTPConnection", Connection)
    monkeypatch.setattr("polymq.cli.nsq_http.time.monotonic", lambda: now[0])
    with connected("h:1") as broker:
        for pause_seconds, connections in ((0, 1), (29, 1), (30, 1), (31, 2), (1, 2)):
            now[0] += pause_seconds
            broker.post("/a")
            assert made.count("connected") == connections


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"


def test_a_stream_is_read_piece_by_piece_on_a_connection_of_its_own(serve: Serve) -> None:
    address, heard = serve(CHUNKED + b"4\r\nab\nc\r\n2\r\nd\n\r\n0\r\n\r\n")
    with connected(address) as broker:
        stream = broker.stream("/sub", topic="t")
        pieces = []
        while piece := stream.read(10):
            pieces.append(piece)
        stream.close()
    assert b"".join(pieces) == b"ab\ncd\n"
    assert heard[0].startswith(b"GET /sub?topic=t HTTP/1.1\r\n")


def test_a_stream_that_says_nothing(serve: Serve) -> None:
    address, _ = serve(CHUNKED + b"2\r\na\n\r\n", b"")
    with connected(address) as broker:
        stream = broker.stream("/sub")
        assert stream.read(10) == b"a\n"
        with pytest.raises(TimeoutError):
            stream.read(0.01)
        stream.close()


def test_a_stream_that_breaks_off(serve: Serve) -> None:
    address, _ = serve(CHUNKED + b"9\r\na\n")
    with connected(address) as broker:
        stream = broker.stream("/sub")
        assert stream.read(10) == b"a\n"
        with pytest.raises(ConnectionLost):
            stream.read(10)
        stream.close()


def test_a_stream_that_is_refused(serve: Serve) -> None:
    body = b'{"message":"TOO_MANY_CONSUMERS"}'
    address, _ = serve(b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    with connected(address) as broker, pytest.raises(NsqHttpRefusal, match="channel 'c' of topic 't' has as many consumers") as error:
        broker.stream("/sub", topic="t", channel="c")
    assert error.value.code == "TOO_MANY_CONSUMERS"


def test_a_stream_from_a_server_that_hangs_up_or_is_not_there(serve: Serve) -> None:
    address, _ = serve(b"")
    with connected(address) as broker, pytest.raises(ConnectionLost):
        broker.stream("/sub")
    with connected("127.0.0.1:1") as broker, pytest.raises(ConnectFailed):
        broker.stream("/sub")


def test_without_a_secret_none_is_sent(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLYMQ_SECRET", raising=False)
    address, heard = serve(OK)
    with connected(address) as broker:
        broker.get("/a")
    assert b"Authorization" not in heard[0]


def failing(address: str) -> PolyMQError:
    with pytest.raises(PolyMQError) as error, connected(address) as broker:
        broker.get("/a")
    return error.value


def test_a_server_that_hangs_up(serve: Serve) -> None:
    assert isinstance(failing(serve(b"")[0]), ConnectionLost)


def test_a_server_that_hangs_up_within_its_answer(serve: Serve) -> None:
    assert isinstance(failing(serve(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab")[0]), ConnectionLost)


def test_a_server_that_says_nothing(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsq_http, "_TIMEOUT_SECONDS", 0.01)
    address, _ = serve(b"HTTP/1.1 200 OK\r\n", b"")
    error = failing(address)
    assert isinstance(error, DeadlineExceeded)
    assert str(error) == f"no answer from {address} within 0.01 s"


def test_a_server_without_end(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nsq_http, "_ANSWER_SIZE_BYTES_MAX", 1)
    assert isinstance(failing(serve(OK)[0]), RemoteProtocolError)


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert isinstance(failing(f"127.0.0.1:{port}"), ConnectFailed)


def test_a_secret_that_cannot_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLYMQ_SECRET", "pläntéd\n")
    error = failing("127.0.0.1:1")
    assert isinstance(error, ConfigError)
    assert "POLYMQ_SECRET" in str(error)
