"""One HTTP connection: answers in order, endpoints that answer later or bit by bit, and silence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.core.ports import TicketState
from polymq.errors import Refusal, RefusalCode
from polymq.gateways.effects import Send
from polymq.protocols.http.decode import BodyRule
from polymq.protocols.http.router import Route, Router
from polymq.wire.exchange import Request, Response, Retry
from tests.unit.core.fakes import FakeClock, FakeTicket
from tests.unit.protocols.http.helpers import cut

from .harness import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator

    from polymq.gateways.effects import Effect

SECOND_NS = 1_000_000_000
LARGE_SIZE_BYTES = 300_000


class Bench:
    """What the endpoints below play with."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.ticket = FakeTicket()
        self.chunks: list[bytes | Exception] = []
        self.closed = False
        self.tries = 0


def echo(request: Request, _bench: Bench) -> Response:
    return Response(body=request.method.encode() + b" " + bytes(request.body_view))


def publish(request: Request, bench: Bench) -> Response:
    body = bytes(request.body_view)
    failed = Response(503, body=b"not stored", close=False)
    return Response(body=body, ticket=bench.ticket, failure=lambda _: failed)


def slow(_request: Request, bench: Bench) -> Response:
    bench.clock.now_ns += limits.HTTP_NS_PER_TURN_MAX * 2 // 5
    return Response()


def large(_request: Request, _bench: Bench) -> Response:
    return Response(body=b"x" * LARGE_SIZE_BYTES)


def stream(_request: Request, bench: Bench) -> Response:
    def chunks() -> Iterator[bytes]:
        try:
            for chunk in bench.chunks:
                if isinstance(chunk, Exception):
                    raise chunk
                yield chunk
        finally:
            bench.closed = True

    return Response(body=chunks())


def late(_request: Request, bench: Bench) -> Response | Retry:
    def again() -> Response | Retry:
        bench.tries += 1
        if bench.tries < 3:
            return Retry(bench.clock.now_ns + SECOND_NS, again)
        return Response(body=b"late")

    return again()


def refuse(status: int) -> Response:
    return Response(status, body=b"no")


ROUTER: Router[Bench] = Router(
    [
        Route("GET", "/echo", echo),
        Route("POST", "/echo", echo, BodyRule(1000, reads=True)),
        Route("POST", "/publish", publish, BodyRule(1000, reads=True)),
        Route("GET", "/stream", stream),
        Route("HEAD", "/stream", stream),
        Route("GET", "/late", late),
        Route("GET", "/large", large),
        Route("GET", "/slow", slow),
    ],
    refuse=refuse,
)


