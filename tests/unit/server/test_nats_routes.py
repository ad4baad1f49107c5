from __future__ import annotations

import logging
import random
from types import SimpleNamespace
from typing import Any

import pytest

from polymq.config_values import TcpAddress
from polymq.core.live import Live
from polymq.gateways.nats import cluster as cluster_module
from polymq.gateways.nats.cluster import Cluster, RouteFacts
from polymq.gateways.nats.house import House
from polymq.gateways.nats.pings import PingPolicy
from polymq.gateways.nats.route import RouteGateway
from polymq.protocols.nats.info import RouteConnect, ServerInfo, write_connect, write_info
from polymq.protocols.nats.settings import NatsSettings
from polymq.server import nats_routes as module
from polymq.server.nats_routes import RouteKeeper
from polymq.server.nats_settings import ClusterSettings, RouteUrl
from polymq.server.ports import ClientTls
from tests.unit.server.fake_dialer import FakeDial, FakeDialer
from tests.unit.server.fakes import Stream, World

SECOND_NS = 1_000_000_000
SEED = RouteUrl("seed", 6222)
SELDOM = PingPolicy(1 << 60, 1 << 60, 2, always=True)


class Story:
    def __init__(self, *routes: RouteUrl, tls: Any = None, **settings: Any) -> None:
        self.world = World()
        self.dialer = FakeDialer(self.world.pump)
        broker: Any = SimpleNamespace(live=Live(random.Random(1)))
        logins: Any = None
        info = ServerInfo(server_id="NA", server_name="A")
        house = House(broker, self.world.clock, NatsSettings(), info, logins, lambda size: bytes(size))
        self.cluster = Cluster(house, RouteFacts("h", 6222, name="c1"), SELDOM)
        self.settings = ClusterSettings(name="c1", routes=routes, **settings)
        self.keeper = RouteKeeper(self.dialer, self.world.pump, self.world.clock, random.Random(1), self.cluster, self.settings, tls)

    def wait(self, seconds: float) -> None:
        self.world.pass_time(int(seconds * SECOND_NS))

    def answer(self, dial: FakeDial, name: str = "B", **more: Any) -> tuple[Stream, Any]:
        """Let a dial lead to a server."""
        stream, connection = dial.connect()
        self.world.turn()
        said: dict[str, Any] = {"server_id": f"N{name}", "server_name": name, "port": 6222, "cluster": "c1", **more}
        self.world.send(connection, write_info(ServerInfo(**said)))
        return stream, connection

    def end(self, connection: Any) -> None:
        connection.stream.input_ended = True
        self.world.pump.readable(connection)
        self.world.turn()

    def hear(self, name: str = "C", host: str = "10.0.0.3", **more: Any) -> None:
        said: dict[str, Any] = {"server_id": f"N{name}", "server_name": name, "host": "0.0.0.0", "port": 6222, **more}
        self.keeper.heard_of(ServerInfo(ip=f"nats-route://{host}:6222/", **said))

    @property
    def open(self) -> list[FakeDial]:
        return self.dialer.open


def test_those_of_the_configuration_are_dialled() -> None:
    story = Story(SEED, RouteUrl("other", 7222, "u", "p"))
    assert story.open == []
    story.keeper.start()
    assert [dial.address for dial in story.open] == [TcpAddress("seed", 6222), TcpAddress("other", 7222)]
    assert {dial.timeout_ns for dial in story.open} == {SECOND_NS}
    stream, _ = story.answer(story.open[1])
    assert b'"user":"u","pass":"p"' in stream.outgoing
    assert list(story.cluster.routes) == ["NB"]


def test_who_has_no_password_of_its_own_gets_the_clusters() -> None:
    story = Story(SEED, user="cu", password="cp")
    story.keeper.start()
    stream, _ = story.answer(story.open[0])
    assert b'"user":"cu","pass":"cp"' in stream.outgoing


def test_those_of_the_configuration_are_dialled_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    story = Story(SEED)
    story.keeper.start()
    for _ in range(20):
        (dial,) = story.open
        dial.fail("refused")
        assert story.open == []
        story.wait(0.99)
        assert story.open == []
        story.wait(0.11)
    assert [record.message for record in caplog.records] == ["NATS route seed:6222: refused; trying again"]
    caplog.clear()
    story.answer(story.open[0])
    assert "NATS route seed:6222: there again" in [record.message for record in caplog.records]


def test_with_back_off_the_pauses_grow() -> None:
    story = Story(SEED, connect_backoff=True)
    story.keeper.start()
    for pause in (1, 2, 4, 8, 16, 30, 30):
        story.open[0].fail()
        story.wait(pause - 0.01)
        assert story.open == []
        story.wait(0.12)
        assert len(story.open) == 1


