from __future__ import annotations

from polymq.gateways.effects import Effect, SetTimer
from polymq.gateways.nats.pings import PingPolicy, Pings
from polymq.protocols.nats.settings import NatsSettings

SECOND_NS = 1_000_000_000


class Clock:
    now_ns = 100 * SECOND_NS

    def monotonic_ns(self) -> int:
        return self.now_ns


def due_in(effects: list[Effect], clock: Clock) -> float:
    """In how many seconds the timer comes up that was set last."""
    timer = effects[-1]
    assert isinstance(timer, SetTimer)
    assert timer.due_ns is not None
    return (timer.due_ns - clock.now_ns) / SECOND_NS


def test_of_clients() -> None:
    assert PingPolicy.of_clients(NatsSettings()) == PingPolicy(2 * SECOND_NS, 120 * SECOND_NS, 2, always=False)
    assert PingPolicy.of_clients(NatsSettings(ping_interval_ns=SECOND_NS)).first_ns == SECOND_NS


def test_the_first_comes_soon_once_it_is_known_who_is_there() -> None:
    clock, effects = Clock(), list[Effect]()
    pings = Pings(PingPolicy.of_clients(NatsSettings()), clock.monotonic_ns)
    pings.wait(effects)
    assert due_in(effects, clock) == 120
    clock.now_ns += 3_000_000
    pings.start(effects)
    assert due_in(effects, clock) == 2
    assert pings.rtt_ns == 3_000_000


def test_who_is_always_pinged() -> None:
    clock, effects = Clock(), list[Effect]()
    pings = Pings(PingPolicy(SECOND_NS, 30 * SECOND_NS, 2, always=True), clock.monotonic_ns)
    pings.start(effects)
    for _ in range(4):
        clock.now_ns += 30 * SECOND_NS
        pings.heard()
        assert pings.due(effects) is True
        clock.now_ns += 1_000
        pings.answered()
        assert pings.rtt_ns == 1_000
    assert pings.due(effects) is True
    assert pings.due(effects) is True
    assert pings.due(effects) is None


def test_pongs_come_in_the_order_of_pings_whatever_they_were_for() -> None:
    clock, effects = Clock(), list[Effect]()
    pings = Pings(PingPolicy.of_clients(NatsSettings()), clock.monotonic_ns)
    pings.answered()
    assert pings.answered_count == 0  # nobody has asked
    assert pings.due(effects) is True
    assert [pings.mark(), pings.mark()] == [2, 3]
    assert pings.ask() is False
    found = []
    for _ in range(5):
        pings.answered()
        found.append(pings.answered_count)
    assert found == [1, 2, 3, 3, 3]
