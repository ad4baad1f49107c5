from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymq.errors import CorruptRecord
from polymq.wire.batch import HEADER_SIZE_BYTES, BatchHeader, Message, encode_message, read_messages, seal
from polymq.wire.transfer import RECORD_GROWTH_BYTES, copy_wanted, runs_of, stretch_end

if TYPE_CHECKING:
    from collections.abc import Sequence

NEW_NS = 1_700_000_000_000_000_000
OLD_NS = NEW_NS - 5_000_000_000

messages = st.builds(
    Message,
    st.binary(max_size=20),
    key=st.none() | st.binary(max_size=5),
    headers=st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3)), max_size=2).map(tuple),
    extras=st.lists(st.tuples(st.integers(0, 5), st.binary(max_size=3)), max_size=2).map(tuple),
    time_ns=st.just(0) | st.integers(OLD_NS - 10, OLD_NS + 10),
    expiry_ns=st.none() | st.integers(0, 2**62),
)


def batches(*contents: Sequence[Message], base_offset: int = 0) -> bytes:
    """Encode batches that follow one another, each a second later than the one before."""
    data = bytearray()
    for index, content in enumerate(contents):
        at = len(data)
        time_ns = OLD_NS + index * 1_000_000_000
        data += bytes(HEADER_SIZE_BYTES) + b"".join(encode_message(message, time_ns) for message in content)
        header = BatchHeader(segment_id=1, epoch=1, count=len(content), base_offset=base_offset, base_time_ns=time_ns)
        seal(data, at, len(data), header)
        base_offset += len(content)
    return bytes(data)


def carry(view: bytes, wanted: list[int], *, offset: int = 0, room: int | None = None) -> tuple[bytes, int]:
    target = bytearray(len(view) + RECORD_GROWTH_BYTES * len(wanted) if room is None else room)
    end, index = copy_wanted(target, 0, view, 0, 0, 0, len(view), offset, array("q", wanted), 0, NEW_NS)
    return bytes(target[:end]), index


@given(st.lists(st.lists(messages, min_size=1, max_size=4), min_size=1, max_size=4), st.data())
def test_what_is_wanted_is_carried_with_everything_that_it_has(contents: list[list[Message]], data: st.DataObject) -> None:
    view = batches(*contents)
    count = sum(map(len, contents))
    wanted = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    carried, index = carry(view, wanted)
    assert index == len(wanted)
    before = read_messages(view, 0, 0, 0, count, len(view))
    assert read_messages(carried, 0, len(wanted), NEW_NS, len(wanted), len(carried)) == [before[offset] for offset in wanted]


def test_it_ends_with_the_slice_and_where_the_order_turns_back() -> None:
    view = batches([Message(b"%d" % index) for index in range(5)], base_offset=100)
    carried, index = carry(view, [101, 103, 107], offset=100)
    assert index == 2
    assert [message.body for message in read_messages(carried, 0, 2, NEW_NS, 2, len(carried))] == [b"1", b"3"]
    assert carry(view, [103, 101, 104], offset=100)[1] == 1


def test_a_record_without_room_for_a_time_gets_that_of_its_batch() -> None:
    full = Message(b"x", headers=((b"n", bytes(0xFFFFFF - 8 - 4 - 4 - 1 - 4)),))
    carried, _index = carry(batches([full]), [0])
    (found,) = read_messages(carried, 0, 1, NEW_NS, 1, len(carried))
    assert (found.body, found.headers, found.time_ns) == (b"x", full.headers, NEW_NS)


def test_what_is_wanted_before_the_slice_and_too_little_room_are_bugs_of_the_caller() -> None:
    view = batches([Message(b"x")])
    with pytest.raises(AssertionError):
        carry(view, [0], offset=1)
    with pytest.raises(AssertionError):
        carry(view, [0], room=16)
    with pytest.raises(AssertionError):
        carry(view, [])


@settings(max_examples=300)
@given(st.integers(0, 10_000), st.integers(0, 255), st.integers(1, 6))
def test_damaged_records_are_refused_or_copied_never_read_beyond(at: int, value: int, count: int) -> None:
    """Whatever is in the slice: CorruptRecord, or records within the room that was promised."""
    view = bytearray(batches([Message(b"body", key=b"k", time_ns=OLD_NS)] * 3, [Message(b"")] * 3))
    view[at % len(view)] = value
    try:
        carried, _index = carry(bytes(view), list(range(count)))
    except CorruptRecord:
        return
    assert len(carried) <= len(view) + RECORD_GROWTH_BYTES * count


@pytest.mark.parametrize("keep", range(1, 200))
def test_a_slice_that_is_cut_short_is_refused_or_ends(keep: int) -> None:
    view = batches([Message(b"body")] * 2, [Message(b"more")] * 2)
    keep = min(keep, len(view))
    try:
        _carried, index = carry(view[:keep], [0, 1, 2, 3])
    except CorruptRecord:
        return
    assert index == sum(keep >= end for end in (92, 104, 196, 208))


def test_stretches_end_at_gaps_and_where_the_order_turns_back() -> None:
    wanted = array("q", [5, 6, 9, 20, 21, 3])
    assert [stretch_end(wanted, index, 3) for index in range(6)] == [3, 3, 3, 5, 5, 6]
    with pytest.raises(AssertionError):
        stretch_end(wanted, 6, 3)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40))
def test_runs_stand_for_the_numbers_in_their_order(numbers: list[int]) -> None:
    flat = array("q", runs_of(array("q", numbers), 0, len(numbers)))
    rows = list(zip(flat[::2], flat[1::2], strict=True))
    assert [number for first, count in rows for number in range(first, first + count)] == numbers
    assert all(first + count != following for (first, count), (following, _count) in pairwise(rows))