def test_a_refusal_makes_the_pauses_grow() -> None:
    story = Story(SEED)
    story.keeper.start()
    for pause in (1, 2, 4):
        _, connection = story.open[0].connect()
        story.world.send(connection, b"-ERR 'Authorization Violation'\r\n")
        story.wait(pause - 0.01)
        assert story.open == []
        story.wait(0.12)
    # A route that is good makes them short again.
    _, connection = story.answer(story.open[0])
    story.end(connection)
    story.wait(1.11)
    assert len(story.open) == 1


def test_a_lost_route_is_dialled_again() -> None:
    story = Story(SEED)
    story.keeper.start()
    _, connection = story.answer(story.open[0])
    story.end(connection)
    assert story.cluster.routes == {}
    story.wait(1.11)
    assert [dial.address for dial in story.open] == [TcpAddress("seed", 6222)]


def test_our_own_address_is_dialled_no_more() -> None:
    story = Story(SEED)
    story.keeper.start()
    story.answer(story.open[0], "A")
    story.wait(100)
    assert story.open == []


def test_a_second_address_of_a_server_is_dialled_again_when_its_route_is_lost() -> None:
    story = Story(SEED, RouteUrl("same", 6222))
    story.keeper.start()
    first, second = story.open
    _, connection = story.answer(first)
    story.answer(second)
    story.wait(100)
    assert story.open == []
    story.end(connection)
    story.wait(1.11)
    assert {dial.address.host for dial in story.open if isinstance(dial.address, TcpAddress)} == {"seed", "same"}


def test_who_is_told_of_is_dialled() -> None:
    story = Story(SEED, user="cu", password="cp")
    story.hear(auth_required=True, gossip_mode=1)
    (dial,) = story.open
    assert dial.address == TcpAddress("10.0.0.3", 6222)
    stream, _ = story.answer(dial, "C")
    assert b'"user":"cu"' in stream.outgoing
    assert b'"gossip_mode":1' in stream.outgoing


def test_a_password_is_told_only_to_who_asks_for_one() -> None:
    story = Story(user="cu", password="cp")
    story.hear()
    stream, _ = story.answer(story.open[0], "C")
    assert b"cu" not in stream.outgoing


@pytest.mark.parametrize("said", [{"host": "seed"}, {"ip": "nats-route://seed:6222"}])
def test_who_is_in_the_configuration_is_dialled_by_that(said: dict[str, str]) -> None:
    story = Story(SEED)
    told = ServerInfo(**{"server_id": "NC", "host": "0.0.0.0", "port": 6222, "ip": "nats-route://10.0.0.3:6222", **said})  # type: ignore[arg-type]  # all are strings or numbers where they belong
    story.keeper.heard_of(told)
    assert story.open == []


@pytest.mark.parametrize("ip", ["rubbish", "nats-route://h", "http://h:1/", "nats-route://h:1/path", "nats-route://h:99999999/"])
def test_an_address_that_is_none_is_passed_over(ip: str, caplog: pytest.LogCaptureFixture) -> None:
    story = Story()
    story.keeper.heard_of(ServerInfo(server_id="NC", ip=ip))
    assert story.open == []
    assert len(caplog.records) == 1


def test_who_is_being_dialled_is_not_dialled_twice() -> None:
    story = Story()
    story.hear()
    story.hear()
    assert len(story.open) == 1
    story.open[0].fail()
    story.hear()
    assert len(story.open) == 1


def test_who_was_told_of_and_never_came_is_given_up() -> None:
    story = Story(connect_retries=2)
    story.hear()
    for _ in range(3):
        story.open[0].fail()
        story.wait(1.11)
    assert story.open == []
    story.hear()
    assert len(story.open) == 1


def test_who_was_told_of_and_is_lost_is_dialled_at_once_and_a_few_times_more() -> None:
    story = Story()
    story.hear()
    _, connection = story.answer(story.open[0], "C")
    story.end(connection)
    story.wait(0.11)
    tries = 0
    while story.open:
        tries += 1
        story.open[0].fail()
        story.wait(35)
    assert tries == 6


def test_who_was_lost_and_has_come_by_itself_is_not_dialled() -> None:
    story = Story()
    story.hear()
    _, connection = story.answer(story.open[0], "C")
    story.end(connection)
    came = RouteGateway(story.cluster, connection.peer)
    came_connection = story.world.pump.open(Stream(), came, connection.peer)
    connect = write_connect(RouteConnect(name="NC", cluster="c1"))
    story.world.send(came_connection, connect + write_info(ServerInfo(server_id="NC", server_name="C", cluster="c1")))
    assert list(story.cluster.routes) == ["NC"]
    story.wait(0.11)
    assert story.open == []
    # It is the other one's to dial, and ours as well.
    story.end(came_connection)
    story.wait(0.11)
    assert len(story.open) == 1


