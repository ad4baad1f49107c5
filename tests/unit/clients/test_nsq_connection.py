from __future__ import annotations

import asyncio
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from polymq.clients.nsq_connection import NsqConnection, refused
from polymq.clients.nsq_opening import NsqOptions, connect, open_socket
from polymq.errors import ConnectFailed, ConnectionLost, DeadlineExceeded, LocalProtocolError, Refusal, RefusalCode, RemoteProtocolError
from polymq.limits import LAYER_PIECE_SIZE_BYTES_MAX, LAYER_PIECES_PER_TURN_MAX
from polymq.protocols.nsq import encode, events, frames
from tests.unit.clients.worlds import Server, encode_message, in_virtual_time

OPTIONS = NsqOptions(client_id="me", deadline_seconds=5)


def test_connecting_introduces_the_client() -> None:
    async def go() -> None:
        server = Server()
        connection = await connect("x:1", OPTIONS, server.open)
        assert connection.is_open
        assert connection.agreed["max_rdy_count"] == 2500
        assert server.wires[0].agreement.client_id == ""
        (step,) = server.steps
        assert b'"client_id":"me"' in step[1]
        assert b'"feature_negotiation":true' in step[1]
        await connection.close()

    in_virtual_time(go())


def test_nobody_there() -> None:
    async def go() -> None:
        server = Server()
        server.is_down = True
        with pytest.raises(ConnectFailed, match="nobody at x:1"):
            await connect("x:1", OPTIONS, server.open)

    in_virtual_time(go())


def test_an_address_without_a_port() -> None:
    async def go() -> None:
        with pytest.raises(ConnectFailed):
            await connect("localhost", OPTIONS)

    in_virtual_time(go())


def test_a_server_that_says_nothing() -> None:
    async def go() -> None:
        server = Server()
        server.is_deaf = True
        with pytest.raises(DeadlineExceeded):
            await connect("x:1", OPTIONS, server.open)
        assert server.wires[0].ended

    in_virtual_time(go())


def test_identify_refused() -> None:
    async def go() -> None:
        server = Server()
        server.refusals[events.Identify] = b"E_BAD_BODY IDENTIFY heartbeat interval (5) is invalid"
        with pytest.raises(Refusal, match="heartbeat"):
            await connect("x:1", OPTIONS, server.open)

    in_virtual_time(go())


def test_answers_come_in_the_order_of_the_commands() -> None:
    async def go() -> None:
        server = Server()
        connection = await connect("x:1", OPTIONS, server.open)
        server.refusals[events.Publish] = None
        waiters = [connection.request(frames.publish("t", b"%d" % number)) for number in range(3)]
        await asyncio.sleep(0.1)
        waiters[0].cancel()
        server.wires[0].reply(b"".join(map(encode.response_frame, (b"a", b"b", b"c"))))
        assert await asyncio.gather(*waiters[1:]) == [b"b", b"c"]
        await connection.close()

    in_virtual_time(go())


def test_a_server_that_owes_too_many_answers_is_given_up() -> None:
    async def go() -> None:
        server = Server()
        connection = await connect("x:1", OPTIONS, server.open)
        server.refusals[events.Publish] = None
        for _ in range(10_000):
            connection.request(frames.publish("t", b"x")).cancel()
        assert connection.is_open
        with pytest.raises(ConnectionLost, match="owes 10000 answers"):
            await connection.request(frames.publish("t", b"x"))
        await connection.lost

    in_virtual_time(go())


def test_writes_of_one_turn_are_one_write() -> None:
    async def go() -> None:
        server = Server()
        connection = await connect("x:1", OPTIONS, server.open)
        before = len(server.wires[0].writes)
        for _ in range(100):
            connection.send(frames.NOP)
        await asyncio.sleep(0.1)
        assert server.wires[0].writes[before:] == [frames.NOP * 100]
        await connection.close()

    in_virtual_time(go())


def test_heartbeats_are_answered_and_are_no_answers() -> None:
    async def go() -> None:
        server = Server()
        connection = await connect("x:1", OPTIONS, server.open)
        server.wires[0].reply(encode.HEARTBEAT_FRAME)
        assert await connection.request(frames.publish("t", b"x")) == b"OK"
        await asyncio.sleep(0.1)
        assert server.took("Nop") == [("Nop",)]
        await connection.close()

    in_virtual_time(go())


