"""Addresses of brokers: what they say, and what is none."""

from __future__ import annotations

import pytest

from polymq.clients.broker_address import BrokerAddress, parse_address
from polymq.errors import LocalProtocolError


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("nsq://127.0.0.1:4151", BrokerAddress("nsq", ("127.0.0.1:4151",))),
        ("nsq://:s%3Acret@h/board", BrokerAddress("nsq", ("h:4150",), "board", "", "s:cret")),
        ("nats://ann:a%40b@h:1", BrokerAddress("nats", ("h:1",), "", "ann", "a@b")),
        ("nats://token@h", BrokerAddress("nats", ("h:4222",), "", "token")),
        ("rocketmq://a,b:1/g%2Fh", BrokerAddress("rocketmq", ("a:9876", "b:1"), "g/h")),
        ("phpmq://[::1]", BrokerAddress("phpmq", ("[::1]:9100",))),
        ("phpmq://[::1]:9/", BrokerAddress("phpmq", ("[::1]:9",))),
    ],
)
def test_what_addresses_say(url: str, address: BrokerAddress) -> None:
    assert parse_address(url) == address


@pytest.mark.parametrize(
    "url",
    ["", "nsq", "127.0.0.1:4150", "kafka://h", "NSQ://h", "nsq://", "nsq://:4150", "nsq://h:0", "nsq://h:65536", "nsq://h:x", "nsq://h:²", "nsq://h:",
     "nsq://a,b", "nats://a,b", "rocketmq://a,", "nsq://::1", "nsq://h/a/b", "nsq://h?tls=1", "nsq://h#x", "nsq://h h", "nsq://h\n"],
)  # fmt: skip
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(LocalProtocolError):
        parse_address(url)


def test_secrets_are_not_repeated() -> None:
    with pytest.raises(LocalProtocolError) as caught:
        parse_address("nats://ann:geheim@h:x")
    assert "geheim" not in str(caught.value)
    assert "geheim" not in repr(parse_address("nats://ann:geheim@h"))
