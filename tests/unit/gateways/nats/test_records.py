from __future__ import annotations

from array import array
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from polymq.gateways.nats.records import NatsCodec, header_block
from polymq.limits import MESSAGE_SIZE_BYTES_MAX
from polymq.wire.batch import Message, read_messages
from polymq.wire.left_out import HEADER, KEY, LARGE
from polymq.wire.live import LiveBatch, LiveMessage

CODEC = NatsCodec()


@given(st.lists(st.tuples(st.binary(max_size=8), st.binary(max_size=8)), max_size=4))
def test_blocks_are_what_clients_can_read(headers: list[tuple[bytes, bytes]]) -> None:
    block = header_block(headers)
    wanted = [
        (name, value)
        for name, value in headers
        if name and all(32 < each < 127 and each != 58 for each in name) and not set(value) & set(b"\r\n")
    ]
    assert block == (b"NATS/1.0\r\n" + b"".join(b"%b: %b\r\n" % each for each in wanted) + b"\r\n" if wanted else b"")


def live(message: Message) -> tuple[bytes, bytes, list[int]]:
    """Block and reply of a foreign message, and what was counted: keys, headers."""
    codec = NatsCodec()
    found = codec.live(b"s", message)
    assert found is not None
    assert found == codec.whole(b"s", message)
    assert found.payload[found.header_size :] == message.body
    return found.payload[: found.header_size], found.reply, [codec.left_out[KEY] // 2, codec.left_out[HEADER] // 2]


def test_others_keys_and_headers_become_lines() -> None:
    headers = ((b"TAGS", b"t"), (b"n", b""), (b"m", b"\xff\0 "))
    block = b"NATS/1.0\r\nKEYS: k1 k2\r\nTAGS: t\r\nn: \r\nm: \xff\0 \r\n\r\n"
    assert live(Message(b"body", b"k1 k2", headers, ((1, b"R"),))) == (block, b"", [0, 0])
    assert live(Message(b"body")) == (b"", b"", [0, 0])
    assert live(Message(b"", b"")) == (b"NATS/1.0\r\nKEYS: \r\n\r\n", b"", [0, 0])


def test_what_nats_cannot_say_is_left_out_and_counted() -> None:
    headers = (
        (b"bad:name", b"v"),
        (b"bad", b"v\r\nInjected: x"),
        (b"", b"v"),
        (b"a b", b"v"),
        ("é".encode(), b"v"),
        (b"KEYS", b"beside a key"),
        (b"good", b"v"),
    )
    assert live(Message(b"", b"k", headers)) == (b"NATS/1.0\r\nKEYS: k\r\ngood: v\r\n\r\n", b"", [0, 6])
    assert live(Message(b"", b"a\nb", headers[:1])) == (b"", b"", [1, 1])


def test_a_header_says_where_answers_go() -> None:
    assert live(Message(b"", headers=((b"reply-to", b"_INBOX.x"), (b"n", b"v")))) == (b"NATS/1.0\r\nn: v\r\n\r\n", b"_INBOX.x", [0, 0])
    two = ((b"reply-to", b"first"), (b"reply-to", b"last"))
    assert live(Message(b"", headers=two)) == (b"NATS/1.0\r\nreply-to: first\r\n\r\n", b"last", [0, 0])
    for strange in (b"", b"a b", b"a..b", b"a.*", b">", b"_R_.x", b"$JS.ACK.x", b"x" * 256):
        block = b"NATS/1.0\r\nreply-to: %b\r\n\r\n" % strange
        assert live(Message(b"", headers=((b"reply-to", strange),))) == (block, b"", [0, 0])
    assert live(Message(b"", headers=((b"reply-to", b"x" * 255),)))[1] == b"x" * 255


def test_what_is_larger_than_any_message_may_be_is_passed_over() -> None:
    codec = NatsCodec()
    size = len(b"NATS/1.0\r\nKEYS: k\r\n\r\n")
    assert codec.live(b"s", Message(bytes(MESSAGE_SIZE_BYTES_MAX - size), b"k")) is not None
    assert codec.left_out[LARGE] == 0
    larger = Message(bytes(MESSAGE_SIZE_BYTES_MAX - size + 1), b"k")
    assert codec.live(b"s", larger) is None
    assert codec.left_out[LARGE] == 1
    assert len(codec.whole(b"s", larger).payload) == MESSAGE_SIZE_BYTES_MAX + 1


def test_a_reply_is_no_line_of_its_own_protocol() -> None:
    block = b"NATS/1.0\r\nreply-to: mine\r\n\r\n"
    sent = [
        LiveMessage(b"s", b"", b"reply"),
        LiveMessage(b"s", block, b"mine", header_size=len(block)),
        LiveMessage(b"s", block, header_size=len(block)),
    ]
    data = CODEC.encode(LiveBatch.of(sent), memoryview(array("i", [0, 1, 2])), 0, 3)
    read = read_messages(data, 0, 3, 0, 3, len(data))
    assert [message.headers for message in read] == [
        ((b"reply-to", b"reply"),),
        ((b"reply-to", b"mine"), (b"reply-to", b"mine")),
        ((b"reply-to", b"mine"),),
    ]
    assert [CODEC.live(b"s", message) for message in read] == sent
    # A dead letter has more headers, behind the one that is the reply's.
    more = replace(read[0], headers=(*read[0].headers, (b"polymq-why", b"attempts")))
    assert CODEC.whole(b"s", more).payload == b"NATS/1.0\r\npolymq-why: attempts\r\n\r\n"


def test_what_is_stored_comes_back() -> None:
    sent = [LiveMessage(b"s", b"plain", b"reply"), LiveMessage(b"s", b"NATS/1.0 503\r\n\r\n", header_size=16)]
    data = CODEC.encode(LiveBatch.of(sent), memoryview(array("i", [0, 1])), 0, 2)
    assert [CODEC.live(b"s", message) for message in read_messages(data, 0, 2, 0, 2, len(data))] == sent


def test_a_status_needs_no_lines() -> None:
    assert header_block((), b"404 Not Found") == b"NATS/1.0 404 Not Found\r\n\r\n"