def test_silence_ends_the_connection() -> None:
    async def go() -> None:
        server = Server()
        connection = await connect("x:1", NsqOptions(heartbeat_interval_ms=1000), server.open)
        for _ in range(5):
            await asyncio.sleep(2)
            server.wires[0].reply(encode.HEARTBEAT_FRAME)
        assert not connection.lost.done()
        await asyncio.sleep(2.6)
        assert not connection.is_open
        with pytest.raises(ConnectionLost, match="silent"):
            await connection.request(frames.publish("t", b"x"))

    in_virtual_time(go())


def test_losing_the_connection_reaches_everybody_who_waits() -> None:
    async def go() -> None:
        server = Server()
        connection = await connect("x:1", OPTIONS, server.open)
        server.is_deaf = True
        waiters: list[asyncio.Future[Any]] = [connection.request(frames.publish("t", b"x")), connection.mark()]
        await asyncio.sleep(0.1)
        server.wires[0].end(OSError("reset"))
        for outcome in await asyncio.gather(*waiters, return_exceptions=True):
            assert isinstance(outcome, ConnectionLost)
            assert "reset" in str(outcome)
        late_ones: list[asyncio.Future[Any]] = [connection.request(frames.NOP), connection.mark()]
        for late in late_ones:
            with pytest.raises(ConnectionLost):
                await late
        connection.send(frames.NOP)
        await connection.close()

    in_virtual_time(go())


def test_a_fatal_error_belongs_to_the_first_who_waits() -> None:
    async def go() -> None:
        server = Server()
        connection = await connect("x:1", OPTIONS, server.open)
        server.refusals[events.Publish] = b"E_PUB_FAILED PUB failed disk is full"
        first, second = connection.request(frames.publish("t", b"x")), connection.request(frames.publish("u", b"x"))
        with pytest.raises(Refusal, match="disk is full"):
            await first
        with pytest.raises(ConnectionLost, match="disk is full"):
            await second

    in_virtual_time(go())


def test_a_fatal_error_that_nobody_waits_for_is_the_reason() -> None:
    async def go() -> None:
        server = Server()
        connection = await connect("x:1", OPTIONS, server.open)
        connection.send(b"RDY 1\n")
        await connection.lost
        assert isinstance(connection.reason, LocalProtocolError)
        assert "cannot RDY" in str(connection.reason)

    in_virtual_time(go())


def test_a_mark_is_passed_and_other_failures_are_told() -> None:
    async def go() -> None:
        server = Server()
        connection = await connect("x:1", OPTIONS, server.open)
        told: list[str] = []
        connection.on_failure = told.append
        await connection.request(frames.subscribe("t", "c"))
        given_up = connection.mark()
        given_up.cancel()
        connection.send(frames.finish([b"f" * 16]))
        await connection.mark()
        assert told == ["E_FIN_FAILED FIN ffffffffffffffff failed ID not in flight"]
        await connection.close()

    in_virtual_time(go())


@pytest.mark.parametrize("data", [b"\0\0\0\x01\0\0\0\0", encode.OK_FRAME, b"\0\0\0\x04\0\0\0\x09" + encode.OK_FRAME])
def test_a_server_that_breaks_the_protocol(data: bytes) -> None:
    async def go() -> None:
        server = Server()
        connection = await connect("x:1", OPTIONS, server.open)
        server.wires[0].reply(data)
        await connection.lost
        assert isinstance(connection.reason, RemoteProtocolError)

    in_virtual_time(go())


@pytest.mark.parametrize("compression", ["deflate", "snappy"])
def test_what_unfolds_to_very_much_is_taken_in_many_turns(compression: str) -> None:
    async def go() -> None:
        server = Server()
        connection = await connect("x:1", replace(OPTIONS, deflate=compression == "deflate", snappy=compression == "snappy"), server.open)
        wire = server.wires[0]
        got: list[int] = []
        connection.on_messages = lambda run: got.append(len(run.data))
        messages = [encode_message(number, bytes(100_000)) for number in range(200)]
        wire.reply(b"".join(messages))
        wire.reply(encode.HEARTBEAT_FRAME)
        most, turns = 0, 0
        while not server.took("Nop"):
            before = sum(got)
            await asyncio.sleep(0)
            most, turns = max(most, sum(got) - before), turns + 1
            assert turns < 1000
        assert sum(got) == sum(map(len, messages))
        assert most <= LAYER_PIECE_SIZE_BYTES_MAX * LAYER_PIECES_PER_TURN_MAX + 100_034
        assert not wire.paused
        await connection.close()

    in_virtual_time(go())


