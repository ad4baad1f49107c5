"""What NATS's section, its file and a command's flags come to."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from polymq.config_sections import NatsSettings, NsqSettings, ServerSettings, Settings
from polymq.config_values import TcpAddress, UnixAddress
from polymq.errors import ConfigError
from polymq.gateways.contract import Peer
from polymq.gateways.effects import Send
from polymq.server.mounts import mount_all
from polymq.server.nats_mount import NatsRole, nats_role
from polymq.server.nats_settings import ClusterSettings, NatsServerSettings, UserSettings
from polymq.server.node import Node
from polymq.server.shell import ROOM_KEPT, ROOM_TO_REFUSE

if TYPE_CHECKING:
    from pathlib import Path

HERE = TcpAddress("127.0.0.1", 4222)
THERE = TcpAddress("h", 1)


def role(given: NatsServerSettings | None = None, *, said: tuple[str, ...] = (), **section: Any) -> NatsRole | None:
    return nats_role(Settings(nats=NatsSettings(**section), origins=dict.fromkeys(said, "flag")), given)


def some_role(given: NatsServerSettings | None = None, *, said: tuple[str, ...] = (), **section: Any) -> NatsRole:
    found = role(given, said=said, **section)
    assert found is not None
    return found


def test_nothing_said_is_no_nats() -> None:
    assert role() is None


def test_without_a_file_it_is_what_the_section_says() -> None:
    assert some_role(client=HERE) == NatsRole(NatsServerSettings(listen=HERE), HERE)
    found = some_role(http=THERE, cluster=HERE, cluster_name="c")
    assert found.client is None
    assert (found.settings.http, found.settings.cluster) == (THERE, ClusterSettings("c", HERE))
    path = UnixAddress("/run/nats")
    assert some_role(client=path).client == path


def test_a_file_says_everything_but_what_the_section_says(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text('listen: "127.0.0.1:4223"\nhttp: "127.0.0.1:8223"\ncluster { name: x, listen: "127.0.0.1:6223" }\nlog_file: "l"\n')
    found = some_role(config=str(file))
    assert found.client == found.settings.listen == TcpAddress("127.0.0.1", 4223)
    assert found.settings.http == TcpAddress("127.0.0.1", 8223)
    assert found.settings.notes[-1] == f"{file}: log_file has no meaning for polymq serve"
    found = some_role(config=str(file), client=THERE, http=None, cluster=HERE, cluster_name="mine", said=("nats.http",))
    assert (found.client, found.settings.listen, found.settings.http) == (THERE, THERE, None)
    assert found.settings.cluster == ClusterSettings("mine", HERE)
    found = some_role(config=str(file), said=("nats.client", "nats.cluster"))
    assert (found.client, found.settings.cluster) == (None, None)


def test_what_a_command_has_read_is_taken_as_it_is() -> None:
    given = NatsServerSettings(listen=THERE, log_file="l")
    assert some_role(given) == NatsRole(given, THERE)
    assert some_role(given, client=HERE).client == HERE


def test_a_file_that_is_wrong_is_told(tmp_path: Path) -> None:
    file = tmp_path / "server.conf"
    file.write_text("nonsense: 7\n")
    with pytest.raises(ConfigError, match="nonsense"):
        role(config=str(file))


def test_only_clients_may_come_by_a_path() -> None:
    path = UnixAddress("/run/x")
    with pytest.raises(ConfigError, match=r"nats\.http: expected HOST:PORT"):
        role(http=path)
    with pytest.raises(ConfigError, match=r"nats\.cluster: expected HOST:PORT"):
        role(cluster=path)


def test_a_node_serves_what_its_file_says(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "server.conf"
    file.write_text('listen: "127.0.0.1:-1"\nserver_name: me\nauthorization { token: t }\npid_file: "p"\n')
    settings = Settings(
        server=ServerSettings(data=tmp_path / "data", http=None),
        nsq=NsqSettings(tcp=None, http=None, lookup_tcp=None, lookup_http=None),
        nats=NatsSettings(config=str(file)),
    )
    with caplog.at_level(logging.WARNING):
        node = Node(settings)
    assert [each.getMessage() for each in caplog.records] == [f"{file}: pid_file has no meaning for polymq serve"]
    (mount,) = mount_all(node, backlog=5)
    effects: list[Any] = []
    mount.factory(Peer("127.0.0.1", 1)).opened(effects)
    (line,) = [effect.data for effect in effects if isinstance(effect, Send)]
    assert b'"server_name":"me"' in line
    assert b'"auth_required":true' in line
    mount.listener.close()
    node.close()


@pytest.mark.parametrize(("wanted", "level"), [(7, ""), (8, "WARNING"), (65_536, "INFO"), (None, "INFO")])
def test_more_clients_than_the_process_serves_are_named_and_refused(
    wanted: int | None, level: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = NatsServerSettings(listen=TcpAddress("127.0.0.1", 0), http=TcpAddress("127.0.0.1", 0), connections_max=wanted)
    node = Node(
        Settings(
            server=ServerSettings(data=tmp_path / "data", connections_max=7, http=None),
            nsq=NsqSettings(tcp=None, http=None, lookup_tcp=None, lookup_http=None),
        ),
        nats=given,
    )
    with caplog.at_level(logging.INFO):
        clients, pages = mount_all(node, backlog=5)
    assert [each.levelname for each in caplog.records if "raise server.connections_max" in each.getMessage()] == ([level] if level else [])
    assert (clients.room, pages.room) == (ROOM_TO_REFUSE, ROOM_KEPT)
    assert clients.house is not None
    said = []
    for taken in (7, 8):
        clients.house.taken = lambda taken=taken: taken  # type: ignore[misc]  # lambdas have no annotations
        effects: list[Any] = []
        clients.factory(Peer("127.0.0.1", 1)).opened(effects)
        said.append([effect.data for effect in effects if isinstance(effect, Send)][-1])
    assert said[0].startswith(b"INFO ")
    assert said[1] == b"-ERR 'maximum connections exceeded'\r\n"
    for mount in (clients, pages):
        mount.listener.close()
    node.close()


def test_a_node_that_is_told_by_a_command_says_nothing_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    given = replace(NatsServerSettings(listen=TcpAddress("127.0.0.1", 0)), notes=("told",), users=(UserSettings("u", "p"),))
    with caplog.at_level(logging.WARNING):
        node = Node(Settings(server=ServerSettings(data=tmp_path / "data")), nats=given)
    assert caplog.records == []
    assert node.nats == NatsRole(given, given.listen)
    node.close()
