"""Name servers, brokers, routes and heartbeats."""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.rocketmq_options import RocketMQOptions, RocketMQTls
from polymq.clients.rocketmq_session import Session
from polymq.errors import ConnectFailed, ConnectionLost, DeadlineExceeded, Refusal, RemoteProtocolError, TransportError
from polymq.protocols.rocketmq.bodies import ConsumerData
from tests.unit.clients.rocketmq_worlds import BROKER, NAME_SERVER, Server, World, ok, say_no
from tests.unit.clients.worlds import in_virtual_time

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def session(world: World, name_servers: str = NAME_SERVER, **options: Any) -> Session:
    return Session(name_servers, RocketMQOptions(**options), opener=world.open, random=lambda: 0.5)


def in_session(work: Callable[[World, Session], Any], **options: Any) -> None:
    async def go() -> None:
        world = World()
        each = session(world, **options)
        await each.start()
        try:
            await work(world, each)
        finally:
            await each.close()

    in_virtual_time(go())


def test_routes_are_asked_once_and_again_when_they_are_old() -> None:
    async def work(world: World, each: Session) -> None:
        world.topics.add("t")
        routes = await asyncio.gather(*(each.route("t") for _ in range(5)))
        assert {len(route.read_queues) for route in routes if route is not None} == {4}
        asked = [request for request in world.name_server.asked(105) if request.ext["topic"] == "t"]
        assert len(asked) == 1
        assert asked[0].ext["acceptStandardJsonOnly"] == "true"
        world.queues = 8
        await asyncio.sleep(35)
        route = await each.route("t")
        assert route is not None
        assert len(route.read_queues) == 8

    in_session(work)


def test_a_topic_that_nobody_knows_is_made_like_another() -> None:
    async def work(world: World, each: Session) -> None:
        assert await each.route("new") is None
        route = await each.route_to_send("new")
        assert route is not None
        assert [queue.queue_id for queue in route.write_queues] == [0, 1, 2, 3]

    in_session(work)


def test_a_name_server_that_fails_is_followed_by_the_next() -> None:
    async def go() -> None:
        world = World()
        world.topics.add("t")
        second = world.servers["other:1"] = Server(world, "ns2")
        each = session(world, f"{NAME_SERVER};other:1")
        await each.start()
        world.name_server.is_down = True
        for wire in world.name_server.wires:
            wire.end()
        assert await each.route("t", fresh=True) is not None
        assert second.asked(105)
        second.scripts[105] = say_no(1, "busy")
        known = await each.route("t", fresh=True)  # what was known still holds
        assert known is not None
        with pytest.raises(TransportError):
            await each.route("unknown")
        await each.close()

    in_virtual_time(go())


def test_a_server_is_connected_once_however_many_ask() -> None:
    async def work(world: World, each: Session) -> None:
        await asyncio.gather(*(each.ask(BROKER, 30, {"topic": "t", "queueId": "0"}) for _ in range(20)))
        assert len(world.broker.wires) == 1

    in_session(work)


def test_a_server_that_is_down_is_not_asked_at_once_again() -> None:
    async def work(world: World, each: Session) -> None:
        world.broker.is_down = True
        assert each.is_reachable(BROKER)
        with pytest.raises(ConnectFailed):
            await each.ask(BROKER, 30, {})
        assert not each.is_reachable(BROKER)
        attempts = len(world.contexts)
        with pytest.raises(ConnectFailed):
            await each.tell(BROKER, 30, {})
        assert len(world.contexts) == attempts
        world.broker.is_down = False
        await asyncio.sleep(1)
        assert (await each.ask(BROKER, 30, {"topic": "t", "queueId": "0"})).is_success

    in_session(work)


def test_a_server_that_is_silent_is_waited_for_in_bounds() -> None:
    async def work(world: World, each: Session) -> None:
        world.broker.scripts[30] = lambda _: None
        begun = asyncio.get_running_loop().time()
        with pytest.raises(DeadlineExceeded, match="did not answer request 30 within 3 s"):
            await each.ask(BROKER, 30, {})
        assert asyncio.get_running_loop().time() - begun == pytest.approx(3, abs=0.1)

    in_session(work)


