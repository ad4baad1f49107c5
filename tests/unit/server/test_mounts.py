from __future__ import annotations

import hashlib
import logging
import socket
from typing import TYPE_CHECKING, Any

import pytest

from polymq.config_sections import AccessSettings, NsqSettings, ServerSettings, Settings
from polymq.config_values import TcpAddress, UnixAddress
from polymq.errors import ConfigError
from polymq.gateways.contract import Peer
from polymq.gateways.http.gateway import HttpGateway
from polymq.gateways.nsq.tcp import NsqGateway
from polymq.gateways.nsqlookup.tcp import LookupGateway
from polymq.server.mounts import Mount, _change_log_level, mount_all, nsq_settings
from polymq.server.node import Node

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from polymq.config_values import Address

ANY_PORT = TcpAddress("127.0.0.1", 0)


def nsq(**settings: Any) -> NsqSettings:
    """Settings without the lookup role, unless they say otherwise."""
    return NsqSettings(**({"lookup_tcp": None, "lookup_http": None} | settings))


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Any]:
    """Mount what a section asks for."""
    nodes: list[tuple[Node, list[Mount]]] = []

    def mount(section: NsqSettings, http: Address | None = None, *, asked: Sequence[str] = ()) -> list[Mount]:
        settings = Settings(
            server=ServerSettings(data=tmp_path / "data", http=http, advertise="here.invalid"),
            nsq=section,
            origins=dict.fromkeys(asked, "flag"),
        )
        node = Node(settings)
        nodes.append((node, []))
        mounts = mount_all(node, backlog=5)
        nodes[-1][1].extend(mounts)
        return mounts

    yield mount
    for node, mounts in nodes:
        for each in mounts:
            each.listener.close()
        node.close()


def answer(mount: Mount, path: str) -> bytes:
    """One HTTP request."""
    effects: list[Any] = []
    mount.factory(Peer("127.0.0.1", 1)).feed(memoryview(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode()), effects)
    return bytes(effects[0].data)


def test_both_listeners_make_their_gateways(mounted: Any) -> None:
    tcp, http = mounted(nsq(tcp=ANY_PORT, http=ANY_PORT))
    peer = Peer("127.0.0.1", 1)
    assert isinstance(tcp.factory(peer), NsqGateway)
    assert isinstance(http.factory(peer), HttpGateway)
    assert tcp.listener.bound.port > 0


def test_the_products_own_door(mounted: Any) -> None:
    [door] = mounted(nsq(tcp=None, http=None), ANY_PORT)
    assert isinstance(door.factory(Peer("127.0.0.1", 1)), HttpGateway)


def test_nothing_is_left_open_when_something_cannot_be_had(mounted: Any, tmp_path: Path) -> None:
    path = tmp_path / "nsq"
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match=r"server\.http: cannot listen on"):
        mounted(nsq(tcp=UnixAddress(str(path)), http=None), TcpAddress("127.0.0.1", taken.getsockname()[1]))
    assert not path.exists()


def test_what_is_off_does_not_listen(mounted: Any) -> None:
    assert mounted(nsq(tcp=None, http=None)) == []


def test_unix_sockets(mounted: Any, tmp_path: Path) -> None:
    [tcp, _] = mounted(nsq(tcp=UnixAddress(str(tmp_path / "nsq")), http=UnixAddress(str(tmp_path / "http"))))
    assert tcp.listener.address == f"unix:{tmp_path / 'nsq'}"


def test_the_lookup_role_lists_this_node(mounted: Any) -> None:
    tcp, lookup, http = mounted(nsq(tcp=ANY_PORT, http=None, lookup_tcp=ANY_PORT, lookup_http=ANY_PORT))
    assert isinstance(lookup.factory(Peer("127.0.0.1", 1)), LookupGateway)
    assert f'"broadcast_address":"here.invalid","tcp_port":{tcp.listener.bound.port},"http_port":-1'.encode() in answer(http, "/nodes")


