from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.errors import CorruptRecord
from polymq.gateways.nats.records import NatsCodec
from polymq.limits import MESSAGE_SIZE_BYTES_MAX
from polymq.protocols.nats.stored import ORIGIN_NATS
from polymq.protocols.nats.unfold import KEY_NAME, REPLY_NAME, unfold, unfolded_room
from polymq.wire.batch import ATTRIBUTE_PREPARED, ATTRIBUTE_RENEWED, HEADER_SIZE_BYTES, BatchHeader, Message, encode_message, seal
from polymq.wire.live import COLUMNS, KEPT, LiveBatch, LiveMessage
from polymq.wire.slices import Slice

NAME = b"orders.new"


def stored(*batches: tuple[int, list[Message]], attributes: int = 0) -> bytes:
    """Batches of an origin each, one behind the other."""
    data = bytearray()
    for origin, messages in batches:
        at = len(data)
        data += bytes(HEADER_SIZE_BYTES) + b"".join(encode_message(message, 1000) for message in messages)
        seal(data, at, len(data), BatchHeader(origin=origin, attributes=attributes, count=len(messages), base_time_ns=1000))
    return bytes(data)


def unfolded(view: bytes, count: int, *, position: int = 0, left: int = 0, origin: int = -1) -> tuple[list[LiveMessage], int, list[int]]:
    """The messages, the last origin, and the rows that have no payload yet."""
    slice_ = Slice(
        memoryview(view), partition=0, position=position, end=len(view), offset=0, count=count, batch_left=left, base_time_ns=1000
    )
    target = bytearray(NAME) + bytes(unfolded_room(slice_))
    rows = memoryview(array("i", [-7] * (COLUMNS * count)))
    found, end, origin, rich = unfold(target, rows, slice_, origin, len(NAME))
    assert {rows[COLUMNS * row + 11] for row in range(found)} <= {KEPT}
    assert end <= len(target)
    return LiveBatch(memoryview(target), rows, found).messages(), origin, [row for row, _position, _time in rich]


def one(message: Message) -> LiveMessage | None:
    """A message that others have published; None if it is left to the caller."""
    (found,), _origin, rich = unfolded(stored((1, [message])), 1)
    return None if rich else found


def test_bodies_of_others_become_messages() -> None:
    view = stored((1, [Message(b"a"), Message(b"")]), (ORIGIN_NATS, [Message(b"theirs")]), (5, [Message(b"c", time_ns=9, expiry_ns=99)]))
    messages, origin, rich = unfolded(view, 4)
    assert messages == [LiveMessage(NAME, body) for body in (b"a", b"", b"c")]
    assert (origin, rich) == (5, [])
    # A slice may end within a batch, and the next one begin there.
    messages, origin, _ = unfolded(view, 1)
    assert (messages, origin) == ([LiveMessage(NAME, b"a")], 1)
    after = HEADER_SIZE_BYTES + 9
    messages, origin, _ = unfolded(view, 2, position=after, left=1, origin=1)
    assert (messages, origin) == ([LiveMessage(NAME, b"")], ORIGIN_NATS)
    assert unfolded(view, 1, position=after, left=1, origin=ORIGIN_NATS)[0] == []


def test_key_headers_and_reply_are_what_nats_has_for_them() -> None:
    message = Message(
        b"body",
        key=b"a b",
        headers=((b"TAGS", b"t"), (REPLY_NAME, b"_INBOX.1"), (b"n", b"")),
        extras=((1, b"x"), (2, b"")),
        time_ns=3,
        expiry_ns=4,
    )
    block = b"NATS/1.0\r\nKEYS: a b\r\nTAGS: t\r\nn: \r\n\r\n"
    assert one(message) == LiveMessage(NAME, block + b"body", b"_INBOX.1", header_size=len(block))
    assert one(Message(b"body", key=b"")) == LiveMessage(NAME, b"NATS/1.0\r\nKEYS: \r\n\r\nbody", header_size=20)
    assert one(Message(b"body", headers=((REPLY_NAME, b"to.me"),))) == LiveMessage(NAME, b"body", b"to.me")
    assert one(Message(b"body", extras=((1, b"x"),))) == LiveMessage(NAME, b"body")


def test_rich_and_plain_records_go_side_by_side() -> None:
    mixed = [Message(b"a"), Message(b"b", key=b"k"), Message(b"c", key=b"\n"), Message(b"d", headers=((REPLY_NAME, b"r1"),)), Message(b"e")]
    messages, _origin, rich = unfolded(stored((1, mixed)), 5)
    assert rich == [2]
    assert [message.payload[message.header_size :] for message in messages] == [b"a", b"b", b"", b"d", b"e"]
    assert [message.reply for message in messages] == [b"", b"", b"", b"r1", b""]


