"""Layers by themselves, TLS back to back with a client, and layers under a pump."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from polymq import limits
from polymq.gateways.contract import LayerFailed
from polymq.gateways.effects import Close, Send, SendAfter, Upgrade
from polymq.server.layers import LayerStack, TlsLayer
from tests.unit.server.fakes import Gateway, Stream, Ticket, World

if TYPE_CHECKING:
    from polymq.gateways.effects import Effect
    from polymq.server.connection import Connection

# Made for these tests with: openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500
# -subj /CN=test.invalid -addext subjectAltName=DNS:test.invalid
IDENTITY = Path(__file__).with_name("self_signed.pem")


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(IDENTITY)
    return context


class TlsClient:
    """A client's end of TLS over memory."""

    def __init__(self, *, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(IDENTITY)
        context.minimum_version = context.maximum_version = version
        self.incoming = ssl.MemoryBIO()
        self.outgoing = ssl.MemoryBIO()
        self.object = context.wrap_bio(self.incoming, self.outgoing, server_hostname="test.invalid")
        self.established = False
        self.received = b""

    def take(self, data: bytes) -> bytes:
        """Handle what the server sent, return what to send back."""
        self.incoming.write(data)
        try:
            if not self.established:
                self.object.do_handshake()
                self.established = True
            while chunk := self.object.read(65536):
                self.received += chunk
        except (ssl.SSLWantReadError, ssl.SSLZeroReturnError):
            pass
        return self.outgoing.read()

    def say(self, data: bytes) -> bytes:
        self.object.write(data)
        return self.outgoing.read()


class Rot:
    """A layer that anybody can check: every byte is shifted; a zero byte breaks it, 255 ends it."""

    def __init__(self, by: int) -> None:
        self.by = by
        self.closing = False
        self.established = False

    def receive(self, data: bytes) -> bytes:
        if 0 in data:
            raise LayerFailed("zero byte")
        if 255 in data:
            self.closing = True
            data = data[: data.index(255)]
        self.established = True
        return bytes((value - self.by) % 256 for value in data)

    def send(self, data: bytes) -> bytes:
        return bytes((value + self.by) % 256 for value in data)

    def wants_write(self) -> bool:
        return False

    def close(self) -> bytes:
        return b"<end>"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_tls_back_to_back(version: ssl.TLSVersion, step: int) -> None:
    layer, client = TlsLayer(server_context()), TlsClient(version=version)
    assert layer.send(b"early ") == b""
    received, to_server = b"", client.take(b"")
    for _ in range(10):
        for at in range(0, len(to_server), step):
            received += layer.receive(to_server[at : at + step])
        to_server = client.take(layer.send(b"") if layer.wants_write() else b"")
        if layer.established and client.established:
            break
    big = bytes(range(256)) * 1000
    for data in (to_server, client.say(b"hello "), client.say(big)):
        received += layer.receive(data)
    assert received == b"hello " + big
    client.take(layer.send(big))
    assert client.received == b"early " + big
    assert not layer.closing
    assert client.take(layer.close()) is not None
    client.object.unwrap()
    layer.receive(client.outgoing.read())
    assert layer.closing


def test_tls_refuses_what_is_no_handshake() -> None:
    layer = TlsLayer(server_context())
    with pytest.raises(LayerFailed, match="TLS"):
        layer.receive(b"SUB topic channel\n" * 10)
    assert not layer.established


def test_tls_keeps_only_so_much_before_the_handshake() -> None:
    layer = TlsLayer(server_context())
    assert layer.send(bytes(64 * 1024)) == b""
    with pytest.raises(LayerFailed, match="too much output"):
        layer.send(b"x")


def test_layers_nest() -> None:
    stack = LayerStack()
    for layer in (Rot(1), Rot(10)):
        stack.push_input(layer)
        stack.push_output(layer)
    assert stack.send(b"a") == b"l"
    assert stack.receive(b"l") == b"a"
    assert stack.established


class Upgrader(Gateway):
    """`rot N` starts a layer and says so outside of it, then greets inside; other lines are echoed."""

    def __init__(self) -> None:
        super().__init__()
        self.stop_after = {b"rot 1", b"rot 2", b"tls"}
        self.on_line = self._line
        self.tickets: list[Ticket] = []

    def _line(self, line: bytes, effects: list[Effect]) -> None:
        if line.startswith(b"rot "):
            effects += [Send(b"starting\n"), Upgrade(Rot(int(line[4:]))), Send(b"started\n")]
        elif line == b"tls":
            effects += [Send(b"starting\n"), Upgrade(TlsLayer(server_context())), Send(b"started\n")]
        elif line == b"publish":
            self.tickets.append(Ticket())
            effects.append(SendAfter(self.tickets[-1], b"OK\n", lambda reason: reason.encode()))
        elif line == b"bye":
            effects += [Send(b"bye\n"), Close()]
        else:
            effects.append(Send(line + b"\n"))

    def upgrade_failed(self, reason: str, effects: list[Effect]) -> None:
        effects.append(Send(f"E_{reason}\n".encode()))


def upgrading() -> tuple[World, Stream, Upgrader, Connection]:
    world, gateway = World(), Upgrader()
    stream, _, connection = world.connect(gateway)
    return world, stream, gateway, connection


@pytest.mark.parametrize("together", [True, False])
def test_an_upgrade_starts_behind_the_command_that_asked_for_it(*, together: bool) -> None:
    world, stream, gateway, connection = upgrading()
    pieces = [b"plain\nrot 1\n", Rot(1).send(b"inside\n")]
    world.send(connection, *([b"".join(pieces)] if together else pieces))
    assert gateway.calls[1:] == [b"plain", b"rot 1", b"inside"]
    assert stream.outgoing == b"plain\nstarting\n" + Rot(1).send(b"started\ninside\n")


def test_upgrades_nest_in_one_read() -> None:
    world, stream, _, connection = upgrading()
    one, both = Rot(1), Rot(3)
    world.send(connection, b"rot 1\n" + one.send(b"rot 2\n") + both.send(b"deep\n"))
    assert stream.outgoing == b"starting\n" + one.send(b"started\nstarting\n") + both.send(b"started\ndeep\n")


def test_an_upgrade_waits_for_the_commits_before_it() -> None:
    world, stream, gateway, connection = upgrading()
    world.send(connection, b"publish\nrot 1\n" + Rot(1).send(b"publish\ninside\n"))
    assert stream.outgoing == b""
    gateway.tickets[1].resolve()
    world.turn()
    assert stream.outgoing == b""
    gateway.tickets[0].resolve()
    world.turn()
    assert stream.outgoing == b"OK\nstarting\n" + Rot(1).send(b"started\nOK\ninside\n")


def test_input_inside_a_layer_comes_in_any_pieces() -> None:
    world, _, gateway, connection = upgrading()
    world.send(connection, b"rot 1\n")
    data = Rot(1).send(b"one\ntwo\n")
    world.send(connection, *[data[at : at + 1] for at in range(len(data))])
    assert gateway.calls[2:] == [b"one", b"two"]


def test_unconsumed_input_has_a_limit_inside_a_layer_too() -> None:
    world, stream, _, connection = upgrading()
    world.send(connection, b"rot 1\n")
    stream.incoming.append(b"x" * (limits.PENDING_INPUT_SIZE_BYTES_MAX + 1))
    while stream.incoming:
        world.pump.readable(connection)
    assert stream.closed()


def test_a_layer_that_fails_at_once_is_said_without_it() -> None:
    world, stream, gateway, connection = upgrading()
    world.send(connection, b"rot 1\n\0")
    assert stream.outgoing == b"starting\nE_zero byte\n"
    assert stream.output_ended
    assert gateway.calls[-1] == "ended"


def test_a_layer_that_fails_later_breaks_the_connection() -> None:
    world, stream, gateway, connection = upgrading()
    world.send(connection, b"rot 1\n", Rot(1).send(b"fine\n"))
    before = bytes(stream.outgoing)
    world.send(connection, b"\0")
    assert stream.closed()
    assert stream.outgoing == before
    assert gateway.calls[-1] == "ended"


def test_closing_ends_the_layer() -> None:
    world, stream, _, connection = upgrading()
    world.send(connection, b"rot 1\n", Rot(1).send(b"bye\n"))
    assert stream.outgoing.endswith(Rot(1).send(b"bye\n") + b"<end>")
    assert stream.output_ended


def test_the_peer_can_end_the_layer() -> None:
    world, stream, gateway, connection = upgrading()
    world.send(connection, b"rot 1\n", Rot(1).send(b"last\n") + b"\xff")
    assert gateway.calls[2] == b"last"
    assert gateway.calls[-2:] == ["eof", "ended"]
    assert stream.output_ended


def test_much_output_goes_through_a_layer_bit_by_bit() -> None:
    world, stream, gateway, connection = upgrading()
    world.send(connection, b"rot 1\n")
    stream.room = 0
    size = 2 * limits.OUTBOX_SIZE_BYTES_HIGH
    for _ in range(4):
        world.deliver(gateway, b"a" * (size // 4))
        world.turn()
    assert gateway.calls.count("full") == 1
    del stream.outgoing[:]
    while connection.watched[1]:
        stream.room = 100_000
        world.pump.writable(connection)
        world.turn()
    assert stream.outgoing == b"b" * size
    assert gateway.calls.count("writable") == 1


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_tls_under_a_pump(version: ssl.TLSVersion) -> None:
    world, stream, _, connection = upgrading()
    client = TlsClient(version=version)
    world.send(connection, b"tls\n" + client.take(b""))
    assert stream.outgoing.startswith(b"starting\n")
    del stream.outgoing[: len(b"starting\n")]
    for _ in range(5):
        data, stream.outgoing = bytes(stream.outgoing), bytearray()
        answer = client.take(data)
        if answer:
            world.send(connection, answer)
    assert client.received == b"started\n"
    world.send(connection, client.say(b"hello\n"))
    client.take(bytes(stream.outgoing))
    assert client.received == b"started\nhello\n"


def test_a_failed_handshake_is_said_in_plain_text() -> None:
    world, stream, _, connection = upgrading()
    world.send(connection, b"tls\n" + b"NOP\n" * 20)
    assert stream.outgoing.startswith(b"starting\n")
    assert b"E_TLS" in stream.outgoing
    assert stream.output_ended
