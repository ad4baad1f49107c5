from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from polymq.gateways.contract import Peer
from polymq.gateways.effects import Close, Send, Upgrade
from polymq.gateways.rocketmq.door import RocketmqDoor
from polymq.gateways.rocketmq.gate import AclGate
from polymq.gateways.rocketmq.registry import BrokerEntry
from polymq.protocols.rocketmq.codes import RequestCode
from polymq.protocols.rocketmq.encode import encode_request
from polymq.protocols.rocketmq.registration import Registration, TopicConfig
from polymq.server.tls import no_password
from polymq.wire.tls import TlsLayer
from tests.unit.gateways.rocketmq.group_world import GroupWorld
from tests.unit.wire.authority import Authority

if TYPE_CHECKING:
    import ssl

ROUTE = encode_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, 1, ext={"topic": "t"})


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    import ssl

    path = Authority(tmp_path_factory.mktemp("authority")).issue("broker")
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(path, path, password=no_password)
    return made


class Story:
    def __init__(self, context: ssl.SSLContext | None = None, *, required: bool = False) -> None:
        self.world = GroupWorld()
        self.house = self.world.house
        if context is not None:
            self.house.make_tls = lambda: TlsLayer(context)
        self.house.tls_required = required
        self.door = RocketmqDoor(self.house, Peer("192.0.2.9", 1), own_host="127.0.0.1")
        self.effects: list[Any] = []
        self.door.opened(self.effects)
        self.effects.clear()

    def feed(self, data: bytes) -> int:
        return self.door.feed(memoryview(data), self.effects)


def test_without_a_certificate_nothing_is_looked_for() -> None:
    story = Story()
    assert story.feed(ROUTE) == len(ROUTE)
    assert any(hasattr(effect, "data") and b"brokerDatas" in effect.data for effect in story.effects)


def test_a_handshake_begins_with_its_first_byte(context: ssl.SSLContext) -> None:
    story = Story(context)
    assert story.feed(b"\x16\x03\x01\x02\x00\x01\x00\x01") == 0
    [upgrade] = story.effects
    assert isinstance(upgrade, Upgrade)
    assert isinstance(upgrade.layer, TlsLayer)
    story.effects.clear()
    assert story.feed(ROUTE) == len(ROUTE)  # from within
    assert story.effects


def test_who_speaks_plainly_is_served_as_well_unless_tls_is_required(context: ssl.SSLContext) -> None:
    story = Story(context)
    assert story.feed(ROUTE[:8]) == 0
    assert story.feed(ROUTE) == len(ROUTE)
    assert not any(isinstance(effect, Close) for effect in story.effects)
    story = Story(context, required=True)
    assert story.feed(ROUTE) == len(ROUTE)
    assert story.effects == [Close("TLS is required here")]


def test_a_handshake_that_fails_is_answered_by_nothing(context: ssl.SSLContext) -> None:
    story = Story(context)
    story.door.upgrade_failed("no", story.effects)
    assert not any(isinstance(effect, Send) for effect in story.effects)


def test_what_came_with_the_connection_goes_with_it() -> None:
    story = Story()
    gate = AclGate({}, lambda host: host == "192.0.2.9")
    story.house.gate = gate
    story.feed(ROUTE)
    entry = BrokerEntry("b", 0, "C", "h:1", "", story.door, story.world.clock.monotonic_ns(), 1 << 60)
    story.house.registry.register(entry, Registration((TopicConfig("t", 1, 1),)))
    assert len(story.world.broker.sessions) == 3  # the house's own, and two of the connection
    story.door.ended()
    assert story.house.registry.brokers() == []
    assert len(story.world.broker.sessions) == 1
    assert story.house.clients == {}
