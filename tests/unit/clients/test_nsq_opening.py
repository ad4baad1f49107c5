"""How a client's connection begins: against a server in memory that says everything as soon as it can."""

from __future__ import annotations

import asyncio
import json
import ssl
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.nsq import NsqConsumer, NsqProducer
from polymq.clients.nsq_opening import NsqOptions, NsqTls, check_address, connect
from polymq.errors import ConnectFailed, DeadlineExceeded, LocalProtocolError, PolyMQError, Refusal, RefusalCode, RemoteProtocolError
from polymq.protocols.nsq import encode, events, frames
from polymq.wire.deflate import DeflateLayer
from polymq.wire.tls import TlsLayer
from tests.unit.clients.worlds import Server, in_virtual_time
from tests.unit.wire.authority import Authority
from tests.unit.wire.tls_world import IDENTITY, server_context

if TYPE_CHECKING:
    from pathlib import Path

TRUSTING = NsqTls(root_file=IDENTITY, server_name="test.invalid")
OPTIONS = NsqOptions(client_id="me", deadline_seconds=5)


def secure_server() -> Server:
    server = Server()
    server.settings = replace(server.settings, tls=True)
    server.make_tls = partial(TlsLayer, server_context())
    return server


def wishes(server: Server) -> dict[str, Any]:
    """What the last IDENTIFY asked for."""
    return dict(json.loads(server.took("Identify")[-1][1]))


@pytest.mark.parametrize("tls", [True, False])
@pytest.mark.parametrize("compression", ["", "snappy", "deflate"])
def test_publishing_and_consuming_through_every_stack(compression: str, *, tls: bool) -> None:
    async def go() -> None:
        server = secure_server()
        options = replace(
            OPTIONS, tls=TRUSTING if tls else None, snappy=compression == "snappy", deflate=compression == "deflate", deflate_level=2
        )
        async with NsqProducer("x:1", options, opener=server.open) as producer:
            asked = wishes(server)
            assert (asked["tls_v1"], asked["snappy"], asked["deflate"], asked["deflate_level"]) == (
                tls,
                compression == "snappy",
                compression == "deflate",
                2,
            )
            big = bytes(range(256)) * 4000  # more than one piece
            await producer.publish("t", big)
            assert server.took("PUB") == [("PUB", b"t", big)]
        async with NsqConsumer("x:1", "t", "c", options, opener=server.open) as consumer:
            server.deliver(*range(1, 1001))
            async for message in consumer:
                message.settle()
                if message.body == b"1000":
                    break
            await consumer.flush()
            assert consumer.failures == 0
        if tls or compression:
            assert b"".join(server.wires[-1].writes).count(b"FIN ") < 100

    in_virtual_time(go())


def test_what_else_is_asked_for() -> None:
    async def go() -> None:
        server = Server()
        await (await connect("x:1", replace(OPTIONS, sample_percent=10, message_timeout_ms=2000), server.open)).close()
        asked = wishes(server)
        assert (asked["sample_rate"], asked["msg_timeout"], asked["tls_v1"], asked["snappy"]) == (10, 2000, False, False)

    in_virtual_time(go())


def test_compression_that_a_server_does_not_have_is_done_without() -> None:
    async def go() -> None:
        server = Server()
        server.settings = replace(server.settings, snappy=False)
        async with NsqProducer("x:1", replace(OPTIONS, snappy=True), opener=server.open) as producer:
            await producer.publish("t", b"x")

    in_virtual_time(go())


def test_tls_is_insisted_on() -> None:
    async def go() -> None:
        with pytest.raises(Refusal, match="does not offer TLS"):
            await connect("x:1", replace(OPTIONS, tls=TRUSTING), Server().open)

    in_virtual_time(go())


def test_a_server_that_is_somebody_else(tmp_path: Path) -> None:
    async def go() -> None:
        for tls in (
            replace(TRUSTING, server_name="another.invalid"),
            replace(TRUSTING, server_name=""),
            replace(TRUSTING, root_file=Authority(tmp_path).certificate),
            NsqTls(server_name="test.invalid"),
        ):
            with pytest.raises(ConnectFailed, match="CERTIFICATE_VERIFY_FAILED"):
                await connect("x:1", replace(OPTIONS, tls=tls), secure_server().open)

    in_virtual_time(go())


def test_a_server_that_nobody_looks_at(caplog: pytest.LogCaptureFixture) -> None:
    async def go() -> None:
        connection = await connect("unix:/x", replace(OPTIONS, tls=NsqTls(insecure=True)), secure_server().open)
        await connection.close()

    in_virtual_time(go())
    assert "without a look at the server's certificate" in caplog.text


def test_files_that_are_not_there_are_named(tmp_path: Path) -> None:
    async def go() -> None:
        for tls in (NsqTls(root_file=tmp_path / "none"), replace(TRUSTING, certificate_file=tmp_path / "none")):
            with pytest.raises(ConnectFailed, match="No such file"):
                await connect("x:1", replace(OPTIONS, tls=tls), secure_server().open)

    in_virtual_time(go())


