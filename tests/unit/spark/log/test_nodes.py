"""Which nodes there are and who is away, over doors in this process and a clock of the test's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from polymq.clients.log import LogClient
from polymq.errors import ConfigError, Refusal, RemoteProtocolError
from polymq.spark.log.nodes import Nodes, doors_of
from polymq.spark.log.options import Options
from polymq.wire.records import Message
from tests.unit.clients.fake_log import FakeLog

if TYPE_CHECKING:
    from collections.abc import Iterator


class World:
    """Two nodes `a` and `b` with a topic `orders` each, and clients of whatever address."""

    def __init__(self) -> None:
        self.now = 100.0
        self.logs = {name: FakeLog(name) for name in ("a", "b")}
        for log in self.logs.values():
            (partition,) = log.create("orders")
            partition.append([Message(b"x")])
        self.clients: dict[str, LogClient] = {}

    def connect(self, address: str) -> LogClient:
        return self.clients.setdefault(address, LogClient(address, timeout_seconds=5))

    def nodes(self, **given: str) -> Nodes:
        where = {"servers": ",".join(log.address for log in self.logs.values())} if "lookupd" not in given else {}
        what = {} if {"subscribePattern", "assign"} & set(given) else {"subscribe": "orders"}
        options = Options.parse(where | what | given, streaming=True)
        return Nodes(options, self.connect, monotonic=lambda: self.now)

    def stop(self, name: str) -> int:
        """End a node; gives the port that it had."""
        log = self.logs.pop(name)
        log.close()
        for client in self.clients.values():
            client.close()
        return int(log.address.rpartition(":")[2])

    def close(self) -> None:
        for client in self.clients.values():
            client.close()
        for log in self.logs.values():
            log.close()


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.close()


def test_every_node_is_known_by_name(world: World) -> None:
    survey = world.nodes().survey()
    assert [(topic.node, topic.name) for topic in survey.topics] == [("a", "orders"), ("b", "orders")]
    assert survey.nodes == {name: log.address for name, log in world.logs.items()}


def test_a_topic_may_be_on_some_nodes_only(world: World) -> None:
    del world.logs["b"].topics["orders"]
    survey = world.nodes().survey()
    assert [topic.node for topic in survey.topics] == ["a"]
    assert set(survey.nodes) == {"a", "b"}
    del world.logs["a"].topics["orders"]
    assert world.nodes().survey({"orders"}).topics == []
    with pytest.raises(Refusal, match="orders not found"):
        world.nodes().survey()


def test_a_pattern_and_an_assignment_choose(world: World) -> None:
    world.logs["a"].create("order-lines")
    world.logs["b"].create("lines")
    survey = world.nodes(subscribePattern="order.*").survey()
    assert [(topic.node, topic.name) for topic in survey.topics] == [("a", "orders"), ("a", "order-lines"), ("b", "orders")]
    survey = world.nodes(assign='{"orders": ["b/0", 7]}').survey()
    assert [(topic.node, len(topic.partitions)) for topic in survey.topics] == [("a", 0), ("b", 1)]


def test_who_is_away_is_left_alone_for_a_while(world: World) -> None:
    nodes = world.nodes()
    port = world.stop("b")
    survey = nodes.survey()
    assert set(survey.nodes) == {"a"}
    assert "no connection" in survey.describe_away()
    world.logs["b"] = FakeLog("b", port)
    world.logs["b"].create("orders")
    assert set(nodes.survey().nodes) == {"a"}
    assert set(nodes.survey(now=True).nodes) == {"a", "b"}
    world.stop("b")
    nodes.survey()
    world.logs["b"] = FakeLog("b", port)
    world.now += 1
    assert set(nodes.survey({"orders"}).nodes) == {"a", "b"}


def test_one_that_is_away_may_have_the_topic(world: World) -> None:
    nodes = world.nodes()
    world.stop("b")
    del world.logs["a"].topics["orders"]
    assert nodes.survey().topics == []


def test_two_nodes_of_one_name_are_refused(world: World) -> None:
    """A data folder was copied: either would be taken for the other."""
    world.logs["b"].node = "a"
    with pytest.raises(ConfigError, match="are both node a"):
        world.nodes().survey()


def test_a_node_without_a_name_is_refused(world: World) -> None:
    world.logs["a"].node = ""
    with pytest.raises(RemoteProtocolError, match="has no name"):
        world.nodes().survey()


def test_of_one_server_nothing_is_said(world: World) -> None:
    options = Options.parse({"server": world.logs["a"].address, "subscribe": "orders"}, streaming=True)
    survey = Nodes(options, world.connect).survey()
    assert ([topic.node for topic in survey.topics], survey.nodes) == ([""], {"": world.logs["a"].address})


def announce(directory: FakeLog, *logs: FakeLog) -> None:
    """Have a directory know nodes, whose NSQ port is their door here."""
    producers = []
    for log in logs:
        port = int(log.address.rpartition(":")[2])
        log.others["/log"] = {"node": log.node, "broadcast_address": "127.0.0.1", "port": port}
        producers.append({"broadcast_address": "127.0.0.1", "hostname": "h", "tcp_port": 1, "http_port": port, "topics": ["orders"]})
    directory.others["/nodes"] = {"producers": producers}


def test_directories_know_nodes_and_new_ones(world: World) -> None:
    directory = world.logs["directory"] = FakeLog()
    announce(directory, world.logs["a"])
    nodes = world.nodes(lookupd=directory.address)
    assert set(nodes.survey().nodes) == {"a"}
    announce(directory, world.logs["a"], world.logs["b"])
    assert set(nodes.survey().nodes) == {"a"}
    world.now += 11
    assert set(nodes.survey().nodes) == {"a", "b"}
    world.stop("directory")
    world.now += 11
    survey = nodes.survey()
    assert set(survey.nodes) == {"a", "b"}
    assert list(survey.away) == [directory.address]


def test_nodes_that_are_not_ours_are_passed_over_with_a_word(world: World) -> None:
    directory = world.logs["directory"] = FakeLog()
    announce(directory, world.logs["a"], world.logs["b"])
    del world.logs["b"].others["/log"]
    world.logs["b"].topics.clear()
    nodes = world.nodes(lookupd=directory.address)
    with pytest.warns(RuntimeWarning, match="has topics of this query, and is not polymq's"):
        assert set(nodes.survey().nodes) == {"a"}
    world.logs["b"].others["/log"] = {"node": "b", "port": 0}
    with pytest.warns(RuntimeWarning, match="shows no log"):
        assert set(nodes.survey(now=True).nodes) == {"a"}


def test_lists_of_nodes_are_read_as_they_come() -> None:
    entry = {"broadcast_address": "", "hostname": "::1", "http_port": 4151, "topics": ["t"]}
    assert doors_of({"data": {"producers": [entry]}}) == {"[::1]:4151": frozenset({"t"})}
    assert doors_of({"producers": [entry | {"http_port": -1}, entry | {"hostname": None}]}) == {}
    wrongs: tuple[object, ...] = ([], {}, {"producers": 7}, {"producers": [7]}, None)
    for wrong in wrongs:
        with pytest.raises(RemoteProtocolError):
            doors_of(wrong)