def get(path: str, extra: str = "", version: str = "1.1", method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/{version}\r\nHost: h\r\n{extra}\r\n".encode()


def post(path: str, body: bytes, extra: str = "") -> bytes:
    return f"POST {path} HTTP/1.1\r\nHost: h\r\n{extra}Content-Length: {len(body)}\r\n\r\n".encode() + body


def bodies(output: bytes) -> list[bytes]:
    """What follows each head, up to the next one."""
    return [part.partition(b"\r\n\r\n")[2] for part in output.split(b"HTTP/1.")[1:]]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.fixture
def wire(bench: Bench) -> Wire[Bench]:
    return Wire(ROUTER, bench, bench.clock)


def test_request_and_answer(wire: Wire[Bench]) -> None:
    wire.send(post("/echo", b"hello"))
    assert wire.output.startswith(b"HTTP/1.1 200 OK\r\nDate: ")
    assert bodies(wire.output) == [b"POST hello"]
    assert wire.closed is None


def test_pipelined_answers_come_in_order(wire: Wire[Bench]) -> None:
    wire.send(post("/echo", b"1") + get("/nope") + post("/echo", b"2") + get("/echo"))
    assert bodies(wire.output) == [b"POST 1", b"no", b"POST 2", b"GET "]


def test_close_is_obeyed(wire: Wire[Bench]) -> None:
    wire.send(get("/echo", "Connection: close\r\n") + get("/echo"))
    assert len(bodies(wire.output)) == 1
    assert b"Connection: close" in wire.output
    assert wire.closed == "answered"


def test_violation_is_answered_and_closes(wire: Wire[Bench]) -> None:
    wire.send(get("/echo") + b"nonsense\r\n" + get("/echo"))
    assert bodies(wire.output) == [b"GET ", b"400 Bad Request"]
    assert wire.closed == "400 Bad Request"


def test_too_large_a_body_is_answered_and_closes(wire: Wire[Bench]) -> None:
    wire.send(post("/echo", b"x" * 1001))
    assert b"Connection: close\r\n" in wire.output
    assert wire.closed == "answered"


def test_continue(wire: Wire[Bench]) -> None:
    request = post("/echo", b"hi", "Expect: 100-continue\r\n")
    wire.send(request[:-2])
    assert wire.output == b"HTTP/1.1 100 Continue\r\n\r\n"
    wire.send(request[-2:])
    assert bodies(wire.output)[1] == b"POST hi"


def test_unknown_expectation(wire: Wire[Bench]) -> None:
    wire.send(get("/echo", "Expect: miracles\r\n"))
    assert wire.output.startswith(b"HTTP/1.1 417 Expectation Failed\r\nConnection: close\r\nDate: ")
    assert wire.closed == "answered"


def test_answer_waits_for_its_ticket_but_input_does_not(wire: Wire[Bench], bench: Bench) -> None:
    wire.send(post("/publish", b"a") + get("/echo"))
    assert wire.output == b""
    assert not wire.paused
    bench.ticket.state = TicketState.DONE
    wire.settle()
    assert bodies(wire.output) == [b"a", b"GET "]


def test_failed_commit(wire: Wire[Bench], bench: Bench) -> None:
    wire.send(post("/publish", b"a"))
    bench.ticket.state = TicketState.FAILED
    bench.ticket.failure = "disk"
    wire.settle()
    assert wire.output.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
    assert b"Connection: close\r\n" in wire.output
    assert bodies(wire.output) == [b"not stored"]


def test_small_stream_has_a_length(wire: Wire[Bench], bench: Bench) -> None:
    bench.chunks = [b"abc", b"def"]
    wire.send(get("/stream"))
    assert b"Content-Length: 6\r\n" in wire.output
    assert bodies(wire.output) == [b"abcdef"]
    assert not wire.paused


def test_stream_goes_on_when_output_has_drained(wire: Wire[Bench], bench: Bench) -> None:
    bench.chunks = [b"x" * 2049, b"second", b"third"]
    wire.send(get("/stream") + get("/echo"))
    assert wire.log[-1] == "WantWritable"
    assert wire.output.endswith(b"801\r\n" + b"x" * 2049 + b"\r\n")
    wire.step()
    assert wire.output.endswith(b"6\r\nsecond\r\n")
    wire.drain()
    assert b"5\r\nthird\r\n0\r\n\r\n" in wire.output
    assert not wire.paused
    assert bodies(wire.output)[1] == b"GET "
    assert bench.closed


def test_stream_that_has_nothing_yet_is_asked_again(wire: Wire[Bench], bench: Bench) -> None:
    bench.chunks = [b"", b"", b"now"]
    wire.send(get("/stream"))
    assert wire.output.endswith(b"Transfer-Encoding: chunked\r\n\r\n")
    wire.wait(2 * limits.HTTP_POLL_INTERVAL_NS)
    wire.drain()
    assert bodies(wire.output) == [b"3\r\nnow\r\n0\r\n\r\n"]


def test_broken_stream_lacks_its_end(wire: Wire[Bench], bench: Bench) -> None:
    bench.chunks = [b"x" * 3000, Refusal(RefusalCode.TOPIC_NOT_FOUND)]
    wire.send(get("/stream") + get("/echo"))
    wire.drain()
    assert wire.output.endswith(b"x\r\n")
    assert wire.closed == "an answer had to be cut off: topic not found"
    assert bench.closed


def test_stream_broken_at_once_has_no_head(wire: Wire[Bench], bench: Bench) -> None:
    bench.chunks = [Refusal(RefusalCode.TOPIC_NOT_FOUND)]
    wire.send(get("/stream"))
    assert wire.output == b""
    assert wire.closed == "an answer could not be begun: topic not found"


def test_stream_to_http_1_0_ends_with_the_connection(wire: Wire[Bench], bench: Bench) -> None:
    bench.chunks = [b"x" * 3000, b"yz"]
    wire.send(get("/stream", "Connection: keep-alive\r\n", "1.0"))
    wire.drain()
    assert wire.output.endswith(b"\r\n\r\n" + b"x" * 3000 + b"yz")
    assert wire.closed == "answered"


def test_stream_to_head_is_only_a_head(wire: Wire[Bench], bench: Bench) -> None:
    bench.chunks = [b"x" * 3000, b"yz"]
    wire.send(get("/stream", method="HEAD") + get("/echo"))
    wire.drain()
    assert bodies(wire.output) == [b"", b"GET "]


def test_peer_that_goes_away_ends_the_stream(wire: Wire[Bench], bench: Bench) -> None:
    bench.chunks = [b"x" * 3000, b"yz"]
    wire.send(get("/stream"))
    wire.gateway.ended()
    assert bench.closed


def test_late_answer(wire: Wire[Bench], bench: Bench) -> None:
    wire.send(get("/late") + get("/echo"))
    assert wire.paused
    assert wire.output == b""
    wire.wait(SECOND_NS)
    assert wire.output == b""
    wire.wait(SECOND_NS)
    assert bodies(wire.output) == [b"late", b"GET "]
    assert not wire.paused


def test_end_of_input_in_a_request(wire: Wire[Bench]) -> None:
    wire.send(get("/ec")[:-3]).end()
    assert bodies(wire.output) == [b"400 Bad Request"]


def test_end_of_input_between_requests(wire: Wire[Bench]) -> None:
    wire.send(get("/echo")).end()
    assert len(bodies(wire.output)) == 1


def test_end_of_input_while_answering_changes_nothing(wire: Wire[Bench], bench: Bench) -> None:
    bench.chunks = [b"x" * 3000, b"yz"]
    wire.send(get("/stream")).end()
    wire.drain()
    assert wire.output.endswith(b"2\r\nyz\r\n0\r\n\r\n")


def test_drained_output_of_others_is_no_reason_to_do_anything(wire: Wire[Bench]) -> None:
    wire.send(get("/echo"))
    effects: list[Effect] = []
    wire.gateway.writable(effects)
    assert effects == []


def test_any_iterator_is_a_body(bench: Bench) -> None:
    router: Router[Bench] = Router([Route("GET", "/", lambda _request, _bench: Response(body=iter([b"x" * 3000, b"y"])))], refuse=refuse)
    wire = Wire(router, bench, bench.clock).send(get("/"))
    wire.drain()
    assert wire.output.endswith(b"1\r\ny\r\n0\r\n\r\n")


def test_half_a_request_is_not_waited_for_for_ever(wire: Wire[Bench]) -> None:
    wire.send(get("/echo")[:-3])
    for _ in range(2):
        wire.wait(limits.HTTP_REQUEST_NS_MAX - 1)
        if wire.closed is None:
            wire.send(b"")
    wire.wait(2)
    assert wire.closed == "the request did not become complete in time"


def test_dripping_does_not_help(wire: Wire[Bench]) -> None:
    wire.send(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 900\r\n\r\n")
    for _ in range(130):
        wire.wait(SECOND_NS)
        wire.send(b"x")
    assert wire.closed == "the request did not become complete in time"


def test_idle_connection_is_kept_for_long_but_not_for_ever(wire: Wire[Bench]) -> None:
    wire.send(get("/echo"))
    wire.wait(limits.HTTP_IDLE_NS_MAX - limits.HTTP_REQUEST_NS_MAX)
    assert wire.closed is None
    wire.wait(2 * limits.HTTP_REQUEST_NS_MAX)
    assert wire.closed == "no request for a long time"


def test_connection_that_is_being_answered_is_not_idle(wire: Wire[Bench], bench: Bench) -> None:
    bench.chunks = [b"x" * 3000, b"yz"]
    wire.send(get("/stream"))
    wire.wait(2 * limits.HTTP_IDLE_NS_MAX)
    assert wire.closed is None
    wire.drain()
    wire.wait(limits.HTTP_REQUEST_NS_MAX)
    assert wire.closed is None


def test_requests_that_overlap_reads_are_not_one_that_never_ends(wire: Wire[Bench]) -> None:
    request = post("/echo", b"x" * 100)
    wire.send(request[:50])
    for _ in range(200):
        wire.wait(SECOND_NS)
        wire.send(request[50:] + request[:50])
    assert wire.closed is None
    assert len(bodies(wire.output)) == 200


def test_what_comes_behind_a_long_answer_has_its_own_time(wire: Wire[Bench], bench: Bench) -> None:
    bench.chunks = [b"x" * 3000, b"yz"]
    wire.send(get("/stream") + get("/echo")[:-3])
    wire.wait(limits.HTTP_REQUEST_NS_MAX - 1)
    wire.drain()
    wire.wait(2)
    assert wire.closed is None
    wire.wait(2 * limits.HTTP_REQUEST_NS_MAX)
    assert wire.closed == "the request did not become complete in time"


# Many requests in one read


def test_a_turn_answers_only_so_many_requests(wire: Wire[Bench]) -> None:
    count = 3 * limits.HTTP_REQUESTS_PER_TURN_MAX
    wire.send(b"".join(post("/echo", b"%d" % number) for number in range(count)))
    assert len(bodies(wire.output)) == limits.HTTP_REQUESTS_PER_TURN_MAX
    assert wire.paused
    wire.step()
    assert len(bodies(wire.output)) == 2 * limits.HTTP_REQUESTS_PER_TURN_MAX
    wire.drain()
    assert bodies(wire.output) == [b"POST %d" % number for number in range(count)]
    assert not wire.paused
    assert not wire.pending


def test_a_turn_makes_only_so_much_output(wire: Wire[Bench]) -> None:
    wire.send(get("/large") * 1000)
    assert len(wire.output) <= limits.OUTBOX_SIZE_BYTES_HIGH + LARGE_SIZE_BYTES + 1000
    assert wire.output.count(b"HTTP/1.1 200 OK") == limits.OUTBOX_SIZE_BYTES_HIGH // LARGE_SIZE_BYTES + 1
    wire.wait(10 * SECOND_NS)
    assert wire.output.count(b"HTTP/1.1 200 OK") == limits.OUTBOX_SIZE_BYTES_HIGH // LARGE_SIZE_BYTES + 1, "nobody reads"


def test_a_turn_ends_when_endpoints_take_long(wire: Wire[Bench]) -> None:
    wire.send(get("/slow") * 10)
    assert len(bodies(wire.output)) == 3
    wire.step()
    assert len(bodies(wire.output)) == 6
    wire.drain()
    assert len(bodies(wire.output)) == 10
    assert not wire.paused


def test_a_body_in_tiny_chunks_takes_several_turns(wire: Wire[Bench]) -> None:
    size = 2 * limits.HTTP_CHUNKS_PER_TURN_MAX - 10
    head = b"POST /echo HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
    wire.send(head + b"1\r\nx\r\n" * size + b"0\r\n\r\n" + get("/echo"))
    assert wire.output == b""
    assert wire.paused
    wire.step()
    assert bodies(wire.output) == [b"POST " + b"x" * size, b"GET "]
    assert not wire.paused


def test_no_rest_where_nothing_is_left(wire: Wire[Bench]) -> None:
    wire.send(get("/echo") * limits.HTTP_REQUESTS_PER_TURN_MAX)
    assert not wire.paused


def test_who_rests_is_neither_idle_nor_late(wire: Wire[Bench]) -> None:
    wire.send(get("/echo") * 2 * limits.HTTP_REQUESTS_PER_TURN_MAX)
    wire.wait(2 * limits.HTTP_IDLE_NS_MAX)
    assert wire.closed is None
    wire.drain()
    wire.wait(limits.HTTP_REQUEST_NS_MAX)
    assert wire.closed is None


INPUT = (
    post("/echo", b"hello")
    + get("/stream")
    + get("/late")
    + post("/echo", b"x" * 900, "Expect: 100-continue\r\n")
    + get("/nope")
    + b"nonsense\r\n\r\n"
)


def answered(pieces: list[bytes]) -> bytes:
    bench = Bench()
    bench.chunks = [b"", b"x" * 3000, b"", b"yz"]
    wire = Wire(ROUTER, bench, bench.clock)
    for piece in pieces:
        wire.send(piece)
    for _ in range(10):
        wire.drain()
        wire.wait(SECOND_NS)
    # The clock stands where it is moved to; when an answer was given depends on how the input came.
    return b"\r\n".join(line for line in wire.output.split(b"\r\n") if not line.startswith(b"Date: "))


@given(st.lists(st.integers(min_value=0, max_value=len(INPUT)), max_size=10))
def test_any_cut_gives_the_same_answers(places: list[int]) -> None:
    assert answered(cut(INPUT, places)) == answered([INPUT])


@given(st.binary(max_size=100))
def test_any_bytes_are_answered_or_waited_for(data: bytes) -> None:
    bench = Bench()
    wire = Wire(ROUTER, bench, bench.clock)
    wire.send(data).end()
    wire.wait(2 * limits.HTTP_IDLE_NS_MAX)
    assert wire.closed is not None or data == b""


class NoLayer:
    """Stands for TLS: what a connection is opened with, and never looked into."""


def secure(bench: Bench) -> Wire[Bench]:
    return Wire(ROUTER, bench, bench.clock, cast("Any", NoLayer))


def test_https_begins_with_a_handshake(bench: Bench) -> None:
    wire = secure(bench)
    assert [type(layer) for layer in wire.layers] == [NoLayer]
    wire.send(b"GET /echo HTTP/1.1\r\nHost: h\r\n\r\n")
    assert wire.output.startswith(b"HTTP/1.1 200 OK\r\n")
    wire.wait(limits.HTTP_REQUEST_NS_MAX)
    assert wire.closed is None


@pytest.mark.parametrize(
    ("reason", "says"),
    [
        ("TLS: HTTP_REQUEST", b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"),
        ("TLS: http request", b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"),
        ("TLS: WRONG_VERSION_NUMBER", b""),
    ],
)
def test_plain_http_where_tls_is_spoken(bench: Bench, reason: str, says: bytes) -> None:
    effects: list[Effect] = []
    secure(bench).gateway.upgrade_failed(reason, effects)
    assert b"".join(effect.data for effect in effects if isinstance(effect, Send)) == says
