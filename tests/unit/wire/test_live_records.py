from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.errors import CorruptRecord
from polymq.wire.batch import ATTRIBUTE_PREPARED, HEADER_SIZE_BYTES, BatchHeader, Message, encode_message, seal
from polymq.wire.live import COLUMNS, KEPT, LiveBatch, LiveMessage
from polymq.wire.live_records import skip_origin, unfold

NAME = b"orders.new"
PASSED = 3


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
    target = bytearray(NAME) + bytes(len(view) - position)
    rows = memoryview(array("i", [-7] * (COLUMNS * count)))
    found, end, origin, rich = unfold(target, rows, view, position, left, 1000, count, len(view), origin, PASSED, len(NAME))
    assert {rows[COLUMNS * row + 11] for row in range(found)} <= {KEPT}
    assert end <= len(target)
    return LiveBatch(memoryview(target), rows, found).messages(), origin, [row for row, _position, _time in rich]


def test_bodies_of_others_become_messages() -> None:
    view = stored((1, [Message(b"a"), Message(b"")]), (PASSED, [Message(b"theirs")]), (5, [Message(b"c", time_ns=9, expiry_ns=99)]))
    messages, origin, rich = unfolded(view, 4)
    assert messages == [LiveMessage(NAME, body) for body in (b"a", b"", b"c")]
    assert (origin, rich) == (5, [])
    # A slice may end within a batch, and the next one begin there.
    messages, origin, _ = unfolded(view, 1)
    assert (messages, origin) == ([LiveMessage(NAME, b"a")], 1)
    after = HEADER_SIZE_BYTES + 9
    messages, origin, _ = unfolded(view, 2, position=after, left=1, origin=1)
    assert (messages, origin) == ([LiveMessage(NAME, b"")], PASSED)
    assert unfolded(view, 1, position=after, left=1, origin=PASSED)[0] == []


def test_records_with_more_than_a_body_are_left_to_the_caller() -> None:
    view = stored((1, [Message(b"a", key=b"k"), Message(b"b"), Message(b"c", headers=((b"n", b"v"),)), Message(b"d", extras=((1, b"x"),))]))
    messages, _origin, rich = unfolded(view, 4)
    assert rich == [0, 2, 3]
    assert [message.payload for message in messages] == [b"", b"b", b"", b""]


def test_what_is_not_visible_is_passed_over() -> None:
    view = stored((1, [Message(b"a")]), attributes=ATTRIBUTE_PREPARED)
    assert unfolded(view, 1)[0] == []


@given(st.data())
def test_damage_is_found(data: st.DataObject) -> None:
    view = bytearray(stored((1, [Message(b"abc", key=b"key"), Message(b"d")]), (2, [Message(b"e")])))
    for _ in range(data.draw(st.integers(1, 3))):
        view[data.draw(st.integers(0, len(view) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(view)))
    try:
        messages, _, _ = unfolded(bytes(view[:cut]), 3)
    except CorruptRecord:
        return
    assert sum(len(message.payload) for message in messages) <= cut


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


@given(st.lists(st.tuples(st.sampled_from([1, PASSED]), st.integers(1, 4)), max_size=8), st.integers(0, 40))
def test_whole_batches_of_an_origin_are_skipped(batches: list[tuple[int, int]], count_max: int) -> None:
    view = stored(*((origin, [Message(b"x" * count)] * count) for origin, count in batches))
    count, position = skip_origin(view, 0, len(view), PASSED, count_max)
    wanted = 0
    for origin, size in batches:
        if origin != PASSED or wanted + size > count_max:
            break
        wanted += size
    assert count == wanted
    rest = sum(size for _, size in batches) - count
    # What is behind it is the next batch, and no record before it would have been shown.
    assert unfolded(view, rest, position=position)[0] == unfolded(view, rest + count)[0]


def test_what_is_not_sound_is_not_skipped() -> None:
    view = stored((PASSED, [Message(b"a")]), (PASSED, [Message(b"b")]))
    half = len(view) // 2
    assert skip_origin(view, 0, len(view), PASSED, 9) == (2, len(view))
    assert skip_origin(view, 0, len(view) - 1, PASSED, 9) == (1, half)
    for at, value in ((4, 0), (8, 255), (8, 80), (28, 0), (28, 2)):
        damaged = bytearray(view)
        damaged[half + at] = value
        assert skip_origin(bytes(damaged), 0, len(view), PASSED, 9) == (1, half)
    assert skip_origin(stored((1, [Message(b"a")]), attributes=ATTRIBUTE_PREPARED), 0, half, PASSED, 9) == (1, half)


def test_no_more_than_ten_thousand_batches_are_skipped_at_once() -> None:
    view = stored((PASSED, [Message(b"")])) * 10_001
    count, position = skip_origin(view, 0, len(view), PASSED, len(view))
    assert count == 10_000
    assert skip_origin(view, position, len(view), PASSED, len(view)) == (1, len(view))
