"""Names: which are valid, how they are called in the core, how tags are hashed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.protocols.rocketmq import names

topics = st.text("%|_-aAbBEF0125RTY", min_size=1, max_size=20)
prefixed = st.builds("{}{}".format, st.sampled_from(["", "%RETRY%", "%DLQ%", "%RETRY", "%DLQ"]), topics)
core_names = st.builds("{}{}".format, st.sampled_from(["", "%RETRY%", "%DLQ%"]), st.text("%.#2E5aé \x00|", max_size=12))


@given(prefixed)
def test_every_topic_is_one_of_the_core(topic: str) -> None:
    assert names.to_topic(names.to_core(topic)) == topic


@given(core_names)
def test_every_topic_of_the_core_is_found_again(core_name: str) -> None:
    topic = names.to_topic(core_name)
    if topic is not None:
        assert names.to_core(topic) == core_name
        assert names.is_valid_topic(topic)


@pytest.mark.parametrize(
    ("core_name", "topic"),
    [
        ("plain", "plain"),
        ("2024-orders", "2024-orders"),
        ("a.b", "a%2Eb"),
        ("orders#ephemeral", "orders%23ephemeral"),
        ("a%2Eb", "a%252Eb"),
        ("a%252Eb", "a%25252Eb"),
        ("a%2eb", "a%2eb"),
        ("a%25b", "a%25b"),
        ("%RETRY%2EG", "%RETRY%2EG"),
        ("%DLQ%ABC", "%DLQ%ABC"),
        ("%RETRY%a.b", "%RETRY%a%2Eb"),
        ("%RETRY.G", None),
        ("é", None),
        ("", None),
        ("x" * 127, "x" * 127),
        ("x" * 128, None),
        ("." * 43, None),
    ],
)
def test_names_in_the_core(core_name: str, topic: str | None) -> None:
    assert names.to_topic(core_name) == topic
    if topic is not None:
        assert names.to_core(topic) == core_name


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("TopicTest", None),
        ("%RETRY%G|a_b-1", None),
        ("x" * 127, None),
        ("", "The specified topic is blank."),
        ("  ", "The specified topic is blank."),
        ("a b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("a.b", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("a\n", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("x" * 128, "The specified topic is longer than topic max length."),
    ],
)
def test_topics(name: str, problem: str | None) -> None:
    assert names.topic_problem(name) == problem
    assert names.is_valid_topic(name) == (problem is None)


def test_groups() -> None:
    assert names.is_valid_group("G" * 120)
    assert names.is_valid_topic(names.retry_topic("G" * 120))
    assert not names.is_valid_group("G" * 121)
    assert not names.is_valid_group("")
    assert not names.is_valid_group("a b")
    assert names.group_problem("G") is None


def test_topics_of_groups() -> None:
    assert names.retry_topic("G") == "%RETRY%G"
    assert names.dead_letter_topic("G") == "%DLQ%G"
    assert names.is_retry_topic("%RETRY%G")
    assert not names.is_retry_topic("%DLQ%G")
    assert names.is_dead_letter_topic("%DLQ%G")
    assert [names.group_of(topic) for topic in ("%RETRY%G", "%DLQ%H", "T")] == ["G", "H", None]


def test_topics_of_the_system() -> None:
    assert names.is_system_topic("TBW102")
    assert names.is_system_topic("rmq_sys_TRACE")
    assert not names.is_system_topic("T")
    assert names.send_problem("SELF_TEST_TOPIC") == "Sending message to topic[SELF_TEST_TOPIC] is forbidden."
    assert names.send_problem("TBW102") is None
    assert names.NOT_TO_BE_SENT_TO <= names.SYSTEM_TOPICS


@pytest.mark.parametrize(
    ("tags", "code"), [("", 0), ("TagA", 2598919), ("TagB", 2598920), ("polygenelubricants", -(2**31)), ("\U0001f600", 1772899)]
)
def test_tags_are_hashed_as_in_java(tags: str, code: int) -> None:
    assert names.tag_hash(tags) == code
    assert names.tag_hash_bytes(tags.encode()) == code
