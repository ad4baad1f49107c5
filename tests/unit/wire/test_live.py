from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.wire import live
from polymq.wire.live import LiveBatch, LiveMessage

payloads = st.binary(max_size=20)
messages = st.builds(
    lambda payload, size, **fields: LiveMessage(payload=payload, header_size=min(size, len(payload)), **fields),
    payload=payloads,
    size=st.integers(0, 20),
    subject=st.binary(min_size=1, max_size=5),
    reply=st.binary(max_size=5),
    account=st.binary(max_size=3),
    queues=st.binary(max_size=7),
)


@given(st.lists(messages, max_size=6))
def test_what_goes_in_comes_out(given_: list[LiveMessage]) -> None:
    batch = LiveBatch.of(given_)
    assert batch.count == len(given_)
    assert batch.rows.format == "i"
    assert len(batch.rows) == live.COLUMNS * len(given_)
    assert batch.messages() == given_
    for index, message in enumerate(given_):
        assert (batch.subject(index), batch.reply(index), batch.account(index)) == (message.subject, message.reply, message.account)


@given(st.lists(messages, max_size=6), st.data())
def test_a_part(given_: list[LiveMessage], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(given_)))
    count = data.draw(st.integers(0, len(given_) - first))
    part = LiveBatch.of(given_).part(first, count)
    assert part.messages() == given_[first : first + count]
    assert len(part.rows) == live.COLUMNS * count


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (0, 3), (2, 1), (1, -1)])
def test_a_part_outside_is_our_bug(first: int, count: int) -> None:
    batch = LiveBatch.of([LiveMessage(b"a", b"1"), LiveMessage(b"b", b"2")])
    with pytest.raises(AssertionError):
        batch.part(first, count)


def test_a_header_larger_than_its_payload_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        LiveBatch.of([LiveMessage(b"a", b"1", header_size=2)])


def test_the_columns_are_what_the_seam_says() -> None:
    names = "SUBJECT_AT SUBJECT_SIZE REPLY_AT REPLY_SIZE HEADER_SIZE PAYLOAD_AT PAYLOAD_SIZE ACCOUNT_AT ACCOUNT_SIZE QUEUES_AT QUEUES_SIZE SPARE"
    assert [getattr(live, name) for name in names.split()] == list(range(live.COLUMNS))
