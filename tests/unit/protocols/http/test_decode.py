"""Requests out of bytes: whole, byte by byte, cut anywhere, and malformed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.protocols.http.decode import RequestDecoder
from polymq.wire.exchange import BodyState, Request

from .helpers import cut, decode, rule

GET = b"GET /a?x=1 HTTP/1.1\r\nHost: h\r\n\r\n"
POST = b"POST /read HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
CHUNKED = b"POST /read HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: t\r\n\r\n"
EXPECTING = b"POST /read HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\nhi"

BAD = ("violation", "400 Bad Request", "400 Bad Request")
NO_HOST = "400 Bad Request: missing required Host header"
BAD_HOST = "400 Bad Request: malformed Host header"
BAD_VERSION = "505 HTTP Version Not Supported: unsupported protocol version"
TOO_LARGE_HEAD = "431 Request Header Fields Too Large"

MALFORMED = {
    b"\r\n\r\n": "400 Bad Request",
    b"\x16\x03\x01\x02\x00\x01": "400 Bad Request",
    b" GET / HTTP/1.1\r\n": "400 Bad Request",
    b"garbage\r\n": "400 Bad Request",
    b"GET /ping\r\n": "400 Bad Request",
    b"GET  /ping HTTP/1.1\r\n": "400 Bad Request",
    b"G@T /ping HTTP/1.1\r\n": "400 Bad Request",
    b"GET /pi ng HTTP/1.1\r\n": "400 Bad Request",
    b"GET /ping HTTP/11\r\n": "400 Bad Request",
    b"GET ping HTTP/1.1\r\nHost: h\r\n\r\n": "400 Bad Request",
    b"GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n": "400 Bad Request",
    b"GET /ping HTTP/2.0\r\n": BAD_VERSION,
    b"GET /ping HTTP/0.9\r\n": BAD_VERSION,
    b"GET /ping HTTP/1.1\r\n\r\n": NO_HOST,
    b"GET /ping HTTP/1.1\r\nbad header\r\n\r\n": "400 Bad Request",
    b"GET /ping HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n": "400 Bad Request",
    b"GET /ping HTTP/1.1\r\nHost: h\r\nbad header\r\n\r\n": "400 Bad Request",
    b"GET /ping HTTP/1.1\r\nHost: h\r\nX: a\x00b\r\n\r\n": "400 Bad Request",
    b"GET /ping HTTP/1.1\r\nHost: a b\r\n\r\n": BAD_HOST,
    b"GET /ping HTTP/1.0\r\nHost: a b\r\n\r\n": BAD_HOST,
    b"POST /read HTTP/1.1\r\nHost: h\r\nContent-Length: abc\r\n\r\n": "400 Bad Request",
    b"POST /read HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n": "400 Bad Request",
    b"POST /read HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n": "400 Bad Request",
    b"POST /read HTTP/1.1\r\nHost: h\r\nContent-Length: " + b"9" * 30 + b"\r\n\r\n": "400 Bad Request",
    b"GET /" + b"a" * limits.HTTP_HEAD_SIZE_BYTES_MAX: TOO_LARGE_HEAD,
    b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"a" * limits.HTTP_HEAD_SIZE_BYTES_MAX + b"\r\n\r\n": TOO_LARGE_HEAD,
}


def request_facts(method: str, path: str, **others: object) -> tuple[object, ...]:
    values = {
        "origin": "",
        "query": "",
        "body": b"",
        "state": "WHOLE",
        "length": 0,
        "keep_alive": True,
        "minor": 1,
        **others,
    }
    order = ("query", "body", "state", "length", "keep_alive", "minor")
    return (method, values["origin"], path, *(values[name] for name in order))


def test_request_without_body() -> None:
    assert decode([GET]) == [request_facts("GET", "/a", query="x=1")]


def test_body_of_known_size() -> None:
    assert decode([POST]) == [request_facts("POST", "/read", body=b"hello", length=5)]


def test_body_of_known_size_is_not_copied() -> None:
    data = bytearray(POST)
    event, at = RequestDecoder(rule).next(memoryview(data), 0)
    assert isinstance(event, Request)
    assert at == len(data)
    data[-5:] = b"HELLO"
    assert bytes(event.body_view) == b"HELLO"


def test_body_in_chunks() -> None:
    assert decode([CHUNKED]) == [request_facts("POST", "/read", body=b"abcde", length=None)]


def test_a_turn_reads_only_so_many_chunks() -> None:
    body = b"x" * 97
    count = limits.HTTP_CHUNKS_PER_TURN_MAX
    one = CHUNKED[: CHUNKED.index(b"3\r\n")] + b"1\r\nx\r\n" * 97 + b"0\r\n\r\n"
    view = memoryview(one * 20)
    decoder = RequestDecoder(rule)
    turns = at = 0
    requests = []
    while True:
        decoder.begin_turn()
        turns += 1
        while (found := decoder.next(view, at))[0] is not None:
            at = found[1]
            requests.append(found[0])
            # What is not consumed comes again.
            view, at = view[at:], 0
        view, at = view[found[1] :], 0
        if len(view) < decoder.need:
            break
        assert len(requests) <= turns * count // 97 + 1
    assert not view
    assert turns == -(-20 * 97 // count)
    assert [bytes(request.body_view) for request in requests if isinstance(request, Request)] == [body] * 20


@pytest.mark.parametrize("size", [3, 7, 1000, 100_000])
def test_stopping_among_chunks_changes_nothing(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = CHUNKED + POST + CHUNKED * 3 + GET
    expected = decode([stream])
    monkeypatch.setattr(limits, "HTTP_CHUNKS_PER_TURN_MAX", 1)
    assert decode([stream[at : at + size] for at in range(0, len(stream), size)]) == expected


def test_body_without_length_is_empty() -> None:
    assert decode([b"POST /read HTTP/1.1\r\nHost: h\r\n\r\n" + GET])[1:] == decode([GET])


def test_pipelined_requests_come_in_order() -> None:
    events = decode([GET + POST + CHUNKED + GET])
    assert [event[0] for event in events] == ["GET", "POST", "POST", "GET"]
    assert [event[4] for event in events] == [b"", b"hello", b"abcde", b""]


def test_need_is_the_whole_body() -> None:
    decoder = RequestDecoder(rule)
    head_size_bytes = POST.index(b"hello")
    event, at = decoder.next(memoryview(POST[:-2]), 0)
    assert (event, at, decoder.need) == (None, head_size_bytes, 5)


def test_unfinished_head_needs_one_byte_more() -> None:
    decoder = RequestDecoder(rule)
    assert decoder.next(memoryview(GET[:-1]), 0) == (None, 0)
    assert decoder.need == len(GET)


@pytest.mark.parametrize(("data", "line"), MALFORMED.items(), ids=lambda value: repr(value[:40]))
def test_malformed_input_is_a_violation(data: bytes, line: str) -> None:
    assert decode([data + GET]) == [("violation", line, line)]


@pytest.mark.parametrize(("data", "line"), MALFORMED.items(), ids=lambda value: repr(value[:40]))
def test_malformed_input_is_a_violation_byte_by_byte(data: bytes, line: str) -> None:
    assert decode([bytes([byte]) for byte in data + b" "]) == [("violation", line, line)]


@pytest.mark.parametrize("coding", [b"gzip", b"chunked, gzip", b"identity"])
def test_unknown_transfer_encoding(coding: bytes) -> None:
    data = b"POST /read HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: " + coding + b"\r\n\r\n"
    assert decode([data]) == [("violation", "501 Not Implemented", "Unsupported transfer encoding")]


def test_requests_before_a_violation_stand() -> None:
    assert decode([GET + b"garbage\r\n" + GET]) == [*decode([GET]), BAD]


def test_declared_body_above_the_limit_is_not_waited_for() -> None:
    head = b"POST /read HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n"
    expected = request_facts("POST", "/read", state="TOO_LARGE", length=101, keep_alive=False)
    assert decode([head]) == [expected]
    assert decode([head + b"x" * 101 + GET]) == [expected]


def test_body_at_the_limit() -> None:
    head = b"POST /read HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\r\n"
    assert decode([head + b"x" * 100])[0][5] == "WHOLE"


def test_chunked_body_above_the_limit() -> None:
    head = CHUNKED[: CHUNKED.index(b"3\r\n")]
    body = b"32\r\n" + b"x" * 50 + b"\r\n"
    assert decode([head + body + body])[:1] == []
    assert decode([head + body + body + body])[0][5] == "TOO_LARGE"


@pytest.mark.parametrize("body", [b"zz\r\n", b"3\r\nabcd\r\n", b"-1\r\n", b"\r\n", b"3\r\nabc\r\n0\r\nbad trailer\r\n\r\n"])
def test_broken_chunks(body: bytes) -> None:
    head = CHUNKED[: CHUNKED.index(b"3\r\n")]
    (event,) = decode([head + body + GET])
    assert (event[5], event[7]) == ("BROKEN", False)


def test_unwanted_body_is_taken_off() -> None:
    data = b"GET /other HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
    events = decode([data + GET])
    assert [event[4] for event in events] == [b"", b""]


def test_expectation_is_met_before_the_body() -> None:
    expected = [("continue",), request_facts("POST", "/read", body=b"hi", length=2)]
    assert decode([EXPECTING]) == expected
    assert decode([EXPECTING[:-2]]) == expected[:1]


def test_expectation_without_a_body_is_not_answered() -> None:
    data = EXPECTING.replace(b"Length: 2", b"Length: 0")[:-2]
    assert [event[0] for event in decode([data])] == ["POST"]


def test_expectation_of_an_endpoint_that_does_not_read() -> None:
    (event,) = decode([EXPECTING.replace(b"/read", b"/other")])
    assert (event[5], event[7]) == (BodyState.UNREAD.name, False)


def test_expectation_too_large() -> None:
    (event,) = decode([EXPECTING.replace(b"Length: 2", b"Length: 101")])
    assert event[5] == BodyState.TOO_LARGE.name


def test_unknown_expectation() -> None:
    (event,) = decode([EXPECTING.replace(b"100-continue", b"miracles")])
    assert (event[5], event[7]) == (BodyState.EXPECTATION.name, False)


def test_http_1_0_ignores_expectations() -> None:
    data = EXPECTING.replace(b"HTTP/1.1", b"HTTP/1.0")
    assert decode([data]) == [request_facts("POST", "/read", body=b"hi", length=2, keep_alive=False, minor=0)]


@pytest.mark.parametrize(
    ("version", "connection", "keep_alive"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: close\r\n", False),
        (b"1.1", b"Connection: foo, Close\r\n", False),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: Keep-Alive\r\n", True),
    ],
)
def test_keep_alive(version: bytes, connection: bytes, keep_alive: bool) -> None:
    (event,) = decode([b"GET / HTTP/" + version + b"\r\nHost: h\r\n" + connection + b"\r\n"])
    assert event[7] is keep_alive


def test_bare_line_feeds_and_folded_lines_are_accepted() -> None:
    assert len(decode([b"GET / HTTP/1.1\nHost: h\nX: a\n b\n\n"])) == 1


def test_nothing_is_decoded_after_the_end() -> None:
    decoder = RequestDecoder(rule)
    decoder.end()
    assert decoder.next(memoryview(GET), 0) == (None, 0)


def test_end_of_input_between_requests_is_nothing() -> None:
    assert RequestDecoder(rule).cut() is None


def test_end_of_input_in_a_head_is_a_violation() -> None:
    decoder = RequestDecoder(rule)
    decoder.next(memoryview(b"GET /pi"), 0)
    assert str(decoder.cut()).startswith("Violation(line='400 Bad Request'")


def test_end_of_input_in_a_body_breaks_it() -> None:
    decoder = RequestDecoder(rule)
    decoder.next(memoryview(POST[:-1]), 0)
    event = decoder.cut()
    assert isinstance(event, Request)
    assert event.body_state is BodyState.BROKEN


STREAM = GET + POST + CHUNKED + EXPECTING + GET.replace(b"GET", b"DELETE") + POST + b"garbage\r\n\r\n" + GET


@given(st.lists(st.integers(min_value=0, max_value=len(STREAM)), max_size=12))
def test_any_cut_gives_the_same_events(places: list[int]) -> None:
    assert decode(cut(STREAM, places)) == decode([STREAM])


def test_byte_by_byte_gives_the_same_events() -> None:
    assert decode([bytes([byte]) for byte in STREAM]) == decode([STREAM])


@given(st.binary(max_size=200), st.lists(st.integers(min_value=0, max_value=200), max_size=5))
def test_any_bytes_give_events_or_nothing(data: bytes, places: list[int]) -> None:
    assert decode(cut(data, places)) == decode([data])


@given(
    st.lists(st.sampled_from([b"GET / ", b"HTTP/1.1", b"\r\n", b"\n", b"Host: h", b"POST /read ", b"Content-Length: 3",
                              b"Transfer-Encoding: chunked", b"3\r\nabc\r\n", b"0\r\n\r\n", b" ", b"abc", b"Expect: 100-continue"]), max_size=20),
    st.lists(st.integers(min_value=0, max_value=300), max_size=6),
)  # fmt: skip
def test_any_almost_request_gives_the_same_for_any_cut(parts: list[bytes], places: list[int]) -> None:
    data = b"".join(parts)
    assert decode(cut(data, places)) == decode([data])
