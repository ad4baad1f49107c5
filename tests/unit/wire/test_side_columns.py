"""The side columns say of each row what its record says, compiled or not."""

from __future__ import annotations

from dataclasses import astuple
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from polymq.wire import records, side_columns
from polymq.wire.records import Message
from tests.unit.wire import batches

if TYPE_CHECKING:
    from types import ModuleType

plain = batches.interpreted("side_columns")


def side(data: bytes, first: int = 0, last: int = 2**41, module: ModuleType = side_columns) -> side_columns.SideColumns:
    made: side_columns.SideColumns = module.side_columns(data, 0, len(data), records.columns(data, 0, len(data), first, last))
    return made


def of_origin(origin: int, messages: list[Message], base_offset: int = 0) -> bytes:
    data = bytearray(batches.batch(messages, base_offset=base_offset))
    data[13] = origin
    batches.reseal(data)
    return bytes(data)


def expected_origin(batch_origin: int, message: Message) -> int:
    return batch_origin or next((origin for origin, _ in message.extras if origin), 0)


def test_the_batch_says_by_which_protocol_or_else_the_extras_do() -> None:
    full = Message(b"c", b"k", ((b"n", b"v"),), ((3, b""),), batches.BASE_TIME_NS, 5_000)
    messages = [Message(b"a"), Message(b"b", extras=((0, b"note"), (2, b"x"))), full]
    assert list(side(of_origin(0, messages)).origins) == [0, 2, 3]
    assert list(side(of_origin(1, messages)).origins) == [1, 1, 1]


def test_lifetimes_have_bits_of_their_own() -> None:
    ends = [None, 1_999, -(2**63), 2**63 - 1, None, 0, 1, 2, 3_000]
    found = side(batches.batch([Message(b"x", expiry_ns=end) for end in ends]))
    assert found.expiry_count == 7
    assert [found.expiry_valid[row >> 3] >> (row & 7) & 1 for row in range(9)] == [0, 1, 1, 1, 0, 1, 1, 1, 1]
    assert list(found.expires_us) == [0, 1, 0, (2**63 - 1) // 1000, 0, 0, 0, 0, 3]


def test_only_the_rows_that_columns_has_are_described() -> None:
    hidden = batches.batch([Message(b"h", expiry_ns=9_000)], base_offset=2, attributes=1)
    data = of_origin(1, [Message(b"a"), Message(b"b")]) + hidden + of_origin(4, [Message(b"c", expiry_ns=7_000), Message(b"d")], 3)
    assert list(side(data).origins) == [1, 1, 4, 4]
    found = side(data, 1, 4)
    assert (list(found.origins), list(found.expires_us), found.expiry_count) == ([1, 4], [0, 7], 1)
    assert side(data, 9, 9).origins == side(b"").origins == b""


@given(batches.runs, st.integers(0, 6), st.integers(0, 20))
def test_both_builds_say_what_reading_the_messages_says(groups: list[list[Message]], first: int, last: int) -> None:
    data = batches.run(groups)
    found = side(data, first, last)
    assert astuple(found) == astuple(side(data, first, last, plain))
    kept = [message for offset, message in enumerate(message for group in groups for message in group) if first <= offset < last]
    kept = kept[: len(found.origins)]
    assert list(found.origins) == [expected_origin(1, message) for message in kept]
    assert found.expiry_count == sum(message.expiry_ns is not None for message in kept)
    assert list(found.expires_us) == [max(message.expiry_ns or 0, 0) // 1000 for message in kept]
