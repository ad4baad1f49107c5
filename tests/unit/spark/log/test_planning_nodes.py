"""Planning over several nodes: who is numbered how, who is waited for, and what is lost. A clock of the test's."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from polymq.errors import ConfigError, ConnectFailed, RemoteProtocolError
from polymq.spark.log import offsets
from polymq.spark.log.offsets import Place, Position, Range
from polymq.spark.log.options import Options
from polymq.spark.log.planning import Planner
from polymq.spark.log.reading import read_range
from polymq.spark.losses import DataLoss
from polymq.wire.records import Message
from tests.unit.clients.fake_log import FakeLog

from .test_nodes import World, announce

if TYPE_CHECKING:
    from collections.abc import Iterator

A, B = Place("orders", 0, "a"), Place("orders", 0, "b")


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def append(world: World, name: str, count: int) -> None:
    target = world.logs[name].topics["orders"][0]
    target.append([Message(b"%d" % n) for n in range(count)])


def planner(world: World, *, streaming: bool = True, **given: str) -> Planner:
    where = {"servers": ",".join(log.address for log in world.logs.values())} if not {"lookupd", "server", "servers"} & set(given) else {}
    options = {"subscribe": "orders", "startingOffsets": "earliest", "retryTimeoutMs": "60000"} | where | given

    def sleep(seconds: float) -> None:
        world.now += seconds

    return Planner(Options.parse(options, streaming=streaming), world.connect, sleep=sleep, monotonic=lambda: world.now)


def ends(positions: offsets.Positions) -> dict[Place, int]:
    return {place: position.offset for place, position in positions.items()}


def through(positions: offsets.Positions) -> offsets.Positions:
    """As it comes back from the checkpoint."""
    return offsets.decode(json.loads(json.dumps(offsets.encode(positions))))


def test_positions_name_the_node_and_what_is_shown(world: World) -> None:
    plan = planner(world)
    start = plan.starting()
    assert offsets.encode(start)["orders"]["b/0"] == {"offset": 0, "epoch": 1, "log": 1, "partition": 1}
    end = plan.advance(through(start), None)
    ranges = plan.plan(through(start), through(end))
    assert [(each.place, each.partition, each.start, each.end) for each in ranges] == [(A, 0, 0, 1), (B, 1, 0, 1)]
    assert [each.address for each in ranges] == [world.logs["a"].address, world.logs["b"].address]
    assert plan.advance(through(end), None) == through(end)


def test_a_node_that_joins_is_read_from_its_start_under_the_next_number(world: World) -> None:
    addresses = ",".join(log.address for log in world.logs.values())
    port = world.stop("a")
    plan = planner(world, servers=world.logs["b"].address, startingOffsets="latest")
    start = plan.starting()
    assert start[B].shown == 0
    world.logs["a"] = FakeLog("a", port)
    world.logs["a"].create("orders")
    append(world, "a", 3)
    end = planner(world, servers=addresses).advance(through(start), None)
    assert (end[A].offset, end[A].shown, end[B].shown) == (3, 1, 0)


def test_a_new_address_is_the_same_node(world: World) -> None:
    end = planner(world).advance(planner(world).starting(), None)
    topics = world.logs["b"].topics
    world.stop("b")
    world.logs["b"] = FakeLog("b")
    world.logs["b"].topics = topics
    append(world, "b", 4)
    after = planner(world).advance(through(end), None)
    assert ends(after) == {A: 1, B: 5}


def test_a_new_query_waits_for_every_node(world: World) -> None:
    plan = planner(world)
    world.stop("b")
    began = world.now
    with pytest.raises(ConnectFailed, match="after 60 s: no connection"):
        plan.starting()
    assert world.now - began >= 60


def test_others_go_on_while_a_node_is_away(world: World) -> None:
    plan = planner(world)
    end = plan.advance(plan.starting(), None)
    port = world.stop("b")
    append(world, "a", 2)
    after = plan.advance(through(end), None)
    assert ends(after) == {A: 3, B: 1}
    assert [each.place for each in plan.plan(through(end), through(after))] == [A]
    world.logs["b"] = FakeLog("b", port)
    world.logs["b"].create("orders")
    append(world, "b", 1)
    append(world, "b", 5)
    world.now += 30
    assert ends(plan.advance(through(after), None)) == {A: 3, B: 6}


def test_a_node_that_stays_away_fails_the_query_unless_it_is_to_go_on(world: World) -> None:
    plan, tolerant = planner(world), planner(world, failOnDataLoss="false")
    end = plan.advance(plan.starting(), None)
    tolerant.advance(end, None)
    world.stop("b")
    append(world, "a", 1)
    assert ends(plan.advance(end, None))[A] == ends(tolerant.advance(end, None))[A] == 2
    world.now += 60
    with pytest.raises(ConnectFailed, match="node b has been away for 60 s"):
        plan.advance(end, None)
    with pytest.warns(RuntimeWarning, match="goes on without it"):
        assert ends(tolerant.advance(end, None)) == {A: 2, B: 1}


def test_what_was_planned_of_a_node_that_is_away_is_waited_for(world: World) -> None:
    plan = planner(world, failOnDataLoss="false")
    start = plan.starting()
    end = plan.advance(start, None)
    world.stop("b")
    with pytest.raises(ConnectFailed, match="after 60 s"):
        plan.plan(through(start), through(end))


def test_a_node_that_is_not_among_the_servers_any_more_is_lost(world: World) -> None:
    end = planner(world).advance(planner(world).starting(), None)
    only = world.logs["a"].address
    with pytest.raises(DataLoss, match="orders/0 of node b is no longer there"):
        planner(world, servers=only).advance(through(end), None)
    with pytest.raises(DataLoss, match="of node b is no longer there"):
        planner(world, servers=only).plan({}, through(end))
    with pytest.warns(RuntimeWarning, match="of node b"):
        assert ends(planner(world, servers=only, failOnDataLoss="false").advance(through(end), None)) == {A: 1, B: 1}


def test_a_node_that_directories_have_forgotten_has_time_to_come_back(world: World) -> None:
    directory = world.logs["directory"] = FakeLog()
    announce(directory, world.logs["a"], world.logs["b"])
    plan = planner(world, lookupd=directory.address)
    end = plan.advance(plan.starting(), None)
    announce(directory, world.logs["a"])
    world.now += 11
    append(world, "a", 1)
    assert ends(plan.advance(end, None)) == {A: 2, B: 1}
    world.now += 61
    with pytest.raises(DataLoss, match="of node b is no longer there"):
        plan.advance(end, None)


def test_an_available_now_run_waits_for_whom_it_began_with(world: World) -> None:
    plan = planner(world)
    start = plan.starting()
    plan.freeze()
    world.stop("b")
    with pytest.raises(ConnectFailed):
        plan.advance(start, None)


def test_a_checkpoint_of_one_server_is_that_of_the_first_of_several(world: World) -> None:
    single = planner(world, server=world.logs["b"].address)
    start = single.starting()
    end = single.advance(start, None)
    assert offsets.encode(end) == {"orders": {"0": {"offset": 1, "epoch": 1, "log": 1}}}
    addresses = f"{world.logs['b'].address},{world.logs['a'].address}"
    several = planner(world, servers=addresses)
    assert [each.place for each in several.plan(through(start), through(end))] == [B]
    after = several.advance(through(end), None)
    assert {place: (position.offset, position.shown) for place, position in after.items()} == {A: (1, 1), B: (1, 0)}
    assert several.advance(through(after), None) == through(after)
    directory = world.logs["directory"] = FakeLog()
    announce(directory, world.logs["a"], world.logs["b"])
    with pytest.raises(ConfigError, match="name that one first in servers"):
        planner(world, lookupd=directory.address).advance(through(end), None)


def test_bounds_name_partitions_of_nodes(world: World) -> None:
    append(world, "b", 9)
    named = planner(world, startingOffsets='{"orders": {"0": -1, "b/0": 4}}').starting()
    assert ends(named) == {A: 1, B: 4}
    with pytest.raises(ConfigError, match="orders/c/0"):
        planner(world, startingOffsets='{"orders": {"c/0": 1}}').starting()


def test_a_batch_read_is_of_all_nodes(world: World) -> None:
    ranges = planner(world, streaming=False).plan_batch()
    assert [(each.place, each.partition, each.count) for each in ranges] == [(A, 0, 1), (B, 1, 1)]


def test_a_range_is_not_read_from_another_node(world: World) -> None:
    options = Options.parse({"servers": "x:1", "subscribe": "orders", "retryTimeoutMs": "0"}, streaming=True)
    client = world.connect(world.logs["b"].address)
    for wanted in (Range(A, 0, 1, 1, 1, 0, "x:1"), Range(A, 5, 6, 1, 1, 0, "x:1"), Range(Place("gone", 0, "a"), 0, 1, 1, 1, 0, "x:1")):
        with pytest.raises(RemoteProtocolError, match="at x:1 there is node b now, not a"):
            list(read_range(client, wanted, options))
    (batch,) = read_range(client, Range(B, 0, 1, 1, 1, 7, "x:1"), options)
    assert batch["partition"].to_pylist() == [7]


def test_numbers_are_given_once() -> None:
    position = Position(1, 1, 1)
    before = {B: Position(0, 1, 1, 4)}
    found = offsets.numbered({A: position, B: position, Place("orders", 1, "a"): position, Place("x", 0, "a"): position}, before)
    assert {place: each.shown for place, each in found.items()} == {A: 5, B: 4, Place("orders", 1, "a"): 6, Place("x", 0, "a"): 0}
    assert offsets.numbered({Place("orders", 3): position}, {}) == {Place("orders", 3): position}
