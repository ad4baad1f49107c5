"""Every name that a protocol can say stands for one topic, and is spelt the same again; the other way as well."""

from __future__ import annotations

import re

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


# -- the table of docs/CONVERSIONS.md, in other words: which topics have a name, and which ---------------------------------

topics = st.one_of(names, st.text("ab.>* \t\x1f\x7f%25|#é", min_size=1, max_size=9)).filter(
    lambda name: 0 < len(name.encode()) <= NAME_SIZE_BYTES_MAX
)


def spelt(protocol: str, topic: str) -> str | bytes | None:
    """The name as text, where it is any."""
    said = SPELLERS[protocol].spell(topic)
    return None if said is None else said.decode("utf-8", "surrogateescape")


@given(topic=topics)
def test_nsq_names_what_nsqd_names_as_it_is(topic: str) -> None:
    has_name = re.fullmatch(r"[A-Za-z0-9._-]+", topic.removesuffix("#ephemeral")) is not None and len(topic) <= 64
    assert spelt("NSQ", topic) == (topic if has_name else None)


@given(topic=topics)
def test_nats_names_all_without_blanks_wildcards_and_empty_tokens_as_they_are(topic: str) -> None:
    has_name = not any(ord(each) <= 0x20 for each in topic) and not {"", "*", ">"} & set(topic.split("."))
    assert spelt("NATS", topic) == (topic if has_name else None)


@given(topic=topics.filter(lambda name: "%" not in name))
def test_rocketmq_names_ascii_with_escapes(topic: str) -> None:
    escaped = "".join(each if re.fullmatch(r"[A-Za-z0-9|_-]", each) else f"%{ord(each):02X}" for each in topic)
    assert spelt("RocketMQ", topic) == (escaped if topic.isascii() and len(escaped) <= 127 else None)


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("100%", "100%"),
        ("50%off", "50%off"),
        ("a%2Eb", "a%252Eb"),
        ("a%2eb", "a%2eb"),
        ("%RETRY%g", "%RETRY%g"),
        ("%DLQ%a.b", "%DLQ%a%2Eb"),
        ("x" * 127, "x" * 127),
        ("x" * 128, None),
        ("." * 42, "%2E" * 42),
        ("." * 43, None),
        ("%DLQ.a", None),
        ("%RETRY.", None),
        ("a%DLQ.a", "a%DLQ%2Ea"),
    ],
)
def test_rocketmq_escapes_a_percent_sign_where_it_would_be_read_as_one(topic: str, said: str | None) -> None:
    assert spelt("RocketMQ", topic) == said


@given(topic=topics.filter(lambda name: "%" not in name))
def test_phpmq_names_all_without_control_characters_as_they_are(topic: str) -> None:
    has_name = not any(ord(each) < 0x20 or each == "\x7f" for each in topic)
    assert spelt("PHPMQ", topic) == (topic if has_name else None)


@given(queue=st.binary(min_size=1, max_size=20))
def test_every_queue_of_phpmq_is_a_topic_without_control_characters(queue: bytes) -> None:
    topic = SPELLERS["PHPMQ"].read(queue)
    assert topic is not None
    assert not any(ord(each) < 0x20 or each == "\x7f" for each in topic)


@pytest.mark.parametrize(
    ("topic", "queue"),
    [
        ("a%0Ab", b"a\nb"),
        ("%FF", b"\xff"),
        ("%250A", b"%0A"),
        ("100%", b"100%"),
        ("%41", b"%41"),
        ("100%25", None),
        ("%C3%A9", None),
    ],
)
def test_escapes_of_phpmq_are_those_that_a_queue_needs(topic: str, queue: bytes | None) -> None:
    assert SPELLERS["PHPMQ"].spell(topic) == queue
