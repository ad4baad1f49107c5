"""What goes unsaid is counted as records have it, compiled and interpreted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from polymq.wire import field_counts
from polymq.wire.batch import Message, encode_message
from polymq.wire.left_out import HEADER, KEY, left_out
from tests.unit.protocols.nsq.streams import interpreted

if TYPE_CHECKING:
    from array import array

plain = interpreted("polymq.wire.field_counts")


def counted(record: bytes, at: int = 0) -> array[int]:
    found = []
    for module in (field_counts, plain):
        counts = left_out()
        assert module.count_fields(record, at, counts) == sum(counts)
        found.append(counts)
    assert found[0] == found[1]
    return found[0]


records = st.builds(
    Message,
    st.binary(max_size=9),
    key=st.none() | st.binary(max_size=5),
    headers=st.lists(st.tuples(st.binary(max_size=4), st.binary(max_size=4)), max_size=4).map(tuple),
    extras=st.just(()) | st.just(((2, b"x"),)),
    time_ns=st.just(0) | st.just(7),
    expiry_ns=st.none() | st.just(9),
)


@given(records, st.integers(0, 3))
def test_keys_and_headers_are_counted(message: Message, at: int) -> None:
    counts = counted(bytes(at) + encode_message(message), at)
    assert (counts[KEY], counts[HEADER], sum(counts)) == (
        message.key is not None,
        len(message.headers),
        (message.key is not None) + len(message.headers),
    )


@given(records, st.data())
def test_damage_is_never_looked_behind(message: Message, data: st.DataObject) -> None:
    """The two words and the body's distance are sound; what is between may be anything."""
    record = bytearray(encode_message(message))
    end = len(record) - len(message.body)
    for _ in range(data.draw(st.integers(1, 3)) if end > 8 else 0):
        record[data.draw(st.integers(8, end - 1))] = data.draw(st.integers(0, 255))
    assert sum(counted(bytes(record))) <= 1 + end