def test_a_server_that_was_started_anew_at_its_address_is_dialled() -> None:
    """The route to the one before is asked whether it is there, which ends it."""
    story = Story()
    story.hear("C")
    stream, connection = story.answer(story.open[0], "C")
    stream.outgoing.clear()
    story.hear("D")
    story.world.turn()
    assert stream.outgoing == b"PING\r\n"
    assert story.open == []
    story.end(connection)
    story.wait(0.11)
    (dial,) = story.open
    story.answer(dial, "D")
    assert set(story.cluster.routes) == {"ND"}


def test_an_address_is_dialled_once_whoever_is_said_to_be_there() -> None:
    """Nor is it dialled again while who has taken the call is silent, or says that it is somebody else."""
    story = Story()
    for number in range(100):
        story.hear(f"G{number}")
    (dial,) = story.open
    stream, connection = dial.connect()
    for number in range(100):
        story.hear(f"H{number}")
    assert story.open == []
    story.world.send(connection, write_info(ServerInfo(server_id="NC", server_name="C", port=6222, cluster="c1")))
    stream.outgoing.clear()
    for number in range(100):
        story.hear(f"J{number}")
    story.world.turn()
    assert stream.outgoing == b"PING\r\n"
    assert story.open == []
    # It is not forgotten meanwhile.
    story.end(connection)
    story.wait(0.11)
    assert len(story.open) == 1
    story.keeper.stop()
    assert story.open == []


def test_those_who_take_the_call_and_are_silent_are_few(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr(cluster_module, "ROUTE_HEARSAY_MAX", 2)
    story = Story(SEED)
    story.keeper.start()
    _, named = story.open[0].connect()
    silent = []
    for number in range(100):
        story.hear(host=f"10.0.0.{number}")
        silent.append(story.open[0].connect()[1])
        story.world.turn()
        assert len(story.world.pump.connections) <= 4
    # Those who were silent for longest have gone; who is in the configuration has not.
    assert [connection for connection in silent if connection in story.world.pump.connections] == silent[98:]
    assert named in story.world.pump.connections
    story.wait(100)
    assert story.open == []
    assert len(caplog.records) < 15
    # Who says who it is makes room, and is told of again if it goes.
    story.hear("C", "10.0.0.1")
    _, connection = story.answer(story.open[0], "C")
    story.world.turn()
    assert "NC" in story.cluster.routes
    for number in range(200, 203):
        story.hear(host=f"10.0.0.{number}")
        story.open[0].connect()
    story.world.turn()
    assert connection in story.world.pump.connections


def test_not_any_number_is_dialled_because_of_gossip(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(module, "ROUTE_HEARSAY_MAX", 3)
    story = Story()
    for number in range(5):
        story.hear(host=f"10.0.0.{number}")
    assert len(story.open) == 3
    assert len(caplog.records) == 2
    # Those that have become routes make room.
    story.answer(story.open[0], "C")
    story.hear(host="10.0.0.5")
    assert len(story.open) == 3


def test_nobody_is_dialled_when_the_server_stops() -> None:
    story = Story(SEED)
    story.keeper.start()
    story.answer(story.open[0])
    story.hear()
    story.world.pump.stop()
    story.world.turn()
    story.open[0].fail()
    story.wait(100)
    assert story.open == []
    other = Story(SEED)
    other.keeper.start()
    other.hear()
    other.keeper.stop()
    assert other.open == []


def test_tls_wants_the_name_that_is_dialled() -> None:
    asked: list[str] = []
    context: Any = object()

    def tls(name: str) -> ClientTls:
        asked.append(name)
        return ClientTls(context, name)

    story = Story(RouteUrl("10.0.0.1", 6222), SEED, tls=tls)
    story.keeper.start()
    story.hear(host="10.0.0.3")
    story.hear(host="named.example")
    assert asked == ["10.0.0.1", "seed", "seed", "named.example"]
    assert [dial.tls and dial.tls.server_name for dial in story.open] == asked
    plain = Story(RouteUrl("10.0.0.1", 6222))
    plain.hear(host="10.0.0.3")
    assert plain.open[0].tls is None
    alone = Story(tls=tls)
    alone.hear(host="10.0.0.4")
    assert asked[-1] == "10.0.0.4"
