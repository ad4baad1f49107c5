"""Policies over HTTP: shown, set field by field, refused by name, carried out and kept."""

from __future__ import annotations

import json
from typing import Any

import pytest

from polymq.core.policies import Expired, Full, GroupPolicy, TopicPolicy
from tests.unit.gateways.nsq.http_world import Answer, NsqWorld, message

SECOND_NS = 1_000_000_000
TOPIC = {"topic": "t", "ttl": 0, "expired": "drop", "max_messages": 0, "max_bytes": 0, "full": "reject"}
CHANNEL = {
    "topic": "t",
    "channel": "c",
    "max_attempts": 0,
    "dead_letter": "",
    "dead_letter_topic": "t.c.dead",
    "ordered": False,
    "on_disconnect": "default",
}


@pytest.fixture
def world() -> NsqWorld:
    world = NsqWorld()
    world.post("/topic/create?topic=t")
    world.post("/channel/create?topic=t&channel=c")
    return world


def shown(answer: Answer) -> Any:
    assert answer.status == 200, answer
    assert answer.headers["X-Nsq-Content-Type"] == "nsq; version=1.0"
    return json.loads(answer.text)


def test_nothing_is_chosen_at_first(world: NsqWorld) -> None:
    assert list(shown(world.get("/topic/policy?topic=t")).items()) == list(TOPIC.items())
    assert list(shown(world.get("/channel/policy?topic=t&channel=c")).items()) == list(CHANNEL.items())


def test_fields_of_a_topic_are_set_and_the_others_stay(world: NsqWorld) -> None:
    assert shown(world.post("/topic/policy?topic=t&ttl=86400000&expired=dead-letter")) == TOPIC | {
        "ttl": 86400000,
        "expired": "dead-letter",
    }
    assert shown(world.post("/topic/policy?topic=t&max_messages=5&max_bytes=7&full=drop-oldest"))["ttl"] == 86400000
    assert world.session.topic_policy("t") == TopicPolicy(86400 * SECOND_NS, Expired.DEAD_LETTER, 5, 7, Full.DROP_OLDEST)
    shown(world.post("/topic/policy?topic=t&ttl=0&expired=drop&max_messages=0&max_bytes=0&full=reject"))
    assert shown(world.get("/topic/policy?topic=t")) == TOPIC


def test_fields_of_a_channel_are_set_and_the_others_stay(world: NsqWorld) -> None:
    path = "/channel/policy?topic=t&channel=c"
    assert shown(world.post(f"{path}&max_attempts=5&dead_letter=failed")) == CHANNEL | {
        "max_attempts": 5,
        "dead_letter": "failed",
        "dead_letter_topic": "failed",
    }
    assert shown(world.post(f"{path}&ordered=true&on_disconnect=requeue"))["max_attempts"] == 5
    assert world.session.group_policy("t", "c") == GroupPolicy(5, "failed", ordered=True, requeue_on_close=True)
    assert shown(world.post(f"{path}&ordered=0&on_disconnect=wait"))["on_disconnect"] == "wait"
    assert world.session.group_policy("t", "c").requeue_on_close is False
    shown(world.post(f"{path}&max_attempts=0&dead_letter=&on_disconnect=default"))
    assert shown(world.get(path)) == CHANNEL


def test_a_duration_below_a_millisecond_is_not_shown_as_none(world: NsqWorld) -> None:
    world.session.set_topic_policy("t", TopicPolicy(ttl_ns=1))
    assert shown(world.get("/topic/policy?topic=t"))["ttl"] == 1


def test_the_default_dead_letter_topic_is_named_even_if_it_had_to_be_cut(world: NsqWorld) -> None:
    world.post("/channel/create?topic=t&channel=c%23ephemeral")
    found = shown(world.get("/channel/policy?topic=t&channel=c%23ephemeral"))["dead_letter_topic"]
    assert found.startswith("t.c_ephemeral-")
    assert found.endswith(".dead")


def test_policies_outlive_the_process(world: NsqWorld) -> None:
    world.post("/topic/policy?topic=t&ttl=5")
    world.post("/channel/policy?topic=t&channel=c&max_attempts=3")
    world.restart()
    assert world.session.topic_policy("t").ttl_ns == 5_000_000
    assert world.session.group_policy("t", "c").max_attempts == 3


