"""Messages as objects; what becomes of many at once is in test_stored."""

from __future__ import annotations

import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.errors import RemoteProtocolError
from polymq.limits import MESSAGE_SIZE_BYTES_MAX
from polymq.protocols.rocketmq.messages import (
    MAGIC,
    MAGIC_2,
    Extra,
    body_crc,
    body_of,
    decode_stored,
    extra_of,
    make_extra,
    make_message,
    read_extra,
)
from polymq.rocketmq_limits import PROPERTIES_SIZE_BYTES_MAX
from polymq.wire.batch import Message

i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)
hosts = st.one_of(st.binary(min_size=4, max_size=4), st.binary(min_size=16, max_size=16))
extras = st.builds(Extra, i32, i32, i64, hosts, i32, i32, i64, i32, st.integers(0, 2**32 - 1), st.binary(max_size=9))


@given(extras)
def test_an_extra_is_read_as_it_was_written(extra: Extra) -> None:
    assert read_extra(make_extra(extra)) == extra


def test_what_is_no_extra_of_this_version() -> None:
    data = make_extra(Extra())
    assert read_extra(data[:-1]) is None
    assert read_extra(b"\2" + data[1:]) is None
    assert read_extra(data[:1] + b"\5" + data[2:]) is None
    assert read_extra(data[:1] + b"\x10" + data[2:]) is None
    assert read_extra(data + bytes(PROPERTIES_SIZE_BYTES_MAX + 1)) is None
    with pytest.raises(AssertionError):
        make_extra(Extra(properties=bytes(PROPERTIES_SIZE_BYTES_MAX + 1)))


def test_a_message_is_completed() -> None:
    message = make_message(b"hello", Extra(sys_flag=0x31, properties=b"TAGS\x01TagA\x02", tags_code=5, body_crc=6))
    extra = extra_of(message)
    assert extra == Extra(sys_flag=0x1, properties=b"TAGS\x01TagA\x02", tags_code=2598919, body_crc=0x3610A686)
    assert body_crc(b"batch1") == 0x029AF228
    assert extra_of(Message(b"", extras=((1, b"x"),))) is None
    assert extra_of(Message(b"", extras=((0, b"x"), message.extras[0]))) == extra


def stored(*, magic: int = MAGIC, sys_flag: int = 0, topic: bytes = b"T") -> bytes:
    hosts = [struct.pack(">16si" if sys_flag & bit else ">4si", bytes(range(1, 17 if sys_flag & bit else 5)), 9) for bit in (0x10, 0x20)]
    size = struct.pack(">H" if magic == MAGIC_2 else "B", len(topic))
    rest = struct.pack(">IIiiqqiq", magic, 5, 1, 2, 3, 4, sys_flag, 6) + hosts[0] + struct.pack(">q", 7) + hosts[1]
    rest += struct.pack(">iqi", 8, 9, 4) + b"body" + size + topic + struct.pack(">h", 2) + b"pp"
    return struct.pack(">i", len(rest) + 4) + rest


def test_stored_messages_of_all_kinds() -> None:
    kinds = [
        stored(),
        stored(sys_flag=0x10),
        stored(sys_flag=0x20),
        stored(sys_flag=0x30),
        stored(magic=MAGIC_2, topic=b"x" * 200),
    ]
    found = decode_stored(b"".join(kinds))
    assert [message.body for message in found] == [b"body"] * 5
    assert [len(message.born_host) for message in found] == [4, 16, 4, 16, 4]
    assert [len(message.store_host) for message in found] == [4, 4, 16, 16, 4]
    assert found[4].topic == "x" * 200
    one = found[0]
    assert (one.body_crc, one.queue_id, one.flag, one.queue_offset, one.physical_offset) == (5, 1, 2, 3, 4)
    assert (one.born_ms, one.store_ms, one.reconsume_times, one.prepared_offset, one.properties) == (6, 7, 8, 9, b"pp")
    assert (one.born_port, one.store_port) == (9, 9)


def test_sizes_that_do_not_fit() -> None:
    whole = stored()
    for size in range(1, len(whole)):
        with pytest.raises(RemoteProtocolError) as raised:
            decode_stored(whole[:size])
        assert not raised.value.fatal
    for at, value in ((0, 0), (0, 1000), (84, -1), (84, 1000)):
        damaged = bytearray(whole)
        struct.pack_into(">i", damaged, at, value)
        with pytest.raises(RemoteProtocolError):
            decode_stored(bytes(damaged))


def test_a_packed_body_is_there_for_its_own_clients_and_unpacked_for_others() -> None:
    packed = zlib.compress(bytes(1000))
    extra = Extra(sys_flag=0x301, properties=b"a\x01b")
    message = make_message(packed, extra, unpacked_size_max=1000)
    assert (message.body, body_of(message)) == (bytes(1000), packed)
    kept = extra_of(message)
    assert kept is not None
    assert (kept.sys_flag, kept.body_crc) == (0x301, body_crc(packed))
    # What is not to be unpacked, or cannot be, is as it came.
    for body, most in ((packed, 999), (packed, 0), (packed[:-1], 1000), (b"", 1000)):
        message = make_message(body, extra, unpacked_size_max=most)
        assert (message.body, body_of(message), len(message.extras)) == (body, body, 1)
    # Both together fit into a batch.
    large = zlib.compress(bytes(range(256)) * 32768, 0)
    assert len(make_message(large, extra, unpacked_size_max=MESSAGE_SIZE_BYTES_MAX).extras) == 1
