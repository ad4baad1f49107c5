"""The parts together, on the real core and the real pump: told, listed, and asked."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from polymq.config_sections import NsqSettings, Settings
from polymq.gateways.nsqlookup.registry import Registry
from polymq.protocols.http.client import Answer
from polymq.protocols.nsqlookup.encode import response
from polymq.protocols.nsqlookup.identify import Identity, write_identity
from polymq.server.discovery import Discovery
from tests.unit.core.conftest import World as CoreWorld
from tests.unit.server.fake_dialer import FakeDialer
from tests.unit.server.fakes import World as PumpWorld

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.protocols.http.client import Question
    from polymq.server.node import Node

NODE = Identity("node", "vm", http_port=4151, tcp_port=4150)
DIRECTORY = Identity("directory", "vm", http_port=4161, tcp_port=4160)


class Story:
    def __init__(self, *addresses: str) -> None:
        self.core = CoreWorld(1)
        self.pump = PumpWorld()
        self.dialer = FakeDialer(self.pump.pump)
        self.asked: list[tuple[Question, Callable[[object], None]]] = []
        self.registry = Registry(self.pump.clock.monotonic_ns)
        node = SimpleNamespace(
            broker=self.core.broker,
            pump=self.pump.pump,
            dialer=self.dialer,
            clock=self.pump.clock,
            directories_outside=SimpleNamespace(ask=lambda question, answered: self.asked.append((question, answered))),
            settings=Settings(nsq=NsqSettings(lookupd_tcp_addresses=addresses)),
        )
        self.discovery = Discovery(cast("Node", node))

    def figures(self) -> dict[str, float]:
        families = {family.name: family for family in self.core.broker.statistics}
        return {name: sample.value for name, family in families.items() if "nsq" in name for sample in family.collect()}

    def groups(self, topic: str) -> list[str]:
        return [group.name for group in self.core.view(topic).groups]


def test_a_directory_is_told_and_asked() -> None:
    story = Story("directory.invalid:4160")
    story.discovery.start(NODE, None)
    stream, connection = story.dialer.open[0].connect()
    story.pump.send(connection, response(write_identity(DIRECTORY)))
    story.core.session.create_topic("t")
    [(question, answered)] = story.asked
    assert question.url == "http://directory:4161/channels?topic=t"
    answered(Answer(200, body=b'{"channels":["c"]}'))
    story.pump.turn()
    assert story.groups("t") == ["c"]
    assert stream.outgoing.endswith(b"REGISTER t\nREGISTER t c\n")
    assert story.figures() == {"polymq_nsq_directories_connected": 1}


def test_the_lookup_role_lists_this_node_and_knows_channels() -> None:
    story = Story()
    story.core.session.create_topic("old")
    story.discovery.start(NODE, story.registry)
    story.registry.create_channel("new", "c")
    story.core.session.create_topic("new")
    story.pump.turn()
    assert story.groups("new") == ["c"]
    [node] = story.registry.nodes()
    assert node.identity == NODE
    assert node.remote_address == "node:4150"
    assert story.registry.topics_of(node) == [("new", False), ("old", False)]
    # Three names: two topics and a channel; this node has them all.
    figures = {"polymq_nsq_directories_connected": 0, "polymq_nsq_lookup_nodes": 1, "polymq_nsq_lookup_registrations": 6}
    assert story.figures() == figures


def test_the_addresses_change_only_once_there_is_something_to_tell() -> None:
    story = Story("a.invalid:1")
    story.discovery.announce_to(["b.invalid:1"])
    assert story.dialer.dials == []
    story.discovery.start(NODE, None)
    story.discovery.announce_to(["c.invalid:1"])
    hosts: list[Any] = [dial.address for dial in story.dialer.open]
    assert [address.host for address in hosts] == ["c.invalid"]
