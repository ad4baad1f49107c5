"""NATS' clients are told, and then let go one after the other."""

from __future__ import annotations

import json

import pytest

from polymq.protocols.nats.settings import NatsSettings
from polymq.server.lame_duck import LameDuck
from tests.unit.gateways.nats.harness import PLAIN, QUIET, SECOND_NS, World

SETTINGS = NatsSettings(lame_duck_duration_ns=30 * SECOND_NS, lame_duck_grace_period_ns=10 * SECOND_NS)


class Ended:
    """A server that is told to go, and what it does."""

    def __init__(self, world: World) -> None:
        self.calls: list[str] = []
        self.duck = LameDuck(
            world.house,
            world.clock,
            world.pump.call_at,
            refuse=lambda: self.calls.append("refuse"),
            stop=lambda: self.calls.append("stop"),
        )


def test_clients_are_told_and_let_go_one_after_the_other() -> None:
    world = World(SETTINGS)
    talks = [world.connect(QUIET) for _ in range(4)]
    for talk in talks:
        talk.say(b"PING\r\n")
    old = world.connect(PLAIN)
    ended = Ended(world)
    ended.duck.begin()
    world.turn()
    assert ended.calls == ["refuse"]
    for talk in talks:
        assert json.loads(talk.hear()[5:])["ldm"] is True
    assert old.hear() == b""
    world.wait(9.9)
    assert not any(talk.closed for talk in talks)
    assert talks[0].say(b"SUB a 1\r\nPUB a 1\r\nx\r\n").endswith(b"MSG a 1 1\r\nx\r\n")
    left = []
    for _ in range(6):
        left.append(sum(not talk.closed for talk in [*talks, old]))
        world.wait(1)  # nats-server waits no longer, however much of its 20 s is left
    assert left == [5, 4, 3, 2, 1, 0]
    assert ended.calls == ["refuse", "stop"]
    assert {each.reason for each in world.house.departed.last} == {"Server Shutdown"}


def test_many_clients_go_several_at_a_time() -> None:
    world = World(NatsSettings(lame_duck_duration_ns=SECOND_NS, lame_duck_grace_period_ns=SECOND_NS - 50_000_000))
    talks = [world.connect(PLAIN) for _ in range(100)]
    ended = Ended(world)
    ended.duck.begin()
    world.wait(0.96)
    assert sum(talk.closed for talk in talks) == 20 + 20
    world.wait(0.06)
    assert all(talk.closed for talk in talks)
    assert ended.calls == ["refuse", "stop"]


def test_without_a_duration_all_go_at_once() -> None:
    world = World(NatsSettings(lame_duck_duration_ns=SECOND_NS, lame_duck_grace_period_ns=SECOND_NS))
    talks = [world.connect(PLAIN) for _ in range(3)]
    ended = Ended(world)
    ended.duck.begin()
    world.wait(1.1)
    assert all(talk.closed for talk in talks)
    assert ended.calls == ["refuse", "stop"]


@pytest.mark.parametrize("times", [1, 2])
def test_with_nobody_there_it_ends_at_once(times: int) -> None:
    ended = Ended(World(SETTINGS))
    for _ in range(times):
        ended.duck.begin()
    assert ended.calls == ["refuse", "stop"]
