from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from polymq.config_values import TcpAddress
from polymq.errors import ConfigError
from polymq.gateways.rocketmq.registering import NodeIdentity
from polymq.protocols.rocketmq.encode import encode_response
from polymq.protocols.rocketmq.settings import RocketmqSettings
from polymq.server.rocketmq_names import NameServers, parse_name_servers
from tests.unit.gateways.rocketmq.group_world import GroupWorld
from tests.unit.server.fake_dialer import FakeDialer
from tests.unit.server.fakes import World

if TYPE_CHECKING:
    from polymq.server.connection import Connection

SECOND_NS = 1_000_000_000
ONE, TWO = TcpAddress("one.invalid", 9876), TcpAddress("two.invalid", 9876)


class Story:
    def __init__(self) -> None:
        self.world = World()
        self.dialer = FakeDialer(self.world.pump)
        self.names = NameServers(
            self.dialer,
            self.world.pump,
            self.world.clock,
            GroupWorld().broker,
            NodeIdentity("a", "C", "h:1"),
            RocketmqSettings(),
            interval_ns=30 * SECOND_NS,
        )

    def wait(self, seconds: float) -> None:
        self.world.pass_time(int(seconds * SECOND_NS))

    def end(self, connection: Connection) -> None:
        stream: Any = connection.stream
        stream.input_ended = True
        self.world.pump.readable(connection)
        self.world.turn()


def test_each_name_server_is_called_and_told() -> None:
    story = Story()
    story.names.register_at((ONE, TWO))
    assert [dial.address for dial in story.dialer.dials] == [ONE, TWO]
    stream, connection = story.dialer.dials[0].connect()
    story.world.turn()
    assert b'"code":103' in stream.outgoing
    story.world.send(connection, encode_response(0, 1))
    del stream.outgoing[:]
    story.wait(30)
    assert b'"code":103' in stream.outgoing


def test_one_that_is_gone_is_called_again_ever_more_slowly() -> None:
    story = Story()
    story.names.register_at((ONE,))
    for pause_s in (1, 2, 4, 8, 15, 15):
        [dial] = story.dialer.open
        dial.fail()
        story.wait(pause_s - 0.1)
        assert story.dialer.open == []
        story.wait(0.1)
    _, connection = story.dialer.open[0].connect()
    story.world.turn()
    story.world.send(connection, encode_response(0, 1))
    story.end(connection)
    story.wait(1)
    assert len(story.dialer.open) == 1


def test_nobody_is_called_any_more_after_the_end() -> None:
    story = Story()
    story.names.register_at((ONE, TWO))
    first, second = story.dialer.dials
    stream, _ = first.connect()
    story.world.turn()
    story.names.stop()
    story.world.turn()
    assert b'"code":104' in stream.outgoing
    assert stream.output_ended
    assert second.cancelled
    story.wait(100)
    assert story.dialer.open == []


def test_addresses_are_read_as_rocketmq_writes_them() -> None:
    assert parse_name_servers(("one.invalid:9876;two.invalid:9876", "one.invalid:9876")) == (ONE, TWO)
    assert parse_name_servers(()) == parse_name_servers(("off",)) == ()


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (("one",), "rocketmq.name_servers: 'one': expected HOST:PORT"),
        (tuple(f"h:{port}" for port in range(1, 18)), "rocketmq.name_servers: at most 16 of them"),
    ],
)
def test_addresses_that_are_none(texts: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_name_servers(texts)
    assert caught.value.problems[0].startswith(problem)
