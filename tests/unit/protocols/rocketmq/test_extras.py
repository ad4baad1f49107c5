"""Extras written from rows are those that Python writes; whole frames are in test_decode."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.protocols.rocketmq import extras
from polymq.protocols.rocketmq.generic import generic_of
from polymq.protocols.rocketmq.messages import Extra, make_extra
from polymq.protocols.rocketmq.names import tag_hash_bytes
from polymq.protocols.rocketmq.properties import SLOW_PROPERTIES, parse
from polymq.wire.batch import Message, encode_message
from tests.unit.protocols.nsq.streams import interpreted

plain = interpreted("polymq.protocols.rocketmq.extras")
names = st.one_of(
    st.sampled_from(["TAGS", "WAIT", "CLUSTER", "KEYS", "DELAYED", "TIMER_DELAY", "MSG_TYPES", *SLOW_PROPERTIES]), st.text(max_size=3)
)
raws = st.lists(
    st.one_of(st.builds("{}\x01{}".format, names, st.text(max_size=3)), st.text(alphabet="a\x01\x02", max_size=4)), max_size=5
).map("\x02".join)


@given(raws, st.booleans())
def test_properties_mean_the_same_when_they_are_kept(raw: str, ended: bool) -> None:
    data = raw.encode() + (b"\x02" if ended else b"")
    before = parse(data)
    results = []
    for module in (extras, plain):
        keeper = module.Keeper(b"\x7f\0\0\1", 5, "C")
        room = bytearray(data) + bytearray(keeper.overhead)
        end = keeper.keep_properties(room, 0, len(data), True)
        results.append((end, bytes(room[: max(0, end)]), keeper.tags_code, keeper.generic_size))
    assert results[0][:3] == results[1][:3]
    end, kept, tags_code, generic_size = results[0]
    if SLOW_PROPERTIES & before.keys():
        assert end == extras.NO_LONGER_PLAIN
        return
    assert parse(kept) == {name: value for name, value in before.items() if name not in {"WAIT", "CLUSTER"}} | {"CLUSTER": "C"}
    assert tags_code == tag_hash_bytes(before.get("TAGS", "").encode())
    key, headers = generic_of(kept)
    assert generic_size == results[1][3]
    # Of several keys one is kept, so its size is that of the last.
    assert generic_size == len(encode_message(Message(b"", key, headers))) - 8


@pytest.mark.parametrize("host", [b"\x0a\0\0\1", bytes(range(16))])
def test_the_fixed_part(host: bytes) -> None:
    for module in (extras, plain):
        keeper = module.Keeper(host, 65535, "C")
        room = bytearray(100)
        end = keeper.keep_properties(room, 3 + keeper.properties_at, 3 + keeper.properties_at, True)
        keeper.write_fixed(room, 3, -1, 0x7FFFFF0F, -5, 2**31 - 1, 0x7FFFFFFF)
        expected = Extra(-1, 0x7FFFFF0F, -5, host, 65535, 2**31 - 1, 0, 0, 0x7FFFFFFF, b"CLUSTER\x01C")
        assert bytes(room[3:end]) == make_extra(expected)


@given(st.text(max_size=10))
def test_tags_are_hashed(text: str) -> None:
    raw = text.encode("utf-8", "replace")
    assert extras.hash_of(b"x" + raw + b"x", 1, 1 + len(raw)) == tag_hash_bytes(raw) == plain.hash_of(raw, 0, len(raw))