def test_a_policy_is_carried_out(world: NsqWorld) -> None:
    shown(world.post("/topic/policy?topic=t&max_messages=1"))
    assert world.post("/pub?topic=t", b"x").text == "OK"
    assert message(world.post("/pub?topic=t", b"x")) == (503, "TOPIC_FULL")


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "MISSING_ARG_TOPIC"),
        ("topic=a$", 400, "INVALID_TOPIC"),
        ("topic=nope", 404, "TOPIC_NOT_FOUND"),
        ("topic=%zz", 400, "INVALID_REQUEST"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_topics_that_have_none(world: NsqWorld, method: str, query: str, status: int, code: str) -> None:
    assert message(world.ask(method, f"/topic/policy?{query}&ttl=1")) == (status, code)


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("", 400, "MISSING_ARG_TOPIC"),
        ("topic=a$&channel=c", 400, "INVALID_ARG_TOPIC"),
        ("topic=t", 400, "MISSING_ARG_CHANNEL"),
        ("topic=t&channel=c$", 400, "INVALID_ARG_CHANNEL"),
        ("topic=nope&channel=c", 404, "TOPIC_NOT_FOUND"),
        ("topic=t&channel=nope", 404, "CHANNEL_NOT_FOUND"),
        ("topic=%zz", 400, "INVALID_REQUEST"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_channels_that_have_none(world: NsqWorld, method: str, query: str, status: int, code: str) -> None:
    assert message(world.ask(method, f"/channel/policy?{query}&max_attempts=1")) == (status, code)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "MISSING_ARG"),
        ("ttl=", "INVALID_TTL"),
        ("ttl=-1", "INVALID_TTL"),
        ("ttl=7d", "INVALID_TTL"),
        ("ttl=9223372036855", "INVALID_TTL"),
        ("expired=keep", "INVALID_EXPIRED"),
        ("max_messages=many", "INVALID_MAX_MESSAGES"),
        ("max_messages=9223372036854775808", "INVALID_MAX_MESSAGES"),
        ("max_bytes=1GiB", "INVALID_MAX_BYTES"),
        ("full=wait", "INVALID_FULL"),
        ("ttl=1&ttl_ms=1", "UNKNOWN_ARG_TTL_MS"),
        ("max_attempts=1", "UNKNOWN_ARG_MAX_ATTEMPTS"),
        ("%3Cb%3E=1", "UNKNOWN_ARG"),
        (f"{'a' * 33}=1", "UNKNOWN_ARG"),
    ],
)
def test_what_a_topic_cannot_be_told(world: NsqWorld, query: str, code: str) -> None:
    assert message(world.post(f"/topic/policy?topic=t&{query}")) == (400, code)
    assert world.session.topic_policy("t") == TopicPolicy()


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("", "MISSING_ARG"),
        ("max_attempts=65535", "INVALID_MAX_ATTEMPTS"),
        ("max_attempts=-1", "INVALID_MAX_ATTEMPTS"),
        ("dead_letter=a$", "INVALID_DEAD_LETTER"),
        ("dead_letter=t", "INVALID_DEAD_LETTER"),
        ("dead_letter=d%23ephemeral", "INVALID_DEAD_LETTER"),
        (f"dead_letter={'d' * 65}", "INVALID_DEAD_LETTER"),
        ("ordered=yes", "INVALID_ORDERED"),
        ("on_disconnect=drop", "INVALID_ON_DISCONNECT"),
        ("max_attempts=1&ttl=5", "UNKNOWN_ARG_TTL"),
    ],
)
def test_what_a_channel_cannot_be_told(world: NsqWorld, query: str, code: str) -> None:
    assert message(world.post(f"/channel/policy?topic=t&channel=c&{query}")) == (400, code)
    assert world.session.group_policy("t", "c") == GroupPolicy()


@pytest.mark.parametrize("query", ["max_attempts=65534", f"dead_letter={'d' * 64}"])
def test_the_largest_that_is_taken(world: NsqWorld, query: str) -> None:
    shown(world.post(f"/channel/policy?topic=t&channel=c&{query}"))
    shown(world.post("/topic/policy?topic=t&ttl=9223372036854&max_bytes=9223372036854775807"))


def test_other_methods(world: NsqWorld) -> None:
    answer = world.ask("PUT", "/channel/policy?topic=t&channel=c")
    assert message(answer) == (405, "METHOD_NOT_ALLOWED")
    assert answer.headers["Allow"] == "GET, OPTIONS, POST"
