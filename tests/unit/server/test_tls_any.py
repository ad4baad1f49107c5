"""TLS with any certificate is tested beside the other policies, in test_tls.py; here is what only it can do wrong."""

from __future__ import annotations

import contextlib
import ssl
from typing import TYPE_CHECKING

import pytest

from polymq.server.tls_any import AnyCertificateContext
from polymq.wire.tls import TlsLayer
from tests.unit.wire.authority import Authority
from tests.unit.wire.tls_world import IDENTITY

if TYPE_CHECKING:
    from pathlib import Path


def test_nothing_is_known_before_the_handshake() -> None:
    layer = TlsLayer(AnyCertificateContext(IDENTITY, IDENTITY, only_newest=False))
    assert (layer.cipher_suite, layer.peer_common_name, layer.established) == ("", "", False)
    assert layer.close() == b""


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_not_resumed_without_its_certificate(version: ssl.TLSVersion, tmp_path: Path) -> None:
    context = AnyCertificateContext(IDENTITY, IDENTITY, only_newest=False)
    client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client_context.load_verify_locations(IDENTITY)
    client_context.load_cert_chain(Authority(tmp_path).issue("somebody"))
    client_context.maximum_version = version
    session = None
    for _ in range(2):
        layer = TlsLayer(context)
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context.wrap_bio(incoming, outgoing, server_hostname="test.invalid", session=session)
        for _ in range(4):
            with contextlib.suppress(ssl.SSLWantReadError):
                client.do_handshake()
            layer.receive(outgoing.read())
            incoming.write(layer.send(b""))
        incoming.write(layer.send(b"x"))
        assert client.read(10) == b"x"
        assert layer.peer_common_name == "somebody"
        session = client.session
