"""What was sent is found in records again, and leaves as it came; messages of other protocols look as if they had."""

from __future__ import annotations

import struct
import zlib
from array import array
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polymq.errors import CorruptRecord
from polymq.protocols.rocketmq import stored
from polymq.protocols.rocketmq.generic import foreign_properties
from polymq.protocols.rocketmq.ids import physical_offset
from polymq.protocols.rocketmq.messages import ORIGIN_ROCKETMQ, Extra, StoredMessage, decode_stored, extra_of, make_extra, make_message
from polymq.protocols.rocketmq.names import tag_hash
from polymq.protocols.rocketmq.places import Place
from polymq.wire import records
from polymq.wire.left_out import EXPIRED, HEADER, KEY, LARGE, left_out
from polymq.wire.records import Message
from polymq.wire.slices import Slice
from tests.unit.protocols.nsq.streams import interpreted

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

plain = interpreted("polymq.protocols.rocketmq.stored")
both = pytest.mark.parametrize("module", [stored, plain], ids=["as built", "interpreted"])

PLACE = Place(b"T", 3, 7, b"\x0a\0\0\2", 20911)
TIME_NS = 1_795_212_447_778_999_999
TIME_MS = TIME_NS // 1_000_000
KEPT = b"KEYS\x01K1\x02UNIQ_KEY\x01FD00\x02TAGS\x01TagA\x02CLUSTER\x01DefaultCluster"


def batch_of(data: bytes, count: int, *, offset: int = 100, time_ns: int = TIME_NS, attributes: int = 0) -> bytes:
    batch = bytearray(80) + data
    records.seal(
        batch, 0, len(batch), records.BatchHeader(origin=2, attributes=attributes, count=count, base_offset=offset, base_time_ns=time_ns)
    )
    return bytes(batch)


def slice_of(data: bytes, count: int, *, offset: int = 100) -> Slice:
    return Slice(memoryview(data), partition=0, position=0, end=len(data), offset=offset, count=count, batch_left=0, base_time_ns=0)


def slice_of_messages(messages: Sequence[Message]) -> Slice:
    return slice_of(batch_of(b"".join([records.encode_message(message, TIME_NS) for message in messages]), len(messages)), len(messages))


def read(
    slice_: Slice,
    *,
    wanted: Sequence[int] | None = None,
    count_max: int = 32,
    size_max: int = 1 << 20,
    module: ModuleType = stored,
    **more: Any,
) -> tuple[list[StoredMessage], int, int]:
    """Encode and decode a slice; what is written must fit the room that was asked for."""
    target = bytearray(5 + module.stored_room(slice_, PLACE, size_max))
    codes = None if wanted is None else array("i", wanted)
    end, count, offset, scanned = module.encode_stored(target, 5, slice_, PLACE, codes, count_max, size_max, **more)
    found = decode_stored(bytes(target[5:end]))
    assert len(found) == count
    assert offset == slice_.offset + scanned
    return found, offset, scanned


messages = st.builds(
    lambda body, key, headers, extras, delta, expiry: Message(body, key, headers, extras, TIME_NS + delta, expiry),
    st.binary(max_size=20),
    st.one_of(st.none(), st.binary(max_size=5)),
    st.lists(
        st.tuples(
            st.one_of(st.sampled_from([b"TAGS", b"KEYS", b"WAIT", b"__CRC32#", "é".encode()]), st.binary(max_size=4)), st.binary(max_size=4)
        ),
        max_size=3,
    ).map(tuple),
    st.lists(
        st.one_of(
            st.tuples(st.just(2), st.just(make_extra(Extra(5, 1, 9, born_port=8, tags_code=77, properties=b"a\x01b\x02")))),
            st.tuples(st.just(2), st.just(make_extra(Extra(born_host=bytes(range(16)), born_port=8, tags_code=-1)))),
            st.tuples(st.integers(0, 3), st.binary(max_size=60)),
            st.tuples(st.just(2), st.binary(max_size=9).map(lambda packed: b"\x02" + packed)),
        ),
        max_size=3,
    ).map(tuple),
    st.integers(-10, 10),
    st.one_of(st.none(), st.just(5)),
)


