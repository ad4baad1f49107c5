"""Every name that a protocol can say stands for one topic, and is spelt the same again; the other way as well."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.limits import NAME_SIZE_BYTES_MAX
from polymq.server.spelling import SPELLERS

every = pytest.mark.parametrize("protocol", sorted(SPELLERS))
names = st.one_of(
    st.text(st.characters(max_codepoint=127), max_size=12),
    st.text(max_size=12),
    st.text("%ABcd019.-_#*> \x01é", max_size=12),
    st.sampled_from(["orders", "orders.eu", "%RETRY%group", "%DLQ%g.h", "x#ephemeral", "a" * 64, "a" * 65, "a" * 127, "é" * 200]),
)


@every
@given(name=names)
def test_topics_are_found_again_by_what_they_are_called(protocol: str, name: str) -> None:
    speller = SPELLERS[protocol]
    said = speller.spell(name)
    if said is not None and 0 < len(name.encode()) <= NAME_SIZE_BYTES_MAX:
        assert speller.read(said) == name


@every
@given(said=st.one_of(st.binary(max_size=12), names.map(str.encode)))
def test_what_is_said_is_said_again(protocol: str, said: bytes) -> None:
    speller = SPELLERS[protocol]
    topic = speller.read(said)
    if topic is not None:
        assert speller.spell(topic) == said


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("orders", {"NSQ": b"orders", "NATS": b"orders", "RocketMQ": b"orders", "PHPMQ": b"orders"}),
        ("orders.eu", {"NSQ": b"orders.eu", "NATS": b"orders.eu", "RocketMQ": b"orders%2Eeu", "PHPMQ": b"orders.eu"}),
        ("a b", {"NSQ": None, "NATS": None, "RocketMQ": b"a%20b", "PHPMQ": b"a b"}),
        ("é", {"NSQ": None, "NATS": "é".encode(), "RocketMQ": None, "PHPMQ": "é".encode()}),
        ("a..b", {"NSQ": b"a..b", "NATS": None, "RocketMQ": b"a%2E%2Eb", "PHPMQ": b"a..b"}),
        ("a.*", {"NSQ": None, "NATS": None, "RocketMQ": b"a%2E%2A", "PHPMQ": b"a.*"}),
        ("%FF", {"NSQ": None, "NATS": b"%FF", "RocketMQ": b"%FF", "PHPMQ": b"\xff"}),
        ("%RETRY%g", {"NSQ": None, "NATS": b"%RETRY%g", "RocketMQ": b"%RETRY%g", "PHPMQ": b"%RETRY%g"}),
        ("x" * 100, {"NSQ": None, "NATS": b"x" * 100, "RocketMQ": b"x" * 100, "PHPMQ": b"x" * 100}),
    ],
)
def test_samples(topic: str, said: dict[str, bytes | None]) -> None:
    assert {protocol: speller.spell(topic) for protocol, speller in SPELLERS.items()} == said
