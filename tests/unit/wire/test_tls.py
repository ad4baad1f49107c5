"""TLS back to back with a client of the standard library's."""

from __future__ import annotations

import ssl

import pytest

from polymq.wire.layers import LayerFailed
from polymq.wire.tls import TlsLayer
from tests.unit.wire.tls_world import TlsClient, server_context


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
