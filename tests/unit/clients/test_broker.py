"""The one API before anything is sent: which protocol an address takes, what each refuses, what it says instead."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any, cast

import pytest

from polymq import connect
from polymq.clients.broker_messages import Outgoing
from polymq.clients.broker_rocketmq import level_for
from polymq.clients.nats import NatsOptions
from polymq.clients.nsq import NsqOptions
from polymq.clients.phpmq import PhpmqOptions
from polymq.clients.rocketmq import RocketMQOptions
from polymq.errors import ConnectionLost, LocalProtocolError, PolyMQError, Unsupported
from polymq.protocols.rocketmq.codes import RequestCode
from tests.unit.clients.rocketmq_worlds import NAME_SERVER, World
from tests.unit.clients.worlds import in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.clients.broker import Broker
    from polymq.clients.broker_rocketmq import RocketMQLink

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


class FakeLink:
    """Its own subscriptions; `closed` is what has been closed, in turn."""

    def __init__(self) -> None:
        self.closed: list[str] = []
        self.failing: set[str] = set()
        self.sent: list[list[bytes]] = []

    async def open(self) -> None: ...

    def check(self, message: Outgoing) -> None:
        if not message.body:
            raise Unsupported("no body")

    async def publish_each(self, messages: Sequence[Outgoing], repeated: set[int]) -> list[PolyMQError | None]:
        self.sent.append([each.body for each in messages])
        repeated.add(1)
        return [None] * len(messages)

    def source(self, topic: str, group: str, window: int, begin: Any, *, holds: bool) -> FakeSubscription:
        return FakeSubscription(self, topic)

    async def close(self) -> None:
        self.closed.append("link")


class FakeSubscription:
    def __init__(self, link: FakeLink, name: str) -> None:
        self.link = link
        self.name = name

    async def open(self) -> None: ...

    async def close(self) -> None:
        self.link.closed.append(self.name)
        if self.name in self.link.failing:
            raise ConnectionLost(self.name)


def faked() -> tuple[Broker, FakeLink]:
    broker, link = connect("nsq://h"), FakeLink()
    cast("Any", broker)._link = link
    return broker, link


def test_a_subscription_that_does_not_close_leaves_none_of_the_others_open() -> None:
    async def go() -> None:
        broker, link = faked()
        link.failing = {"b", "c"}
        await broker.__aenter__()
        for name in "abcd":
            await broker.subscribe(name, "g").__aenter__()
        with pytest.raises(ConnectionLost, match="c"):
            await broker.close()
        assert link.closed == ["a", "b", "c", "d", "link"]
        await broker.close()
        assert link.closed[4:] == ["link", "link"]

    asyncio.run(go())


def test_places_of_what_was_sent_twice_are_those_of_what_was_asked() -> None:
    async def go() -> None:
        broker, link = faked()
        repeated: set[int] = set()
        async with broker:
            outcomes = await broker.publish_each([Outgoing("t", body) for body in (b"", b"1", b"", b"3")], repeated)
        assert [type(each) for each in outcomes] == [Unsupported, type(None), Unsupported, type(None)]
        assert link.sent == [[b"1", b"3"]]
        assert repeated == {3}

    asyncio.run(go())


@pytest.mark.parametrize("holds", [False, True])
def test_who_holds_messages_of_rocketmq_gives_none_back_however_long_it_takes(holds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        world = World(queues=1)
        for body in (b"1", b"2", b"3"):
            world.put("t", body)
        broker = connect(f"rocketmq://{NAME_SERVER}")
        link = cast("RocketMQLink", cast("Any", broker)._link)
        source = link.source("t", "g", 100, "", holds=holds)
        consumer = cast("Any", source)._consumer
        consumer._session._opener = world.open
        await source.open()
        found: list[Any] = []
        while len(found) < 3:
            found += await source.take()
        await asyncio.sleep(100_000)
        assert [each.is_current for each in found] == [holds] * 3
        for each in found:
            if holds:
                await each.done()
            else:
                with pytest.raises(LocalProtocolError):
                    await each.done()
        await source.close()
        assert len(world.broker.asked(RequestCode.CONSUMER_SEND_MSG_BACK)) == (0 if holds else 3)
        assert world.position("g", "t", 0) == 3

    in_virtual_time(go())
