from __future__ import annotations

from typing import TYPE_CHECKING

from polymq.config_values import TcpAddress
from polymq.server.redial import Redial, RedialSettings
from tests.unit.server.fake_dialer import FakeDialer
from tests.unit.server.fakes import Gateway, World

if TYPE_CHECKING:
    import pytest

    from polymq.gateways.contract import Peer

SECOND_NS = 1_000_000_000


class Caller(Gateway):
    """Says to its redial how it goes."""

    redial: Redial

    def ended(self) -> None:
        super().ended()
        self.redial.lost("ended")


class Story:
    def __init__(self) -> None:
        self.world = World()
        self.dialer = FakeDialer(self.world.pump)
        self.redial = Redial(
            self.dialer,
            self.world.pump,
            self.world.clock,
            TcpAddress("lookup.invalid", 4160),
            self.gateway,
            settings=RedialSettings(timeout_ns=7, pause_ns=SECOND_NS, pause_ns_max=4 * SECOND_NS),
        )

    def gateway(self, peer: Peer) -> Caller:
        gateway = Caller()
        gateway.redial = self.redial
        return gateway

    def pause(self) -> int:
        """Let time pass until it dials again, and say how long that was, in seconds."""
        before_ns = self.world.clock.now_ns
        while not self.dialer.open:
            self.world.pass_time(SECOND_NS)
        return (self.world.clock.now_ns - before_ns) // SECOND_NS


def test_pauses_grow_until_the_peer_is_good() -> None:
    story = Story()
    story.redial.start()
    assert story.dialer.dials[0].timeout_ns == 7
    pauses = []
    for _ in range(5):
        story.dialer.open[0].fail()
        pauses.append(story.pause())
    assert pauses == [1, 2, 4, 4, 4]
    _, connection = story.dialer.open[0].connect()
    story.world.pump._drop(connection, "reset")
    assert story.pause() == 4, "a connection alone does not make it good"
    _, connection = story.dialer.open[0].connect()
    story.redial.settle()
    story.world.pump._drop(connection, "reset")
    assert story.pause() == 1


def test_a_failure_is_logged_when_it_begins_and_ends(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    story = Story()
    story.redial.start()
    for reason in ("refused", "refused", "no route", "no route"):
        story.dialer.open[0].fail(reason)
        story.pause()
    story.dialer.open[0].connect()
    story.redial.settle()
    story.redial.settle()
    assert [record.getMessage() for record in caplog.records] == [
        "lookup.invalid:4160: refused; trying again",
        "lookup.invalid:4160: no route; trying again",
        "lookup.invalid:4160: connected again",
    ]


def test_it_stops_in_every_state() -> None:
    dialling = Story()
    dialling.redial.start()
    dialling.redial.stop()
    assert dialling.dialer.dials[0].cancelled

    pausing = Story()
    pausing.redial.start()
    pausing.dialer.open[0].fail()
    pausing.redial.stop()
    pausing.world.pass_time(60 * SECOND_NS)
    assert len(pausing.dialer.dials) == 1

    connected = Story()
    connected.redial.start()
    _, connection = connected.dialer.open[0].connect()
    connected.redial.stop()
    connected.world.pump._drop(connection, "reset")
    connected.world.pass_time(60 * SECOND_NS)
    assert len(connected.dialer.dials) == 1
