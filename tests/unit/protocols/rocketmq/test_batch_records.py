"""A batch becomes the records that its messages would, one by one, and what does not fit is refused."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq import batch_records
from polymq.protocols.rocketmq.batches import BatchPart, join_batch, split_batch
from polymq.protocols.rocketmq.extras import Keeper
from polymq.protocols.rocketmq.messages import Extra, extra_of, make_message
from polymq.protocols.rocketmq.properties import parse
from polymq.rocketmq_limits import MESSAGE_COUNT_PER_BATCH_MAX, PROPERTIES_SIZE_BYTES_MAX
from polymq.wire import records
from tests.unit.protocols.nsq.streams import interpreted

if TYPE_CHECKING:
    from types import ModuleType

plain = interpreted("polymq.protocols.rocketmq.batch_records")
both = pytest.mark.parametrize("module", [batch_records, plain], ids=["as built", "interpreted"])
KEEPER = Keeper(b"\x0a\0\0\1", 99, "C")

raws = st.sampled_from(
    [
        b"",
        b"TAGS\x01A",
        b"WAIT\x01true\x02TAGS\x01B\x02",
        b"DELAY\x013\x02",
        b"CLUSTER\x01X\x02KEYS\x01k",
        b"\x02\x02junk",
        b"TAGS\x01\xc3\xa9",
        b"KEYS\x01a b\x02user\x01value\x02UNIQ_KEY\x01F\x02KEYS\x01last",
        b"a\x01b\x02" * 30,
    ]
)
parts = st.builds(BatchPart, st.binary(max_size=20), raws, st.integers(-(2**31), 2**31 - 1))


def encode(module: ModuleType, body: bytes, properties: bytes = b"") -> tuple[bytes, int]:
    data, count = module.encode_batch_records(body, KEEPER, sys_flag=0x301, born_ms=5, reconsume_times=2, properties=properties)
    return bytes(data), count


@given(st.lists(parts, min_size=1, max_size=4), raws, st.booleans())
def test_records_are_those_of_the_messages(given_parts: list[BatchPart], outer: bytes, uncompiled: bool) -> None:
    data, count = encode(plain if uncompiled else batch_records, join_batch(given_parts), outer)
    assert count == len(given_parts)
    batch = bytearray(80) + data
    records.seal(batch, 0, len(batch), records.BatchHeader(origin=2, count=count, base_time_ns=1))
    assert records.check(batch, 0, len(batch)) is None
    for part, message in zip(given_parts, records.read_messages(batch, 0, 0, 0, count, len(batch)), strict=True):
        extra = extra_of(message)
        assert extra is not None
        wanted = parse(part.properties + b"\x02" + outer) | {"CLUSTER": "C"}
        assert parse(extra.properties) == wanted
        again = make_message(part.body, Extra(part.flag, 0x301, 5, b"\x0a\0\0\1", 99, 2, properties=extra.properties))
        assert (again.body, again.key, again.headers, again.extras) == (message.body, message.key, message.headers, message.extras)


@both
def test_what_does_not_fit_is_refused(module: ModuleType) -> None:
    whole = join_batch([BatchPart(b"body", b"properties")])
    damaged = [whole[:size] for size in range(len(whole))]
    for form, at, value in ((">i", 0, 21), (">i", 0, -1), (">i", 16, -1), (">i", 16, 1000), (">h", 24, -1), (">h", 24, 11)):
        changed = bytearray(whole)
        struct.pack_into(form, changed, at, value)
        damaged.append(bytes(changed))
    for body in damaged:
        with pytest.raises(RemoteProtocolError) as raised:
            encode(module, body)
        assert not raised.value.fatal


def test_limits() -> None:
    one = join_batch([BatchPart(b"")])
    assert encode(batch_records, one * MESSAGE_COUNT_PER_BATCH_MAX)[1] == MESSAGE_COUNT_PER_BATCH_MAX
    most = PROPERTIES_SIZE_BYTES_MAX - len("x\x01\x02CLUSTER\x01C")
    assert encode(batch_records, join_batch([BatchPart(b"", b"x\x01" + b"y" * most)]))
    for body, outer in (
        (one * (MESSAGE_COUNT_PER_BATCH_MAX + 1), b""),
        (join_batch([BatchPart(b"", b"x\x01" + b"y" * (most + 1))]), b""),
        (one * 10_000, b"x\x01" + b"y" * 30_000),
        (b"", b""),
    ):
        start = time.process_time()
        with pytest.raises(RemoteProtocolError):
            encode(batch_records, body, outer)
        assert time.process_time() - start < 1


def test_random_bytes_are_refused_or_taken_as_the_slow_reader_takes_them() -> None:
    whole = join_batch([BatchPart(b"a", b"b\x01c"), BatchPart(b"", b"")])
    for at in range(len(whole)):
        for value in (0, 1, 127, 255):
            body = whole[:at] + bytes((value,)) + whole[at + 1 :]
            try:
                known = len(split_batch(body))
            except RemoteProtocolError:
                with pytest.raises(RemoteProtocolError):
                    encode(batch_records, body)
            else:
                assert encode(batch_records, body)[1] == known
