"""TLS and compression: what each client library can do of them, our own client, and connections that go wrong."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import struct
import time
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from polymq.clients.nsq import NsqConsumer, NsqOptions, NsqProducer, NsqTls
from polymq.errors import DeadlineExceeded, Refusal
from tests.interop.conftest import chosen_kinds
from tests.interop.jobs import CLIENTS, Client, Step
from tests.interop.raw import Raw
from tests.interop.servers import Running, running
from tests.interop.test_clients import bodies_of_all_kinds, finished, numbered
from tests.unit.wire.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MODES = ("snappy", "deflate", "tls", "tls+snappy", "tls+deflate")
# pynsq hangs on nsqd now and then when it asks for compression (docs/CLIENTS.md); on polymq it must not.
RACES = {"pynsq"}


def wanted(mode: str, authority: Authority) -> dict[str, Any]:
    """A job's options for a mode."""
    parts = mode.split("+")
    root = str(authority.certificate) if "tls" in parts else ""
    return {"tls_root_file": root, "snappy": "snappy" in parts, "deflate": "deflate" in parts}


def options_for(mode: str, authority: Authority, **more: Any) -> NsqOptions:
    """Our client's options for a mode."""
    parts = mode.split("+")
    tls = NsqTls(root_file=authority.certificate) if "tls" in parts else None
    return NsqOptions(deadline_seconds=10, tls=tls, snappy="snappy" in parts, deflate="deflate" in parts, **more)


def combinations(action: str) -> list[Any]:
    """The servers and the clients with the modes that they can do, but for what is nsqd's own trouble."""
    return [
        pytest.param(kind, client, mode, id=f"{kind}-{client.name}-{mode}")
        for kind in chosen_kinds()
        for client in CLIENTS
        for mode in MODES
        if not any(part in client.cannot or f"{action} {part}" in client.cannot for part in mode.split("+"))
        and not (kind == "nsqd" and client.name in RACES and mode != "tls")
    ]


@pytest.mark.cell
@pytest.mark.parametrize(("secure", "each", "mode"), combinations("publish"), indirect=["secure"])
def test_publishing(secure: Running, each: Client, mode: str, topic: str, authority: Authority) -> None:
    bodies = bodies_of_all_kinds()
    with Raw(secure.tcp) as raw:
        raw.subscribe(topic, "ch", ready=100)
        steps = [*(Step([body]) for body in bodies), Step(numbered(500))]
        assert each.publish(secure.tcp, topic, steps, **wanted(mode, authority)) == len(bodies) + 500
        assert [message.body for message in raw.take(len(bodies) + 500)] == bodies + numbered(500)


@pytest.mark.cell
@pytest.mark.parametrize(("secure", "each", "mode"), combinations("consume"), indirect=["secure"])
def test_consuming(secure: Running, each: Client, mode: str, topic: str, authority: Authority) -> None:
    bodies = bodies_of_all_kinds() + numbered(1000)
    if each.name == "pynsq" and "snappy" in mode:
        # It gives up when a read has no whole chunk in it, which happens with any server when messages are large.
        bodies = [body for body in bodies if len(body) < 1000]
    with Raw(secure.tcp) as raw:
        raw.subscribe(topic, "ch")
        raw.publish(topic, bodies)
    deliveries = each.consume(secure.tcp, topic, "ch", len(bodies), max_in_flight=50, **wanted(mode, authority))
    assert Counter(finished(deliveries)) == Counter(bodies)
    secure.settled(topic, "ch")


@pytest.mark.cell(client="polymq.clients.nsq")
@pytest.mark.parametrize("mode", ["plain", *MODES])
def test_our_client(secure: Running, mode: str, topic: str, authority: Authority) -> None:
    async def go() -> dict[str, Any]:
        bodies = bodies_of_all_kinds() + numbered(2000)
        options = options_for(mode, authority, deflate_level=3, message_timeout_ms=5000)
        async with (
            NsqProducer(secure.tcp, options) as producer,
            NsqConsumer(secure.tcp, topic, "ch", options, max_in_flight=300) as consumer,
        ):
            await asyncio.gather(*(producer.publish(topic, body) for body in bodies[:50]))
            await producer.publish_many(topic, bodies[50:])
            seen: list[bytes] = []
            async for message in consumer:
                seen.append(message.body)
                message.settle()
                if len(seen) == len(bodies):
                    break
            await consumer.flush()
            assert Counter(seen) == Counter(bodies)
            (client,) = secure.channel(topic, "ch")["clients"]
            return dict(client)

    client = asyncio.run(go())
    assert (client["snappy"], client["deflate"], client["tls"]) == ("snappy" in mode, "deflate" in mode, "tls" in mode)
    if "tls" in mode:
        assert client["tls_version"] == "TLS1.3"
        assert client["tls_cipher_suite"] in {"Unknown 4865", "Unknown 4866", "Unknown 4867"}


def wait_until_empty(server: Running, topic: str) -> None:
    """What a sample leaves out is gone, and the rest is on its way."""
    while server.channel(topic, "ch")["depth"]:
        time.sleep(0.02)


