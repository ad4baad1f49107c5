"""What RocketMQ's section comes to: a house, its gateways, and a node that answers on loopback."""

from __future__ import annotations

import logging
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from polymq.config_sections import NsqSettings, RocketmqSettings, ServerSettings, Settings
from polymq.config_values import TcpAddress, UnixAddress
from polymq.errors import ConfigError
from polymq.gateways.contract import Peer
from polymq.gateways.effects import SetTimer
from polymq.gateways.rocketmq.door import RocketmqDoor
from polymq.protocols.rocketmq.codes import RequestCode
from polymq.protocols.rocketmq.decode import Decoder
from polymq.protocols.rocketmq.encode import encode_request
from polymq.protocols.rocketmq.events import Request
from polymq.protocols.rocketmq.settings import RocketmqSettings as ProtocolSettings
from polymq.server import rocketmq_mount as module
from polymq.server.mounts import mount_all
from polymq.server.node import Node
from polymq.server.rocketmq_mount import make_facts, make_parts, make_tls, wanted_addresses
from polymq.server.settings import ShellSettings
from polymq.server.shell import Shell
from tests.unit.server.test_yaml_lists import PLAIN_ACL
from tests.unit.wire.authority import Authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from polymq.config_values import Address
    from polymq.gateways.effects import Effect
    from polymq.server.mount import Mount

ANY_PORT = TcpAddress("127.0.0.1", 0)
HERE = {"broker": TcpAddress("127.0.0.1", 10911)}


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[Any]:
    """Make nodes of a section; they are closed in the end."""
    nodes: list[Node] = []

    def make(advertise: str = "", **section: Any) -> Node:
        server = ServerSettings(data=tmp_path / f"data{len(nodes)}", http=None, advertise=advertise)
        nsq = NsqSettings(tcp=None, http=None, lookup_tcp=None, lookup_http=None)
        nodes.append(Node(Settings(server=server, nsq=nsq, rocketmq=RocketmqSettings(**section))))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


def facts(make_node: Any, bound: dict[str, Address] | None = None, **section: Any) -> Any:
    return make_facts(make_node(**section), HERE if bound is None else bound)


def test_nothing_listens_unless_somebody_says_so(make_node: Any) -> None:
    assert wanted_addresses(RocketmqSettings()) == {}
    assert mount_all(make_node(), backlog=5) == []


def test_every_port_leads_to_the_same_house(make_node: Any) -> None:
    mounts: list[Mount] = mount_all(make_node(broker=ANY_PORT, vip=ANY_PORT, namesrv=ANY_PORT), backlog=5)
    assert [mount.what for mount in mounts] == ["RocketMQ", "RocketMQ VIP channel", "RocketMQ name server"]
    doors = [mount.factory(Peer("127.0.0.1", 1)) for mount in mounts]
    houses = {door.house for door in doors if isinstance(door, RocketmqDoor)}
    assert len(houses) == 1
    broker: Any = mounts[0].listener.bound
    assert houses.pop().facts.port == broker.port
    for mount in mounts:
        mount.listener.close()


@pytest.mark.parametrize(("section", "idle_ns"), [({}, 120_000_000_000), ({"channel_idle_ns": 7_000_000_000}, 7_000_000_000)])
def test_a_connection_may_be_silent_for_as_long_as_the_settings_say(make_node: Any, section: dict[str, int], idle_ns: int) -> None:
    node = make_node(**section)
    door: Any = make_parts(node, HERE).factory(Peer("127.0.0.1", 1))
    effects: list[Effect] = []
    begun_ns = node.clock.monotonic_ns()
    door.opened(effects)
    [due_ns] = [effect.due_ns for effect in effects if isinstance(effect, SetTimer)]
    assert due_ns is not None
    assert idle_ns <= due_ns - begun_ns < idle_ns + 1_000_000_000


