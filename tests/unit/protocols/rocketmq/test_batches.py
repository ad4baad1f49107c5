"""Batches are taken apart and put together, and what does not fit is refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.errors import LocalProtocolError, RemoteProtocolError
from polymq.protocols.rocketmq.batches import BatchPart, join_batch, split_batch
from polymq.rocketmq_limits import MESSAGE_COUNT_PER_BATCH_MAX, PROPERTIES_SIZE_BYTES_MAX

parts = st.builds(BatchPart, st.binary(max_size=20), st.binary(max_size=20), st.integers(-(2**31), 2**31 - 1))


@given(st.lists(parts, max_size=5))
def test_what_is_put_together_comes_apart(given_parts: list[BatchPart]) -> None:
    assert split_batch(join_batch(given_parts)) == given_parts


def test_the_layout() -> None:
    assert join_batch([BatchPart(b"body", b"p", 5)]) == struct.pack(">iiiii4sh1s", 27, 0, 0, 5, 4, b"body", 1, b"p")


def test_sizes_that_do_not_fit() -> None:
    whole = join_batch([BatchPart(b"body", b"properties")])
    for size in range(1, len(whole)):
        with pytest.raises(RemoteProtocolError) as raised:
            split_batch(whole[:size])
        assert not raised.value.fatal
    for at, value in ((0, 21), (0, -1), (0, 1000), (16, -1), (16, 1000)):
        damaged = bytearray(whole)
        struct.pack_into(">i", damaged, at, value)
        with pytest.raises(RemoteProtocolError):
            split_batch(bytes(damaged))
    for value in (-1, 11):
        damaged = bytearray(whole)
        struct.pack_into(">h", damaged, 24, value)
        with pytest.raises(RemoteProtocolError):
            split_batch(bytes(damaged))


def test_limits() -> None:
    one = join_batch([BatchPart(b"")])
    assert len(split_batch(one * MESSAGE_COUNT_PER_BATCH_MAX)) == MESSAGE_COUNT_PER_BATCH_MAX
    with pytest.raises(RemoteProtocolError):
        split_batch(one * (MESSAGE_COUNT_PER_BATCH_MAX + 1))
    assert join_batch([BatchPart(b"", bytes(PROPERTIES_SIZE_BYTES_MAX))])
    with pytest.raises(LocalProtocolError):
        join_batch([BatchPart(b"", bytes(PROPERTIES_SIZE_BYTES_MAX + 1))])
