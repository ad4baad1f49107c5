from __future__ import annotations

from typing import TYPE_CHECKING

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.protocols.http.client import Answer, Exchange, Failure, Question, Where, redirected, where, without_user

if TYPE_CHECKING:
    from collections.abc import Callable

URL = "http://auth.invalid:8080/auth?secret=planted"


def question(url: str = URL, **changes: object) -> Question:
    return Question(url, timeout_ns=5, connect_timeout_ns=2, **changes)  # type: ignore[arg-type]  # each test knows its own


def exchange(asked: Question | None = None) -> Exchange:
    asked = asked or question()
    place = where(asked.url)
    assert place is not None
    return Exchange(asked, place)


def served(data: bytes) -> h11.Request:
    """Read a request as a server does."""
    server = h11.Connection(h11.SERVER)
    server.receive_data(data)
    request = server.next_event()
    assert isinstance(request, h11.Request)
    return request


# URLs


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://host/path?a=b&c=%20", Where(False, "host", 80, "host", "/path?a=b&c=%20")),
        ("https://host", Where(True, "host", 443, "host", "/")),
        ("https://host:8443/ä b", Where(True, "host", 8443, "host:8443", "/%C3%A4%20b")),
        ("http://[::1]:80/x#y", Where(False, "::1", 80, "[::1]:80", "/x")),
        ("http://some_one:p%40ss@10.0.0.1/", Where(False, "10.0.0.1", 80, "10.0.0.1", "/", "some_one:p@ss")),
        ("HTTP://Host/", Where(False, "host", 80, "host", "/")),
    ],
)
def test_a_url_is_taken_apart(url: str, place: Where) -> None:
    assert where(url) == place


@pytest.mark.parametrize(
    "url",
    ["", "host:80", "ftp://host/", "http://", "http://:80/", "http://host:0/", "http://host:65536/", "http://host:x/", "http://[::1/",
     "http://ho st/", "http://-host/", "http://" + "a" * 254 + "/"],
)  # fmt: skip
def test_what_is_no_url_of_http(url: str) -> None:
    assert where(url) is None
    assert question(url).shown == "a URL that cannot be read"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://planted:planted@h:1/auth?a=b@c", "http://h:1/auth?a=b@c"),
        ("https://pl@nted@h", "https://h"),
        ("http://planted@[::1]:1", "http://[::1]:1"),
        ("planted:planted@h:1", "h:1"),
        ("http://h:1/u@v://w@x", "http://h:1/u@v://w@x"),
        ("http://h?u://w@x", "http://h?u://w@x"),
        ("h:1", "h:1"),
        ("", ""),
    ],
)
def test_who_logs_in_is_left_out_of_a_url(url: str, shown: str) -> None:
    assert without_user(url) == shown


def test_secrets_are_not_shown() -> None:
    asked = question("http://planted:planted@host:1/auth?secret=planted", body=b"planted")
    assert asked.shown == "http://host:1/auth"
    assert "planted" not in repr((asked, where(asked.url), Answer(200, (), b"planted")))


# Requests


def test_a_question_without_a_body() -> None:
    request = served(exchange(question(headers=(("Accept", "application/x"),))).request())
    assert (request.method, request.target) == (b"GET", b"/auth?secret=planted")
    assert dict(request.headers) == {
        b"host": b"auth.invalid:8080",
        b"user-agent": b"polymq",
        b"accept": b"application/x",
        b"connection": b"close",
    }


def test_a_question_with_a_body_and_a_user() -> None:
    data = exchange(question("http://me:secret@host/", method="POST", body=b'{"a":1}')).request()
    request = served(data)
    assert request.method == b"POST"
    assert dict(request.headers)[b"content-length"] == b"7"
    assert dict(request.headers)[b"authorization"] == b"Basic bWU6c2VjcmV0"
    assert data.endswith(b'\r\n\r\n{"a":1}')


# Answers

ANSWERS = {
    "a length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", Answer(200, ((b"content-length", b"5"),), b"hello")),
    "chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
        Answer(200, ((b"transfer-encoding", b"chunked"),), b"hello"),
    ),
    "no body": (b"HTTP/1.1 204 No Content\r\n\r\n", Answer(204, (), b"")),
    "first another": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n",
        Answer(403, ((b"content-length", b"0"),), b""),
    ),
}


def whole(data: bytes) -> list[bytes]:
    return [data]


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def with_more_behind(data: bytes) -> list[bytes]:
    return [data + b"HTTP/1.1 500 No\r\n\r\n"]


@pytest.mark.parametrize("cut", [whole, byte_by_byte, with_more_behind])
@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_however_it_is_cut(name: str, cut: Callable[[bytes], list[bytes]]) -> None:
    data, answer = ANSWERS[name]
    asked = exchange()
    asked.request()
    results = [asked.receive(piece) for piece in cut(data)]
    assert results[-1] == answer
    assert results[:-1] == [None] * (len(results) - 1)
    assert asked.eof() == answer


