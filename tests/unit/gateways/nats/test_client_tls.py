"""When a client's connection is encrypted, and when it hears INFO; the times are nats-server's."""

from __future__ import annotations

import json
from typing import Any

from polymq.gateways.effects import TimerName
from polymq.gateways.nats.client import NatsClient
from polymq.gateways.nats.house import ClientTls
from polymq.wire.tls import TlsLayer
from tests.unit.gateways.nats.client_world import Guest, NatsWorld
from tests.unit.wire.tls_world import server_context

SECOND_NS = 1_000_000_000
HELLO = b"\x16\x03\x01\x02\x00"


def world(**tls: Any) -> NatsWorld:
    context = server_context()
    return NatsWorld(tls=ClientTls(lambda: TlsLayer(context), **tls))


def come(**tls: Any) -> tuple[NatsWorld, Guest]:
    made = world(**tls)
    return made, made.guest()


def is_info(said: bytes) -> bool:
    return said.startswith(b"INFO ") and json.loads(said[5:])["server_id"] == "N"


def test_where_it_is_required_info_comes_first_and_then_a_handshake() -> None:
    _, guest = come(timeout_ns=3)
    assert is_info(guest.heard())
    assert len(guest.layers) == 1
    assert guest.gateway.tls is guest.layers[0]
    assert TimerName.HEARTBEAT not in guest.timers, "nothing is counted before the handshake is over"
    guest.call(guest.gateway.upgraded)
    assert guest.heard() == b""
    assert guest.say(b"PING\r\n") == b"PONG\r\n"


def test_where_it_is_not_the_first_byte_decides() -> None:
    _, guest = come(required=False, optional=True)
    assert is_info(guest.heard())
    assert guest.layers == []
    assert guest.say(b"PING\r\n") == b"PONG\r\n"
    assert guest.say(HELLO) == b"-ERR 'Unknown Protocol Operation'\r\n", "later it is a byte like any other"
    _, guest = come(required=False, optional=True)
    guest.heard()
    assert guest.say(HELLO) == b""
    assert len(guest.layers) == 1


def test_a_handshake_may_come_before_info() -> None:
    _, guest = come(first=True)
    assert guest.heard() == b""
    assert len(guest.layers) == 1
    guest.call(guest.gateway.upgraded)
    assert is_info(guest.heard())


def test_who_waits_for_info_gets_it_after_a_while() -> None:
    made, guest = come(first=True, fallback_ns=SECOND_NS)
    assert (guest.heard(), guest.layers) == (b"", [])
    made.pass_time(SECOND_NS)
    assert is_info(guest.heard())
    assert len(guest.layers) == 1
    guest.call(guest.gateway.upgraded)
    assert guest.heard() == b"", "it has had its INFO"
    assert guest.say(b"PING\r\n") == b"PONG\r\n"


def test_who_does_not_wait_is_taken_to_shake_hands_whatever_he_says() -> None:
    for said in (HELLO, b"CONNECT {}\r\n"):
        made, guest = come(first=True, fallback_ns=SECOND_NS)
        assert guest.say(said) == b""
        assert len(guest.layers) == 1
        made.pass_time(2 * SECOND_NS)
        assert guest.heard() == b"", "no INFO in plain any more"
        guest.call(guest.gateway.upgraded)
        assert is_info(guest.heard())


def test_a_handshake_that_fails_is_not_talked_about() -> None:
    _, guest = come()
    guest.heard()
    guest.call(lambda effects: guest.gateway.upgrade_failed("i/o timeout", effects))
    assert guest.heard() == b""


def test_the_time_of_a_handshake_is_the_configurations() -> None:
    made = world(timeout_ns=7)
    effects: list[Any] = []
    NatsClient(made.house, Guest(made, made.guest().gateway.peer).gateway.peer).opened(effects)
    assert [effect.timeout_ns for effect in effects if hasattr(effect, "layer")] == [7]