def test_a_client_shows_its_certificate(tmp_path: Path) -> None:
    async def go() -> None:
        server = secure_server()
        authority = Authority(tmp_path)
        context = server_context()
        context.load_verify_locations(authority.certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        layers: list[TlsLayer] = []

        def make_tls() -> TlsLayer:
            layers.append(TlsLayer(context))
            return layers[-1]

        server.make_tls = make_tls
        certificate = authority.issue("somebody")
        await (await connect("x:1", replace(OPTIONS, tls=replace(TRUSTING, certificate_file=certificate)), server.open)).close()
        assert layers[0].peer_common_name == "somebody"
        with pytest.raises(PolyMQError):
            await connect("x:1", replace(OPTIONS, tls=TRUSTING), server.open)

    in_virtual_time(go())


def test_the_secret_is_sent_to_who_wants_it() -> None:
    async def go() -> None:
        server = Server()
        options = replace(OPTIONS, auth_secret="open sesame", snappy=True)
        assert "sesame" not in repr(options)
        await (await connect("x:1", options, server.open)).close()
        assert server.secrets == []
        server.settings = replace(server.settings, auth_required=True)
        connection = await connect("x:1", options, server.open)
        assert server.secrets == [b"open sesame"]
        assert connection.identity["identity"] == "me"
        await connection.close()
        with pytest.raises(Refusal, match="auth_secret is empty") as caught:
            await connect("x:1", OPTIONS, server.open)
        assert caught.value.code is RefusalCode.UNAUTHENTICATED
        server.refusals[events.Auth] = b"E_AUTH_FAILED AUTH failed"
        with pytest.raises(Refusal, match="AUTH failed"):
            await connect("x:1", options, server.open)

    in_virtual_time(go())


def test_options_that_no_server_would_take() -> None:
    for wrong in ({"snappy": True, "deflate": True}, {"sample_percent": 100}, {"deflate_level": 0}, {"deflate_level": 10}):
        with pytest.raises(LocalProtocolError):
            NsqOptions(**wrong)


def test_an_upgrade_that_is_answered_with_something_else() -> None:
    async def go() -> None:
        server = Server()
        server.refusals[events.Identify] = None
        task = asyncio.ensure_future(connect("x:1", replace(OPTIONS, deflate=True), server.open))
        await asyncio.sleep(0.1)
        wire = server.wires[0]
        wire.reply(encode.response_frame(b'{"deflate":true,"deflate_level":99}'))
        await asyncio.sleep(0.1)
        wire.reply(DeflateLayer(6).send(encode.response_frame(b"KO")))
        with pytest.raises(RemoteProtocolError, match="answered with b'KO'"):
            await task

    in_virtual_time(go())


@pytest.mark.parametrize("said", [b"\xff" * 50, b"plain text, not deflate"])
def test_garbage_where_an_upgrade_was_agreed_on(said: bytes) -> None:
    async def go() -> None:
        server = Server()
        server.refusals[events.Identify] = None
        task = asyncio.ensure_future(connect("x:1", replace(OPTIONS, deflate=True), server.open))
        await asyncio.sleep(0.1)
        server.wires[0].reply(encode.response_frame(b'{"deflate":true,"deflate_level":6}') + said)
        with pytest.raises(ConnectFailed, match="deflate"):
            await task

    in_virtual_time(go())


def test_garbage_later_loses_the_connection_and_another_is_made() -> None:
    async def go() -> None:
        server = Server()
        async with NsqProducer("x:1", replace(OPTIONS, snappy=True), opener=server.open) as producer:
            server.wires[0].layers = None
            server.wires[0].reply(b"\x02\x00\x00\x00")
            await asyncio.sleep(0.1)
            await producer.publish("t", b"x")
            assert len(server.wires) == 2

    in_virtual_time(go())


def test_heartbeats_while_a_connection_begins() -> None:
    async def go() -> None:
        server = Server()
        server.refusals[events.Identify] = None
        task = asyncio.ensure_future(connect("x:1", OPTIONS, server.open))
        await asyncio.sleep(0.1)
        server.wires[0].reply(encode.HEARTBEAT_FRAME + encode.HEARTBEAT_FRAME + encode.response_frame(b"{}"))
        connection = await task
        await asyncio.sleep(0.1)
        assert len(server.took("Nop")) >= 1
        await connection.close()

    in_virtual_time(go())


def test_a_server_that_stops_in_the_middle() -> None:
    async def go() -> None:
        server = Server()
        server.refusals[events.Identify] = None
        task = asyncio.ensure_future(connect("x:1", replace(OPTIONS, snappy=True), server.open))
        await asyncio.sleep(0.1)
        server.wires[0].reply(encode.response_frame(b'{"snappy":true}')[:9])
        with pytest.raises(DeadlineExceeded):
            await task
        assert frames.first_frame_size(b"\0\0\0\x06\0") == 0

    in_virtual_time(go())


def test_an_answer_that_nests_too_deeply_agrees_to_nothing() -> None:
    async def go() -> None:
        server = Server()
        server.refusals[events.Identify] = None
        task = asyncio.ensure_future(connect("x:1", OPTIONS, server.open))
        await asyncio.sleep(0.1)
        server.wires[0].reply(encode.response_frame(b'{"a":' + b"[" * 200_000))
        connection = await task
        assert connection.agreed == {}
        await connection.close()

    in_virtual_time(go())


@pytest.mark.parametrize("address", ["", "x", "x:", ":4150", "x:port", "x:0", "x:65536", "x:" + "9" * 5000, "unix:", "http://x"])
def test_addresses_that_are_none(address: str) -> None:
    with pytest.raises(LocalProtocolError, match="HOST:PORT or unix:PATH"):
        check_address(address)


@pytest.mark.parametrize("address", ["x:4150", "[::1]:4150", "127.0.0.1:1", "unix:/run/nsqd"])
def test_addresses(address: str) -> None:
    check_address(address)


@pytest.mark.parametrize(
    "options", [{"deadline_seconds": 0}, {"reconnect_seconds_first": 0}, {"reconnect_seconds_first": 2, "reconnect_seconds_max": 1}]
)
def test_patience_that_makes_no_sense(options: dict[str, Any]) -> None:
    with pytest.raises(LocalProtocolError):
        NsqOptions(**options)
