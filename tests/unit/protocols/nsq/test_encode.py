from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.limits import OFFSET_BITS, OFFSET_MAX, PARTITION_NUMBER_MAX
from polymq.protocols.nsq import encode
from polymq.wire.batch import BatchHeader, Message, encode_message, seal
from polymq.wire.slices import Slice
from tests.unit.protocols.nsq import streams

plain = streams.interpreted("polymq.protocols.nsq.encode")
BASE_TIME_NS = 1_700_000_000_000_000_000


def log_of(groups: list[list[Message]], *, first_offset: int) -> bytes:
    """Whole sealed batches, back to back."""
    data = bytearray()
    offset = first_offset
    for index, group in enumerate(groups):
        at = len(data)
        base = BASE_TIME_NS + 1_000_000 * index
        data += bytes(80) + b"".join(encode_message(message) for message in group)
        header = BatchHeader(segment_id=1, epoch=1, count=len(group), base_offset=offset, base_time_ns=base)
        seal(data, at, len(data), header)
        offset += len(group)
    return bytes(data)


def slice_of(groups: list[list[Message]], skipped: int, count: int, *, partition: int = 3, first_offset: int = 100) -> Slice:
    """The slice that begins `skipped` records into the first batch."""
    view = memoryview(log_of(groups, first_offset=first_offset))
    position = 80 + sum(len(encode_message(message)) for message in groups[0][:skipped])
    end, left = position, count
    in_batch = len(groups[0]) - skipped
    rest = [group if index else group[skipped:] for index, group in enumerate(groups)]
    for index, group in enumerate(rest):
        taken = group[: max(0, left)]
        if taken:
            end += (80 if index else 0) + sum(len(encode_message(message)) for message in taken)
        left -= len(taken)
    return Slice(
        view,
        partition=partition,
        position=position,
        end=end,
        offset=first_offset + skipped,
        count=count,
        batch_left=in_batch,
        base_time_ns=BASE_TIME_NS,
    )


def frames(data: bytes) -> list[tuple[int, int, bytes, bytes]]:
    """Read message frames without any code of ours: time, attempts, id, body."""
    found, at = [], 0
    while at < len(data):
        size, kind, time_ns, attempts, message_id = struct.unpack_from(">iiqH16s", data, at)
        assert kind == 2
        found.append((time_ns, attempts, message_id, data[at + 34 : at + 4 + size]))
        at += 4 + size
    assert at == len(data)
    return found


optional = st.builds(
    Message,
    body=st.binary(min_size=1, max_size=300),
    key=st.none() | st.binary(max_size=5),
    headers=st.lists(st.tuples(st.binary(max_size=4), st.binary(max_size=4)), max_size=2).map(tuple),
    time_ns=st.sampled_from([0, BASE_TIME_NS + 5]),
    expiry_ns=st.none() | st.integers(0, 2**62),
)


@given(st.lists(st.lists(optional, min_size=1, max_size=4), min_size=1, max_size=4), st.data())
def test_frames_are_written_from_records_across_batches(groups: list[list[Message]], data: st.DataObject) -> None:
    skipped = data.draw(st.integers(0, len(groups[0]) - 1))
    chosen = [message for group in groups for message in group][skipped:]
    count = data.draw(st.integers(1, len(chosen)))
    at = data.draw(st.integers(0, 3))
    attempts = data.draw(st.integers(1, 70_000))
    messages = slice_of(groups, skipped, count)
    targets = []
    for module in (encode, plain):
        target = bytearray(b"\xaa" * (at + module.frames_size_bytes(messages)))
        end = module.encode_messages(target, at, messages, attempts)
        assert target[:at] == b"\xaa" * at
        assert set(target[end:]) <= {0xAA}
        targets.append(bytes(target[at:end]))
    assert targets[0] == targets[1]
    found = frames(targets[0])
    assert [frame[3] for frame in found] == [message.body for message in chosen[:count]]
    assert [int(frame[2], 16) for frame in found] == [3 << OFFSET_BITS | 100 + skipped + index for index in range(count)]
    assert {frame[1] for frame in found} == {min(attempts, 0xFFFF)}


def test_the_bound_is_exact_for_plain_records_of_one_batch() -> None:
    messages = slice_of([[Message(b"abc"), Message(b"defgh")]], 0, 2)
    target = bytearray(encode.frames_size_bytes(messages))
    assert encode.encode_messages(target, 0, messages, 1) == len(target)


def test_the_frame_byte_by_byte() -> None:
    messages = slice_of([[Message(b"hi")]], 0, 1, partition=PARTITION_NUMBER_MAX, first_offset=OFFSET_MAX)
    target = bytearray(encode.frames_size_bytes(messages))
    encode.encode_messages(target, 0, messages, 0x0102)
    expected = b"\0\0\0\x20\0\0\0\x02" + BASE_TIME_NS.to_bytes(8, "big") + b"\x01\x027fffffffffffffffhi"
    assert target == expected


def test_a_time_of_its_own_counts_from_the_batch() -> None:
    view = bytearray(80) + struct.pack("<IIq", 17, 0x0100_0000 | 16, -1000) + b"x"
    struct.pack_into("<I", view, 28, 1)
    struct.pack_into("<q", view, 40, BASE_TIME_NS)
    # batch_left 0: the slice begins at a batch header.
    messages = Slice(memoryview(view), partition=0, position=0, end=len(view), offset=0, count=1, batch_left=0, base_time_ns=0)
    target = bytearray(encode.frames_size_bytes(messages))
    end = encode.encode_messages(target, 0, messages, 1)
    assert frames(bytes(target[:end])) == [(BASE_TIME_NS - 1000, 1, b"0" * 16, b"x")]


@pytest.mark.parametrize("at", [-1, 1])
def test_too_little_room_is_our_bug(at: int) -> None:
    messages = slice_of([[Message(b"abc")]], 0, 1)
    with pytest.raises(AssertionError):
        encode.encode_messages(bytearray(encode.frames_size_bytes(messages)), at, messages, 1)


def test_fixed_frames() -> None:
    assert encode.OK_FRAME == b"\0\0\0\x06\0\0\0\0OK"
    assert encode.HEARTBEAT_FRAME == b"\0\0\0\x0f\0\0\0\0_heartbeat_"
    assert encode.CLOSE_WAIT_FRAME == b"\0\0\0\x0e\0\0\0\0CLOSE_WAIT"
    assert encode.error_frame(b"E_BAD_PROTOCOL") == b"\0\0\0\x12\0\0\0\x01E_BAD_PROTOCOL"


@pytest.mark.parametrize("count", [0, 1, 128, 129, 5000])
def test_answers_to_a_run(count: int) -> None:
    assert encode.ok_frames(count) == encode.OK_FRAME * count
