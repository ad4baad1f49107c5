from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.errors import Refusal, RefusalCode
from polymq.gateways.nats.records import NatsCodec, header_block
from polymq.protocols.nats.stored import ORIGIN_NATS, encode_records
from polymq.wire.batch import Message, encode_message, read_messages
from polymq.wire.live import LiveBatch, LiveMessage


def lines_of(block: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """The lines of a block as names and values, as far as they are any."""
    found = []
    for line in block.split(b"\r\n")[1:]:
        name, colon, value = line.partition(b":")
        if colon and name:
            found.append((name, value.strip(b" \t")))
    return tuple(found)


def expected(message: LiveMessage) -> Message:
    """What the log should have of a message, found out slowly."""
    block, body = message.payload[: message.header_size], message.payload[message.header_size :]
    extras = []
    headers = lines_of(block)
    if message.reply:
        extras.append((ORIGIN_NATS, b"R" + message.reply))
    if block and (header_block(headers) != block or b"reply-to" in dict(headers)):
        extras.append((ORIGIN_NATS, b"H" + block))
    if message.reply:
        headers += ((b"reply-to", message.reply),)
    return Message(body, headers=headers, extras=tuple(extras))


def encoded(*messages: LiveMessage, first: int = 0) -> bytes:
    """The records of messages, in the opposite order of the batch's."""
    batch = LiveBatch.of(messages[::-1])
    indexes = memoryview(array("i", [*[-1] * first, *range(len(messages))[::-1], -1]))
    return bytes(encode_records(batch, indexes, first, len(messages)))


@pytest.mark.parametrize(
    ("block", "headers", "exact"),
    [
        (b"NATS/1.0\r\nA: b\r\n\r\n", ((b"A", b"b"),), True),
        (b"NATS/1.0\r\nA: 1\r\nA: 2\r\nb: \r\n\r\n", ((b"A", b"1"), (b"A", b"2"), (b"b", b"")), True),
        (b"NATS/1.0\r\nA:b\r\n\r\n", ((b"A", b"b"),), False),
        (b"NATS/1.0\r\nreply-to: b\r\n\r\n", ((b"reply-to", b"b"),), False),
        (b"NATS/1.0\r\nreply-te: b\r\n\r\n", ((b"reply-te", b"b"),), True),
        (b"NATS/1.0\r\nA B: b\r\n\r\n", ((b"A B", b"b"),), False),
        (b"NATS/1.0\r\nA\x7f: b\r\n\r\n", ((b"A\x7f", b"b"),), False),
        (b"NATS/1.0\r\n A :  b \r\n\r\n", ((b" A ", b"b"),), False),
        (b"NATS/1.0\r\nA: b\t\r\n\r\n", ((b"A", b"b"),), False),
        (b"NATS/1.0\r\nA: b\nc\r\n\r\n", ((b"A", b"b\nc"),), False),
        (b"NATS/1.0\r\nA: b\r\n", ((b"A", b"b"),), False),
        (b"NATS/1.0\r\nA: b\r\n\r\n\r\n", ((b"A", b"b"),), False),
        (b"NATS/1.0 503\r\n\r\n", (), False),
        (b"NATS/1.0\r\n\r\n", (), False),
        (b"NATS/1.0 100 Idle\r\nA: b: c\r\n\r\n", ((b"A", b"b: c"),), False),
        (b"NATS/9.9\r\nA: b\r\n\r\n", ((b"A", b"b"),), False),
        (b"NOTS/1.0\r\nA: b\r\n\r\n", ((b"A", b"b"),), False),
        (b"no headers at all", (), False),
        (b"\r\n: v\r\nnothing\r\n", (), False),
        (b"\r", (), False),
    ],
)
def test_headers_are_seen_by_others_and_the_block_is_kept_if_they_do_not_tell_it(
    block: bytes, headers: tuple[tuple[bytes, bytes], ...], exact: bool
) -> None:
    message = LiveMessage(b"s", block + b"body", header_size=len(block))
    found = Message(b"body", headers=headers, extras=() if exact else ((ORIGIN_NATS, b"H" + block),))
    assert encoded(message) == encode_message(found)
    assert expected(message) == found


pieces = st.lists(
    st.sampled_from((b"NATS/1.0\r\n", b"\r\n", b"A", b"reply-to", b": ", b":", b" ", b"\t", b"\r", b"\n", b"value")), max_size=12
).map(b"".join)
blocks = st.one_of(pieces, pieces.map(lambda piece: b"NATS/1.0\r\n" + piece + b"\r\n\r\n"), st.binary(max_size=30))
messages = st.builds(
    lambda block, body, reply: LiveMessage(b"s", block + body, reply, header_size=len(block)),
    blocks,
    st.binary(max_size=20),
    st.binary(max_size=9),
)


@given(st.lists(messages, min_size=1, max_size=5), st.integers(0, 2))
def test_records_are_what_they_are_slowly_and_come_back_byte_by_byte(sent: list[LiveMessage], first: int) -> None:
    data = encoded(*sent, first=first)
    assert data == b"".join(encode_message(expected(message)) for message in sent)
    read = read_messages(data, 0, len(sent), 0, len(sent), len(data))
    assert [NatsCodec().live(b"s", message) for message in read] == sent


def test_fields_of_sixteen_megabytes_are_refused() -> None:
    block = b"NATS/1.0\r\n" + b"a:\r\n" * 2_000_000
    with pytest.raises(Refusal) as caught:
        encoded(LiveMessage(b"s", block, header_size=len(block)))
    assert caught.value.code is RefusalCode.BATCH_TOO_LARGE
