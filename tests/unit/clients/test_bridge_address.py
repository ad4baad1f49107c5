"""Addresses of a bridge's ends: a topic, a group where one is needed, and no secret in what is shown."""

from __future__ import annotations

import pytest

from polymq.clients.bridge_address import BridgeEnd, parse_end
from polymq.errors import LocalProtocolError


def source(url: str) -> BridgeEnd:
    return parse_end(url, is_source=True)


@pytest.mark.parametrize(
    ("url", "connects", "topic", "group", "shown"),
    [
        ("nsq://h:1/t/c", "nsq://h:1", "t", "c", "nsq://h:1/t/c"),
        ("nsq://:s3cret@h/t", "nsq://:s3cret@h", "t", "bridge", "nsq://h:4150/t/bridge"),
        ("rocketmq://k:s3cret@a,b:2/t%2Fu/g", "rocketmq://k:s3cret@a,b:2", "t/u", "g", "rocketmq://a:9876,b:2/t%2Fu/g"),
        ("rocketmq://a/t", "rocketmq://a", "t", "bridge", "rocketmq://a:9876/t/bridge"),
        ("nats://h/a.*.>", "nats://h", "a.*.>", "", "nats://h:4222/a.*.>"),
        ("nats://h/a/q", "nats://h", "a", "q", "nats://h:4222/a/q"),
        ("phpmq://h/q", "phpmq://h", "q", "", "phpmq://h:9100/q"),
        ("polymq://h/t", "h:4171", "t", "", "polymq://h:4171/t"),
        ("polymq://[::1]/t", "[::1]:4171", "t", "", "polymq://[::1]:4171/t"),
        ("polymq://:s3cret@[::1]:9/t", "[::1]:9", "t", "", "polymq://[::1]:9/t"),
    ],
)
def test_sources(url: str, connects: str, topic: str, group: str, shown: str) -> None:
    end = source(url)
    assert (end.url, end.topic, end.group, end.shown) == (connects, topic, group, shown)
    assert end.is_log == url.startswith("polymq:")
    assert "s3cret" not in repr(end)
    assert end.secret == ("s3cret" if end.is_log and "s3cret" in url else "")


def test_a_target_has_the_topic_of_the_source_unless_it_names_one() -> None:
    assert parse_end("nsq://h", is_source=False, topic="orders").topic == "orders"
    assert parse_end("nsq://h/", is_source=False, topic="orders").topic == "orders"
    assert parse_end("nsq://h/copy", is_source=False, topic="orders").topic == "copy"


@pytest.mark.parametrize(
    ("url", "is_source", "says"),
    [
        ("nsq://h", True, "needs a topic"),
        ("http://h/t", True, "begins with"),
        ("h/t", True, "begins with"),
        ("nsq://h/t/c/d", True, "/TOPIC/GROUP and nothing else"),
        ("nsq://h/t/c", False, "/TOPIC and nothing else"),
        ("phpmq://h/t/c", True, "/TOPIC and nothing else"),
        ("polymq://h/t/c", True, "/TOPIC and nothing else"),
        ("polymq://h/t", False, "only read"),
        ("polymq://u:s3cret@h/t", True, "no user"),
        ("nsq://h:0/t", True, "not the address"),
    ],
)
def test_what_makes_no_sense_is_said_without_secrets(url: str, is_source: bool, says: str) -> None:
    with pytest.raises(LocalProtocolError, match=says) as caught:
        parse_end(url, is_source=is_source)
    assert "s3cret" not in str(caught.value)


def test_ends_are_the_same_whoever_reads_there() -> None:
    assert source("nsq://h/t/a").names == parse_end("nsq://:s@h:4150/t", is_source=False).names
    assert source("nsq://h/t/a").names != parse_end("nsq://h/u", is_source=False).names
