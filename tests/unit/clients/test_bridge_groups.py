"""A group as a source settles what it is told to, and no more; a topic as a target counts what its protocol could not carry."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from polymq.clients.bridge_ends import Carried, Tally
from polymq.clients.bridge_groups import GroupSource, TopicTarget
from polymq.clients.broker_messages import BrokerMessage, Outgoing
from polymq.errors import ConnectionLost, LocalProtocolError, PolyMQError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polymq.clients.broker import Broker


class Settling:
    def __init__(self, error: LocalProtocolError | None = None) -> None:
        self.is_current = True
        self.done_count = 0
        self.error = error

    def done(self) -> None:
        if self.error is not None:
            raise self.error
        self.done_count += 1

    def retry(self, delay: float) -> None: ...

    def discard(self) -> None: ...


class FakeBroker:
    """Its own subscription: gives batches, then waits."""

    def __init__(self, protocol: str = "nsq", batches: Sequence[list[BrokerMessage]] = ()) -> None:
        self.address = SimpleNamespace(protocol=protocol)
        self.batches = list(batches)
        self.said: list[Any] = []
        self.outcomes: list[PolyMQError | None] = []
        self.repeated: set[int] = set()

    async def __aenter__(self) -> FakeBroker:
        self.said.append("open")
        return self

    def subscribe(self, topic: str, group: str, *, window: int, begin: Any, holds: bool) -> FakeBroker:
        assert holds, "a target that is away for long is no reason to give anything back"
        self.said.append((topic, group, window, begin))
        return self

    async def take(self) -> list[BrokerMessage]:
        if not self.batches:
            await asyncio.Event().wait()
        return self.batches.pop(0)

    async def publish_each(self, messages: list[Outgoing], repeated: set[int]) -> list[PolyMQError | None]:
        self.said += messages
        repeated |= self.repeated
        return self.outcomes

    async def close(self) -> None:
        self.said.append("close")


def source(broker: FakeBroker, idle_seconds: float | None = 1e-3) -> GroupSource:
    return GroupSource(cast("Broker", broker), "t", "g", window=7, idle_seconds=idle_seconds, begin="last", clock_ns=lambda: 10**9)


def test_messages_are_read_with_their_fields_and_settled_once() -> None:
    settling = Settling()
    message = BrokerMessage(settling, b"x", headers={"gate": "A7"}, key="k", tags="red", ttl=2.0, order="o")
    broker = FakeBroker(batches=[[message]])

    async def go() -> None:
        end = source(broker)
        await end.open()
        (carried,) = await end.read() or []
        assert (carried.body, carried.key, carried.order, carried.expiry_ns) == (b"x", b"k", "o", 3 * 10**9)
        assert list(carried.headers) == [(b"gate", b"A7"), (b"TAGS", b"red")]
        assert end.is_wanted(carried)
        settling.is_current = False
        assert not end.is_wanted(carried)
        await end.settle([carried])
        await end.settle([carried])
        assert settling.done_count == 1
        await end.keep(moved=1, is_last=True)
        assert await end.read() == []  # idle
        await end.close()

    asyncio.run(go())
    assert broker.said == ["open", ("t", "g", 7, "last"), "open", "close"]


def test_what_its_client_has_given_back_meanwhile_ends_nothing() -> None:
    given_back, other = Settling(LocalProtocolError("given back before")), Settling()

    async def go() -> None:
        end = source(FakeBroker(batches=[[BrokerMessage(given_back, b"1"), BrokerMessage(other, b"2")]]))
        await end.open()
        await end.settle(await end.read() or [])

    asyncio.run(go())
    assert other.done_count == 1


def test_a_group_of_rocketmq_gets_time_to_find_its_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.clients.bridge_groups._JOINING_SECONDS", 1e-2)
    given: list[float | None] = []
    timeout = asyncio.timeout

    def noted(seconds: float | None) -> asyncio.Timeout:
        given.append(seconds)
        return timeout(seconds)

    monkeypatch.setattr("polymq.clients.bridge_groups.asyncio.timeout", noted)

    async def go(protocol: str) -> None:
        end = source(FakeBroker(protocol, [[BrokerMessage(Settling(), b"x")]]))
        await end.open()
        for _ in range(2):
            await end.read()

    asyncio.run(go("rocketmq"))
    assert given == [1e-2, 1e-3]
    asyncio.run(go("nsq"))
    assert given[2:] == [1e-3, 1e-3]


def test_a_subscription_that_ends_is_a_lost_connection() -> None:
    async def go() -> None:
        end = source(FakeBroker(batches=[[]]), None)
        await end.open()
        assert end.left() is None
        with pytest.raises(ConnectionLost):
            await end.read()

    asyncio.run(go())


def test_a_target_counts_what_it_left_out_of_what_is_there() -> None:
    broker = FakeBroker()
    tally = Tally()
    messages = [Carried(b"1", b"k"), Carried(b"2", b"k", [(b"a", b"b")])]

    async def go() -> None:
        end = TopicTarget(cast("Broker", broker), "t", tally)
        await end.open()
        broker.outcomes = [ConnectionLost("l"), ConnectionLost("l")]
        assert await end.send(messages) == broker.outcomes
        assert not tally.dropped  # they come again
        assert end.repeated == set()
        broker.outcomes = [None, None]
        broker.repeated = {1}
        assert await end.send(messages) == [None, None]
        assert end.repeated == {1}
        await end.close()

    asyncio.run(go())
    assert tally.dropped == {"key": 2, "header": 1}
    assert broker.said == ["open", *[Outgoing("t", b"1"), Outgoing("t", b"2")] * 2, "close"]


def test_a_target_that_is_not_open_refuses() -> None:
    class Closed(FakeBroker):
        async def publish_each(self, messages: list[Outgoing], repeated: set[int]) -> list[PolyMQError | None]:
            raise LocalProtocolError("not connected")

    async def go() -> None:
        outcomes = await TopicTarget(cast("Broker", Closed()), "t", Tally()).send([Carried(b"1")])
        assert [str(each) for each in outcomes] == ["not connected"]

    asyncio.run(go())
