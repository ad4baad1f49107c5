from __future__ import annotations

import asyncio
import http.server
import json
import threading
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.clients.nsq_lookup import LookupOptions, find_servers, lookup_url
from polymq.clients.nsq_opening import check_address
from polymq.errors import ConnectFailed, DeadlineExceeded, LocalProtocolError, RemoteProtocolError
from polymq.protocols.http.client import Answer, Failure, Question

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

ONE = b'{"channels":["c"],"producers":[{"broadcast_address":"a.invalid","hostname":"h","tcp_port":4150,"http_port":4151}]}'


def found(status: int, body: bytes) -> set[str]:
    async def ask(_question: Question) -> Answer:
        return Answer(status, (), body)

    return asyncio.run(find_servers("x:4161", "t", ask=ask))


def failing(error: Exception) -> Callable[[Question], Awaitable[Answer | Failure]]:
    async def ask(_question: Question) -> Answer:
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
        b'{"producers":null}',
        b'{"producers":"abc"}',
        b'{"producers":{"a":1}}',
        b"[" * 100_000,
    ],
)
def test_answers_that_make_no_sense(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="no sense"):
        found(200, body)


@pytest.mark.parametrize(
    "entry",
    [
        "5",
        "null",
        "[]",
        "{}",
        '{"hostname":"h"}',
        '{"tcp_port":1}',
        '{"hostname":7,"tcp_port":1}',
        '{"hostname":"h","tcp_port":"1"}',
        '{"hostname":"h","tcp_port":true}',
        '{"hostname":"","tcp_port":1}',
        '{"hostname":"h","tcp_port":0}',
        '{"hostname":"h","tcp_port":-1}',
        '{"hostname":"h","tcp_port":65536}',
    ],
)
def test_an_entry_that_is_no_address_does_not_hide_the_others(entry: str, caplog: pytest.LogCaptureFixture) -> None:
    answer = f'{{"producers":[{entry},{{"hostname":"a","tcp_port":1}},{entry}]}}'
    assert found(200, answer.encode()) == {"a:1"}
    (logged,) = caplog.messages
    assert logged.startswith("nsqlookupd at x:4161: 2 of 3 servers have no usable address: ")
    # Where none is of use, what was known before is better than nothing.
    with pytest.raises(RemoteProtocolError, match="none of its servers"):
        found(200, f'{{"producers":[{entry}]}}'.encode())


def test_what_is_logged_of_an_entry_has_an_end(caplog: pytest.LogCaptureFixture) -> None:
    assert found(200, b'{"producers":["' + b"x" * 10_000 + b'",{"hostname":"a","tcp_port":1}]}') == {"a:1"}
    assert len(caplog.messages[0]) < 200


def test_answers_with_more_servers_than_there_are() -> None:
    def answer(count: int) -> bytes:
        return b'{"producers":[' + b",".join(b'{"hostname":"h","tcp_port":%d}' % (1 + number) for number in range(count)) + b"]}"

    assert len(found(200, answer(10_000))) == 10_000
    with pytest.raises(RemoteProtocolError, match="10001 servers"):
        found(200, answer(10_001))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "producers", "hostname", "broadcast_address", "tcp_port", "x"]), inner, max_size=4)
    ),
)
PRODUCER = st.fixed_dictionaries({}, optional=dict.fromkeys(("hostname", "broadcast_address"), JSON) | {"tcp_port": st.integers() | JSON})


@given(
    st.binary(max_size=50) | (JSON | st.fixed_dictionaries({"producers": st.lists(PRODUCER, max_size=3)})).map(json.dumps).map(str.encode)
)
def test_whatever_comes_is_addresses_or_makes_no_sense(body: bytes) -> None:
    try:
        addresses = found(200, body)
    except RemoteProtocolError:
        return
    for address in addresses:
        check_address(address)


def test_other_answers_and_none() -> None:
    with pytest.raises(RemoteProtocolError, match="status 500"):
        found(500, b"")
    for error, kind in (
        (OSError("no route"), ConnectFailed),
        (TimeoutError("late"), DeadlineExceeded),
        (UnicodeError("host"), ConnectFailed),
    ):
        with pytest.raises(kind, match="x:4161"):
            asyncio.run(find_servers("x:4161", "t", ask=failing(error)))


@pytest.mark.parametrize("address", ["", "x", "x:port", "x:0", "https://x:4161", "ftp://x:4161", "x:4161/lookup", "x y:4161", "x:99999"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(LocalProtocolError, match="HOST:PORT"):
        asyncio.run(find_servers(address, "t", ask=failing(AssertionError())))


def test_addresses() -> None:
    assert lookup_url("x:4161") == lookup_url("http://x:4161/") == "http://x:4161"
    assert lookup_url("[::1]:4161") == "http://[::1]:4161"


def test_secrets_that_cannot_be_shown() -> None:
    for secret in ("a\r\nX: y", "\u00e9"):
        with pytest.raises(LocalProtocolError, match="printable"):
            asyncio.run(find_servers("x:1", "t", secret=secret, ask=failing(AssertionError())))


def test_options_that_make_no_sense() -> None:
    for bad in ({"interval_seconds": 0.0}, {"timeout_seconds": 0.0}, {"jitter": -0.1}, {"jitter": float("nan")}):
        with pytest.raises(LocalProtocolError, match="seconds"):
            LookupOptions(**bad)


async def serve(answers: list[bytes], then: Callable[[asyncio.StreamWriter], Awaitable[None]], timeout_seconds: float) -> set[str]:
    """Ask a server that answers with these bytes, and then does something."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            for answer in answers:
                writer.write(answer)
                await writer.drain()
            await then(writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        return await find_servers(f"{host}:{port}", "t", timeout_seconds=timeout_seconds)


async def drip(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"X-Drip: 1\r\n")
        await writer.drain()
        await asyncio.sleep(0.01)


async def pour(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
        await writer.drain()


async def nothing(_writer: asyncio.StreamWriter) -> None:
    """Hang up."""


def test_a_server_that_drips_has_no_more_time_than_others() -> None:
    with pytest.raises(DeadlineExceeded, match=r"within 0\.2 s"):
        asyncio.run(serve([b"HTTP/1.1 200 OK\r\n"], drip, 0.2))


def test_answers_that_end_too_early_or_never() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    for answers, then, reason in (
        ([head], pour, "more than 4194304 bytes"),
        ([head], nothing, "hung up"),
        ([], nothing, "hung up"),
        ([b"SSH-2.0\r\n\r\n"], nothing, "not an answer in HTTP"),
        ([b"HTTP/1.1 200 OK\r\nX: " + b"x" * 20_000], nothing, "HTTP"),
    ):
        with pytest.raises(RemoteProtocolError, match=reason):
            asyncio.run(serve(answers, then, 10))


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
