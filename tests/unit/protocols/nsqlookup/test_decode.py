from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.limits import LOOKUP_COMMANDS_PER_TURN_MAX, LOOKUP_IDENTIFY_SIZE_BYTES_MAX, LOOKUP_LINE_SIZE_BYTES_MAX
from polymq.protocols.nsqlookup.decode import Decoder
from polymq.protocols.nsqlookup.events import Identify, Ping, Register, Unregister, Violation
from polymq.protocols.nsqlookup.identify import Identity
from polymq.protocols.nsqlookup.settings import MAGIC
from tests.unit.protocols.nsqlookup.streams import GOOD, identify, run, three_ways

WHO = Identity("b", "h", http_port=2, tcp_port=1, version="v")


def test_what_a_node_says() -> None:
    stream = identify() + b"REGISTER t\nREGISTER t c#ephemeral\nPING\nUNREGISTER t c\nUNREGISTER t\n"
    assert three_ways(stream) == [
        Identify(WHO),
        Register("t"),
        Register("t", "c#ephemeral"),
        Ping(),
        Unregister("t", "c"),
        Unregister("t"),
    ]


@pytest.mark.parametrize(
    "line", [b"PING\n", b"PING\r\n", b"  PING x \n", "PING\u00a0\n".encode(), b"\x0bPING\x0c\n", "\u2003PING\n".encode()]
)
def test_white_space_around_a_line_means_nothing(line: bytes) -> None:
    assert three_ways(line) == [Ping()]


@pytest.mark.parametrize("line", [b"REGISTER t \n", b"REGISTER t  x\n"])
def test_an_empty_channel_is_none(line: bytes) -> None:
    assert three_ways(identify() + line)[1:] == [Register("t")]


def test_more_words_than_needed_mean_nothing() -> None:
    stream = identify().replace(b"IDENTIFY", b"IDENTIFY x") + b"REGISTER t c d e\n"
    assert three_ways(stream) == [Identify(WHO), Register("t", "c")]


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (b"\n", b"E_INVALID invalid command "),
        (b"ping\n", b"E_INVALID invalid command ping"),
        (b"PING\x00\n", b"E_INVALID invalid command PING\x00"),
        (b"PING\x1c\n", b"E_INVALID invalid command PING\x1c"),
        (b"REGISTER t\n", b"E_INVALID client must IDENTIFY"),
        (b"UNREGISTER\n", b"E_INVALID client must IDENTIFY"),
    ],
)
def test_what_is_illegal_before_identify(stream: bytes, text: bytes) -> None:
    assert three_ways(stream) == [Violation(text)]


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"IDENTIFY\n", b"E_INVALID cannot IDENTIFY again"),
        (b"REGISTER\n", b"E_INVALID REGISTER insufficient number of params"),
        (b"UNREGISTER \n", b"E_INVALID UNREGISTER insufficient number of params"),
        (b"REGISTER  t\n", b"E_BAD_TOPIC REGISTER topic name '' is not valid"),
        (b"REGISTER a$\n", b"E_BAD_TOPIC REGISTER topic name 'a$' is not valid"),
        (b"REGISTER \xff\n", b"E_BAD_TOPIC REGISTER topic name '\xff' is not valid"),
        (b"REGISTER t\tc\n", b"E_BAD_TOPIC REGISTER topic name 't\tc' is not valid"),
        (b"UNREGISTER a b$\n", b"E_BAD_CHANNEL UNREGISTER channel name 'b$' is not valid"),
        (b"REGISTER " + b"a" * 65 + b"\n", b"E_BAD_TOPIC REGISTER topic name '" + b"a" * 65 + b"' is not valid"),
    ],
)
def test_what_is_illegal_after_identify(line: bytes, text: bytes) -> None:
    assert three_ways(identify() + line) == [Identify(WHO), Violation(text)]


@pytest.mark.parametrize("magic", [b"  V2", b"HTTP", b"  v1"])
def test_another_protocol(magic: bytes) -> None:
    assert three_ways(b"PING\n", magic=magic) == [Violation(b"E_BAD_PROTOCOL")]


