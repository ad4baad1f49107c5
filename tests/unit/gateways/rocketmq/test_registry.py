from __future__ import annotations

from polymq.gateways.rocketmq.registry import SILENCE_NS, BrokerEntry, Registry
from polymq.protocols.rocketmq.registration import DataVersion, Registration, TopicConfig

ONE = DataVersion(1, 10)
TWO = DataVersion(2, 20)


class World:
    """A registry, and a clock that stands."""

    def __init__(self, **limits: int) -> None:
        self.now_ns = 0
        self.registry = Registry(lambda: self.now_ns, **limits)

    def register(
        self,
        name: str,
        *topics: str,
        broker_id: int = 0,
        address: str = "h:1",
        channel: object = 1,
        version: DataVersion = ONE,
        cluster: str = "C",
    ) -> int | None:
        entry = BrokerEntry(name, broker_id, cluster, address, "", channel, self.now_ns, SILENCE_NS)
        return self.registry.register(entry, Registration(tuple(TopicConfig(topic, 4, 4) for topic in topics), version))

    def who_has(self, topic: str) -> list[str]:
        return [entry.name for entry in self.registry.masters(topic)]


def test_brokers_are_found_by_what_they_have() -> None:
    world = World()
    assert world.register("b", "t", "u") == 0
    assert world.register("a", "t", address="h:2", channel=2) == 0
    assert world.who_has("t") == ["a", "b"]
    assert world.who_has("u") == ["b"]
    assert world.who_has("v") == []
    assert world.registry.size == 3
    assert sorted(world.registry.some_topics(10)) == ["t", "u"]
    assert world.registry.some_topics(1) == ["t"]


def test_topics_add_up_and_stay_while_their_broker_is_there() -> None:
    world = World()
    world.register("a", "t")
    world.register("a", "u", version=TWO)
    assert (world.who_has("t"), world.who_has("u")) == (["a"], ["a"])
    assert world.registry.heard("a", 0, "h:1") == TWO
    world.registry.unregister("a", 0, "elsewhere:1")
    assert world.who_has("t") == ["a"]
    world.registry.unregister("a", 0, "h:1")
    assert (world.who_has("t"), world.registry.size, world.registry.brokers()) == ([], 0, [])


def test_a_slave_has_an_address_and_no_topics() -> None:
    world = World()
    world.register("a", "t")
    world.register("a", "only-there", broker_id=1, address="h:2")
    assert world.registry.addresses("a") == {0: "h:1", 1: "h:2"}
    assert world.who_has("only-there") == []
    world.registry.unregister("a", 0, "h:1")
    assert world.registry.addresses("a") == {1: "h:2"}
    assert world.who_has("t") == []


def test_who_is_silent_is_not_shown_and_makes_room() -> None:
    world = World(brokers_max=1)
    world.register("a", "t")
    world.now_ns = SILENCE_NS
    assert world.who_has("t") == ["a"]
    assert world.register("b", "u") is None
    world.now_ns += 1
    assert (world.who_has("t"), world.registry.brokers()) == ([], [])
    assert world.register("b", "u") == 0
    assert (world.registry.size, world.who_has("u")) == (1, ["b"])


def test_a_sign_of_life_counts() -> None:
    world = World()
    world.register("a", "t")
    world.now_ns = SILENCE_NS
    assert world.registry.heard("a", 0, "h:1") == ONE
    assert world.registry.heard("a", 0, "h:2") is None
    assert world.registry.heard("x", 0, "h:1") is None
    world.now_ns += SILENCE_NS
    assert world.who_has("t") == ["a"]


def test_a_connection_that_ends_takes_its_brokers_along_but_not_those_that_came_again() -> None:
    world = World()
    world.register("a", "t", channel=1)
    world.register("b", "t", channel=1, address="h:2")
    world.register("a", "t", channel=2)
    world.registry.disconnected(1)
    assert world.who_has("t") == ["a"]
    world.registry.disconnected(3)
    world.registry.disconnected(2)
    assert world.who_has("t") == []


def test_a_broker_that_has_moved_begins_anew() -> None:
    world = World()
    world.register("a", "t")
    world.register("a", "u", address="h:2")
    assert (world.who_has("t"), world.who_has("u"), world.registry.addresses("a")) == ([], ["a"], {0: "h:2"})
    assert world.registry.size == 1


def test_one_topic_too_many_costs_the_broker_nothing_else() -> None:
    world = World(topics_max=2)
    assert world.register("a", "t", "u", "v") == 1
    assert (world.who_has("u"), world.who_has("v")) == (["a"], [])
    assert world.register("a", "t", "u") == 0


def test_a_topic_that_is_deleted_is_told_anew() -> None:
    world = World()
    world.register("a", "t", "u")
    world.registry.delete_topic("t")
    world.registry.delete_topic("unknown")
    assert (world.who_has("t"), world.registry.size) == ([], 1)
    assert world.registry.heard("a", 0, "h:1") == DataVersion()
    world.register("a", "t")
    assert world.who_has("t") == ["a"]


def test_topics_of_one_cluster() -> None:
    world = World()
    world.register("a", "t", "u", cluster="one")
    world.register("b", "u", "v", cluster="two", address="h:2")
    assert world.registry.some_topics(10, "two") == ["u", "v"]
    assert world.registry.some_topics(1, "two") == ["u"]
    assert world.registry.some_topics(10, "three") == []
