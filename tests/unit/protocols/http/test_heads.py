"""Heads: the direct way to read a plain one says exactly what h11 says."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.protocols.http.heads import Head, HeadProblem, read_head, read_plain, read_target, tokens

PLAIN = b"POST /pub?topic=t HTTP/1.1\r\nHost: h:1\r\nContent-Length: 5\r\nX-Y:  a, b \r\n\r\n"


def by_h11(data: bytes) -> tuple[bytes, bytes, int, tuple[tuple[bytes, bytes], ...]] | None:
    connection = h11.Connection(h11.SERVER)
    connection.receive_data(data)
    try:
        event = connection.next_event()
    except h11.RemoteProtocolError:
        return None
    if not isinstance(event, h11.Request):
        return None
    headers = tuple((bytes(name), bytes(value)) for name, value in event.headers)
    return event.method, event.target, int(event.http_version[2:]), headers


def test_plain_head() -> None:
    assert read_plain(PLAIN) == by_h11(PLAIN)
    head = read_head(PLAIN)
    assert isinstance(head, Head)
    assert (head.method, head.target.path, head.content_length, head.keep_alive, head.reader) == ("POST", "/pub", 5, True, None)
    assert head.headers == ((b"host", b"h:1"), (b"content-length", b"5"), (b"x-y", b"a, b"))


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("chunks", b"Transfer-Encoding: chunked"),
        ("two lengths", b"Content-Length: 5\r\nContent-Length: 5"),
        ("a list of lengths", b"Content-Length: 5, 5"),
        ("a length that is none", b"Content-Length: five"),
        ("a length beyond 64 bits", b"Content-Length: " + b"9" * 19),
        ("two hosts", b"Host: a"),
        ("a folded line", b"X: a\r\n b"),
        ("a bare line feed", b"X: a\nY: b"),
        ("no colon", b"X"),
        ("a space before the colon", b"X : a"),
        ("no name", b": a"),
        ("a control character", b"X: \x01"),
        ("a byte beyond ASCII", b"X: \xe9"),
    ],
)
def test_what_is_not_plain_is_left_to_h11(what: str, line: bytes) -> None:
    assert read_plain(b"GET / HTTP/1.1\r\nHost: h\r\n" + line + b"\r\n\r\n") is None


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\nHost: h\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: h\r\n\r\n",
        b"GET  / HTTP/1.1\r\nHost: h\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\n",
        b"GET / HTTP/1.1\r\nHost: h\r\n\r\n\r\n",
        b"G@T / HTTP/1.1\r\nHost: h\r\n\r\n",
    ],
)
def test_other_heads_are_left_to_h11(data: bytes) -> None:
    assert read_plain(data) is None


pieces = st.sampled_from(
    [
        *(b"GET", b"POST", b"get", b" ", b"/", b"/a?b=c", b"*", b"\x7f", b"HTTP/1.1", b"HTTP/1.0", b"HTTP/1.9", b"HTTP/2.0"),
        *(b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b":", b": ", b" : ", b"\t", b"Host", b"host", b"Host: h\r\n", b"Content-Length"),
        *(
            b"Content-Length: 3\r\n",
            b"3",
            b"+3",
            b"Transfer-Encoding: chunked\r\n",
            b"Connection: close\r\n",
            b"X",
            b"x-y",
            b"a, b",
            b"\xff",
        ),
        *(b"\x00", b"\x0b", b'"', b"(", b"GET / HTTP/1.1\r\n", b"GET / HTTP/1.1\r\nHost: h\r\n"),
    ]
)


@given(st.lists(pieces, max_size=12))
def test_what_is_plain_means_what_h11_says(parts: list[bytes]) -> None:
    data = b"".join(parts) + b"\r\n\r\n"
    plain = read_plain(data)
    assert plain is None or plain == by_h11(data)


names = st.text("abcXYZ-_!~09", min_size=1, max_size=8).map(str.encode)
values = st.text(' \tabc:;,"<>{}()=/~!', max_size=12).map(str.encode)


@given(st.lists(st.tuples(names, values), max_size=6), st.sampled_from([b"/", b"/a?b=%20", b"*"]), st.sampled_from(b"019"))
def test_all_headers_are_read_as_h11_reads_them(headers: list[tuple[bytes, bytes]], target: bytes, version: int) -> None:
    lines = b"".join(name + b":" + value + b"\r\n" for name, value in [*headers, (b"HOST", b" h")])
    data = b"PUT " + target + b" HTTP/1." + bytes([version]) + b"\r\n" + lines + b"\r\n"
    plain = read_plain(data)
    assert plain is not None
    assert plain == by_h11(data)


def test_same_head_is_read_once() -> None:
    assert read_head(PLAIN) is read_head(bytes(bytearray(PLAIN)))


def test_problems_of_plain_heads() -> None:
    for target, host in ((b"ping", b"h"), (b"/%zz", b"h"), (b"/", b"a b")):
        assert isinstance(read_head(b"GET " + target + b" HTTP/1.1\r\nHost: " + host + b"\r\n\r\n"), HeadProblem)


def test_targets_are_shared_and_cannot_be_changed() -> None:
    target = read_target(b"/a?b=c")
    assert target is not None
    assert target is read_target(b"/a?b=c")
    with pytest.raises(TypeError):
        target.arguments["b"] = "d"  # type: ignore[index]


def test_long_targets_are_not_kept() -> None:
    long = b"/?" + b"a" * 300
    assert read_target(long) == read_target(long)
    assert read_target(long) is not read_target(long)


@pytest.mark.parametrize(
    "secret", [b"Authorization: Bearer planted", b"authorization: Basic cGxhbnRlZA==", b"Proxy-Authorization: x", b"COOKIE: a=planted"]
)
def test_heads_with_secrets_are_not_kept(secret: bytes) -> None:
    data = PLAIN[:-2] + secret + b"\r\n\r\n"
    assert read_head(PLAIN) is read_head(PLAIN)
    assert read_head(data) == read_head(data)
    assert read_head(data) is not read_head(data)


@pytest.mark.parametrize("query", [b"stream=0123456789abcdef&id=1", b"topic=t&Secret=planted"])
def test_targets_with_secrets_are_not_kept(query: bytes) -> None:
    assert read_target(b"/fin?" + query) == read_target(b"/fin?" + query)
    assert read_target(b"/fin?" + query) is not read_target(b"/fin?" + query)
    data = b"POST /fin?" + query + b" HTTP/1.1\r\nHost: h\r\n\r\n"
    assert read_head(data) is not read_head(data)


def test_only_so_many_are_kept() -> None:
    first = read_target(b"/first")
    assert read_target(b"/first") is first
    for number in range(2000):
        read_target(b"/%d" % number)
    assert read_target(b"/1999") is read_target(b"/1999")
    assert read_target(b"/first") is not first


def test_tokens() -> None:
    assert tokens(b"a, B ,,c") == {b"a", b"b", b"", b"c"}


@pytest.mark.parametrize(("length", "problem"), [((1 << 63) - 1, False), (1 << 63, True), (10**20 - 1, True)])
def test_a_length_that_go_cannot_hold(length: int, problem: bool) -> None:
    found = read_head(b"POST /pub HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % length)
    assert isinstance(found, HeadProblem) is problem


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (b"foo : a", "400 Bad Request: invalid header name"),
        (b"f oo: a\r\nb: c", "400 Bad Request: invalid header name"),
        (b"foo\t: a", "400 Bad Request"),
        (b"f(oo : a", "400 Bad Request"),
        (b"foo : a\r\nnothing", "400 Bad Request"),
    ],
)
def test_what_go_says_of_names(lines: bytes, line: str) -> None:
    found = read_head(b"GET /ping HTTP/1.1\r\nHost: h\r\n" + lines + b"\r\n\r\n")
    assert isinstance(found, HeadProblem)
    assert (found.line, found.text) == (line, line)


@pytest.mark.parametrize("line", [b"Content-Length:", b"content-length: \t", b"A: b\r\nCONTENT-LENGTH:  "])
def test_an_empty_length_is_none(line: bytes) -> None:
    found = read_head(b"POST /pub HTTP/1.1\r\nHost: h\r\n" + line + b"\r\n\r\n")
    assert isinstance(found, Head)
    assert found.content_length == 0