def test_a_body_that_cannot_be() -> None:
    limit = LOOKUP_IDENTIFY_SIZE_BYTES_MAX
    assert run(identify(b"", size=-1)) == [Violation(b"E_BAD_BODY IDENTIFY invalid body size -1")]
    assert run(identify(b"", size=limit + 1)) == [Violation(b"E_BAD_BODY IDENTIFY body too big %d > %d" % (limit + 1, limit))]
    assert three_ways(identify(b"")) == [Violation(b"E_BAD_BODY IDENTIFY failed to decode JSON body")]
    assert run(identify(GOOD.ljust(limit))) == [Identify(WHO)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"PING", []),
        (b"IDENTIFY", []),
        (b"IDENTIFY\n", [Violation(b"E_BAD_BODY IDENTIFY failed to read body size")]),
        (b"IDENTIFY\n\0\0", [Violation(b"E_BAD_BODY IDENTIFY failed to read body size")]),
        (b"IDENTIFY\n\0\0\0\5ab", [Violation(b"E_BAD_BODY IDENTIFY failed to read body")]),
        (b"IDENTIFY\n\0\0\0\1", [Violation(b"E_BAD_BODY IDENTIFY failed to read body")]),
    ],
)
def test_the_end_of_the_input(stream: bytes, events: list[Violation]) -> None:
    assert run(stream) == events
    assert run(stream, range(len(MAGIC + stream))) == events


def test_a_line_has_an_end() -> None:
    limit = LOOKUP_LINE_SIZE_BYTES_MAX
    text = b"E_INVALID command line longer than %d bytes" % limit
    assert run(b"x" * limit) == []
    assert run(b"x" * (limit + 1)) == [Violation(text)]
    assert run(b"x" * limit + b"\n") == [Violation(text)]
    assert run(b"x" * (limit - 1) + b"\n") == [Violation(b"E_INVALID invalid command " + b"x" * (limit - 1))]


def test_a_line_that_drips_in_is_not_searched_again_and_again() -> None:
    decoder = Decoder()
    decoder.feed(memoryview(MAGIC))
    drip = b""
    for _ in range(10):
        drip += b"x"
        assert decoder.feed(memoryview(drip)) == ([], 0)
        assert decoder.need == len(drip) + 1
    # What was looked at is not looked at again: a line end that appears there is not seen.
    assert decoder.feed(memoryview(b"\n" * 10 + b"x")) == ([], 0)


@pytest.mark.parametrize("more", [0, 1, LOOKUP_COMMANDS_PER_TURN_MAX + 1])
def test_only_so_many_commands_at_a_time(more: int) -> None:
    most = LOOKUP_COMMANDS_PER_TURN_MAX
    decoder = Decoder()
    decoder.feed(memoryview(MAGIC))
    stream = b"PING\n" * (most + more)
    events, consumed = decoder.feed(memoryview(stream))
    assert (len(events), consumed, decoder.need) == (most, 5 * most, 0)
    events, consumed = decoder.feed(memoryview(stream[consumed:]))
    assert len(events) == min(more, most)
    assert run(stream) == [Ping()] * (most + more)


def test_nothing_comes_after_a_violation() -> None:
    decoder = Decoder()
    events, consumed = decoder.feed(memoryview(MAGIC + b"x\nPING\n"))
    assert events == [Violation(b"E_INVALID invalid command x")]
    assert consumed == len(MAGIC) + 7
    assert decoder.feed(memoryview(b"PING\n")) == ([], 5)
    assert decoder.eof() == []


@given(st.lists(st.sampled_from([b"PING\n", b"REGISTER t c\n", b"UNREGISTER t\n", b"REGISTER u\r\n"])), st.lists(st.integers(0, 300)))
def test_any_cut_gives_the_same_events(lines: list[bytes], cuts: list[int]) -> None:
    stream = identify() + b"".join(lines)
    assert run(stream, [min(cut, len(stream)) for cut in cuts]) == run(stream)
