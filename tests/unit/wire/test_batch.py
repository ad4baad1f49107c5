"""Headers and single records, and the object reader, which shares no code with the compiled ones."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given

from polymq.errors import CorruptRecord, Refusal
from polymq.wire import records
from polymq.wire.batch import ATTRIBUTE_PREPARED, ATTRIBUTE_RENEWED, read_shown
from polymq.wire.records import HEADER_SIZE_BYTES, BatchHeader, Message
from tests.unit.wire import batches


def test_the_layout_is_the_one_of_the_documentation() -> None:
    record = records.encode_message(Message(b"body", b"key", ((b"n", b"vv"),), ((2, b"x"),), 1000 + 5, 77), base_time_ns=1000)
    fields = (
        struct.pack("<qq", 5, 77)
        + struct.pack("<I", 3)
        + b"key"
        + struct.pack("<I", 11)
        + struct.pack("<I", 1)
        + b"n"
        + struct.pack("<I", 2)
        + b"vv"
        + struct.pack("<I", 6)
        + struct.pack("<BI", 2, 1)
        + b"x"
    )
    assert record == struct.pack("<II", 8 + len(fields) + 4, 0x1F << 24 | (8 + len(fields))) + fields + b"body"


def test_the_header_has_its_fields_where_the_documentation_says() -> None:
    target = bytearray(b"\xff" * 3 + b"\xff" * HEADER_SIZE_BYTES + records.encode_message(Message(b"z")))
    header = BatchHeader(
        origin=4,
        attributes=1,
        segment_id=2**64 - 2,
        epoch=9,
        count=1,
        base_offset=11,
        base_time_ns=12,
        producer_id=13,
        producer_epoch=14,
        sequence=15,
    )
    records.seal(target, 3, len(target), header)
    values = struct.unpack_from("<IIIBBHQIIqqqiIqQ", target, 3)
    assert values[1:] == (0x514D5950, 89, 1, 4, 1, 2**64 - 2, 9, 1, 11, 12, 13, 14, 0, 15, 0)
    assert bytes(target[:3]) == b"\xff" * 3
    found = records.parse_header(target, 3)
    assert found.sequence == 15
    assert found.size == 89
    assert found.crc == values[0]
    assert records.check(target, 3, len(target)) is None


def test_a_key_or_headers_of_16_mib_are_refused() -> None:
    largest = Message(b"", key=bytes(0xFFFFFF - 12))
    assert len(records.encode_message(largest)) == 0xFFFFFF
    with pytest.raises(Refusal):
        records.encode_message(Message(b"", key=bytes(0xFFFFFF - 11)))


@given(batches.runs)
def test_messages_come_back_as_they_were(groups: list[list[Message]]) -> None:
    data = batches.run(groups)
    expected = [batches.stamped(message) for group in groups for message in group]
    assert records.read_messages(data, 0, 0, 0, len(expected), len(data)) == expected
    at = 0
    for group in groups:
        assert records.check(data, at, len(data)) is None
        at += records.parse_header(data, at).size
        assert group
    assert at == len(data)


def test_read_messages_starts_within_a_batch() -> None:
    data = batches.batch([Message(b"a"), Message(b"b"), Message(b"c")])
    at = HEADER_SIZE_BYTES + 9
    assert [m.body for m in records.read_messages(data, at, 2, 5, 2, len(data))] == [b"b", b"c"]
    with pytest.raises(CorruptRecord):
        records.read_messages(data, at, 2, 5, 3, len(data))


@pytest.mark.parametrize("end", [0, 79, 80, 87, 88, 92])
def test_messages_that_are_not_whole_are_corrupt(end: int) -> None:
    data = batches.batch([Message(b"hello")])
    with pytest.raises(CorruptRecord):
        records.read_messages(data, 0, 0, 0, 1, end)


def test_a_header_without_magic_or_records_is_corrupt() -> None:
    for at in (4, 28):
        data = bytearray(batches.batch([Message(b"hello")]))
        data[at : at + 4] = bytes(4)
        with pytest.raises(CorruptRecord):
            records.read_messages(data, 0, 0, 0, 1, len(data))


def test_what_readers_pass_over_is_not_shown() -> None:
    parts = [
        batches.batch([Message(b"a"), Message(b"b")]),
        batches.batch([Message(b"c")], base_offset=2, attributes=ATTRIBUTE_RENEWED),
        batches.batch([Message(b"d")], base_offset=3, attributes=ATTRIBUTE_PREPARED),
        batches.batch([Message(b"e")], base_offset=4),
    ]
    data = b"".join(parts)
    found = read_shown(data, 0, 0, 0, 5, len(data))
    assert [(index, message.body) for index, message in found] == [(0, b"a"), (1, b"b"), (4, b"e")]
    within = HEADER_SIZE_BYTES + len(records.encode_message(Message(b"a")))
    assert [(index, message.body) for index, message in read_shown(data, within, 1, 0, 3, len(data))] == [(0, b"b")]
