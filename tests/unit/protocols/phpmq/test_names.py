from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.limits import NAME_SIZE_BYTES_MAX
from polymq.protocols.phpmq.names import queue_of, topic_of


@pytest.mark.parametrize(
    ("queue", "topic"),
    [
        (b"Foo", "Foo"),
        (b"orders.eu-1_x", "orders.eu-1_x"),
        ("schöne Grüße".encode(), "schöne Grüße"),
        (b"100%", "100%"),
        (b"100%25", "100%2525"),
        (b"a%41", "a%41"),
        (b"a%0a", "a%0a"),
        (b"a%0A", "a%250A"),
        (b"2024-%FFx", "2024-%25FFx"),
        (b"a\nb\x00\x7f", "a%0Ab%00%7F"),
        (b"\xff\xfe", "%FF%FE"),
        (b"\xc3", "%C3"),
    ],
)
def test_names(queue: bytes, topic: str) -> None:
    assert topic_of(queue) == topic
    assert queue_of(topic) == queue


@given(st.binary(min_size=1, max_size=60) | st.text(min_size=1, max_size=60, alphabet="%0123456789ABCDEFa\n\u00e4").map(str.encode))
def test_every_queue_is_one_topic(queue: bytes) -> None:
    topic = topic_of(queue)
    assert topic is not None
    assert topic.isprintable() or not topic.isascii()
    assert queue_of(topic) == queue


@given(st.text(max_size=60) | st.text(max_size=60, alphabet="%0123456789ABCDEFa\n\u00e4"))
def test_a_topic_is_one_queue_or_none(topic: str) -> None:
    queue = queue_of(topic)
    assert queue is None or topic_of(queue) == topic


def test_what_no_topic_can_be_called() -> None:
    assert topic_of(b"") is None
    assert topic_of(b"x" * NAME_SIZE_BYTES_MAX) == "x" * NAME_SIZE_BYTES_MAX
    assert topic_of(b"x" * (NAME_SIZE_BYTES_MAX + 1)) is None
    assert topic_of(b"\xff" * 86) is None
    assert queue_of("x%C3%A4") is None
    assert queue_of("line\n") is None
