"""The columns hold what `read_messages`, which shares no code with them, reads from the same bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.errors import CorruptRecord
from polymq.wire import records
from polymq.wire.batch import ATTRIBUTE_PREPARED, ATTRIBUTE_RENEWED
from polymq.wire.records import Columns, Message
from tests.unit.wire import batches
from tests.unit.wire.batches import BASE_TIME_NS


def rows(columns: Columns) -> list[tuple[int, int, bytes, bytes | None, list[tuple[bytes, bytes]]]]:
    """Read columns back row by row, the way Arrow would."""

    def piece(ends: object, texts: bytearray, index: int) -> bytes:
        return bytes(texts[ends[index] : ends[index + 1]])  # type: ignore[index]

    result = []
    for row in range(columns.count):
        valid = columns.key_valid[row >> 3] >> (row & 7) & 1
        first, last = columns.header_ends[row], columns.header_ends[row + 1]
        headers = [(piece(columns.name_ends, columns.names, j), piece(columns.value_ends, columns.values, j)) for j in range(first, last)]
        key = piece(columns.key_ends, columns.keys, row) if valid else None
        result.append((columns.offsets[row], columns.times_us[row], piece(columns.body_ends, columns.bodies, row), key, headers))
    return result


@given(batches.runs, st.integers(0, 1000), st.data())
def test_columns_hold_the_messages_of_the_range(groups: list[list[Message]], base: int, draw: st.DataObject) -> None:
    data = batches.run(groups, base_offset=base)
    total = sum(map(len, groups))
    first = draw.draw(st.integers(base - 2, base + total + 2))
    end = draw.draw(st.integers(first, base + total + 4))
    messages = records.read_messages(data, 0, 0, 0, total, len(data))
    expected = [(base + i, m.time_ns // 1000, m.body, m.key, list(m.headers)) for i, m in enumerate(messages) if first <= base + i < end]
    columns = records.columns(data, 0, len(data), first, end)
    assert rows(columns) == expected
    assert columns.key_count == sum(row[3] is not None for row in expected)
    assert columns.header_count == sum(len(row[4]) for row in expected)


def test_columns_of_nothing_are_empty() -> None:
    columns = records.columns(b"", 0, 0, 0, 10)
    assert (columns.count, list(columns.body_ends), list(columns.header_ends), list(columns.name_ends)) == (0, [0], [0], [0])


@pytest.mark.parametrize("attributes", [ATTRIBUTE_PREPARED, ATTRIBUTE_RENEWED])
def test_a_batch_that_all_pass_over_is_not_seen(attributes: int) -> None:
    data = (
        batches.batch([Message(b"a")])
        + batches.batch([Message(b"b", b"k")], base_offset=1, attributes=attributes)
        + batches.batch([Message(b"c")], base_offset=2)
    )
    assert rows(records.columns(data, 0, len(data), 0, 10)) == [
        (0, BASE_TIME_NS // 1000, b"a", None, []),
        (2, BASE_TIME_NS // 1000, b"c", None, []),
    ]


def test_columns_start_and_end_within_a_larger_buffer() -> None:
    data = batches.batch([Message(b"a")])
    inside = b"\xff" * 5 + data + b"\xff" * 200
    assert rows(records.columns(inside, 5, 5 + len(data), 0, 10)) == rows(records.columns(data, 0, len(data), 0, 10))
    with pytest.raises(AssertionError):
        records.columns(data, 0, len(data) + 1, 0, 10)
    with pytest.raises(AssertionError):
        records.columns(data, -1, len(data), 0, 10)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (4, bytes(4)),
        (8, struct.pack("<I", 79)),
        (8, struct.pack("<I", 1000)),
        (8, struct.pack("<I", 88)),
        (14, b"\x10"),
        (28, struct.pack("<I", 3)),
        (28, struct.pack("<I", 0)),
        (32, struct.pack("<q", -1)),
        (32, struct.pack("<q", 2**62)),
        (40, struct.pack("<q", -1)),
        (80, struct.pack("<I", 2**32 - 1)),
    ],
)
def test_what_does_not_fit_is_corrupt(at: int, value: bytes) -> None:
    data = bytearray(batches.batch([Message(b"abc"), Message(b"d")]))
    data[at : at + len(value)] = value
    with pytest.raises(CorruptRecord):
        records.columns(data, 0, len(data), 0, 10)


def test_a_time_outside_64_bits_is_corrupt_for_all_readers() -> None:
    for delta, sound in (
        (-BASE_TIME_NS, True),
        (-BASE_TIME_NS - 1, False),
        (2**63 - 1 - BASE_TIME_NS, True),
        (2**63 - BASE_TIME_NS, False),
    ):
        data = bytearray(batches.batch([Message(b"abc", time_ns=5)]))
        struct.pack_into("<q", data, 88, delta)
        sealed = batches.reseal(data)
        assert (records.check(sealed, 0, len(sealed)) is None) == sound
        if sound:
            assert records.read_messages(sealed, 0, 0, 0, 1, len(sealed))[0].time_ns == BASE_TIME_NS + delta
            assert records.columns(sealed, 0, len(sealed), 0, 1).times_us[0] == (BASE_TIME_NS + delta) // 1000
        else:
            for read in (lambda d: records.columns(d, 0, len(d), 0, 1), lambda d: records.read_messages(d, 0, 0, 0, 1, len(d))):
                with pytest.raises(CorruptRecord):
                    read(sealed)
