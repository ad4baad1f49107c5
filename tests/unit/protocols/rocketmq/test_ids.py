"""Ids name messages, and can be read back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.limits import OFFSET_MAX, PARTITION_NUMBER_MAX
from polymq.protocols.rocketmq.ids import (
    UniqueKeys,
    offset_at,
    offset_message_id,
    parse_offset_message_id,
    parse_physical_offset,
    physical_offset,
    unique_key_time_ms,
)
from polymq.rocketmq_limits import PHYSICAL_OFFSET_BITS

NOW_MS = int(datetime(2026, 11, 22, 3, 4, 5, tzinfo=UTC).timestamp() * 1000)
MONTH_START_MS = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp() * 1000)


@given(st.integers(0, PARTITION_NUMBER_MAX), st.integers(0, OFFSET_MAX), st.integers(1, 2**PHYSICAL_OFFSET_BITS))
def test_a_message_is_found_by_its_physical_offset(number: int, offset: int, behind: int) -> None:
    physical = physical_offset(number, offset)
    assert 0 <= physical < 2**53
    found = parse_physical_offset(physical)
    assert found is not None
    assert found[0] == number
    assert offset_at(found[1], offset + behind) == offset


def test_what_is_no_physical_offset_of_ours() -> None:
    assert parse_physical_offset(-1) is None
    assert parse_physical_offset(2**53) is None
    assert offset_at(5, 5) is None
    assert offset_at(5, 0) is None
    assert offset_at(5, 6) == 5


def test_offset_ids_are_those_of_the_real_broker() -> None:
    text = "7F000001000051AF0000000000000AFC"
    assert parse_offset_message_id(text) == (b"\x7f\0\0\1", 20911, 2812)
    assert offset_message_id(b"\x7f\0\0\1", 20911, 2812) == text
    v6 = offset_message_id(bytes(range(16)), 1, 2)
    assert len(v6) == 56
    assert parse_offset_message_id(v6) == (bytes(range(16)), 1, 2)


@pytest.mark.parametrize("text", ["", "7F", "x" * 32, "7F 00001000051AF0000000000000AFC", "é" * 32, "7F000001000051AF0000000000000AFC00"])
def test_what_is_no_offset_id(text: str) -> None:
    assert parse_offset_message_id(text) is None
    assert unique_key_time_ms(text, NOW_MS) is None


def test_unique_keys() -> None:
    keys = UniqueKeys(b"\x0a\0\0\1", 0x12345, -1)
    first = keys.make(NOW_MS)
    assert first == "0A000001" + "2345" + "FFFFFFFF" + f"{NOW_MS - MONTH_START_MS:08X}" + "0000"
    assert keys.make(NOW_MS)[-4:] == "0001"
    assert unique_key_time_ms(first, NOW_MS + 1000) == NOW_MS
    assert len({keys.make(NOW_MS) for _ in range(1000)}) == 1000
    assert len(UniqueKeys(bytes(16), 1, 1).make(NOW_MS)) == 56
    for _ in range(0x10000):
        last = keys.make(NOW_MS)
    assert len(last) == 32


def test_unique_keys_of_another_month() -> None:
    keys = UniqueKeys(bytes(4), 1, 1)
    late = keys.make(MONTH_START_MS - 1)
    early = keys.make(MONTH_START_MS)
    assert unique_key_time_ms(early, NOW_MS) == MONTH_START_MS
    assert unique_key_time_ms(late, MONTH_START_MS + 5) == MONTH_START_MS - 1
    assert keys.make(MONTH_START_MS - 1)[20:28] == late[20:28]
