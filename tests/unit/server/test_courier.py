"""Live messages through the pump: who is served in which order, and what happens when somebody fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.core.interest.targets import Target
from polymq.core.live import Taker
from polymq.wire.live import LiveBatch, LiveMessage
from tests.unit.gateways.nats.harness import PLAIN, World

if TYPE_CHECKING:
    from collections.abc import Callable


class Within(Taker):
    """Something within the broker that takes messages, and publishes again when everybody has been served."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.taken: list[bytes] = []
        self.publishes = True

    def take(self, batch: LiveBatch, target: Target) -> Callable[[], None] | None:
        self.taken += [batch.messages()[target.pairs[2 * index]].payload for index in range(target.pair_count)]
        return self.publish if self.publishes else None

    def publish(self) -> None:
        self.publishes = False
        self.world.broker.live.space().publish(LiveBatch.of([LiveMessage(b"a", b"again")]))


@pytest.fixture
def world() -> World:
    return World()


def test_who_takes_within_the_broker_goes_on_when_everybody_is_served(world: World) -> None:
    within = Within(world)
    world.broker.live.space().listen(b"a", Target(within), tag=0)
    listener, publisher = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN)
    publisher.send(b"PUB a 5\r\nfirst\r\nPUB a 6\r\nsecond\r\n")
    assert within.taken == [b"first", b"second", b"again"]
    assert listener.hear() == b"MSG a 1 5\r\nfirst\r\nMSG a 1 6\r\nsecond\r\nMSG a 1 5\r\nagain\r\n"


def test_a_gateway_that_fails_costs_the_others_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    failing, listener, publisher = (world.connect(PLAIN + b"SUB a 1\r\n") for _ in range(3))

    def fail(*_: object) -> None:
        raise ValueError

    monkeypatch.setattr(failing.client, "deliver_live", fail)
    assert publisher.say(b"PUB a 1\r\nx\r\n") == b"MSG a 1 1\r\nx\r\n"
    assert listener.hear() == b"MSG a 1 1\r\nx\r\n"
    assert failing.closed


def fail(*_: object) -> None:
    raise ValueError


def test_something_within_the_broker_that_fails_costs_nobody_else_anything(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failing, within = Within(world), Within(world)
    for each in (failing, within):
        world.broker.live.space().listen(b"a", Target(each), tag=0)
    listener, publisher = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN)
    monkeypatch.setattr(failing, "take", fail)
    publisher.send(b"PUB a 1\r\nx\r\n")
    assert listener.hear() == b"MSG a 1 1\r\nx\r\nMSG a 1 5\r\nagain\r\n"
    assert (within.taken, failing.taken) == ([b"x", b"again"], [])
    within.publishes = True
    monkeypatch.setattr(within, "publish", fail)
    publisher.send(b"PUB a 1\r\ny\r\n")
    assert not publisher.closed
    assert listener.hear() == b"MSG a 1 1\r\ny\r\n"
    assert sum("internal error" in record.getMessage() for record in caplog.records) == 4


def test_what_was_said_before_fails_and_only_that_connection_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher, listener = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN + b"SUB a 1\r\n")
    monkeypatch.setattr("polymq.gateways.outbox.Outbox.write", fail)
    publisher.send(b"PING\r\nPUB a 1\r\nx\r\n")
    assert publisher.closed
    assert listener.hear() == b"MSG a 1 1\r\nx\r\n"


def test_nobody_is_left_with_pairs_of_a_batch_that_is_gone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    listeners, publisher = [world.connect(PLAIN + b"SUB a 1\r\n") for _ in range(2)], world.connect(PLAIN)
    with monkeypatch.context() as broken:
        broken.setattr(listeners[0].client, "deliver_live", fail)
        broken.setattr(world.pump, "_drop", fail)
        with pytest.raises(ValueError):
            publisher.send(b"PUB a 1\r\nx\r\n")
    world.connect(PLAIN).send(b"PUB b 1\r\nx\r\n" * 9 + b"PUB a 1\r\ny\r\n")
    assert listeners[1].hear() == b"MSG a 1 1\r\ny\r\n"


def test_what_waits_for_a_gateway(world: World) -> None:
    listener, publisher = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN)
    listener.stream.room = 4
    publisher.send(b"PUB a 1\r\nx\r\n")
    assert world.pump.courier.waiting_size_bytes(listener.client) == len(b"MSG a 1 1\r\nx\r\n") - 4
    assert world.pump.courier.waiting_size_bytes(object()) == 0


def test_a_large_batch_is_written_in_between(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.core.live.LIVE_STEPS_PER_PASS_MAX", 10)
    listener, publisher = world.connect(PLAIN + b"SUB a 1\r\n"), world.connect(PLAIN)
    before = listener.stream.sends
    publisher.send(b"PUB a 1\r\nx\r\n" * 35)
    assert listener.hear() == b"MSG a 1 1\r\nx\r\n" * 35
    assert listener.stream.sends - before > 1


def test_what_is_large_for_many_is_written_one_by_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.core.live.LIVE_STEPS_PER_PASS_MAX", 16 * 1024)
    listeners = [world.connect(PLAIN + b"SUB a %d\r\n" % number) for number in range(40)]
    publisher = world.connect(PLAIN)
    size = 1 << 20
    publisher.stream.incoming.append(b"PUB a %d\r\n%b\r\n" % (size, bytes(size)))
    while publisher.stream.incoming:
        world.pump.readable(publisher.connection)
    # No turn has ended, and everybody has it.
    for number, listener in enumerate(listeners):
        assert listener.hear() == b"MSG a %d %d\r\n%b\r\n" % (number, size, bytes(size))
        assert listener.connection.outbox.size_bytes == 0
