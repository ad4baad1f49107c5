from __future__ import annotations

import hashlib
import logging
import socket
import ssl
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from polymq.cli.nsqd_options import OPTIONS
from polymq.config_sections import AccessSettings, NatsSettings, NsqSettings, ServerSettings, Settings
from polymq.config_values import TcpAddress, UnixAddress
from polymq.errors import ConfigError
from polymq.gateways.contract import Peer
from polymq.gateways.effects import Send
from polymq.gateways.http.gateway import HttpGateway
from polymq.gateways.login import Credentials, Denied
from polymq.gateways.nsq.tcp import NsqGateway
from polymq.gateways.nsqlookup.tcp import LookupGateway
from polymq.server import nsq_parts
from polymq.server.mounts import mount_all
from polymq.server.node import Node
from polymq.server.nsq_mount import _change_log_level, nsq_settings
from polymq.server.nsq_parts import start_statsd
from polymq.server.tasks import Tasks
from polymq.wire.tls import TlsLayer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from polymq.config_values import Address
    from polymq.gateways.effects import Effect
    from polymq.server.mount import Mount

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
    assert b"nsq.here_invalid_14151." in answer(http, "/config/statsd_prefix")


@pytest.mark.parametrize(("told", "port"), [(14151, 14151), (0, None)])
def test_statsd_knows_this_node_by_the_port_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: int, port: int | None
) -> None:
    ports: list[int] = []

    def sender(_node: Node, *, broadcast_address: str, http_port: int) -> None:
        assert broadcast_address == "here.invalid"
        ports.append(http_port)

    monkeypatch.setattr(nsq_parts, "statsd_sender", sender)
    server = ServerSettings(data=tmp_path / "data", http=None, advertise="here.invalid")
    node = Node(Settings(server=server, nsq=nsq(tcp=None, http=ANY_PORT, broadcast_http_port=told)))
    [http] = mount_all(node, backlog=5)
    try:
        start_statsd(node, [http], Tasks())
        bound = http.listener.bound
        assert isinstance(bound, TcpAddress)
        assert ports == [port or bound.port]
    finally:
        http.listener.close()
        node.close()


def test_every_option_of_nsqds_file_is_shown(mounted: Any) -> None:
    [http] = mounted(nsq(tcp=None, http=ANY_PORT))
    keys = [option.file_key for option in OPTIONS if option.file_key and not option.unreleased]
    assert len(keys) > 40
    assert [key for key in keys if not answer(http, f"/config/{key}").startswith(b"HTTP/1.1 200 ")] == []


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


def test_deferrals_over_http_may_be_longer_than_nsqds_own() -> None:
    hour_ms = 3_600_000
    for section, limits in (
        (NsqSettings(), (hour_ms, hour_ms)),
        (NsqSettings(max_req_timeout_ns=5_000_000_000), (5000, 5000)),
        (NsqSettings(max_http_defer_ns=86_400_000_000_000), (hour_ms, 24 * hour_ms)),
        (NsqSettings(max_http_defer_ns=1_000_000_000), (hour_ms, 1000)),
    ):
        settings = nsq_settings(section)
        assert (settings.requeue_delay_ms_max, settings.http_delay_ms_max) == limits


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


class Guarded:
    """A node whose doors want secrets: whoever may do what, by name."""

    def __init__(self, folder: Path, section: NsqSettings, entries: dict[str, str]) -> None:
        keys = folder / "keys.toml"
        keys.write_text(
            "".join(
                f'[keys.{name}]\nsecret_hash = "{hashlib.sha256(name.encode()).hexdigest()}"\npermissions = [{{ {entry} }}]\n'
                for name, entry in entries.items()
            )
        )
        access = AccessSettings(file=str(keys), http="login")
        self.node = Node(Settings(server=ServerSettings(data=folder / "data", http=None), access=access, nsq=section))
        self.mounts = mount_all(self.node, backlog=5)

    def ask(self, request: str, secret: str = "") -> int:
        """One HTTP request to the last port; the answer's status."""
        effects: list[Any] = []
        header = f"Authorization: Bearer {secret}\r\n" if secret else ""
        gateway = self.mounts[-1].factory(Peer("127.0.0.1", 1))
        gateway.feed(memoryview(f"{request} HTTP/1.1\r\nHost: h\r\n{header}\r\n".encode()), effects)
        return int(effects[0].data[9:12])

    def close(self) -> None:
        """Let go of everything."""
        for mount in self.mounts:
            mount.listener.close()
        self.node.close()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Any]:
    """Make such nodes."""
    made: list[Guarded] = []

    def make(section: NsqSettings, **entries: str) -> Guarded:
        made.append(Guarded(tmp_path, section, entries))
        return made[-1]

    yield make
    for each in made:
        each.close()


