"""The client's half of NATS: the same frames however the stream is cut, and no line that is none."""

from __future__ import annotations

import contextlib
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.errors import LocalProtocolError, RemoteProtocolError
from polymq.protocols.nats import frames
from polymq.protocols.nats.frames import Delivered, FrameReader, ServerError, ServerInfo, ServerPing, ServerPong

STREAM = (
    b'INFO {"max_payload":1048576,"headers":true} \r\n+OK\r\nPING\r\npong\r\n'
    b"MSG a.b 1 5\r\nhe\r\no\r\nMSG\ta 7  _INBOX.x\t0\r\n\r\n"
    b"HMSG a 1 32 34\r\nNATS/1.0\r\nA: b\r\nA:c\r\nD: e: f\r\n\r\nhi\r\n"
    b"-ERR 'Permissions Violation for Publish to \"x\"'\r\n"
)
FRAMES = [
    ServerInfo({"max_payload": 1048576, "headers": True}),
    ServerPing(),
    ServerPong(),
    Delivered("a.b", "1", "", b"he\r\no"),
    Delivered("a", "7", "_INBOX.x", b""),
    Delivered("a", "1", "", b"hi", {"A": "b,c", "D": "e: f"}),
    ServerError('Permissions Violation for Publish to "x"'),
]


def test_a_stream_in_one_piece_and_byte_by_byte() -> None:
    assert FrameReader().feed(STREAM) == FRAMES
    reader = FrameReader()
    assert [frame for at in range(len(STREAM)) for frame in reader.feed(STREAM[at : at + 1])] == FRAMES
    assert reader.feed(b"PING\r\nPI") == [ServerPing()]
    assert reader.feed(b"NG\r\n") == [ServerPing()]


@given(st.lists(st.integers(0, len(STREAM))))
def test_any_cut_gives_the_same(cuts: list[int]) -> None:
    reader = FrameReader()
    places = [0, *sorted(cuts), len(STREAM)]
    assert [frame for begin, end in itertools.pairwise(places) for frame in reader.feed(STREAM[begin:end])] == FRAMES


@pytest.mark.parametrize(
    "data",
    [b"HELLO\r\n", b"MSG a 1\r\n", b"MSG a 1 x y 5\r\n", b"MSG a 1 -5\r\n", b"MSG a 1 9999999999\r\n", b"MSG a 1 999999999\r\n", b"MSG a 1 2\r\nabc\r\n",
     b"HMSG a 1 5 4\r\n", b"HMSG a 1 4 4\r\nabcd\r\n", b"INFO {\r\n", b"INFO []\r\n", b"x" * (1024 * 1024 + 1), b"\xff\r\n"],
)  # fmt: skip
def test_what_no_server_says(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        FrameReader().feed(data)


@given(st.binary(max_size=200))
def test_any_bytes_give_frames_or_the_one_error(data: bytes) -> None:
    with contextlib.suppress(RemoteProtocolError):
        FrameReader().feed(data)


def test_commands() -> None:
    assert frames.publish("a.b", b"hi", {}) == b"PUB a.b 2\r\nhi\r\n"
    assert frames.publish("a", b"hi", {"A": "b"}) == b"HPUB a 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n"
    assert frames.subscribe("a.>", "1") == b"SUB a.> 1\r\n"
    assert frames.subscribe("a.*", "1", "board") == b"SUB a.* board 1\r\n"
    assert frames.connect({"verbose": False}) == b'CONNECT {"verbose":false}\r\n'


@pytest.mark.parametrize("subject", ["", "a b", "a.*", "a..b", "a\r\nPUB x 0", ">"])
def test_subjects_that_nobody_publishes_to(subject: str) -> None:
    with pytest.raises(LocalProtocolError):
        frames.publish(subject, b"", {})


@pytest.mark.parametrize(
    "headers", [{"": "x"}, {"a b": "x"}, {"a:": "x"}, {"a\r": "x"}, {"a": "x\r\nb: y"}, {"a": "x\n"}, {"a": " x"}, {"ä": "x"}]
)
def test_headers_that_would_not_come_back(headers: dict[str, str]) -> None:
    with pytest.raises(LocalProtocolError):
        frames.publish("a", b"", headers)


@given(
    st.dictionaries(st.from_regex(r"[!-9;-~]+", fullmatch=True), st.text().map(str.strip).filter(lambda text: not set(text) & set("\r\n"))),
    st.binary(),
)
def test_headers_come_back(headers: dict[str, str], body: bytes) -> None:
    data = frames.publish("a", body, headers)
    verb, _, rest = data.partition(b" ")
    name, sizes = rest.split(b" ", 1)
    (found,) = FrameReader().feed((b"HMSG " if verb == b"HPUB" else b"MSG ") + name + b" 1 " + sizes)
    assert found == Delivered("a", "1", "", body, headers)


@pytest.mark.parametrize(("subject", "queue"), [("a b", ""), ("a", "b c"), ("a..b", ""), ("a", "b\r\n"), (">.a", "")])
def test_subscriptions_that_no_server_takes(subject: str, queue: str) -> None:
    with pytest.raises(LocalProtocolError):
        frames.subscribe(subject, "1", queue)
