from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polymq.limits import OFFSET_BITS
from polymq.protocols.phpmq import encode
from polymq.protocols.phpmq.frames import FrameReader, WireMessage
from polymq.protocols.phpmq.ids import id_text
from polymq.wire.batch import Message
from tests.unit.protocols.nsq.test_encode import BASE_TIME_NS, slice_of
from tests.unit.protocols.phpmq import streams

plain = streams.interpreted("polymq.protocols.phpmq.encode")
SALT = 99
SECOND_NS = 10**9


def dispatched(groups: list[list[Message]], skipped: int, count: int, *, legacy: bool, now_ns: int, queue: bytes = b"q") -> list[object]:
    piece = slice_of(groups, skipped, count)
    head = encode.dispatch_head(queue, legacy=legacy)
    results = []
    for module in (encode, plain):
        target = bytearray(7 + module.dispatches_size_bytes(piece, head))
        end = module.encode_dispatches(target, 7, piece, head, legacy=legacy, now_ns=now_ns, salt=SALT)
        assert end <= len(target)
        results.append(bytes(target[7:end]))
    assert results[0] == results[1]
    return list(FrameReader().feed(results[0]))


messages = st.builds(
    Message,
    st.binary(max_size=50),
    key=st.none() | st.binary(max_size=5),
    headers=st.just(()) | st.just(((b"a", b"b"),)),
    time_ns=st.just(0) | st.integers(BASE_TIME_NS, BASE_TIME_NS + 10),
    expiry_ns=st.none() | st.integers(BASE_TIME_NS - 5 * SECOND_NS, BASE_TIME_NS + 10**6 * SECOND_NS),
)


@given(st.lists(st.lists(messages, min_size=1, max_size=4), min_size=1, max_size=4), st.data(), st.booleans())
def test_records_become_messages(groups: list[list[Message]], data: st.DataObject, legacy: bool) -> None:
    flat = [message for group in groups for message in group]
    skipped = data.draw(st.integers(0, len(groups[0]) - 1))
    count = data.draw(st.integers(1, len(flat) - skipped))
    now_ns = BASE_TIME_NS
    expected = []
    for index, message in enumerate(flat[skipped : skipped + count]):
        left = 0 if message.expiry_ns is None else max(1, -((now_ns - message.expiry_ns) // SECOND_NS))
        raw_id = id_text(3 << OFFSET_BITS | 100 + skipped + index, SALT)
        expected.append(WireMessage(b"q", message.body, raw_id, None if legacy else left))
    assert dispatched(groups, skipped, count, legacy=legacy, now_ns=now_ns) == expected


def test_what_is_left_of_a_ttl_is_rounded_up() -> None:
    ends = [SECOND_NS, SECOND_NS + 1, 1, 0, -1, 3300 * SECOND_NS, 10 * SECOND_NS, (1 << 63) - 1 - BASE_TIME_NS]
    group = [Message(b"x", expiry_ns=BASE_TIME_NS + each) for each in ends]
    found = dispatched([group], 0, len(group), legacy=False, now_ns=BASE_TIME_NS)
    assert [each.ttl_s for each in found if isinstance(each, WireMessage)] == [1, 2, 1, 1, 1, 3300, 10, 7_523_372_037]


def test_a_head_has_the_queue_as_it_was_sent() -> None:
    assert encode.dispatch_head(b"Foo", legacy=True) == b"H0100303P01" + b"0" * 28 + b"3Foo"
    assert encode.dispatch_head(b"\xff" * 255, legacy=False) == b"H0100304P01" + b"%029d" % 255 + b"\xff" * 255
    (found,) = dispatched([[Message(b"x" * 12_345)]], 0, 1, legacy=False, now_ns=0, queue=b"\xff" * 255)
    assert isinstance(found, WireMessage)
    assert (found.queue, len(found.content)) == (b"\xff" * 255, 12_345)