KEYS = {
    "operator": 'actions = ["manage"]',
    "reader": 'actions = ["read"]',
    "one": 'topic = "^t$", actions = ["read", "manage"]',
    "publisher": 'actions = ["publish"]',
}


def test_only_who_may_manage_everything_changes_the_directory_of_a_guarded_node(guarded: Any) -> None:
    node = guarded(nsq(tcp=None, http=None, lookup_tcp=ANY_PORT, lookup_http=ANY_PORT), **KEYS)
    assert node.ask("POST /topic/create?topic=t", "operator") == 200
    for path in ("/topic/delete?topic=t", "/topic/tombstone?topic=t&node=h:1", "/channel/create?topic=t&channel=c"):
        assert [node.ask(f"POST {path}", secret) for secret in ("", "wrong", *KEYS)] == [401, 401, 200, 403, 403, 403]
    for path in ("/lookup?topic=t", "/nodes", "/topics", "/channels?topic=t", "/ping"):
        assert node.ask(f"GET {path}") == 200, "consumers cannot bring a secret"


def test_options_are_for_who_may_read_everything_and_changing_them_for_who_may_manage_it(guarded: Any) -> None:
    node = guarded(nsq(tcp=None, http=ANY_PORT, auth_http_addresses=("http://user:planted@auth",)), **KEYS)
    assert [node.ask("GET /config/auth_http_addresses", secret) for secret in KEYS] == [403, 200, 403, 403]
    assert [node.ask("PUT /config/log_level", secret) for secret in KEYS] == [413, 403, 403, 403]
    assert [node.ask("GET /info", secret) for secret in KEYS] == [200] * 4


IDENTITY = str(Path(__file__).parents[1] / "wire" / "self_signed.pem")


def https_settings(**more: Any) -> NsqSettings:
    return nsq(tcp=None, http=ANY_PORT, https=ANY_PORT, tls_cert=IDENTITY, tls_key=IDENTITY, **more)


