from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from polymq.core.access import Principal
from polymq.core.group import GroupKind
from polymq.gateways.nsqlookup.own import OwnNode
from polymq.gateways.nsqlookup.registry import Registry
from polymq.protocols.nsqlookup.identify import Identity
from tests.unit.core.conftest import World

if TYPE_CHECKING:
    import pytest

OWN = Identity("here", "vm", http_port=4151, tcp_port=4150)


def listed(world: World, *, registrations_max: int = 1000) -> Registry:
    registry = Registry(world.clock.monotonic_ns, registrations_max=registrations_max)
    node = OwnNode(registry, OWN, "here:4150")
    world.broker.tell(node)
    world.broker.follow(node)
    return registry


def test_what_there_is_and_what_comes_is_listed() -> None:
    world = World(1)
    world.session.create_topic("old")
    world.session.create_group("old", "c")
    registry = listed(world)
    world.session.create_topic("new")
    world.session.create_group("new", "d")
    assert registry.topics() == ["new", "old"]
    assert registry.channels("old") == ["c"]
    assert registry.channels("new") == ["d"]
    [node] = registry.nodes()
    assert node.remote_address == "here:4150"
    assert registry.lookup("new") == [node]


def test_what_goes_keeps_its_name_as_with_nsqlookupd() -> None:
    world = World(1)
    registry = listed(world)
    world.session.create_topic("t")
    world.session.create_group("t", "c")
    world.session.create_group("t", "e#ephemeral", ephemeral=True)
    world.session.delete_group("t", "c")
    world.session.delete_group("t", "e#ephemeral")
    assert registry.channels("t") == ["c"]
    world.session.delete_topic("t")
    assert registry.topics() == ["t"]
    assert registry.lookup("t") == []


def test_what_is_served_is_found_whatever_an_operator_deletes_in_the_directory() -> None:
    world = World(1)
    registry = listed(world)
    world.session.create_topic("t")
    world.session.create_group("t", "c")
    [node] = registry.nodes()
    registry.delete_topic("t")
    assert registry.lookup("t") == [node]
    assert registry.channels("t") == ["c"]
    registry.delete_channel("t", "c")
    world.session.delete_group("t", "c")
    assert registry.channels("t") == []
    world.session.delete_topic("t")
    assert registry.topics() == []


def test_what_nsq_cannot_spell_is_left_out() -> None:
    world = World(1)
    registry = listed(world)
    world.session.create_topic("a/b")
    world.session.create_topic("t")
    world.session.create_group("t", "ü")
    world.session.create_group("t", "cursor", kind=GroupKind.CURSOR)
    world.broker.session(Principal("somebody", "elsewhere")).create_topic("other")
    assert registry.topics() == ["t"]
    assert registry.channels("t") == []
    for name in ("ü", "cursor"):
        world.session.delete_group("t", name)
    world.session.delete_topic("a/b")
    assert registry.topics() == ["t"]


def test_a_full_registry_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    world = World(1)
    with caplog.at_level(logging.WARNING):
        registry = listed(world, registrations_max=2)
        for name in ("a", "b", "c"):
            world.session.create_topic(name)
    assert registry.topics() == ["a"]
    assert len(caplog.records) == 1
