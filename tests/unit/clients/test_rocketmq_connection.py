"""One connection: requests find their answers, servers find theirs, and who waits hears of the end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from polymq.clients import rocketmq_connection
from polymq.clients.rocketmq_connection import Answer, RocketMQConnection, refused
from polymq.clients.rocketmq_options import RocketMQOptions
from polymq.errors import ConnectionLost, RefusalCode, RemoteProtocolError
from polymq.protocols.rocketmq import acl
from tests.unit.clients.rocketmq_worlds import BROKER, Reply, Server, World, ok
from tests.unit.clients.worlds import in_virtual_time

if TYPE_CHECKING:
    from polymq.protocols.rocketmq.events import Request


async def connected(world: World, options: RocketMQOptions | None = None) -> RocketMQConnection:
    def asked(request: Request) -> Answer | None:
        return Answer(0, "fine", {"a": "1"}, b"body") if request.code == 307 else None

    connection = RocketMQConnection(options or RocketMQOptions(), asked)
    await world.open(BROKER, lambda: connection, None)
    return connection


def later(server: Server) -> None:
    """Answer 30 behind 31."""
    first: list[Request] = []

    def hold(request: Request) -> Reply | None:
        first.append(request)
        return None

    def answer(request: Request) -> Reply:
        server.send(server.wires[-1], first[0], ok({"offset": "30"}))
        return ok({"offset": "31"})

    server.scripts.update({30: hold, 31: answer})


@pytest.mark.parametrize("binary", [False, True])
def test_answers_come_in_any_order(binary: bool) -> None:
    async def go() -> None:
        world = World()
        later(world.broker)
        connection = await connected(world, RocketMQOptions(binary=binary))
        found = await asyncio.gather(connection.request(30, {}), connection.request(31, {}))
        assert [each.number("offset") for each in found] == [30, 31]
        assert {each.binary for each in world.broker.requests} == {binary}
        assert {each.language for each in world.broker.requests} == {3}
        assert {each.version for each in world.broker.requests} == {409}

    in_virtual_time(go())


def test_a_request_of_the_server_is_answered() -> None:
    async def go() -> None:
        world = World()
        await connected(world)
        world.broker.push(307, {}, oneway=False)
        world.broker.push(39, {}, oneway=False)
        world.broker.push(39, {}, oneway=True)
        await asyncio.sleep(1)
        found = [(each.code, each.opaque, each.remark, each.body) for each in world.broker.answers]
        assert found == [(0, 77, "fine", b"body"), (3, 77, " request type 39 not supported", b"")]

    in_virtual_time(go())


def test_the_end_of_a_connection_is_told_to_who_waits() -> None:
    async def go() -> None:
        world = World()
        world.broker.scripts[30] = lambda _: None
        connection = await connected(world)
        waiting = asyncio.create_task(connection.request(30, {}))
        await asyncio.sleep(0.1)
        world.broker.wires[-1].end()
        with pytest.raises(ConnectionLost, match="the server closed"):
            await waiting
        with pytest.raises(ConnectionLost):
            await connection.tell(15, {})

    in_virtual_time(go())


def test_a_server_that_speaks_something_else_is_left() -> None:
    async def go() -> None:
        world = World()
        world.broker.scripts[30] = lambda _: None
        connection = await connected(world)
        waiting = asyncio.create_task(connection.request(30, {}))
        await asyncio.sleep(0.1)
        world.broker.wires[-1].receive(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        with pytest.raises(RemoteProtocolError, match="does not speak RocketMQ"):
            await waiting
        assert not connection.is_open

    in_virtual_time(go())


def test_answers_may_come_in_pieces_and_given_up_ones_are_left_alone() -> None:
    async def go() -> None:
        world = World()
        held: list[Request] = []
        world.broker.scripts[30] = lambda request: held.append(request)
        connection = await connected(world)
        given_up = asyncio.create_task(connection.request(30, {}))
        await asyncio.sleep(0.1)
        given_up.cancel()
        kept = asyncio.create_task(connection.request(30, {}))
        await asyncio.sleep(0.1)
        wire = world.broker.wires[-1]
        pieces: list[bytes] = []
        wire.reply = pieces.append  # type: ignore[method-assign, assignment]
        for request in held:
            world.broker.send(wire, request, ok({"offset": str(request.opaque)}))
        for byte in b"".join(pieces):
            wire.receive(bytes((byte,)))
        assert (await kept).number("offset") == held[1].opaque

    in_virtual_time(go())


def test_a_bounded_number_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocketmq_connection, "_WAITING_MAX", 1)

    async def go() -> None:
        world = World()
        world.broker.scripts[30] = lambda _: None
        connection = await connected(world)
        waiting = asyncio.create_task(connection.request(30, {}))
        await asyncio.sleep(0.1)
        with pytest.raises(ConnectionLost, match="owes 1 answers"):
            await connection.request(30, {})
        waiting.cancel()

    in_virtual_time(go())


def test_nothing_is_written_while_the_socket_takes_nothing() -> None:
    async def go() -> None:
        world = World()
        connection = await connected(world)
        connection.pause_writing()
        waiting = asyncio.create_task(connection.request(30, {"topic": "t", "queueId": "0"}))
        await asyncio.sleep(1)
        assert world.broker.requests == []
        connection.resume_writing()
        assert (await waiting).is_success

    in_virtual_time(go())


def test_requests_are_signed() -> None:
    async def go() -> None:
        world = World()
        connection = await connected(world, RocketMQOptions(access_key="me", secret_key="secret", security_token="token"))
        await connection.request(30, {"topic": "t", "queueId": "0"}, b"body")
        ext = world.broker.requests[-1].ext
        assert (ext["AccessKey"], ext["SecurityToken"]) == ("me", "token")
        assert acl.is_signed_with("secret", ext, b"body")
        assert not acl.is_signed_with("another", ext, b"body")

    in_virtual_time(go())


def test_answers_that_say_no_or_make_no_sense() -> None:
    assert refused(Answer(17, "where?"), "a pull").code is RefusalCode.TOPIC_NOT_FOUND
    assert refused(Answer(1, "AclException: no"), "a pull").code is RefusalCode.UNAUTHENTICATED
    assert "a pull: code 99: no words" in str(refused(Answer(99), "a pull"))
    for ext in ({}, {"offset": "x"}):
        with pytest.raises(RemoteProtocolError, match="no number 'offset'"):
            Answer(0, "", ext).number("offset")
