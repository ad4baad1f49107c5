"""Waiting for records: one look at a log for everybody, and who has something is rung for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq import limits
from polymq.admin import records
from polymq.admin.door import Door
from polymq.admin.tails import Tails
from tests.unit.admin.door_world import DoorWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.gateways.http.gateway import HttpGateway
    from tests.unit.gateways.http.harness import Wire

MS = 1_000_000


class TailWorld(DoorWorld):
    """A door whose alarms the test rings: topics a and b with a record each."""

    def __init__(self) -> None:
        super().__init__()
        self.alarms: list[tuple[int, Callable[[], None]]] = []
        self.tails = Tails(lambda due_ns, function: self.alarms.append((due_ns, function)), self.clock)
        self.door = Door(self.session, self.clock, self.broker.statistics, self.tails)
        for topic in ("a", "b"):
            self.publish(topic, b"old")
        self.turn()

    def waiting(self, topic: str, wait_ms: int = 30_000) -> Wire[Door]:
        return self.wire(f"/v1/topics/{topic}/0/records?offset=1&wait_ms={wait_ms}")

    def look(self) -> None:
        """Pass the time until the next look."""
        ((due_ns, function),) = self.alarms
        self.alarms.clear()
        self.clock.now_ns = max(self.clock.now_ns, due_ns)
        function()


@pytest.fixture
def world() -> TailWorld:
    return TailWorld()


def test_who_waits_for_what_has_come_is_rung_for(world: TailWorld) -> None:
    both, other = [world.waiting("a"), world.waiting("a")], world.waiting("b")
    world.look()
    assert [wire.rings for wire in (*both, other)] == [0, 0, 0]
    world.publish("a", b"new")
    world.turn()
    world.look()
    assert [wire.rings for wire in (*both, other)] == [1, 1, 0]
    for wire in both:
        wire.wake()
        assert wire.output.endswith(b"new")
    assert len(world.alarms) == 1, "somebody waits still"


def test_many_that_wait_cost_one_look(world: TailWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[HttpGateway[Door]] = []
    answer = records._answer

    def counted(reading: records.Reading, door: Door) -> object:
        answers.append(reading.connection)
        return answer(reading, door)

    monkeypatch.setattr(records, "_answer", counted)
    wires = [world.waiting("a") for _ in range(50)]
    for _ in range(20):
        world.look()
    assert len(answers) == len(wires), "each has looked for itself once, at the beginning"
    assert len(world.alarms) == 1


def test_nobody_looks_when_nobody_waits(world: TailWorld) -> None:
    wires = [world.waiting("a", wait_ms=5), world.waiting("a")]
    wires[0].wait(5 * MS)
    assert b"Content-Length: 0\r\n" in wires[0].output
    wires[1].gateway.ended()
    world.look()
    assert world.alarms == []
    assert not world.tails._tails


def test_what_else_ends_a_wait_is_seen_soon(world: TailWorld) -> None:
    wire = world.waiting("a")
    world.session.delete_topic("a")
    wire.wait(limits.HTTP_NET_INTERVAL_NS)
    assert wire.output.startswith(b"HTTP/1.1 404 Not Found\r\n")
    assert not world.tails._tails


def test_damage_ends_a_wait(world: TailWorld) -> None:
    wire = world.waiting("a")
    world.log().failed = "damaged"
    world.look()
    assert wire.rings == 1
    wire.wake()
    assert wire.output != b""
