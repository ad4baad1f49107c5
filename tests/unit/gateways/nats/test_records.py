from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from polymq.gateways.nats.records import NatsCodec, header_block
from polymq.wire.batch import Message, read_messages
from polymq.wire.live import LiveBatch, LiveMessage

CODEC = NatsCodec()


@given(st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), max_size=4))
def test_blocks_are_what_clients_can_read(headers: list[tuple[bytes, bytes]]) -> None:
    block = header_block(headers)
    wanted = [(name, value) for name, value in headers if name and not set(name) & set(b"\r\n:") and not set(value) & set(b"\r\n")]
    assert block == (b"NATS/1.0\r\n" + b"".join(b"%b: %b\r\n" % each for each in wanted) + b"\r\n" if wanted else b"")


def test_others_headers_become_ours() -> None:
    message = Message(b"body", key=b"k", headers=((b"n", b"v"), (b"bad:name", b"v"), (b"bad", b"v\r\nInjected: x")), extras=((1, b"R"),))
    block = b"NATS/1.0\r\nn: v\r\n\r\n"
    assert CODEC.live(b"s", message) == LiveMessage(b"s", block + b"body", header_size=len(block))
    assert CODEC.live(b"s", Message(b"body")) == LiveMessage(b"s", b"body")


def test_what_is_stored_comes_back() -> None:
    sent = [LiveMessage(b"s", b"plain", b"reply"), LiveMessage(b"s", b"NATS/1.0 503\r\n\r\n", header_size=16)]
    data = CODEC.encode(LiveBatch.of(sent), memoryview(array("i", [0, 1])), 0, 2)
    assert [CODEC.live(b"s", message) for message in read_messages(data, 0, 2, 0, 2, len(data))] == sent


def test_a_status_needs_no_lines() -> None:
    assert header_block((), b"404 Not Found") == b"NATS/1.0 404 Not Found\r\n\r\n"