def test_https_tells_who_is_asked_for_a_secret_of_the_clients_certificate(guarded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    node = guarded(https_settings(tls_client_auth_policy="require"), **KEYS)
    shown: list[Credentials] = []

    def find(credentials: Credentials) -> Denied:
        shown.append(credentials)
        return Denied("planted")

    monkeypatch.setattr(node.node.guests, "find", find)
    gateway = node.mounts[-1].factory(Peer("127.0.0.1", 1))
    effects: list[Any] = []
    gateway.opened(effects)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(IDENTITY)
    context.load_cert_chain(IDENTITY)
    server, client = effects[0].layer, TlsLayer(context, "test.invalid")
    for _ in range(2):
        server.receive(client.send(b""))
        client.receive(server.send(b""))
    assert server.established
    gateway.feed(memoryview(b"GET /stats HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer planted\r\n\r\n"), [])
    assert shown == [Credentials(b"planted", "127.0.0.1", tls=True, common_name="test.invalid")]


def opening(mount: Mount) -> list[str]:
    """What a new connection begins with."""
    effects: list[Effect] = []
    mount.factory(Peer("127.0.0.1", 1)).opened(effects)
    return [type(effect).__name__ for effect in effects]


def test_https_is_the_same_within_tls(mounted: Any) -> None:
    [http, https] = mounted(https_settings())
    assert http.what != https.what
    assert opening(http) == ["SetTimer"]
    assert opening(https) == ["Upgrade", "SetTimer"]


def plain_answer(http: Mount) -> bytes:
    effects: list[Effect] = []
    http.factory(Peer("127.0.0.1", 1)).feed(memoryview(b"GET /ping HTTP/1.1\r\nHost: h\r\n\r\n"), effects)
    [sent] = [effect for effect in effects if isinstance(effect, Send)]
    return sent.data


@pytest.mark.parametrize(("required", "refused"), [("false", False), ("tcp-https", False), ("true", True)])
def test_plain_http_where_tls_is_required(mounted: Any, required: str, refused: bool) -> None:
    [http, https] = mounted(https_settings(tls_required=required))
    assert (f'"https_port": {https.listener.bound.port}}}'.encode() in plain_answer(http)) is refused


def test_tls_that_is_required_may_be_nowhere_over_http(mounted: Any) -> None:
    [http] = mounted(nsq(tcp=None, http=ANY_PORT, tls_cert=IDENTITY, tls_key=IDENTITY, tls_required="true"))
    assert b'"https_port": 0}' in plain_answer(http)


def test_https_needs_a_certificate(mounted: Any) -> None:
    with pytest.raises(ConfigError, match=r"nsq\.https: HTTPS needs a certificate"):
        mounted(nsq(tcp=None, http=None, https=ANY_PORT))


def test_https_that_cannot_be_had_leaves_nothing_open(mounted: Any, tmp_path: Path) -> None:
    path = tmp_path / "http"
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(ConfigError, match=r"nsq\.https: cannot listen on"):
        settings = replace(https_settings(), http=UnixAddress(str(path)), https=TcpAddress("127.0.0.1", taken.getsockname()[1]))
        mounted(settings)
    assert not path.exists()


def test_answers_are_counted_by_listener(mounted: Any) -> None:
    [http, https] = mounted(https_settings())
    for path in ("/ping", "/ping", "/nope"):
        http.factory(Peer("127.0.0.1", 1)).feed(memoryview(f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode()), [])
    http.factory(Peer("127.0.0.1", 1)).feed(memoryview(b"nonsense\r\n\r\n"), [])
    assert (http.answers, https.answers) == ({200: 2, 400: 1, 404: 1}, {})


@pytest.mark.parametrize(
    "access", [AccessSettings(), AccessSettings(secret_hash=hashlib.sha256(b"s3cret").hexdigest(), http="login")], ids=["open", "guarded"]
)
def test_the_monitoring_pages_of_nats(tmp_path: Path, access: AccessSettings) -> None:
    settings = Settings(
        server=ServerSettings(data=tmp_path / "data", http=None),
        nsq=nsq(tcp=None, http=None),
        nats=NatsSettings(client=ANY_PORT, http=ANY_PORT),
        access=access,
    )
    node = Node(settings)
    mounts = mount_all(node, backlog=5)
    try:
        clients, pages = mounts
        assert (clients.what, pages.what) == ("NATS", "NATS monitoring")
        assert clients.house is not None
        answered = answer(pages, "/varz")
        assert answer(pages, "/healthz").endswith(b'{"status":"ok"}')
        if access.http == "login":
            assert answered.startswith(b"HTTP/1.1 401")
        else:
            assert f'"http_port": {pages.listener.address.rpartition(":")[2]},'.encode() in answered
            assert pages.answers == {200: 2}
    finally:
        for each in mounts:
            each.listener.close()
        node.close()


# Which of the packages that belong to a protocol a start may load: NSQ's other half is nsqlookup.
LOADS = {
    "": set(),
    "nsq.tcp": {"nsq", "nsqlookup"},
    "nsq.http": {"nsq", "nsqlookup"},
    "nsq.lookup_tcp": {"nsq", "nsqlookup"},
    "nats.client": {"nats"},
    "phpmq.tcp": {"phpmq"},
    "rocketmq.broker": {"rocketmq"},
    "rocketmq.namesrv": {"rocketmq"},
}
# In an interpreter of its own, which has loaded nothing before. Last it says what is there by then.
STARTING = """
import asyncio, sys
from polymq import config
from polymq.server import serve
from polymq.server.mounts import mount_all
from polymq.server.node import Node
sections = ("server.http", "nsq.tcp", "nsq.http", "nsq.lookup_tcp", "nsq.lookup_http")
asked = {name: "127.0.0.1:0" for name in sys.argv[2:]}
node = Node(config.load(environment={}, flags={"server.data": sys.argv[1]} | dict.fromkeys(sections, "off") | asked))
for mount in mount_all(node, backlog=5):
    mount.listener.close()
node.close()
print(*sys.modules)
"""


@pytest.mark.parametrize("name", LOADS)
def test_a_start_loads_only_the_protocols_that_are_asked_for(name: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", STARTING, str(tmp_path / "data"), *([name] if name else [])]
    loaded = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path).stdout.split()
    assert "polymq.server.mounts" in loaded
    protocols = {"nsq", "nsqlookup", "nats", "phpmq", "rocketmq"}
    found = {
        parts[2] for each in loaded if (parts := each.split("."))[:2] in (["polymq", "protocols"], ["polymq", "gateways"]) and parts[2:]
    }
    found |= {parts[2].partition("_")[0] for each in loaded if (parts := each.split("."))[:2] == ["polymq", "server"] and parts[2:]}
    assert found & protocols == LOADS[name]