def test_nothing_more_is_unfolded_for_a_connection_that_is_closed() -> None:
    async def go() -> None:
        server = Server()
        connection = await connect("x:1", replace(OPTIONS, deflate=True), server.open)
        got: list[int] = []
        connection.on_messages = lambda run: got.append(len(run.data))
        server.wires[0].reply(b"".join(encode_message(number, bytes(100_000)) for number in range(200)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert got
        before = len(got)
        await connection.close()
        await asyncio.sleep(1)
        assert len(got) == before

    in_virtual_time(go())


@pytest.mark.parametrize("compression", ["", "deflate"])
def test_only_so_much_may_come_before_all_is_agreed_on(compression: str) -> None:
    async def go() -> None:
        server = Server()
        server.settings = replace(server.settings, auth_required=True)
        server.refusals[events.Auth] = None
        connecting = asyncio.create_task(connect("x:1", replace(OPTIONS, auth_secret="s", deflate=bool(compression)), server.open))
        await asyncio.sleep(0.1)
        # The beginning of an answer that is large enough for all that follows.
        server.wires[0].reply((32 * 1024 * 1024).to_bytes(4, "big") + bytes(4) + bytes(1024 * 1024 - 8))
        await asyncio.sleep(0.1)
        assert not connecting.done()
        server.wires[0].reply(b"x")
        with pytest.raises(RemoteProtocolError, match="more than 1048576 bytes have come before all was agreed on"):
            await connecting
        assert server.wires[0].ended

    in_virtual_time(go())


def test_a_bomb_before_all_is_agreed_on_holds_no_memory() -> None:
    async def go() -> None:
        server = Server()
        server.settings = replace(server.settings, auth_required=True)
        server.refusals[events.Auth] = None
        connecting = asyncio.create_task(connect("x:1", replace(OPTIONS, auth_secret="s", deflate=True), server.open))
        await asyncio.sleep(0.1)
        bomb = encode_message(1, bytes(50_000_000))
        tracemalloc.start()
        server.wires[0].reply(bomb)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        with pytest.raises(RemoteProtocolError, match="before all was agreed on"):
            await connecting
        assert tracemalloc.get_traced_memory()[1] - before < 8 * 1024 * 1024
        tracemalloc.stop()

    in_virtual_time(go())


def test_writing_waits_while_the_socket_is_full() -> None:
    async def go() -> None:
        server = Server()
        connection = await connect("x:1", OPTIONS, server.open)
        connection.pause_writing()
        waiting = asyncio.create_task(connection.drained())
        await asyncio.sleep(1)
        assert not waiting.done()
        connection.resume_writing()
        await waiting
        await connection.close()

    in_virtual_time(go())


def test_closing_before_it_began() -> None:
    async def go() -> None:
        await NsqConnection().close()

    in_virtual_time(go())


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("E_BAD_TOPIC PUB topic name", RefusalCode.TOPIC_NAME_INVALID),
        ("E_SUB_FAILED SUB failed consumers", RefusalCode.GROUP_FULL),
        ("E_MPUB_FAILED MPUB failed exiting", RefusalCode.SHUTTING_DOWN),
        ("E_DPUB_FAILED DPUB failed no space", RefusalCode.STORE_FAILED),
        ("E_UNAUTHORIZED AUTH failed", RefusalCode.FORBIDDEN),
        ("E_AUTH_FIRST AUTH required", RefusalCode.UNAUTHENTICATED),
    ],
)
def test_error_codes(text: str, code: RefusalCode) -> None:
    error = refused(text)
    assert isinstance(error, Refusal)
    assert (error.code, error.text) == (code, text)


def test_what_is_no_refusal_is_a_mistake_of_ours() -> None:
    assert isinstance(refused("E_INVALID cannot SUB in current state"), LocalProtocolError)


@pytest.mark.parametrize("reply", [b"OK", b"{", b"[]"])
def test_a_reply_that_agrees_to_nothing(reply: bytes) -> None:
    async def go() -> None:
        server = Server()
        server.refusals[events.Identify] = None
        connecting = asyncio.create_task(connect("x:1", OPTIONS, server.open))
        await asyncio.sleep(0.1)
        server.wires[0].reply(encode.response_frame(reply))
        connection = await connecting
        assert connection.agreed == {}
        await connection.close()

    in_virtual_time(go())


@pytest.mark.parametrize(
    ("address", "reached"),
    [("127.0.0.1:4150", ("127.0.0.1", 4150)), ("[::1]:4150", ("::1", 4150)), ("unix:/run/nsq", ("/run/nsq",))],
)
def test_addresses_of_both_kinds(address: str, reached: tuple[object, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        calls: list[tuple[object, ...]] = []

        async def create(_factory: object, *where: object) -> None:
            calls.append(where)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "create_unix_connection" if address.startswith("unix:") else "create_connection", create)
        await open_socket(address, asyncio.Protocol)
        assert calls == [reached]

    in_virtual_time(go())
