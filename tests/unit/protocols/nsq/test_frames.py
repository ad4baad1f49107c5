from __future__ import annotations

import itertools
import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.errors import LocalProtocolError
from polymq.protocols.nsq import encode, frames
from polymq.protocols.nsq.frames import Error, FrameReader, MessageRun, Response, Violation, WireMessage
from polymq.protocols.nsq.states import Command
from tests.unit.protocols.nsq.streams import run, tidied

ID = b"0123456789abcdef"


def message_frame(message: WireMessage) -> bytes:
    """A message frame written without the encoder, as the protocol's documentation draws it."""
    return struct.pack(">iiqH", 30 + len(message.body), 2, message.time_ns, message.attempts) + message.id + message.body


messages = st.builds(
    WireMessage,
    id=st.binary(min_size=16, max_size=16),
    body=st.binary(max_size=30),
    attempts=st.integers(0, 65535),
    time_ns=st.integers(-(2**63), 2**63 - 1),
)
items = st.lists(st.one_of(messages, st.builds(Response, st.binary(max_size=20)), st.builds(Error, st.binary(max_size=20))), max_size=12)


def encoded(item: WireMessage | Response | Error) -> bytes:
    match item:
        case Response(data):
            return encode.response_frame(data)
        case Error(text):
            return encode.error_frame(text)
        case WireMessage():
            return message_frame(item)


def read(pieces: list[bytes]) -> list[Any]:
    reader = FrameReader()
    found: list[Any] = []
    for piece in pieces:
        for frame in reader.feed(piece):
            found.extend(frame.messages() if isinstance(frame, MessageRun) else [frame])
    return found


@given(items, st.data())
def test_frames_are_read_however_they_come(wanted: list[WireMessage | Response | Error], data: st.DataObject) -> None:
    stream = b"".join(map(encoded, wanted))
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6))), len(stream)]
    assert read([stream[start:stop] for start, stop in itertools.pairwise(cuts)]) == wanted
    assert read([stream[at : at + 1] for at in range(len(stream))]) == wanted
    assert read([stream + b"\0\0"]) == wanted


def test_consecutive_messages_are_one_run() -> None:
    message = message_frame(WireMessage(ID, b"x", 1, 5))
    found = FrameReader().feed(message * 3 + encode.OK_FRAME + message)
    assert [frame.count if isinstance(frame, MessageRun) else frame for frame in found] == [3, Response(b"OK"), 1]
    assert [list(frame.ids()) for frame in found if isinstance(frame, MessageRun)] == [[ID] * 3, [ID]]


@pytest.mark.parametrize(
    "header",
    [(3, 0), (0, 0), (-1, 1), (frames.FRAME_SIZE_BYTES_MAX + 1, 2), (29, 2), (10, 3), (10, 0xFFFFFFFF)],
)
def test_a_header_that_no_frame_has_ends_the_stream_behind_what_came_before(header: tuple[int, int]) -> None:
    wrong = struct.pack(">iI", *header)
    reader = FrameReader()
    found = reader.feed(encode.OK_FRAME + wrong + encode.OK_FRAME)
    assert found == [Response(b"OK"), Violation(f"no frame has size {header[0]} and type {header[1]}")]
    assert reader.feed(encode.OK_FRAME) == []


def test_which_errors_end_the_connection() -> None:
    assert not Error(b"E_FIN_FAILED FIN x failed ID not in flight").is_fatal
    assert not Error(b"E_TOUCH_FAILED").is_fatal
    assert Error(b"E_INVALID E_FIN_FAILED").is_fatal


topics = st.sampled_from(["t", "a.b#ephemeral"])
bodies = st.binary(min_size=1, max_size=30)
delays = st.integers(0, 3_600_000)
ids = st.integers(0, 2**63 - 1).map(lambda number: b"%016x" % number)
COMMANDS = {
    "pub": st.tuples(topics, bodies).map(lambda p: (frames.publish(*p), [("PUB", p[0].encode(), p[1])])),
    "dpub": st.tuples(topics, bodies, delays).map(lambda p: (frames.deferred_publish(*p), [("DPUB", p[0].encode(), p[2], (p[1],))])),
    "mpub": st.tuples(topics, st.lists(bodies, min_size=1, max_size=4)).map(
        lambda p: (frames.multi_publish(*p), [("MPUB", p[0].encode(), 0, tuple(p[1]))])
    ),
    "fin": st.lists(ids, min_size=1, max_size=4).map(lambda raw: (frames.finish(raw), [("FIN", int(each, 16)) for each in raw])),
    "req": st.tuples(ids, delays).map(lambda p: (frames.requeue(*p), [("Requeue", int(p[0], 16), p[1])])),
    "touch": ids.map(lambda raw: (frames.touch(raw), [("Touch", int(raw, 16))])),
    "rdy": st.integers(0, 2500).map(lambda count: (frames.ready(count), [("Ready", count)])),
    "nop": st.just((frames.NOP, [("Nop",)])),
}


@given(st.lists(st.one_of(list(COMMANDS.values())), max_size=8))
def test_the_server_decodes_what_the_client_encodes(commands: list[tuple[bytes, list[Any]]]) -> None:
    stream = frames.identify({"hostname": "h"}) + frames.subscribe("t", "c") + b"".join(sent for sent, _ in commands) + frames.CLS
    wanted: list[Any] = [("Identify", b'{"hostname":"h"}'), ("Subscribe", b"t", b"c")]
    for _, told in commands:
        wanted.extend(told)
    assert run(stream) == [*tidied(wanted), ("Cls",)]


@pytest.mark.parametrize(
    "call",
    [
        lambda: frames.publish("a b", b"x"),
        lambda: frames.publish("", b"x"),
        lambda: frames.publish("t", b""),
        lambda: frames.multi_publish("t", []),
        lambda: frames.multi_publish("t", [b"x", b""]),
        lambda: frames.deferred_publish("t", b"x", -1),
        lambda: frames.subscribe("t", "c!"),
        lambda: frames.ready(-1),
        lambda: frames.finish([b"short"]),
        lambda: frames.finish([b"0123456789abcde\n"]),
        lambda: frames.requeue(ID, -1),
        lambda: frames.touch(b"0123456789 bcdef"),
    ],
)
def test_what_the_protocol_does_not_allow_is_not_sent(call: Any) -> None:
    with pytest.raises(LocalProtocolError):
        call()


def test_identify_is_json() -> None:
    line, _, body = frames.identify({"client_id": None, "sample_rate": 3}).partition(b"\n")
    assert line == Command.IDENTIFY.value
    assert json.loads(body[4:]) == {"client_id": None, "sample_rate": 3}
