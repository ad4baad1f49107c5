"""Which properties everybody sees and which are the system's; what of others' keys and headers can be a property."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.protocols.rocketmq import generic
from polymq.protocols.rocketmq.generic import foreign_properties, generic_of
from polymq.protocols.rocketmq.properties import KEYS, SYSTEM_NAMES, TAGS
from polymq.rocketmq_limits import PROPERTIES_SIZE_BYTES_MAX
from polymq.wire import records
from tests.unit.protocols.nsq.streams import interpreted

plain = interpreted("polymq.protocols.rocketmq.generic")
modules = (generic, plain)


@pytest.mark.parametrize("name", sorted(SYSTEM_NAMES))
def test_the_systems_names_are_known(name: str) -> None:
    data = b"_" + name.encode() + b"_"
    for module in modules:
        assert module.GENERIC.is_system(data, 1, len(name))
        assert not module.GENERIC.is_system(data, 0, len(name))
        assert module.GENERIC.is_system(data, 1, len(name) - 1) == (name[:-1] in SYSTEM_NAMES)


@pytest.mark.parametrize("name", [KEYS, TAGS, "reply-to", "wait", "", "x" * 31, "x" * 400])
def test_users_names_are_not_the_systems(name: str) -> None:
    for module in modules:
        assert not module.GENERIC.is_system(name.encode() + b" ", 0, len(name))


names = st.sampled_from([b"KEYS", b"TAGS", b"WAIT", b"UNIQ_KEY", b"a", b"user", b""])
entries = st.lists(st.tuples(names, st.sampled_from([b"", b"v", b"a\x01b", b"long value"])), max_size=6)


@given(entries)
def test_both_writers_say_the_same(pairs: list[tuple[bytes, bytes]]) -> None:
    raw = b"\x02".join([name + b"\x01" + value for name, value in pairs])
    key, headers = generic_of(raw)
    assert key == next((value for name, value in reversed(pairs) if name == b"KEYS" and value), None)
    assert headers == tuple((name, value) for name, value in pairs if name in {b"TAGS", b"a", b"user"} and value)
    wanted = records.encode_message(records.Message(b"", key, headers))[8:]
    for module in modules:
        target = bytearray(len(wanted) + 4)
        flags = module.GENERIC.write(target, 0, raw + b"junk", 0, len(raw))
        assert flags == 4 * (key is not None) + 8 * bool(headers)
        assert bytes(target[: len(wanted)]) == wanted


def test_what_rocketmq_cannot_say_is_left_out() -> None:
    headers = (
        (b"good", "né".encode()),
        (b"", b"no name"),
        (b"no value", b""),
        (b"one", b"\x01"),
        (b"two\x02", b"v"),
        (b"bad", b"\xff"),
        (b"\xff", b"bad"),
        (b"UNIQ_KEY", b"the system's"),
        (b"KEYS", b"beside a key"),
        (b"TAGS", b"t"),
    )
    assert foreign_properties(b"k", headers) == ("KEYS\x01k\x02good\x01né\x02TAGS\x01t\x02".encode(), 0, 8)
    assert foreign_properties(None, ((b"KEYS", b"k"),)) == (b"KEYS\x01k\x02", 0, 0)
    for key in (b"", b"\x01", b"\xff", b"k" * PROPERTIES_SIZE_BYTES_MAX):
        assert foreign_properties(key, ()) == (b"", 1, 0)


def test_what_is_left_out_for_want_of_room() -> None:
    headers = ((b"a", b"x" * 20_000), (b"b", b"y" * 20_000), (b"c", b"z"))
    raw, keys, lost = foreign_properties(b"k" * 40_000, headers)
    assert (raw, keys, lost) == (b"a\x01" + b"x" * 20_000 + b"\x02c\x01z\x02", 1, 1)
    most = ((b"n", b"v" * (PROPERTIES_SIZE_BYTES_MAX - 3)),)
    assert foreign_properties(None, most)[2] == 0
    assert foreign_properties(None, ((b"n", most[0][1] + b"v"),))[2] == 1
