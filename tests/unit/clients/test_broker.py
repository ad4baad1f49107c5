"""The one API before anything is sent: which protocol an address takes, what each refuses, what it says instead."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

import pytest

from polymq import connect
from polymq.clients.broker_rocketmq import level_for
from polymq.clients.nats import NatsOptions
from polymq.clients.nsq import NsqOptions
from polymq.clients.phpmq import PhpmqOptions
from polymq.clients.rocketmq import RocketMQOptions
from polymq.errors import LocalProtocolError, Unsupported

OPTIONS = {"nsq": NsqOptions, "nats": NatsOptions, "rocketmq": RocketMQOptions, "phpmq": PhpmqOptions}
CANNOT: dict[str, list[dict[str, Any]]] = {
    "nsq": [{"key": "k"}, {"headers": {"a": "b"}}, {"tags": "t"}, {"ttl": 1}, {"order": 0}],
    "nats": [{"key": "k"}, {"tags": "t"}, {"delay": 1}, {"ttl": 1}, {"order": "o"}],
    "rocketmq": [{"key": "a  b"}, {"body": b""}, {"ttl": 1}],
    "phpmq": [{"key": "k"}, {"headers": {"a": "b"}}, {"tags": "t"}, {"delay": 0.1}, {"order": 1}],
}


@pytest.mark.parametrize(("protocol", "given"), [(protocol, given) for protocol, every in CANNOT.items() for given in every])
def test_what_a_protocol_cannot_carry_is_said_without_a_server(protocol: str, given: dict[str, Any]) -> None:
    async def go() -> None:
        broker = connect(f"{protocol}://127.0.0.1:1")
        with pytest.raises(Unsupported, match=r"[:,] "):
            await broker.publish(**{"topic": "t", "body": b"x", **given})

    asyncio.run(go())


@pytest.mark.parametrize("protocol", OPTIONS)
def test_options_are_those_of_the_protocol(protocol: str) -> None:
    async def go() -> None:
        for other, options in OPTIONS.items():
            if other == protocol:
                connect(f"{protocol}://h", options())
            else:
                with pytest.raises(LocalProtocolError, match=r"the options of"):
                    connect(f"{protocol}://h", options())

    asyncio.run(go())


def test_a_broker_is_connected_before_it_is_used() -> None:
    async def go() -> None:
        broker = connect("nsq://h")
        with pytest.raises(LocalProtocolError, match="not connected"):
            await broker.publish("t", b"x")
        with pytest.raises(LocalProtocolError, match="not connected"):
            broker.subscribe("t", "c")
        with pytest.raises(LocalProtocolError, match="not connected"):
            await broker.publish_many("t", [b"x"])
        with pytest.raises(LocalProtocolError, match="window"):
            broker.subscribe("t", "c", window=0)
        with pytest.raises(LocalProtocolError, match="begin"):
            broker.subscribe("t", "c", begin="middle")

    asyncio.run(go())


def test_secrets_go_where_the_protocol_wants_them() -> None:
    async def go() -> None:
        connect("nsq://:s@h")
        connect("nats://u:s@h", NatsOptions(tls=ssl.create_default_context()))
        connect("rocketmq://k:s@h")
        with pytest.raises(LocalProtocolError):
            connect("nsq://user@h")
        with pytest.raises(LocalProtocolError):
            connect("rocketmq://k@h")
        with pytest.raises(Unsupported):
            connect("phpmq://u:s@h")

    asyncio.run(go())


def test_levels_are_never_too_early() -> None:
    assert [level_for(seconds) for seconds in (0, 1, 1.1, 5, 59, 60, 61, 7200)] == [1, 1, 2, 2, 5, 5, 6, 18]
    with pytest.raises(Unsupported, match="publish it again"):
        level_for(7201)
