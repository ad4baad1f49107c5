"""Routes, understood as Java's clients do."""

from __future__ import annotations

import pytest

from polymq.clients.rocketmq_routes import MessageQueue, Route
from polymq.errors import RemoteProtocolError
from polymq.protocols.rocketmq.bodies import BrokerData, QueueData, RouteData

BROKERS = (
    BrokerData("b", "c", {0: "b:1", 1: "b:2"}),
    BrokerData("a", "c", {0: "a:1"}),
    BrokerData("slaves", "c", {1: "s:1"}),
)


def test_queues_are_sorted_and_only_those_that_may_be_used() -> None:
    data = RouteData(BROKERS, (QueueData("b", 2, 1), QueueData("a", 1, 2), QueueData("slaves", 1, 1), QueueData("a2", 0, 0, 0)))
    route = Route.of("t", data)
    assert route.write_queues == (MessageQueue("t", "a", 0), MessageQueue("t", "a", 1), MessageQueue("t", "b", 0))
    assert [(each.broker_name, each.queue_id) for each in route.read_queues] == [("a", 0), ("b", 0), ("b", 1), ("slaves", 0)]
    only_read = Route.of("t", RouteData(BROKERS, (QueueData("a", 2, 2, 4),)))
    assert (len(only_read.write_queues), len(only_read.read_queues)) == (0, 2)


def test_addresses_of_masters_and_copies() -> None:
    route = Route.of("t", RouteData(BROKERS, ()))
    assert [route.address("b"), route.address("b", 1), route.address("b", 7), route.address("slaves")] == ["b:1", "b:2", "b:1", "s:1"]
    assert route.address("nobody") is None


def test_a_configured_order_fixes_the_queues() -> None:
    route = Route.of("t", RouteData(BROKERS, (QueueData("a", 4, 4),), "b:1;a:2"))
    assert [(each.broker_name, each.queue_id) for each in route.write_queues] == [("b", 0), ("a", 0), ("a", 1)]
    with pytest.raises(RemoteProtocolError, match="order makes no sense"):
        Route.of("t", RouteData(BROKERS, (), "b:many"))


def test_a_route_of_too_many_queues_is_none() -> None:
    with pytest.raises(RemoteProtocolError, match="more than 65536 queues"):
        Route.of("t", RouteData(BROKERS, (QueueData("a", 2**16 + 1, 1),)))
    with pytest.raises(RemoteProtocolError, match="more than 65536 queues"):
        Route.of("t", RouteData(BROKERS, (QueueData("a", 1, 2**31 - 1),)))


def test_a_new_topic_is_made_like_another_one() -> None:
    template = Route.of("TBW102", RouteData(BROKERS, (QueueData("a", 8, 8), QueueData("b", 2, 2))))
    route = template.for_topic("new", 4)
    assert [each.broker_name for each in route.write_queues] == ["a"] * 4 + ["b"] * 2
    assert {each.topic for each in route.write_queues} == {"new"}