@pytest.mark.parametrize(
    "message",
    [
        Message(b"", key=b"a\rb"),
        Message(b"", headers=((b"", b"v"),)),
        Message(b"", headers=((b"a b", b"v"),)),
        Message(b"", headers=((b"a:b", b"v"),)),
        Message(b"", headers=((b"a\x7f", b"v"),)),
        Message(b"", headers=(("ä".encode(), b"v"),)),
        Message(b"", headers=((b"a", b"v\n"),)),
        Message(b"", headers=((KEY_NAME, b"v"),)),
        Message(b"", headers=((REPLY_NAME, b"a1"), (REPLY_NAME, b"b1"))),
        *(
            Message(b"", headers=((REPLY_NAME, reply),))
            for reply in (b"", b"a..b", b".a", b"a.", b"a b", b"a.*", b"a.>", b"$JS.ACK.x", b"_R_.x")
        ),
        Message(b"", headers=((REPLY_NAME, b"a" * 256),)),
        Message(b"", extras=((2, b"x"), (ORIGIN_NATS, b"Rto"))),
        Message(bytes(MESSAGE_SIZE_BYTES_MAX + 1)),
        Message(bytes(MESSAGE_SIZE_BYTES_MAX - 18), key=b"k"),
    ],
    ids=lambda message: repr(message)[:60],
)
def test_what_is_not_plain_is_left_to_the_caller(message: Message) -> None:
    assert one(message) is None


def test_the_largest_message_is_not_left_to_the_caller() -> None:
    largest = one(Message(bytes(MESSAGE_SIZE_BYTES_MAX - 21), key=b"k"))
    assert largest is not None
    assert len(largest.payload) == MESSAGE_SIZE_BYTES_MAX
    assert one(Message(bytes(MESSAGE_SIZE_BYTES_MAX))) is not None


TEXT = st.binary(max_size=12) | st.sampled_from([KEY_NAME, REPLY_NAME, b"TAGS", b"a.b"])
HEADERS = st.lists(st.tuples(TEXT, TEXT), max_size=4).map(tuple)


@given(st.lists(st.builds(Message, st.binary(max_size=20), st.none() | TEXT, HEADERS), min_size=1, max_size=6))
def test_it_fits_and_says_what_the_slow_way_says(messages: list[Message]) -> None:
    found, _origin, rich = unfolded(stored((1, messages)), len(messages))
    for index, (message, live) in enumerate(zip(messages, found, strict=True)):
        if index in rich:
            continue
        reply = dict(message.headers).get(REPLY_NAME, b"")
        headers = tuple((name, value) for name, value in message.headers if name != REPLY_NAME)
        if message.key is not None:
            headers = ((KEY_NAME, message.key), *headers)
        slow = NatsCodec().live(NAME, Message(message.body, headers=headers))
        assert slow is not None
        assert live == LiveMessage(NAME, slow.payload, reply, header_size=slow.header_size)


def test_what_is_not_visible_is_passed_over() -> None:
    for attributes in (ATTRIBUTE_PREPARED, ATTRIBUTE_RENEWED):
        assert unfolded(stored((1, [Message(b"a")]), attributes=attributes), 1)[0] == []


@given(st.data())
def test_damage_is_found(data: st.DataObject) -> None:
    rich = Message(b"abc", key=b"key", headers=((b"a", b"b"), (REPLY_NAME, b"to.me")), extras=((1, b"x"),))
    view = bytearray(stored((1, [rich, Message(b"d")]), (2, [Message(b"e")])))
    for _ in range(data.draw(st.integers(1, 3))):
        view[data.draw(st.integers(0, len(view) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(view)))
    try:
        messages, _, _ = unfolded(bytes(view[:cut]), 3)
    except CorruptRecord:
        return
    assert sum(len(message.payload) for message in messages) <= cut + 8 * 3


@pytest.mark.parametrize(
    ("at", "value"),
    [(4, 0), (28, 0), (HEADER_SIZE_BYTES, 0), (HEADER_SIZE_BYTES, 255), (HEADER_SIZE_BYTES + 4, 7), (HEADER_SIZE_BYTES + 4, 255)],
)
def test_each_size_is_looked_at(at: int, value: int) -> None:
    view = bytearray(stored((1, [Message(b"abc")])))
    view[at] = value
    with pytest.raises(CorruptRecord):
        unfolded(bytes(view), 1)


def test_the_end_may_come_at_any_byte() -> None:
    view = stored((1, [Message(b"abc")]))
    for end in range(len(view)):
        with pytest.raises(CorruptRecord):
            unfolded(view[:end], 1)
