"""Portions."""

from __future__ import annotations

import pytest

from polymq.spool.portion import Portion, encode_records, nothing
from polymq.wire.records import HEADER_SIZE_BYTES, BatchHeader, Message, check, seal


def test_records_are_encoded_behind_room_for_a_header() -> None:
    data, end = encode_records([Message(b"a", b"note"), Message(b"b", b"note")], 5)
    seal(data, 0, end, BatchHeader(count=2, base_time_ns=5))
    assert check(data, 0, end) is None
    assert encode_records([], 5) == (bytearray(HEADER_SIZE_BYTES), HEADER_SIZE_BYTES)
    nothing()


def test_a_portion_has_no_more_records_than_have_come() -> None:
    data, end = encode_records([], 0)
    with pytest.raises(AssertionError):
        Portion(data, end, count=2, received=1, salt=1, time_ns=0)
