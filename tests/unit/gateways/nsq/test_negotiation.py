"""Playbooks of upgrades: in which order a gateway wants which layers, and what it says inside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.gateways.contract import HANDSHAKE_END, HANDSHAKE_TIMEOUT
from polymq.gateways.effects import Close, Effect, Pause, Resume, Send, SetTimer, TimerName, Upgrade
from polymq.protocols.nsq.encode import OK_FRAME, error_frame
from polymq.protocols.nsq.settings import NsqSettings
from polymq.wire.deflate import DeflateLayer
from polymq.wire.snappy import SnappyLayer
from polymq.wire.tls import TlsLayer
from tests.unit.gateways.nsq.test_tcp import Client, identify, publish, texts
from tests.unit.wire.tls_world import TlsClient

if TYPE_CHECKING:
    from tests.unit.core.conftest import World

SECURE = NsqSettings(tls=True)


def shaped(effects: list[Effect]) -> list[object]:
    """Leave out what an IDENTIFY causes anyway: its answer and the timers of heartbeats."""
    return [
        type(each.layer) if isinstance(each, Upgrade) else each
        for each in effects
        if not (isinstance(each, SetTimer) and each.name in {TimerName.HEARTBEAT, TimerName.READ_DEADLINE})
        and not (isinstance(each, Send) and b"max_rdy_count" in each.data)
    ]


def upgraded(client: Client) -> list[Effect]:
    effects: list[Effect] = []
    client.gateway.upgraded(effects)
    return effects


def shake_hands(effects: list[Effect]) -> TlsLayer:
    """Play a client's part until the layer that is asked for is of use."""
    (layer,) = [each.layer for each in effects if isinstance(each, Upgrade)]
    assert isinstance(layer, TlsLayer)
    peer = TlsClient()
    data = peer.take(b"")
    while not layer.established:
        layer.receive(data)
        data = peer.take(layer.send(b""))
    return layer


def wait(world: World) -> list[object]:
    return [Pause(), SetTimer(TimerName.HANDSHAKE, world.clock.monotonic_ns() + 10_000_000)]


@pytest.mark.parametrize(("name", "layer"), [("snappy", SnappyLayer), ("deflate", DeflateLayer)])
def test_compression_comes_a_moment_after_the_answer_with_its_ok_inside(single: World, name: str, layer: type) -> None:
    client = Client(single)
    effects = client.send(identify(**{name: True}) + b"what follows is compressed")
    assert isinstance(effects[0], Send)
    assert b'"%b":true' % name.encode() in effects[0].data
    assert shaped(effects) == wait(single)
    assert client.rest == b"what follows is compressed"
    assert client.gateway.need == 1
    assert shaped(client.timer(TimerName.HANDSHAKE)) == [layer, Send(OK_FRAME), Resume()]
    assert upgraded(client) == []
    assert client.gateway._session.peer.compression == name


def test_tls_is_asked_for_and_answered_inside(single: World) -> None:
    client = Client(single, settings=SECURE)
    effects = client.send(identify(tls_v1=True) + b"\x16\x03\x01")
    assert shaped(effects) == [TlsLayer]
    assert client.rest == b"\x16\x03\x01"
    assert client.gateway._session.peer.tls is None
    shake_hands(effects)
    assert upgraded(client) == [Send(OK_FRAME)]
    view = client.gateway._session.peer.tls
    assert view is not None
    assert (view.version, view.cipher_suite) == ("TLS1.3", "Unknown 4866")
    client.rest = b""
    assert texts(client.send(publish(b"t", b"x"))) == [OK_FRAME]


@pytest.mark.parametrize(("name", "layer"), [("snappy", SnappyLayer), ("deflate", DeflateLayer)])
def test_compression_inside_tls_comes_after_the_first_ok(single: World, name: str, layer: type) -> None:
    client = Client(single, settings=SECURE)
    effects = client.send(identify(tls_v1=True, **{name: True}))
    assert shaped(effects) == [TlsLayer]
    shake_hands(effects)
    assert shaped(upgraded(client)) == [Send(OK_FRAME), *wait(single)]
    assert shaped(client.timer(TimerName.HANDSHAKE)) == [layer, Send(OK_FRAME), Resume()]
    assert upgraded(client) == []