def test_our_client_takes_a_sample(secure: Running, topic: str) -> None:
    async def go() -> int:
        options = NsqOptions(sample_percent=20)
        async with NsqProducer(secure.tcp) as producer, NsqConsumer(secure.tcp, topic, "ch", options, max_in_flight=2500) as consumer:
            await producer.publish_many(topic, numbered(5000))
            await asyncio.to_thread(wait_until_empty, secure, topic)
            return sum(len(batch) for batch in [await anext(consumer.batches())])

    assert 0 < asyncio.run(go()) < 1500


def test_our_client_is_careful_with_whom_it_talks(secure: Running, authority: Authority) -> None:
    async def go(tls: NsqTls, seconds: float = 1.0) -> None:
        async with NsqProducer(secure.tcp, NsqOptions(tls=tls, deadline_seconds=seconds)) as producer:
            await producer.publish("careful", b"x")

    with pytest.raises(DeadlineExceeded, match="CERTIFICATE_VERIFY_FAILED"):
        asyncio.run(go(NsqTls()))
    with pytest.raises(DeadlineExceeded, match="CERTIFICATE_VERIFY_FAILED"):
        asyncio.run(go(NsqTls(root_file=authority.certificate, server_name="somebody.else")))
    asyncio.run(go(NsqTls(insecure=True), 10))


def test_our_client_insists_on_tls(server: Running) -> None:
    async def go() -> None:
        async with NsqProducer(server.tcp, NsqOptions(tls=NsqTls())):
            pass

    with pytest.raises(Refusal, match="does not offer TLS"):
        asyncio.run(go())


@pytest.fixture(scope="module", params=chosen_kinds())
def strict(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Any]:
    """Start servers with a policy for certificates."""
    certificate = str(authority.issue("localhost"))
    started: dict[str, Running] = {}
    with ExitStack() as stack:

        def start(policy: str) -> Running:
            if policy not in started:
                options = {
                    "tls_cert": certificate,
                    "tls_key": certificate,
                    "tls_root_ca_file": str(authority.certificate),
                    "tls_client_auth_policy": policy,
                }
                folder = tmp_path_factory.mktemp(f"{policy}-{request.param}")
                # HTTP is closed as well, so that is not how one sees that it has started.
                started[policy] = stack.enter_context(running(request.param, folder, options={**options, "tls_required": "tcp-https"}))
            return started[policy]

        yield start


def talk(server: Running, certificate: Path | None, authority: Authority) -> bytes:
    """Shake hands after IDENTIFY and return the first frame inside, or what the failure says."""
    context = ssl.create_default_context(cafile=str(authority.certificate))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if certificate is not None:
        context.load_cert_chain(certificate)
    host, _, port = server.tcp.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as plain:
        identify(plain, tls_v1=True)
        try:
            with context.wrap_socket(plain, server_hostname="localhost") as inside:
                return inside.recv(100)[8:]
        except OSError as error:
            return str(error).encode()


def identify(connection: socket.socket, **wishes: object) -> dict[str, Any]:
    body = json.dumps({"feature_negotiation": True, **wishes}).encode()
    connection.sendall(b"  V2IDENTIFY\n" + struct.pack(">I", len(body)) + body)
    (size,) = struct.unpack(">I", connection.recv(4, socket.MSG_WAITALL))
    return dict(json.loads(connection.recv(size, socket.MSG_WAITALL)[4:]))


def test_policies_for_clients_certificates(strict: Any, authority: Authority, tmp_path: Path) -> None:
    known, stranger, expired = authority.issue("known"), Authority(tmp_path, "stranger").issue("unknown"), authority.issue("old", days=-1)
    anybody, verified = strict("require"), strict("require-verify")
    assert [talk(anybody, each, authority) for each in (known, stranger, expired)] == [b"OK"] * 3
    assert talk(verified, known, authority) == b"OK"
    for server, certificate in ((anybody, None), (verified, None), (verified, stranger), (verified, expired)):
        said = talk(server, certificate, authority)
        assert b"alert" in said, said
    for server in (anybody, verified):
        with Raw(server.tcp) as raw:
            raw.send(b"NOP\n")
            assert raw.frame() == (1, b"E_INVALID cannot NOP in current state (TLS required)")


def test_plain_text_instead_of_a_handshake(secure: Running) -> None:
    host, _, port = secure.tcp.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        assert identify(connection, tls_v1=True)["tls_v1"] is True
        connection.sendall(b"SUB topic channel\n" * 3)
        said = b""
        while piece := connection.recv(1000):
            said += piece
        assert said.endswith(b"E_IDENTIFY_FAILED IDENTIFY failed tls: first record does not look like a TLS handshake")


def test_a_handshake_has_five_seconds(secure: Running) -> None:
    host, _, port = secure.tcp.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        identify(connection, tls_v1=True)
        said = connection.recv(1000)
        mine, its = "{}:{}".format(*connection.getsockname()), secure.tcp
        assert said[8:] == f"E_IDENTIFY_FAILED IDENTIFY failed read tcp {its}->{mine}: i/o timeout".encode()