def expected(message: Message, offset: int) -> StoredMessage:
    """Say what a client gets of a message, in Python."""
    extra = extra_of(Message(b"", extras=tuple([each for each in message.extras if each[0] == 2 and is_native(each[1])][:1])))
    crc = zlib.crc32(message.body) & 0x7FFFFFFF
    place = ("T", 3, offset, physical_offset(7, offset), message.body)
    if extra is not None:
        first = next(index for index, each in enumerate(message.extras) if each[0] == 2 and is_native(each[1]))
        packed = next((data for origin, data in message.extras[first:] if origin == 2 and data[:1] == b"\x02"), None)
        place = (*place[:-1], message.body if packed is None else packed[1:])
        host = extra.born_host if len(extra.born_host) == 4 else bytes(4)
        facts = (extra.flag, extra.sys_flag, extra.body_crc, extra.born_ms, host, extra.born_port)
        return stored_message(*place, extra.properties, *facts, TIME_MS)
    kept, _, _ = foreign_properties(message.key, message.headers)
    time_ms = message.time_ns // 1_000_000
    return stored_message(*place, kept, 0, 0, crc, time_ms, b"\x0a\0\0\2", 20911, time_ms)


def stored_message(*facts: Any) -> StoredMessage:
    """Make one that is where PLACE says."""
    all_facts: tuple[Any, ...] = (*facts, b"\x0a\0\0\2", 20911)
    return StoredMessage(*all_facts)


def is_native(data: bytes) -> bool:
    return stored.read_extra(data) is not None


@given(st.lists(messages, min_size=1, max_size=6), st.booleans())
@settings(deadline=None)
def test_any_message_of_the_log_can_be_had(given_messages: list[Message], uncompiled: bool) -> None:
    found, offset, scanned = read(slice_of_messages(given_messages), module=plain if uncompiled else stored)
    assert found == [expected(message, 100 + index) for index, message in enumerate(given_messages)]
    assert (offset, scanned) == (100 + len(given_messages), len(given_messages))
    single = stored.encode_stored_message(given_messages[0], 100, PLACE, stored_ns=TIME_NS)
    if stored.extra_of(given_messages[0]) is not None and found[0].store_ms == TIME_MS:
        assert decode_stored(single) == found[:1]


def native(tags: str, body: bytes = b"x") -> Message:
    return make_message(body, Extra(properties=f"TAGS\x01{tags}\x02".encode() if tags else b""))


@both
def test_only_what_is_wanted_is_written(module: ModuleType) -> None:
    slice_ = slice_of_messages(
        [native("A"), native("B"), native(""), Message(b"", headers=((b"TAGS", "é".encode()),)), native("A"), Message(b"")]
    )
    for wanted, offsets in (
        (["A"], [100, 104]),
        (["B", "é"], [101, 103]),
        (["none"], []),
        ([], []),
    ):
        found, offset, scanned = read(slice_, wanted=[tag_hash(tag) for tag in wanted], module=module)
        assert [message.queue_offset for message in found] == offsets
        assert (offset, scanned) == (106, 6)
    assert [message.queue_offset for message in read(slice_, wanted=[0], module=module)[0]] == [102, 105]


@both
def test_it_stops_where_it_is_to(module: ModuleType) -> None:
    slice_ = slice_of_messages([native("A"), native("B"), native("A"), native("A")])
    wanted = [tag_hash("A")]
    assert read(slice_, wanted=wanted, count_max=1, module=module)[1:] == (101, 1)
    assert read(slice_, wanted=wanted, count_max=2, module=module)[1:] == (103, 3)
    size = len(stored.encode_stored_message(native("A"), 0, PLACE))
    found, offset, _ = read(slice_, wanted=wanted, size_max=2 * size, module=module)
    assert (len(found), offset) == (2, 103)
    found, offset, _ = read(slice_, wanted=wanted, size_max=2 * size - 1, module=module)
    assert (len(found), offset) == (1, 102)
    found, offset, _ = read(slice_, size_max=0, module=module)
    assert (len(found), offset) == (1, 101)


