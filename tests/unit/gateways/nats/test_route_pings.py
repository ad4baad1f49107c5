"""PING on routes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.gateways.effects import SetTimer, TimerName
from polymq.gateways.nats.pings import PingPolicy, Pings
from polymq.protocols.nats.settings import NatsSettings
from tests.unit.gateways.nats.route_world import SECOND_NS, Clock

if TYPE_CHECKING:
    from polymq.gateways.effects import Effect

STRICT = PingPolicy(1 * SECOND_NS, 10 * SECOND_NS, 2, always=True)


class Peer:
    """A peer, and the timer that is set for it."""

    def __init__(self, policy: PingPolicy) -> None:
        self.clock = Clock()
        self.pings = Pings(policy, self.clock.monotonic_ns)
        self.effects: list[Effect] = []

    def due_s(self) -> float:
        """In how many seconds the timer comes up."""
        effect = self.effects[-1]
        assert isinstance(effect, SetTimer)
        assert effect.name is TimerName.HEARTBEAT
        assert effect.due_ns is not None
        return (effect.due_ns - self.clock.now_ns) / SECOND_NS

    def wait(self) -> bool | None:
        """Let the timer come up."""
        self.pass_s(self.due_s())
        return self.pings.due(self.effects)

    def pass_s(self, seconds: float) -> None:
        self.clock.now_ns += int(seconds * SECOND_NS)


def test_policies() -> None:
    settings = NatsSettings(ping_interval_ns=120 * SECOND_NS, pings_unanswered_max=3)
    assert PingPolicy.of_routes(settings, interval_ns=None, unanswered_max=None) == PingPolicy(SECOND_NS, 30 * SECOND_NS, 3, always=True)
    assert PingPolicy.of_routes(settings, interval_ns=99 * SECOND_NS, unanswered_max=1) == PingPolicy(
        SECOND_NS, 99 * SECOND_NS, 1, always=True
    )
    quick = NatsSettings(ping_interval_ns=SECOND_NS // 2)
    assert PingPolicy.of_routes(quick, interval_ns=None, unanswered_max=None).first_ns == SECOND_NS // 2


def test_who_is_silent_is_given_up() -> None:
    peer = Peer(STRICT)
    peer.pings.start(peer.effects)
    assert [peer.wait(), peer.wait(), peer.wait()] == [True, True, None]


def test_who_answers_is_not() -> None:
    peer = Peer(STRICT)
    peer.pings.start(peer.effects)
    for _ in range(5):
        assert peer.wait() is True
        peer.pass_s(0.25)
        peer.pings.answered()
        assert peer.pings.rtt_ns == SECOND_NS // 4


def test_a_server_is_pinged_whatever_it_says() -> None:
    peer = Peer(STRICT)
    peer.pings.start(peer.effects)
    for _ in range(2):
        peer.pings.heard()
        assert peer.wait() is True
    peer.pings.heard()
    assert peer.wait() is None


def test_a_ping_out_of_order() -> None:
    peer = Peer(STRICT)
    peer.pings.start(peer.effects)
    assert peer.pings.silent_ns() == 0
    peer.pass_s(0.5)
    assert peer.pings.ask()
    assert not peer.pings.ask()
    peer.pass_s(1.5)
    assert peer.pings.silent_ns() == 1.5 * SECOND_NS
    peer.pings.heard()
    peer.pass_s(1)
    assert peer.pings.silent_ns() == SECOND_NS
    # The next one, in its order, changes nothing about that.
    assert peer.pings.due(peer.effects) is True
    assert peer.pings.silent_ns() == SECOND_NS
    peer.pings.answered()
    assert peer.pings.silent_ns() == 0
    assert peer.pings.rtt_ns == 0
