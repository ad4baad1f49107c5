from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymq.errors import CorruptRecord
from polymq.wire import records
from polymq.wire.records import HEADER_SIZE_BYTES, RECORD_OVERHEAD_BYTES, Message
from polymq.wire.slices import MessageBatch
from tests.unit.wire import batches
from tests.unit.wire.batches import BASE_TIME_NS

BODIES = [b"alpha", b"", b"gamma" * 50]


def encoded_bodies(bodies: list[bytes], at: int = 0) -> bytes:
    batch = MessageBatch.of(bodies)
    target = bytearray(at + RECORD_OVERHEAD_BYTES * batch.count + batch.size_bytes)
    end = records.encode_bodies(target, at, batch)
    assert end == len(target)
    return bytes(target[at:])


def test_encode_bodies_gives_the_records_that_encode_message_gives() -> None:
    assert encoded_bodies(BODIES) == b"".join(records.encode_message(Message(body)) for body in BODIES)


def test_encode_bodies_starts_at_the_first_of_the_batch_and_at_the_given_place() -> None:
    batch = MessageBatch.of(BODIES)
    batch.first, batch.count = 1, 1
    target = bytearray(b"x" * 20)
    assert records.encode_bodies(target, 5, batch) == 13
    assert bytes(target) == b"xxxxx" + struct.pack("<II", 8, 8) + b"x" * 7


@pytest.mark.parametrize(
    ("field", "value"),
    [("count", 4), ("first", 1), ("first", -1), ("count", -1)],
    ids=["count", "first", "negative first", "negative count"],
)
def test_encode_bodies_refuses_positions_that_are_not_there(field: str, value: int) -> None:
    batch = MessageBatch.of(BODIES)
    setattr(batch, field, value)
    with pytest.raises(AssertionError):
        records.encode_bodies(bytearray(4096), 0, batch)


def test_encode_bodies_refuses_a_target_that_is_too_small() -> None:
    with pytest.raises(AssertionError):
        records.encode_bodies(bytearray(7), 0, MessageBatch.of([b""]))
    with pytest.raises(AssertionError):
        records.encode_bodies(bytearray(8), -1, MessageBatch.of([b""]))


@pytest.mark.parametrize(("position", "size"), [(0, 6), (1, 5), (-1, 2), (0, -1), (2**62, 1), (0, 2**62)])
def test_encode_bodies_refuses_a_body_outside_its_buffer(position: int, size: int) -> None:
    batch = MessageBatch.of([b"12345"])
    batch.positions[0], batch.sizes[0] = position, size
    with pytest.raises(AssertionError):
        records.encode_bodies(bytearray(4096), 0, batch)


# --- skip -------------------------------------------------------------------------------------------------------------


def test_skip_walks_across_batches_and_tells_where_it_is() -> None:
    data = batches.batch([Message(b"a"), Message(b"b")], base_time_ns=100) + batches.batch([Message(b"c"), Message(b"d")], base_time_ns=200)
    second = HEADER_SIZE_BYTES + 18
    assert records.skip(data, 0, 0, 0, 1, 10**6, len(data)) == (1, HEADER_SIZE_BYTES + 9, 1, 100)
    assert records.skip(data, 0, 0, 0, 2, 10**6, len(data)) == (2, second, 0, 100)
    assert records.skip(data, 0, 0, 0, 3, 10**6, len(data)) == (3, second + HEADER_SIZE_BYTES + 9, 1, 200)
    assert records.skip(data, second, 0, 100, 9, 10**6, len(data)) == (2, len(data), 0, 200)
    assert records.skip(data, HEADER_SIZE_BYTES + 9, 1, 100, 9, 10**6, len(data)) == (3, len(data), 0, 200)


def test_skip_keeps_to_the_size_but_takes_one() -> None:
    data = batches.batch([Message(bytes(20)), Message(bytes(20)), Message(bytes(20))])
    start = HEADER_SIZE_BYTES
    assert records.skip(data, start, 3, 1, 9, 0, len(data))[0] == 1
    assert records.skip(data, start, 3, 1, 9, 55, len(data))[0] == 1
    assert records.skip(data, start, 3, 1, 9, 56, len(data)) == (2, start + 56, 1, 1)
    assert records.skip(data, start, 3, 1, 0, 56, len(data)) == (0, start, 3, 1)


def test_skip_stops_at_zeros_and_at_the_end() -> None:
    data = batches.batch([Message(b"a")])
    padded = data + bytes(200)
    assert records.skip(padded, 0, 0, 0, 9, 10**6, len(padded)) == (1, len(data), 0, BASE_TIME_NS)
    assert records.skip(padded, len(data), 0, 5, 9, 10**6, len(padded)) == (0, len(data), 0, 5)
    assert records.skip(data, 0, 0, 0, 9, 10**6, len(data) - 1) == (0, 0, 0, 0)
    assert records.skip(data, 0, 0, 0, 9, 10**6, HEADER_SIZE_BYTES - 1) == (0, 0, 0, 0)


def test_skip_refuses_an_end_outside_the_view() -> None:
    data = batches.batch([Message(b"a")])
    with pytest.raises(AssertionError):
        records.skip(data, 0, 0, 0, 9, 10**6, len(data) + 1)
    with pytest.raises(AssertionError):
        records.skip(data, 2, 0, 0, 9, 10**6, 1)
    with pytest.raises(AssertionError):
        records.skip(data, -1, 0, 0, 9, 10**6, 1)


