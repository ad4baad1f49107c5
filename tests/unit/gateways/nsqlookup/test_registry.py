"""What the golden script does not reach: limits, this process as a node, and that nothing is left behind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.errors import Refusal, RefusalCode
from polymq.gateways.nsqlookup.registry import Node, Registry
from polymq.protocols.nsqlookup.identify import Identity
from polymq.protocols.nsqlookup.settings import LookupSettings

NAMES = ("t", "u", "v#ephemeral")


class World:
    def __init__(self, *, registrations_max: int = 1000) -> None:
        self.now_ns = 5
        self.registry = Registry(lambda: self.now_ns, LookupSettings(100, 10), registrations_max=registrations_max)

    def node(self, address: str = "a", *, tcp_port: int = 1, heard_ns: int | None = 5) -> Node:
        node = Node(f"{address}:50000", Identity(address, "h", http_port=2, tcp_port=tcp_port), heard_ns)
        self.registry.connect(node)
        return node


def test_names_and_producers_count() -> None:
    world = World(registrations_max=4)
    node = world.node()
    world.registry.register(node, "t", "c")  # two names, two producers
    world.registry.register(node, "t", "c")
    with pytest.raises(Refusal) as refused:
        world.registry.register(node, "u", "")
    assert refused.value.code is RefusalCode.LIMIT_REACHED
    with pytest.raises(Refusal):
        world.registry.create_topic("u")
    world.registry.unregister(node, "t", "c")
    world.registry.create_topic("u")
    with pytest.raises(Refusal):
        world.registry.create_channel("u", "c")


def test_a_refused_registration_leaves_nothing_that_cannot_be_taken_back() -> None:
    world = World(registrations_max=3)
    node = world.node()
    with pytest.raises(Refusal):
        world.registry.register(node, "t", "c")
    world.registry.disconnect(node)
    world.registry.delete_topic("*")
    assert world.registry.size == 0


def test_this_process_is_always_there() -> None:
    world = World()
    own = world.node(heard_ns=None)
    world.registry.register(own, "t", "")
    world.now_ns = 10**18
    assert world.registry.lookup("t") == [own]
    assert world.registry.nodes() == [own]


def test_this_process_is_shown_once_although_it_is_connected_to_itself() -> None:
    world = World()
    own = world.node(heard_ns=None)
    world.registry.register(own, "t", "")
    connected, other = world.node(), world.node(tcp_port=7)
    world.registry.register(connected, "t", "")
    world.registry.register(other, "t", "")
    assert world.registry.lookup("t") == [connected, other]
    assert world.registry.nodes() == [connected, other]
    world.registry.disconnect(connected)
    assert world.registry.lookup("t") == [own, other]
    world.now_ns = 1000  # the others fell silent
    assert world.registry.nodes() == [own]


def test_a_tombstone_hides_one_topic_of_one_node_for_a_while() -> None:
    world = World()
    node, other = world.node("a"), world.node("b")
    for each in (node, other):
        world.registry.register(each, "t", "")
        world.registry.register(each, "u", "")
    world.registry.tombstone("t", "a:2")
    assert world.registry.lookup("t") == [other]
    assert world.registry.lookup("u") == [node, other]
    assert world.registry.topics_of(node) == [("t", True), ("u", False)]
    world.now_ns += 10
    assert world.registry.lookup("t") == [node, other]
    world.registry.tombstone("t", "a:3")
    assert world.registry.lookup("t") == [node, other]


def test_a_tombstone_goes_with_the_registration() -> None:
    world = World()
    node = world.node()
    world.registry.register(node, "t", "")
    world.registry.tombstone("t", "a:2")
    world.registry.register(node, "t", "c")
    assert world.registry.lookup("t") == []
    world.registry.unregister(node, "t", "")
    world.registry.register(node, "t", "")
    assert world.registry.lookup("t") == [node]


def test_what_this_process_has_is_found_although_an_operator_deleted_it() -> None:
    world = World()
    registry = world.registry
    own, other = world.node(heard_ns=None), world.node("b")
    for node in (own, other):
        registry.register(node, "t", "c")
    registry.delete_topic("t")
    assert registry.lookup("t") == [own]
    assert registry.channels("t") == ["c"]
    assert registry.delete_channel("t", "c")
    assert registry.channels("t") == ["c"]
    # nsqadmin deletes a topic at the directory first and then at the nodes that it had found: nothing may be left of it.
    registry.unregister(own, "t", "")
    assert registry.topics() == []
    assert registry.size == 0


@pytest.mark.parametrize("again", ["register", "create topic", "create channel"])
def test_a_name_that_is_wanted_again_outlives_its_producers_again(again: str) -> None:
    world = World()
    registry = world.registry
    own, other = world.node(heard_ns=None), world.node("b")
    registry.register(own, "t", "c")
    registry.delete_topic("t")
    match again:
        case "register":
            registry.register(other, "t", "c")
            registry.unregister(other, "t", "")
        case "create topic":
            registry.create_topic("t")
        case _:
            registry.create_channel("t", "c")
    registry.unregister(own, "t", "")
    assert registry.topics() == ["t"]
    assert registry.channels("t") == ([] if again == "create topic" else ["c"])


ACTIONS = st.tuples(
    st.sampled_from(["register", "unregister", "disconnect", "create", "delete", "delete channel"]),
    st.integers(0, 2),
    st.sampled_from(NAMES),
    st.sampled_from(["", "c", "d#ephemeral"]),
)


@given(st.lists(ACTIONS, max_size=40))
def test_both_directions_agree_whatever_happens(actions: list[tuple[str, int, str, str]]) -> None:
    world = World()
    registry = world.registry
    nodes = [world.node(str(number), heard_ns=None if number == 2 else 5) for number in range(3)]
    for what, number, topic, channel in actions:
        match what:
            case "register":
                registry.register(nodes[number], topic, channel)
            case "unregister":
                registry.unregister(nodes[number], topic, channel)
            case "disconnect":
                registry.disconnect(nodes[number])
                registry.connect(nodes[number])
            case "create":
                registry.create_channel(topic, channel or "c")
            case "delete":
                registry.delete_topic(topic)
            case _:
                registry.delete_channel(topic, channel)
        told = {(topic, node) for topic, producers in registry._topics.items() for node in producers}
        assert told == {(topic, node) for node in nodes for topic in node.topics}
        pairs = {(topic, channel, node) for topic, inner in registry._channels.items() for channel, all_ in inner.items() for node in all_}
        assert pairs == {(*key, node) for node in nodes for key in node.channels}
        names = len(registry._topics) + sum(map(len, registry._channels.values()))
        assert world.registry.size == names + len(told) + len(pairs)
        assert all(registry._channels.values())
        own = nodes[2]
        assert registry._withdrawn <= {(topic, "") for topic in own.topics} | set(own.channels)