def test_other_ports_may_be_told_than_are_listened_on(mounted: Any) -> None:
    ports = {"broadcast_tcp_port": 14150, "broadcast_http_port": 14151}
    _, http, _, directory = mounted(nsq(tcp=ANY_PORT, http=ANY_PORT, lookup_tcp=ANY_PORT, lookup_http=ANY_PORT, **ports))
    assert b'"tcp_port":14150,"http_port":14151' in answer(directory, "/nodes")
    assert answer(http, "/config/broadcast_tcp_port").endswith(b"14150")
    assert b'"tcp_port":14150' not in answer(http, "/info")


@pytest.mark.parametrize("name", ["lookup_tcp", "lookup_http"])
def test_a_machine_with_a_directory_needs_no_second_one(mounted: Any, caplog: pytest.LogCaptureFixture, name: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ports = {"lookup_tcp": ANY_PORT, "lookup_http": ANY_PORT, name: TcpAddress("127.0.0.1", taken.getsockname()[1])}
        [mount] = mounted(nsq(tcp=ANY_PORT, http=None, **ports))
    assert mount.what == "NSQ"
    assert f"nsq.{name}: cannot listen on" in caplog.text
    assert "going on without the lookup role" in caplog.text


def test_a_directory_that_was_asked_for_has_to_be_had(mounted: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match=r"nsq\.lookup_http: cannot listen on"):
        port = TcpAddress("127.0.0.1", taken.getsockname()[1])
        mounted(nsq(tcp=None, http=None, lookup_tcp=ANY_PORT, lookup_http=port), asked=["nsq.lookup_http"])


def test_a_port_that_is_taken_is_said_by_the_settings_name(mounted: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match=r"nsq\.http: cannot listen on"):
        mounted(nsq(tcp=None, http=TcpAddress("127.0.0.1", taken.getsockname()[1])))


def test_every_setting_of_the_section_reaches_the_protocol() -> None:
    section = NsqSettings(max_msg_size_bytes=1, max_rdy_count=2, msg_timeout_ns=3_000_000_000, max_heartbeat_interval_ns=4_000_000_000)
    settings = nsq_settings(section)
    assert settings.message_size_bytes_max == 1
    assert settings.ready_count_max == 2
    assert settings.message_timeout_ms == 3000
    assert settings.heartbeat_interval_ms_max == 4000


def test_the_log_level_can_be_changed_by_nsqds_names() -> None:
    logger = logging.getLogger("polymq")
    before = logger.level
    try:
        for name, level in (("debug", logging.DEBUG), ("warn", logging.WARNING), ("fatal", logging.CRITICAL)):
            _change_log_level(name)
            assert logger.level == level
    finally:
        logger.setLevel(before)


def test_doors_are_guarded_if_they_are_to_be(tmp_path: Path) -> None:
    secret_hash = hashlib.sha256(b"planted").hexdigest()
    settings = Settings(
        server=ServerSettings(data=tmp_path / "data", http=ANY_PORT),
        access=AccessSettings(secret_hash=secret_hash, http="login"),
        nsq=nsq(tcp=ANY_PORT, http=ANY_PORT),
    )
    node = Node(settings)
    mounts = mount_all(node, backlog=5)

    def ask(mount: Mount, path: str, secret: str = "") -> bytes:
        effects: list[Any] = []
        header = f"Authorization: Bearer {secret}\r\n" if secret else ""
        mount.factory(Peer("127.0.0.1", 1)).feed(memoryview(f"GET {path} HTTP/1.1\r\nHost: h\r\n{header}\r\n".encode()), effects)
        data: bytes = effects[0].data
        return data[9:12]

    tcp, http, door = mounts
    for mount, checked, path in ((http, "/ping", "/stats"), (door, "/healthz", "/v1/topics")):
        assert ask(mount, checked) == b"200"
        assert ask(mount, path) == b"401"
        assert ask(mount, path, "wrong") == b"401"
        assert ask(mount, path, "planted") == b"200"
    assert ask(http, "/config/log_level", "planted") == b"200"
    effects: list[Any] = []
    tcp.factory(Peer("127.0.0.1", 1)).feed(memoryview(b"  V2SUB t c\n"), effects)
    assert b"E_AUTH_FIRST" in effects[0].data
    for mount in mounts:
        mount.listener.close()
    node.close()