@given(batches.runs, st.integers(0, 12), st.integers(0, 400))
def test_skip_in_steps_passes_what_one_skip_passes(groups: list[list[Message]], step: int, size_max: int) -> None:
    data = batches.run(groups)
    total = sum(map(len, groups))
    assert records.skip(data, 0, 0, 0, 10**9, 10**9, len(data))[:2] == (total, len(data))
    position, left, time_ns, passed = 0, 0, 0, 0
    while True:
        count, position, left, time_ns = records.skip(data, position, left, time_ns, max(step, 1), size_max, len(data))
        assert count <= max(step, 1)
        passed += count
        if not count:
            break
    assert (passed, position) == (total, len(data))


# --- check ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("at", "value", "words"),
    [
        (4, b"\0\0\0\0", "magic"),
        (8, struct.pack("<I", 79), "claims"),
        (8, struct.pack("<I", 2**32 - 1), "claims"),
        (12, b"\x02", "version"),
        (14, b"\x04", "attributes"),
        (15, b"\x01", "attributes"),
        (28, bytes(4), "count 0"),
        (28, struct.pack("<I", 2), "record"),
        (28, struct.pack("<I", 4), "record"),
        (28, struct.pack("<I", 2**32 - 1), "record"),
        (32, struct.pack("<q", -1), "base offset -1"),
        (40, struct.pack("<q", -1), "base time -1"),
        (80, struct.pack("<I", 7), "byte 80"),
        (80, struct.pack("<I", 2**32 - 1), "byte 80"),
        (84, struct.pack("<I", 7), "byte 80"),
        (84, struct.pack("<I", 0xFFFFFF), "byte 80"),
        (84, struct.pack("<I", 0x01000008), "byte 80"),
        (84, struct.pack("<I", 0x04000008), "byte 80"),
        (84, struct.pack("<I", 0x10000008), "byte 80"),
    ],
)
def test_check_says_what_is_wrong(at: int, value: bytes, words: str) -> None:
    data = bytearray(batches.batch([Message(b"abcde"), Message(b"f"), Message(b"")]))
    assert records.check(data, 0, len(data)) is None
    data[at : at + len(value)] = value
    assert words in (records.check(batches.reseal(data), 0, len(data)) or "")


@pytest.mark.parametrize("at", [0, 5, 13, 30, 64, 79, 80, 90])
def test_check_notices_every_changed_byte(at: int) -> None:
    data = bytearray(batches.batch([Message(b"abcde")]))
    data[at] ^= 0x40
    assert records.check(data, 0, len(data)) is not None


def test_check_takes_compressed_records_as_they_are() -> None:
    data = bytearray(batches.batch([Message(b"abcde")], attributes=0x10))
    data[80:84] = b"\xff\xff\xff\xff"
    assert records.check(batches.reseal(data), 0, len(data)) is None


def test_check_needs_a_whole_batch() -> None:
    data = batches.batch([Message(b"abcde")])
    for end in range(len(data)):
        assert records.check(data, 0, end) is not None
    assert records.check(data + b"behind", 0, len(data) + 6) is None
    assert records.check(data, -1, len(data)) is not None
    assert records.check(data, 1, 0) is not None


@pytest.mark.parametrize(
    "message",
    [
        Message(b"b", key=b"kkkk"),
        Message(b"b", headers=((b"name", b"value"), (b"", b""))),
        Message(b"b", extras=((1, b"data"), (2, b""))),
        Message(b"b", key=b"k", headers=((b"n", b"v"),), extras=((1, b"d"),), time_ns=BASE_TIME_NS + 1, expiry_ns=5),
    ],
    ids=["key", "headers", "extras", "all"],
)
def test_every_size_inside_a_record_is_checked(message: Message) -> None:
    """Whatever a size field says, the three readers agree whether the record is sound, and none reads outside."""
    good = batches.batch([message])
    verdicts = set()
    for at in range(HEADER_SIZE_BYTES, len(good) - 4):
        for value in (0, 1, 3, 4, 9, 255, 2**31 - 1, 2**31, 2**32 - 5, 2**32 - 4, 2**32 - 1):
            data = bytearray(good)
            struct.pack_into("<I", data, at, value)
            sealed = batches.reseal(data)
            sound = records.check(sealed, 0, len(sealed)) is None
            verdicts.add(sound)
            if sound:
                assert records.columns(sealed, 0, len(sealed), 0, 2**41).count == 1
                assert len(records.read_messages(sealed, 0, 0, 0, 1, len(sealed))) == 1
            else:
                with pytest.raises(CorruptRecord):
                    records.columns(sealed, 0, len(sealed), 0, 2**41)
    assert verdicts == {True, False}


@settings(max_examples=300)
@given(st.binary(max_size=400), st.integers(0, 5))
def test_arbitrary_bytes_are_never_read_outside(data: bytes, left: int) -> None:
    """The view ends where the bytes end: in the build with bounds checks, reading there would be an error."""
    end = len(data)
    records.check(data, 0, end)
    count, position, _, _ = records.skip(data, 0, left, 0, 100, 10**9, end)
    assert count >= 0
    assert 0 <= position <= end
    header = struct.pack("<4x4sIBBHQIIqq32x", b"PYMQ", HEADER_SIZE_BYTES + end, 1, 0, 0, 0, 0, left, 0, 0)
    for hostile in (data, header + data):
        with contextlib.suppress(CorruptRecord):
            records.columns(hostile, 0, len(hostile), 0, 2**62)