def test_without_negotiation_or_consent_nothing_is_upgraded(single: World) -> None:
    client = Client(single, settings=NsqSettings(snappy=False))
    assert shaped(client.send(identify(feature_negotiation=False, deflate=True))) == [Send(b"\0\0\0\x06\0\0\0\0OK")]
    assert shaped(client.send(identify(snappy=True, tls_v1=True))) == []


def test_the_level_of_deflate_is_the_negotiated_one(single: World) -> None:
    sizes = []
    for level in (1, 9):
        client = Client(single)
        client.send(identify(deflate=True, deflate_level=level))
        (layer,) = [each.layer for each in client.timer(TimerName.HANDSHAKE) if isinstance(each, Upgrade)]
        sizes.append(len(layer.send(b"".join(b"%d," % (number * number) for number in range(5000)))))
    assert sizes[1] < sizes[0]


def test_a_second_identify_may_agree_again_and_add_but_not_change(single: World) -> None:
    client = Client(single, settings=SECURE)
    client.send(identify(deflate=True))
    client.timer(TimerName.HANDSHAKE)
    assert shaped(client.send(identify(deflate=True))) == [Send(OK_FRAME)]
    assert shaped(client.send(identify())) == []
    refused = [Send(error_frame(b"E_IDENTIFY_FAILED IDENTIFY failed the connection has been upgraded already"))]
    effects = client.send(identify(snappy=True))
    assert shaped(effects)[:1] == refused
    assert isinstance(effects[-1], Close)
    other = Client(single, settings=SECURE)
    other.send(identify(snappy=True))
    other.timer(TimerName.HANDSHAKE)
    assert shaped(other.send(identify(tls_v1=True)))[:1] == refused
    third = Client(single, settings=SECURE)
    shake_hands(third.send(identify(tls_v1=True)))
    upgraded(third)
    assert shaped(third.send(identify(tls_v1=True, snappy=True))) == [Send(OK_FRAME), *wait(single)]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("TLS: WRONG_VERSION_NUMBER", b"tls: first record does not look like a TLS handshake"),
        ("TLS: PEER_DID_NOT_RETURN_A_CERTIFICATE", b"tls: client didn't provide a certificate"),
        ("TLS: SSLV3_ALERT_BAD_CERTIFICATE", b"remote error: tls: bad certificate"),
        ("TLS: SSLV3_ALERT_CERTIFICATE_EXPIRED", b"remote error: tls: expired certificate"),
        ("TLS: SOMETHING_ELSE", b"TLS: SOMETHING_ELSE"),
        ("EOF", b"EOF"),
        (HANDSHAKE_TIMEOUT, b"read tcp here:4150->10.0.0.7:4711: i/o timeout"),
    ],
)
def test_a_failed_handshake_is_told_in_gos_words(single: World, reason: str, words: bytes) -> None:
    client = Client(single, settings=SECURE)
    client.send(identify(tls_v1=True))
    effects: list[Effect] = []
    client.gateway.upgrade_failed(reason, effects)
    assert effects == [Send(error_frame(b"E_IDENTIFY_FAILED IDENTIFY failed " + words))]


def test_an_end_in_the_middle_of_a_handshakes_message_is_unexpected(single: World) -> None:
    client = Client(single, settings=SECURE)
    (upgrade,) = (each for each in client.send(identify(tls_v1=True)) if isinstance(each, Upgrade))
    assert upgrade.layer.receive(b"\x16\x03\x01") == b""
    effects: list[Effect] = []
    client.gateway.upgrade_failed(HANDSHAKE_END, effects)
    assert effects == [Send(error_frame(b"E_IDENTIFY_FAILED IDENTIFY failed unexpected EOF"))]


def test_where_tls_is_required_only_identify_comes_before_it(single: World) -> None:
    settings = NsqSettings(tls=True, tls_required=True)
    for command in (b"NOP", b"PUB", b"BOGUS"):
        client = Client(single, settings=settings)
        assert texts(client.send(command + b" t\n")) == [error_frame(b"E_INVALID cannot %b in current state (TLS required)" % command)]
    client = Client(single, settings=settings)
    client.send(identify())
    assert texts(client.send(b"NOP\n")) == [error_frame(b"E_INVALID cannot NOP in current state (TLS required)")]
    client = Client(single, settings=settings)
    shake_hands(client.send(identify(tls_v1=True)))
    upgraded(client)
    assert client.send(b"NOP\n") == []
