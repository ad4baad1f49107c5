"""What was sent is found in records again: as it came, and with what everybody else sees of it."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.protocols.rocketmq import send_records
from polymq.protocols.rocketmq.decode import Decoder
from polymq.protocols.rocketmq.encode import by_queue
from polymq.protocols.rocketmq.events import Event, Sends
from polymq.protocols.rocketmq.ids import physical_offset
from polymq.protocols.rocketmq.messages import Extra, StoredMessage, extra_of, make_message
from polymq.rocketmq_limits import PROPERTIES_SIZE_BYTES_MAX
from polymq.wire import records
from tests.unit.protocols.nsq.streams import interpreted
from tests.unit.protocols.rocketmq.frames import HOST, PORT, SETTINGS, binary_send, send
from tests.unit.protocols.rocketmq.test_stored import KEPT, TIME_MS, batch_of, read, slice_of

if TYPE_CHECKING:
    from types import ModuleType

plain = interpreted("polymq.protocols.rocketmq.send_records")
both = pytest.mark.parametrize("module", [send_records, plain], ids=["as built", "interpreted"])


def sent(stream: bytes) -> Sends:
    events: list[Event] = []
    Decoder(SETTINGS, born_host=HOST, born_port=PORT).feed(memoryview(stream), events)
    (sends,) = events
    assert isinstance(sends, Sends)
    return sends


@both
def test_sends_become_records_and_leave_as_they_came(module: ModuleType) -> None:
    sends = sent(send(b"one") + binary_send(b"", i="") + send(b"three", h=-1, f=-4 & ~12, j=4))
    order, _ = by_queue(sends)
    data = module.encode_records(sends, order, 0, 3)
    assert len(data) == sends.size_bytes
    batch = batch_of(bytes(data), 3)
    assert records.check(batch, 0, len(batch)) is None
    found, _, _ = read(slice_of(batch, 3))
    one = StoredMessage(
        "T",
        3,
        100,
        physical_offset(7, 100),
        b"one",
        KEPT,
        7,
        0,
        zlib.crc32(b"one") & 0x7FFFFFFF,
        1795212447778,
        HOST,
        PORT,
        TIME_MS,
        b"\x0a\0\0\2",
        20911,
        0,
        0,
    )
    assert found[0] == one
    assert (found[1].body, found[1].properties, found[1].queue_offset) == (b"", b"CLUSTER\x01DefaultCluster", 101)
    assert (found[2].flag, found[2].reconsume_times, found[2].body) == (-1, 4, b"three")
    assert found[2].sys_flag & 0xFF == 0x00
    some = module.encode_records(sends, order, 1, 1)
    assert len(some) < len(data)


@both
def test_what_python_writes_is_the_same(module: ModuleType) -> None:
    sends = sent(send(b"hello"))
    order, _ = by_queue(sends)
    extra = Extra(7, 0, 1795212447778, HOST, PORT, properties=KEPT)
    message = make_message(b"hello", extra)
    assert (message.key, message.headers) == (b"K1", ((b"TAGS", b"TagA"),))
    assert bytes(module.encode_records(sends, order, 0, 1)) == records.encode_message(message)


entries = st.tuples(
    st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "CLUSTER", "MSG_REGION", "reply-to", "user", "é", "KEY", "__BORNHOST"]),
    st.text(alphabet="v \x03é", max_size=4),
)


@given(st.lists(st.lists(entries, max_size=5), min_size=1, max_size=4), st.booleans())
def test_key_and_headers_are_what_python_says(many: list[list[tuple[str, str]]], uncompiled: bool) -> None:
    raws = ["\x02".join(f"{name}\x01{value}" for name, value in each) for each in many]
    sends = sent(b"".join([send(b"body", i=raw) for raw in raws]))
    order, _ = by_queue(sends)
    data = bytes((plain if uncompiled else send_records).encode_records(sends, order, 0, len(raws)))
    assert len(data) == sends.size_bytes
    for message in records.read_messages(data, 0, len(raws), 0, len(raws), len(data)):
        extra = extra_of(message)
        assert extra is not None
        assert message == make_message(b"body", extra)


@both
def test_as_many_headers_as_there_may_be(module: ModuleType) -> None:
    # The smallest property grows most.
    count = (PROPERTIES_SIZE_BYTES_MAX - 40) // 4
    sends = sent(send(b"", i="a\x01b\x02" * count))
    order, _ = by_queue(sends)
    data = bytes(module.encode_records(sends, order, 0, 1))
    (message,) = records.read_messages(data, 0, 1, 0, 1, len(data))
    assert message.headers == ((b"a", b"b"),) * count


def test_orders_outside_the_rows_are_our_own_mistakes() -> None:
    sends = sent(send())
    order, _ = by_queue(sends)
    with pytest.raises(AssertionError):
        send_records.encode_records(sends, order, 0, 2)