@both
@pytest.mark.parametrize("attributes", [1, 2])
def test_what_is_not_visible_is_passed_over(module: ModuleType, attributes: int) -> None:
    record = records.encode_message(native("A"))
    data = batch_of(record, 1) + batch_of(record * 2, 2, attributes=attributes) + batch_of(record, 1)
    found, offset, scanned = read(slice_of(data, 4), module=module)
    assert [message.queue_offset for message in found] == [100, 103]
    assert (offset, scanned) == (104, 4)


def test_what_no_client_takes_is_passed_over() -> None:
    slice_ = slice_of_messages([native("A", bytes(17 * 1024 * 1024)), native("A")])
    found, offset, scanned = read(slice_)
    assert [message.queue_offset for message in found] == [101]
    assert (offset, scanned) == (102, 2)
    assert stored.encode_stored_message(native("A", bytes(17 * 1024 * 1024)), 0, PLACE) == b""


def test_a_slice_may_begin_within_a_batch() -> None:
    whole = slice_of_messages([native("A"), native("B", b"second")])
    size = struct.unpack_from("<I", whole.view, 80)[0]
    part = Slice(whole.view, partition=0, position=80 + size, end=whole.end, offset=101, count=1, batch_left=1, base_time_ns=TIME_NS)
    (message,), offset, _ = read(part)
    assert (message.body, message.queue_offset, message.store_ms, offset) == (b"second", 101, TIME_MS, 102)


def test_properties_of_headers_stay_below_their_limit() -> None:
    headers = ((b"a", b"x" * 20_000), (b"b", b"y" * 20_000), (b"c", b"z"))
    (message,), _, _ = read(slice_of_messages([Message(b"", b"k" * 40_000, headers)]))
    assert message.properties == b"a\x01" + b"x" * 20_000 + b"\x02c\x01z\x02"


@both
def test_what_cannot_be_said_is_counted(module: ModuleType) -> None:
    headers = ((b"", b"v"), (b"n", b""), (b"bad", b"\xff"), (b"WAIT", b"v"), (b"KEYS", b"v"), (b"good", b"v"))
    slice_ = slice_of_messages([native("A", bytes(17 * 1024 * 1024)), Message(b"", b"k", headers), Message(b"", b"\x01"), native("A")])
    counts = left_out()
    found, _, _ = read(slice_, module=module, left_out=counts)
    assert [message.properties for message in found] == [b"KEYS\x01k\x02good\x01v\x02", b"", b"TAGS\x01A\x02"]
    assert (counts[KEY], counts[HEADER], counts[LARGE], counts[EXPIRED]) == (1, 5, 1, 0)


@both
def test_what_is_over_is_passed_over(module: ModuleType) -> None:
    slice_ = slice_of_messages([Message(b"a", expiry_ns=10), Message(b"b"), replace(native("A"), expiry_ns=11)])
    counts = left_out()
    for now_ns, bodies in ((0, [b"a", b"b", b"x"]), (9, [b"a", b"b", b"x"]), (10, [b"b", b"x"]), (11, [b"b"])):
        found, offset, scanned = read(slice_, module=module, now_ns=now_ns, left_out=counts)
        assert [message.body for message in found] == bodies
        assert (offset, scanned) == (103, 3)
    assert counts[EXPIRED] == 3


def test_a_message_can_be_shown_as_that_of_another_topic() -> None:
    (message,) = decode_stored(stored.encode_stored_message(native("A"), 5, PLACE, topic=b"Other", stored_ns=9_000_000))
    assert (message.topic, message.queue_offset, message.store_ms) == ("Other", 5, 9)


@both
def test_damage_is_found(module: ModuleType) -> None:
    data = bytearray(batch_of(records.encode_message(Message(b"body", b"key", ((b"n", b"v"),), ((2, b"extra"),), TIME_NS + 1)), 1))
    for position, value in (
        (80, 3),
        (80, 255),
        (84, 3),
        (84, 255),
        (96, 200),
        (103, 200),
        (107, 200),
        (112, 200),
        (117, 200),
        (4, 0),
        (28, 0),
    ):
        damaged = bytearray(data)
        damaged[position] = value
        slice_ = slice_of(bytes(damaged), 1)
        with pytest.raises(CorruptRecord):
            read(slice_, module=module)


def test_the_origin_is_the_logs() -> None:
    assert stored.ORIGIN_ROCKETMQ == ORIGIN_ROCKETMQ == 2