def test_brokers_know_a_consumer_before_it_asks_on_every_connection() -> None:
    async def work(world: World, each: Session) -> None:
        each.consumers["g"] = lambda: ConsumerData("g")
        for _ in range(2):
            await each.ask(BROKER, 38, {"consumerGroup": "g"}, introduced=True)
            await each.ask(BROKER, 38, {"consumerGroup": "g"}, introduced=True)
            world.broker.wires[-1].end()
            await asyncio.sleep(0.1)
        assert [request.code for request in world.broker.requests] == [34, 38, 38, 34, 38, 38]
        world.broker.scripts[34] = say_no(1)
        with pytest.raises(Refusal, match="heartbeat: code 1"):
            await each.ask(BROKER, 38, {"consumerGroup": "g"}, introduced=True)

    in_session(work)


def test_heartbeats_go_on_and_goodbyes_are_said() -> None:
    async def go() -> None:
        world = World()
        world.topics.add("t")
        each = session(world)
        each.producer_groups.add("p")
        each.consumers["g"] = lambda: ConsumerData("g")
        await each.start()
        await each.route("t")
        await asyncio.sleep(65)
        assert len(world.heartbeats) >= 2
        assert {row["groupName"] for row in world.heartbeats[-1]["producerDataSet"]} == {"p", "CLIENT_INNER_PRODUCER"}
        await each.close()
        goodbyes = [{name: value for name, value in request.ext.items() if name != "clientID"} for request in world.broker.asked(35)]
        assert {"consumerGroup": "g"} in goodbyes
        assert {"producerGroup": "p"} in goodbyes
        with pytest.raises(ConnectionLost):
            await each.ask(BROKER, 30, {})

    in_virtual_time(go())


def test_a_broker_that_no_route_names_any_more_is_left() -> None:
    async def work(world: World, each: Session) -> None:
        world.topics.add("t")
        await each.route("t")
        await each.ask(BROKER, 30, {"topic": "t", "queueId": "0"})
        world.brokers["new:1"] = world.servers["new:1"] = world.brokers.pop(BROKER)
        await asyncio.sleep(70)
        assert world.broker.wires[0].ended

    in_session(work)


def test_requests_of_brokers_that_make_no_sense_do_no_harm() -> None:
    async def work(world: World, each: Session) -> None:
        def fail(_: Any) -> None:
            raise KeyError("nonsense")

        each.handlers[220] = fail
        await each.ask(BROKER, 30, {"topic": "t", "queueId": "0"})
        world.broker.push(220, {}, oneway=False)
        await asyncio.sleep(0.1)
        assert [answer.code for answer in world.broker.answers] == [1]
        assert (await each.ask(BROKER, 30, {"topic": "t", "queueId": "0"})).is_success

    in_session(work)


def test_tls_is_for_every_connection() -> None:
    async def go() -> None:
        world = World()
        each = session(world, tls=RocketMQTls(insecure=True))
        await each.start()
        await each.close()
        assert world.contexts
        assert all(isinstance(context, ssl.SSLContext) for context in world.contexts)

    asyncio.run(go())


def test_files_that_are_no_certificates(tmp_path: Path) -> None:
    async def go() -> None:
        each = session(World(), tls=RocketMQTls(root_file=tmp_path / "none"))
        with pytest.raises(ConnectFailed, match="TLS"):
            await each.start()
        await each.close()

    asyncio.run(go())


def test_closing_does_not_wait_for_silent_servers() -> None:
    async def go() -> None:
        world = World()
        each = session(world)
        each.consumers["g"] = lambda: ConsumerData("g")
        await each.start()
        await each.ask(BROKER, 38, {"consumerGroup": "g"}, introduced=True)
        world.broker.scripts[35] = lambda _: None
        begun = asyncio.get_running_loop().time()
        await each.close()
        assert asyncio.get_running_loop().time() - begun < 4
        assert world.broker.wires[0].ended

    in_virtual_time(go())


def test_a_route_that_makes_no_sense_is_a_failure() -> None:
    async def work(world: World, each: Session) -> None:
        world.name_server.scripts[105] = lambda _: ok(body=b"[]")
        with pytest.raises(RemoteProtocolError):
            await each.route("t")
        world.name_server.scripts.clear()
        world.topics.add("t")
        assert await each.route("t") is not None

    in_session(work)