def test_an_answer_that_ends_with_the_connection() -> None:
    asked = exchange()
    asked.request()
    assert asked.receive(b"HTTP/1.0 200 OK\r\nServer: old\r\n\r\nhel") is None
    assert asked.receive(b"lo") is None
    assert asked.eof() == Answer(200, ((b"server", b"old"),), b"hello")


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200 OK\r\nContent", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"])
def test_an_answer_that_is_cut_off(data: bytes) -> None:
    asked = exchange()
    asked.request()
    if data:
        assert asked.receive(data) is None
    assert asked.eof() == Failure("hung up before the answer was whole")


@pytest.mark.parametrize(
    "data",
    [
        b"220 mail.invalid ESMTP\r\n\r\n",
        b"\x16\x03\x01\x00\x05",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * limits.HTTP_HEAD_SIZE_BYTES_MAX,
    ],
)
def test_what_is_no_answer(data: bytes) -> None:
    asked = exchange()
    asked.request()
    result = asked.receive(data)
    assert isinstance(result, Failure)
    assert result.reason.startswith("not an answer in HTTP: ")
    assert asked.receive(b"more") is result


def test_an_answer_may_only_be_so_large() -> None:
    limit = limits.HTTP_ANSWER_SIZE_BYTES_MAX
    for size, fits in ((limit, True), (limit + 1, False)):
        asked = exchange()
        asked.request()
        result = asked.receive(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + b"x" * size)
        if fits:
            assert isinstance(result, Answer)
        else:
            assert result == Failure(f"an answer of more than {limit} bytes")


def test_overhead_without_end_is_given_up() -> None:
    asked = exchange(question(body_size_bytes_max=10))
    asked.request()
    result = None
    received = 0
    while result is None:
        result = asked.receive(b"HTTP/1.1 100 Continue\r\n\r\n")
        received += 1
        assert received < 10_000
    assert isinstance(result, Failure)
    assert result.reason.startswith("an answer without end")


# Redirects


def moved(status: int, location: bytes) -> Answer:
    return Answer(status, ((b"location", location),), b"")


@pytest.mark.parametrize(
    ("location", "url"),
    [
        (b"/other", "http://auth.invalid:8080/other"),
        (b"other?x=1", "http://auth.invalid:8080/other?x=1"),
        (b"https://else.invalid/", "https://else.invalid/"),
        (b"//else.invalid/x", "http://else.invalid/x"),
    ],
)
def test_a_redirect_says_what_to_ask_instead(location: bytes, url: str) -> None:
    following = redirected(question(), moved(302, location))
    assert isinstance(following, Question)
    assert following.url == url
    assert following.redirects_left == limits.HTTP_REDIRECTS_MAX - 1


@pytest.mark.parametrize(("status", "method"), [(301, "GET"), (302, "GET"), (303, "GET"), (307, "POST"), (308, "POST")])
def test_a_redirect_may_change_the_method(status: int, method: str) -> None:
    asked = question(method="POST", body=b"{}", headers=(("Accept", "a"), ("Content-Type", "b")))
    following = redirected(asked, moved(status, b"/"))
    assert isinstance(following, Question)
    assert following.method == method
    assert following.body == (b"{}" if method == "POST" else b"")
    assert len(following.headers) == (2 if method == "POST" else 1)


def test_what_is_no_redirect() -> None:
    assert redirected(question(), moved(200, b"/")) is None
    assert redirected(question(), Answer(302)) is None
    assert isinstance(redirected(question(), moved(302, b"ftp://x/")), Failure)
    assert isinstance(redirected(question(), moved(302, b"http://[x/")), Failure)


def test_redirects_come_to_an_end() -> None:
    asked: Question | Failure | None = question()
    for _ in range(limits.HTTP_REDIRECTS_MAX):
        assert isinstance(asked, Question)
        asked = redirected(asked, moved(302, b"/again"))
    assert isinstance(asked, Question)
    assert redirected(asked, moved(302, b"/again")) == Failure("more than 10 redirects")


# Damage


@given(data=st.binary(max_size=200), at=st.integers(0, 200), cut=st.integers(0, 400), name=st.sampled_from(sorted(ANSWERS)))
def test_damaged_answers_raise_nothing_and_end(data: bytes, at: int, cut: int, name: str) -> None:
    stream = ANSWERS[name][0]
    stream = stream[: at % len(stream)] + data + stream[at % len(stream) :]
    asked = exchange()
    asked.request()
    for piece in (stream[: cut % len(stream)], stream[cut % len(stream) :]):
        if piece:
            asked.receive(piece)
    assert isinstance(asked.eof(), (Answer, Failure))


@given(url=st.text(max_size=60), location=st.binary(max_size=60))
def test_any_url_is_one_or_is_none(url: str, location: bytes) -> None:
    for text in (url, "http://" + url, "http://host" + url):
        place = where(text)
        if place is not None:
            exchange(question(text)).request()
    assert isinstance(redirected(question(), moved(302, location)), (Question, Failure)) or not location
