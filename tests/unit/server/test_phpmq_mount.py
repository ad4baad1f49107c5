from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest

from polymq.config_sections import AccessSettings, NatsSettings, NsqSettings, PhpmqSettings, ServerSettings, Settings
from polymq.config_values import TcpAddress, UnixAddress
from polymq.errors import ConfigError
from polymq.gateways.contract import Peer
from polymq.gateways.effects import Close, Effect, Send, Upgrade
from polymq.gateways.phpmq.console import ConsoleGateway
from polymq.gateways.phpmq.tcp import PhpmqGateway
from polymq.protocols.phpmq import frames
from polymq.server.mounts import mount_all
from polymq.server.node import Node
from polymq.server.phpmq_mount import SALT_NAME, folder_salt, phpmq_settings
from tests.unit.wire.tls_world import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from polymq.core.statistics import Registry
    from polymq.server.mount import Mount

ANY_PORT = TcpAddress("127.0.0.1", 0)
PEER = Peer("127.0.0.1", 1)
NO_NSQ = NsqSettings(tcp=None, http=None, lookup_tcp=None, lookup_http=None)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[..., tuple[Node, list[Mount]]]]:
    nodes: list[tuple[Node, list[Mount]]] = []

    def mount(keys: AccessSettings | None = None, **section: Any) -> tuple[Node, list[Mount]]:
        settings = Settings(
            server=ServerSettings(data=tmp_path / "data", http=None),
            access=keys or AccessSettings(),
            nsq=NO_NSQ,
            nats=NatsSettings(),
            phpmq=PhpmqSettings(**section),
        )
        node = Node(settings)
        nodes.append((node, []))
        nodes[-1][1].extend(mount_all(node, backlog=5))
        return nodes[-1]

    yield mount
    for node, mounts in nodes:
        for each in mounts:
            each.listener.close()
        node.close()


def fed(mount: Mount, data: bytes) -> list[Effect]:
    gateway = mount.factory(PEER)
    effects: list[Effect] = []
    gateway.opened(effects)
    gateway.feed(memoryview(data), effects)
    gateway.ended()
    return effects


def sample(registry: Registry, name: str) -> dict[str, float]:
    (family,) = [family for family in registry if family.name == name]
    return {each.labels.get("reason", ""): each.value for each in family.collect()}


def test_nothing_listens_unless_it_is_asked_for(mounted: Any) -> None:
    assert mounted()[1] == []


def test_every_listener_makes_its_gateway(mounted: Any, tmp_path: Path) -> None:
    node, mounts = mounted(
        tcp=ANY_PORT,
        tls=ANY_PORT,
        unix=UnixAddress(str(tmp_path / "s")),
        maintenance=ANY_PORT,
        tls_cert=str(IDENTITY),
        tls_key=str(IDENTITY),
    )
    assert [mount.what for mount in mounts] == ["PHPMQ", "PHPMQ over TLS", "PHPMQ (unix)", "PHPMQ maintenance"]
    gateways = [mount.factory(PEER) for mount in mounts]
    assert [type(gateway) for gateway in gateways] == [PhpmqGateway, PhpmqGateway, PhpmqGateway, ConsoleGateway]
    effects: list[Effect] = []
    gateways[1].opened(effects)
    assert [type(effect) for effect in effects] == [Upgrade]
    answers = [effect.data for effect in fed(mounts[3], b"monitor\n") if isinstance(effect, Send)]
    assert b"queues 0" in answers[1]
    assert node.broker.statistics


def test_what_is_wrong_with_clients_is_counted(mounted: Any) -> None:
    node, (mount,) = mounted(tcp=ANY_PORT)
    assert isinstance(fed(mount, b"GET / HTTP/1.1\r\n")[-1], Close)
    fed(mount, frames.acknowledge("q", [b"x"] * 3))
    assert sample(node.broker.statistics, "polymq_phpmq_closed_total") == {"header": 1}
    assert sample(node.broker.statistics, "polymq_phpmq_foreign_ids_total") == {"": 3}


def test_who_cannot_show_a_key_may_do_nothing_unless_that_is_wanted(mounted: Any, caplog: pytest.LogCaptureFixture) -> None:
    keys = AccessSettings(secret_hash="0" * 64)
    _node, (mount,) = mounted(keys, tcp=ANY_PORT)
    assert "phpmq.access" in caplog.text
    assert isinstance(fed(mount, frames.send("q", b"x"))[-1], Close)


def test_who_cannot_show_a_key_may_do_everything_if_that_is_wanted(mounted: Any, caplog: pytest.LogCaptureFixture) -> None:
    _node, (mount,) = mounted(AccessSettings(secret_hash="0" * 64), tcp=ANY_PORT, access="open")
    with caplog.at_level(logging.WARNING):
        assert not any(isinstance(effect, Close) for effect in fed(mount, frames.send("q", b"x")))


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ({"tls": ANY_PORT}, "phpmq.tls: TLS needs a certificate"),
        ({"tls": ANY_PORT, "tls_cert": "/nowhere", "tls_key": "/nowhere"}, "phpmq.tls_cert, phpmq.tls_key"),
        ({"unix": ANY_PORT}, "phpmq.unix: expected unix:PATH"),
        ({"tcp": ANY_PORT, "group": ""}, "phpmq.group"),
        ({"tcp": ANY_PORT, "unix": UnixAddress("/nowhere/at/all")}, "phpmq.unix: cannot listen"),
    ],
)
def test_what_cannot_be_had_is_said(mounted: Any, section: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        mounted(**section)
    assert problem in str(raised.value)


def test_settings_become_the_protocols() -> None:
    section = PhpmqSettings(dialect="legacy", max_window=5, max_ttl_ns=7_000_000_000, dead_letter="copy", lease_ns=3, group="g")
    known = phpmq_settings(section, salt=9)
    assert (known.legacy, known.window_max, known.ttl_s_max, known.copy_dead, known.lease_ns, known.group, known.salt) == (
        True,
        5,
        7,
        True,
        3,
        "g",
        9,
    )


def test_a_folder_keeps_its_salt(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first = folder_salt(tmp_path)
    assert folder_salt(tmp_path) == first
    assert [path.name for path in tmp_path.iterdir()] == [SALT_NAME]
    (tmp_path / SALT_NAME).write_text("nonsense", encoding="ascii")
    second = folder_salt(tmp_path)
    assert second != first
    assert folder_salt(tmp_path) == second
    assert folder_salt(tmp_path / "nowhere") != second
    assert "cannot be written" in caplog.text
