from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.gateways.contract import BaseGateway, Gateway, Peer
from polymq.gateways.effects import Close
from polymq.gateways.outbox import Outbox

if TYPE_CHECKING:
    from polymq.gateways.effects import Effect


class Deaf(BaseGateway):
    def feed(self, view: memoryview, effects: list[Effect]) -> int:
        return len(view)


def test_the_defaults_make_a_gateway() -> None:
    gateway: Gateway = Deaf()
    effects: list[Effect] = []
    gateway.opened(effects)
    gateway.full(effects)
    gateway.writable(effects)
    gateway.answered(1, None, effects)
    gateway.eof(effects)
    gateway.upgrade_failed("reason", effects)
    gateway.woken(effects)
    gateway.ended()
    assert effects == []


@pytest.mark.parametrize(
    ("peer", "address", "remote_host"),
    [
        (Peer("127.0.0.1", 1), "127.0.0.1:1", "127.0.0.1"),
        (Peer("::1", 2), "[::1]:2", "::1"),
        (Peer("/run/nsqd", 0), "/run/nsqd:0", ""),
    ],
)
def test_how_peers_are_shown(peer: Peer, address: str, remote_host: str) -> None:
    assert (peer.address, peer.remote_host) == (address, remote_host)


def test_a_subscription_that_is_gone_rings_and_then_closes() -> None:
    gateway, rung = Deaf(), []
    gateway.ring = lambda: rung.append(1)
    gateway.closed("topic deleted")
    assert rung == [1]
    effects: list[Effect] = []
    gateway.woken(effects)
    assert effects == [Close("topic deleted")]


def test_ringing_before_there_is_a_pump_is_harmless() -> None:
    Deaf().closed("early")


def test_stopping_closes() -> None:
    effects: list[Effect] = []
    Deaf().stopping(effects)
    assert effects == [Close("shutting down")]


def test_a_delivery_to_who_does_not_subscribe_is_our_bug() -> None:
    with pytest.raises(AssertionError):
        Deaf().deliver(None, Outbox())  # type: ignore[arg-type]  # any delivery