def test_a_port_that_is_taken_leaves_nothing_open(make_node: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = TcpAddress("127.0.0.1", taken.getsockname()[1])
        with pytest.raises(ConfigError, match=r"rocketmq\.namesrv: cannot listen on"):
            mount_all(make_node(broker=ANY_PORT, namesrv=address), backlog=5)


def test_the_broker_is_called_what_the_settings_say_or_like_the_machine(make_node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polymq.server.rocketmq_mount.socket.gethostname", lambda: "vm.example_1")
    assert facts(make_node).broker_name == "vm-example_1"
    found = facts(make_node, broker_name="b", cluster_name="C", default_queues=7)
    assert (found.broker_name, found.cluster, found.queues, found.host, found.store_host) == ("b", "C", 7, "", b"")
    with pytest.raises(ConfigError, match=r"rocketmq\.broker_name: 'a b' is no name"):
        facts(make_node, broker_name="a b")


def test_clients_are_told_the_host_of_the_settings(make_node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = facts(make_node, advertised_host="192.0.2.7", advertised_port=7)
    assert (found.host, found.port, found.store_host) == ("192.0.2.7", 7, bytes((192, 0, 2, 7)))
    assert facts(make_node, advertise="192.0.2.8").host == "192.0.2.8"
    found = facts(make_node, advertised_host="localhost")
    assert (found.host, found.store_host) == ("localhost", bytes((127, 0, 0, 1)))
    monkeypatch.setattr(module, "own_addresses", lambda: ("192.0.2.9",))
    assert facts(make_node, advertised_host="::1").store_host == bytes((192, 0, 2, 9))


def test_a_host_that_is_not_known_here_is_told_all_the_same(
    make_node: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def resolve(*_: object, **__: object) -> Any:
        raise socket.gaierror

    monkeypatch.setattr("polymq.server.rocketmq_mount.socket.getaddrinfo", resolve)
    monkeypatch.setattr(module, "own_addresses", lambda: ("192.0.2.9",))
    found = facts(make_node, advertised_host="outside.invalid")
    assert (found.host, found.store_host) == ("outside.invalid", bytes((192, 0, 2, 9)))
    assert caplog.messages == ["rocketmq.advertised_host: the address of outside.invalid is not known here; messages' ids have 192.0.2.9"]


@pytest.mark.parametrize(
    ("bound", "port"),
    [
        ({"vip": TcpAddress("h", 1), "namesrv": TcpAddress("h", 2)}, 1),
        ({"namesrv": TcpAddress("h", 2)}, 2),
        ({"broker": UnixAddress("/x")}, 10911),
    ],
)
def test_the_port_is_the_one_that_is_open(bound: dict[str, Address], port: int, make_node: Any) -> None:
    assert facts(make_node, bound).port == port


@pytest.mark.parametrize(
    ("local_host", "bound", "expected"),
    [
        ("192.0.2.7", TcpAddress("127.0.0.1", 1), "192.0.2.7"),
        ("", TcpAddress("192.0.2.1", 1), "192.0.2.1"),
        ("::1", TcpAddress("::", 1), "192.0.2.9"),
        ("", TcpAddress("::1", 1), "127.0.0.1"),
        ("", UnixAddress("/x"), "127.0.0.1"),
    ],
)
def test_ids_have_the_address_by_which_a_client_has_come(
    local_host: str, bound: Address, expected: str, make_node: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "own_addresses", lambda: ("192.0.2.9",))
    door: Any = make_parts(make_node(), {"broker": bound}).factory(Peer("192.0.2.1", 1, local_host=local_host))
    assert door.store_host == socket.inet_aton(expected)


def test_settings_arrive_where_they_count(make_node: Any, tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(PLAIN_ACL)
    section = {"auto_create_on_route": False, "delay_levels": "1s 2s", "acl_file": str(file), "max_message_size_bytes": 100}
    house = make_parts(make_node(**section), HERE).house
    assert (house.auto_create_topics, house.auto_create_on_route) == (True, False)
    assert house.delays.level_max() == 2
    assert house.gate is not None
    assert house.settings.body_size_bytes_max == 100
    house = make_parts(make_node(auto_create_topics=False), HERE).house
    assert (house.auto_create_topics, house.auto_create_on_route) == (False, False)


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"delay_levels": "1s soon"}, "rocketmq.delay_levels: soon is no time: a number and s, m, h or d"),
        ({"name_servers": ("x",)}, "rocketmq.name_servers: 'x': expected"),
        ({"acl_file": "/nowhere"}, "rocketmq.acl_file: /nowhere cannot be read"),
        ({"tls_required": True}, "rocketmq.tls_required: TLS cannot be required without"),
        ({"tls_cert": "/nowhere", "tls_key": "/nowhere"}, "rocketmq.tls_cert, rocketmq.tls_key: "),
    ],
)
def test_what_is_wrong_is_said(section: dict[str, Any], problem: str, make_node: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        make_parts(make_node(**section), HERE)
    assert caught.value.problems[0].startswith(problem)


def test_tls_needs_a_certificate_and_its_key(tmp_path: Path) -> None:
    assert make_tls(RocketmqSettings()) is None
    path = str(Authority(tmp_path).issue("broker"))
    make = make_tls(RocketmqSettings(tls_cert=path, tls_key=path))
    assert make is not None
    assert make() is not make()


def test_a_vip_channel_that_nobody_finds_is_told(make_node: Any, caplog: pytest.LogCaptureFixture) -> None:
    make_parts(make_node(), {**HERE, "vip": TcpAddress("127.0.0.1", 10909)})
    assert caplog.messages == []
    make_parts(make_node(), {**HERE, "vip": TcpAddress("127.0.0.1", 10910)})
    assert caplog.messages == ["rocketmq.vip: clients look for it at the broker's port - 2, which is 10909, not 10910"]


def test_name_servers_are_told_where_clients_find_the_broker(make_node: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Any] = []

    class Names:
        def __init__(self, *arguments: Any, **_: Any) -> None:
            found.append(arguments[4])

        def register_at(self, addresses: Any) -> None:
            found.append(addresses)

    monkeypatch.setattr(module, "NameServers", Names)
    make_parts(make_node(name_servers=("ns:9876",), broker_name="b"), HERE)
    identity, addresses = found
    assert (identity.broker_name, identity.address, addresses) == ("b", "127.0.0.1:10911", (TcpAddress("ns", 9876),))
    assert [(topic.name, topic.perm) for topic in identity.fixed] == [
        ("DefaultCluster", 6),
        ("b", 6),
        ("DefaultCluster_REPLY_TOPIC", 6),
        ("TBW102", 7),
    ]


# -- a node on loopback ------------------------------------------------------------------------------------------------


class Client:
    """One socket that asks."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.decoder = Decoder(ProtocolSettings(), server=False)
        self.data = b""
        self.opaque = 0

    def ask(self, code: int, body: bytes = b"", **ext: Any) -> Request:
        self.opaque += 1
        self.socket.sendall(encode_request(code, self.opaque, ext=ext, body=body))
        while True:
            events: list[Any] = []
            consumed = self.decoder.feed(memoryview(self.data), events) if self.data else 0
            self.data = self.data[consumed:]
            for event in events:
                if isinstance(event, Request) and event.response:
                    return event
            piece = self.socket.recv(65536)
            assert piece
            self.data += piece


def test_a_message_is_sent_and_pulled_over_loopback(make_node: Any) -> None:
    import asyncio

    node = make_node(broker=ANY_PORT, broker_name="broker-a")
    (mount,) = mount_all(node, backlog=5)
    answers: list[Request] = []
    shell = Shell(node.pump, node.poller, node.wake_up, replace(ShellSettings(), stop_timeout_ns=100_000_000))
    shell.listen(mount.listener, mount.factory, room=mount.room)

    async def run() -> None:
        loop = asyncio.get_running_loop()

        def talk() -> None:
            try:
                client = Client(mount.listener.bound.port)  # type: ignore[union-attr]  # it is a TcpAddress
                answers.append(client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="t"))
                names = {"a": "PG", "b": "t", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1795212447778", "h": "0"}
                fields: dict[str, Any] = names | {"i": "TAGS\x01TagA", "j": "0", "k": "false", "m": "false"}
                answers.append(client.ask(RequestCode.SEND_MESSAGE_V2, b"hello", **fields))
                asked = {"consumerGroup": "G", "topic": "t", "queueId": "1", "queueOffset": "0", "maxMsgNums": "32", "commitOffset": "0"}
                more: dict[str, Any] = {
                    "sysFlag": "4",
                    "suspendTimeoutMillis": "0",
                    "subVersion": "0",
                    "subscription": "*",
                    "expressionType": "TAG",
                }
                answers.append(client.ask(RequestCode.PULL_MESSAGE, **(asked | more)))
                client.socket.close()
            finally:
                loop.call_soon_threadsafe(shell.stop_soon)

        thread = threading.Thread(target=talk)
        thread.start()
        await shell.run()
        thread.join()

    asyncio.run(run())
    route, sent, pulled = answers
    assert orjson.loads(route.body)["brokerDatas"][0]["brokerAddrs"] == {"0": mount.listener.address}
    assert sent.ext["queueId"] == "1"
    assert sent.ext["msgId"].startswith("7F000001")
    assert (pulled.code, b"hello" in pulled.body, pulled.ext["nextBeginOffset"]) == (0, True, "1")


def test_what_is_signed_can_be_read_on_the_way_and_that_is_said(make_node: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "plain_acl.yml"
    file.write_text(PLAIN_ACL)
    make_parts(make_node(acl_file=str(file)), HERE)
    assert [message for message in caplog.messages if "can be read" in message]
