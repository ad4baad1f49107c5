from __future__ import annotations

import random
import ssl
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from polymq.config_sections import Settings
from polymq.config_values import TcpAddress
from polymq.core.interest.targets import Target
from polymq.core.live import Live
from polymq.errors import ConfigError
from polymq.gateways.nats.house import House
from polymq.protocols.nats.info import Permissions, ServerInfo
from polymq.protocols.nats.settings import NatsSettings
from polymq.server import nats_cluster as module
from polymq.server.nats_cluster import make_cluster, make_route_tls
from polymq.server.nats_mount import nats_role
from polymq.server.nats_settings import (
    AccountSettings,
    ClusterSettings,
    NatsServerSettings,
    RouteUrl,
    SubjectRule,
    SubjectRules,
    TlsSettings,
)
from polymq.wire.tls import TlsLayer
from tests.unit.server.fake_dialer import FakeDialer
from tests.unit.server.fakes import World
from tests.unit.wire.authority import Authority

if TYPE_CHECKING:
    from pathlib import Path

    from polymq.gateways.nats.cluster import Cluster
    from polymq.server.nats_mount import NatsRole


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


HERE = TcpAddress("10.0.0.1", 6222)
SECOND_NS = 1_000_000_000


class Story:
    def __init__(self, settings: ClusterSettings, **more: Any) -> None:
        self.world = World()
        self.dialer = FakeDialer(self.world.pump)
        broker: Any = SimpleNamespace(live=Live(random.Random(1)))
        logins: Any = None
        info = ServerInfo(server_id="NA", server_name="A", port=4222)
        self.house = House(broker, self.world.clock, NatsSettings(), info, logins, lambda size: bytes(size))
        node: Any = SimpleNamespace(dialer=self.dialer, pump=self.world.pump, clock=self.world.clock)
        told = NatsServerSettings(listen=TcpAddress("10.0.0.1", 4222), cluster=settings, **more)
        self.cluster: Cluster = make_cluster(node, self.house, told, port=7000, tls=make_route_tls(told))


def test_a_member_is_what_the_settings_say() -> None:
    story = Story(ClusterSettings(name="c1", listen=HERE, user="u", password="p", auth_timeout_ns=7))
    facts = story.cluster.facts
    assert (facts.host, facts.port, facts.advertised) == ("10.0.0.1", 7000, False)
    assert (facts.user, facts.password, facts.auth_timeout_ns) == ("u", "p", 7)
    assert (story.cluster.name, story.cluster.dynamic) == ("c1", False)
    assert story.house.cluster is story.cluster
    assert story.house.info.cluster == "c1"
    assert (facts.rules.imports, facts.rules.exports, facts.make_tls) == (None, None, None)
    assert facts.connect_urls == ("10.0.0.1:4222",)


@pytest.mark.parametrize(
    ("accounts", "more", "asking"),
    [
        ((), {}, [""]),
        ((AccountSettings("S"),), {"system_account": "S"}, [""]),
        ((AccountSettings("A"), AccountSettings("B", jetstream=True)), {}, ["B"]),
        ((AccountSettings("A"), AccountSettings("S", jetstream=True)), {"system_account": "S"}, []),
    ],
    ids=["everybody", "the system's beside", "some", "none"],
)
def test_accounts_may_use_jetstream_of_other_servers_as_with_nats_server(
    accounts: tuple[AccountSettings, ...], more: dict[str, str], asking: list[str]
) -> None:
    story = Story(ClusterSettings(name="c1", listen=HERE), accounts=accounts, **more)
    known = story.cluster.accounts
    assert (known.system is not None) == bool(asking)
    if known.system is not None:
        assert known.system.name == more.get("system_account", "$SYS").encode()
        known.system.space.listen(b"$JS.API.>", Target(remote=True), tag=0)
        assert known.system.changed is not None
        known.system.changed()
    found = [account.space.namespace for account in known.by_number if account.space.interest.has(b"$JS.API.INFO")]
    assert [namespace for namespace in found if "of servers" not in namespace] == asking


def test_a_name_is_made_up_if_there_is_none() -> None:
    names = {Story(ClusterSettings(listen=HERE)).cluster.name for _ in range(2)}
    assert len(names) == 2
    assert all(len(name) == 32 for name in names)
    assert Story(ClusterSettings(listen=HERE)).cluster.dynamic


@pytest.mark.parametrize(("port", "expected"), [(0, 7000), (9, 9)])
def test_another_address_is_told_if_there_is_one(port: int, expected: int) -> None:
    facts = Story(ClusterSettings(listen=HERE, advertise=TcpAddress("out.example", port))).cluster.facts
    assert (facts.host, facts.port, facts.advertised) == ("out.example", expected, True)


def test_those_of_the_configuration_are_dialled() -> None:
    story = Story(ClusterSettings(listen=HERE, routes=(RouteUrl("b", 1), RouteUrl("c", 2))))
    assert [dial.address for dial in story.dialer.open] == [TcpAddress("b", 1), TcpAddress("c", 2)]
    assert [dial.tls for dial in story.dialer.open] == [None, None]


def test_accounts_are_those_of_the_configuration_but_the_servers_own() -> None:
    accounts = tuple(AccountSettings(name) for name in ("ONE", "SYS", "TWO"))
    story = Story(ClusterSettings(listen=HERE), accounts=accounts, system_account="SYS")
    assert list(story.cluster.accounts.by_name) == [b"$G", b"ONE", b"TWO"]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (SubjectRules(), None),
        (SubjectRules(allow=(SubjectRule("a"), SubjectRule("b"))), Permissions(("a", "b"), ())),
        (SubjectRules(deny=(SubjectRule("a"),)), Permissions((), ("a",))),
        (SubjectRules(allow=()), Permissions((), (">",))),
    ],
)
def test_what_may_pass(rules: SubjectRules, expected: Permissions | None) -> None:
    assert Story(ClusterSettings(listen=HERE, imports=rules)).cluster.facts.rules.imports == expected
    assert Story(ClusterSettings(listen=HERE, exports=rules)).cluster.facts.rules.exports == expected


def test_pings() -> None:
    pings = Story(ClusterSettings(listen=HERE)).cluster.pings
    assert (pings.first_ns, pings.interval_ns, pings.unanswered_max, pings.always) == (SECOND_NS, 30 * SECOND_NS, 2, True)
    pings = Story(ClusterSettings(listen=HERE, ping_interval_ns=SECOND_NS // 2, ping_max=5)).cluster.pings
    assert (pings.first_ns, pings.interval_ns, pings.unanswered_max) == (SECOND_NS // 2, SECOND_NS // 2, 5)


def test_where_clients_find_this_server(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = ClusterSettings(listen=HERE)
    assert Story(settings, client_advertise=TcpAddress("c.example", 0)).cluster.facts.connect_urls == ("c.example:4222",)
    assert Story(settings, client_advertise=TcpAddress("c.example", 9)).cluster.facts.connect_urls == ("c.example:9",)
    quiet = Story(replace(settings, no_advertise=True)).cluster.facts
    assert (quiet.connect_urls, quiet.tells_clients) == ((), False)
    monkeypatch.setattr(module, "own_addresses", lambda: ("10.0.0.7", "10.0.0.8"))
    everywhere = NatsServerSettings(listen=TcpAddress("0.0.0.0", 4222))
    assert module._client_urls(everywhere, 4222) == ("10.0.0.7:4222", "10.0.0.8:4222")
    assert module._client_urls(NatsServerSettings(listen=TcpAddress("::1", 4222)), 4222) == ("[::1]:4222",)


def test_tls_is_for_both_ends(authority: Authority) -> None:
    certificate = str(authority.issue("localhost"))
    tls = TlsSettings(certificate, certificate, ca_file=str(authority.certificate))
    story = Story(ClusterSettings(listen=HERE, tls=tls, routes=(RouteUrl("localhost", 1),)))
    (dial,) = story.dialer.open
    assert dial.tls is not None
    assert dial.tls.server_name == "localhost"
    context = dial.tls.context
    assert (context.verify_mode, context.check_hostname, context.minimum_version) == (ssl.CERT_REQUIRED, True, ssl.TLSVersion.TLSv1_2)
    made = module.RouteTls(replace(tls, insecure=True, min_version="1.3"))
    context = made.dial("x").context
    assert (context.verify_mode, context.check_hostname, context.minimum_version) == (ssl.CERT_NONE, False, ssl.TLSVersion.TLSv1_3)
    assert made._server.verify_mode is ssl.CERT_REQUIRED
    # The two ends understand each other.
    assert story.cluster.facts.make_tls is not None
    server, client = story.cluster.facts.make_tls(), TlsLayer(made._client, "localhost")
    other = TlsLayer(dial.tls.context, "localhost")
    for _ in range(6):
        server.receive(other.send(b""))
        other.receive(server.send(b""))
    assert server.established
    assert other.established
    assert not client.established


def test_what_is_wrong_with_a_certificate_is_said(authority: Authority, tmp_path: Path) -> None:
    certificate = str(authority.issue("localhost"))
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("nothing", encoding="utf-8")
    tls = TlsSettings(certificate, certificate, ca_file=str(authority.certificate))
    for path in (rubbish, tmp_path / "missing.pem"):
        for wrong in (replace(tls, cert_file=str(path)), replace(tls, ca_file=str(path))):
            with pytest.raises(ConfigError, match=r"cluster\.tls\.(cert|ca)_file: "):
                Story(ClusterSettings(listen=HERE, tls=wrong))


# -- what `polymq serve` is told ---------------------------------------------------------------------------------------


def role_of(**section: Any) -> NatsRole | None:
    return nats_role(replace(Settings(), nats=replace(Settings().nats, client=TcpAddress("h", 4222), **section)))


def test_the_section_says_what_the_block_would_say() -> None:
    role = role_of(cluster=HERE, cluster_name="c1", routes=("nats-route://u:p@b:1", "nats://c:2"))
    assert role is not None
    assert role.settings.cluster == ClusterSettings(name="c1", listen=HERE, routes=(RouteUrl("b", 1, "u", "p"), RouteUrl("c", 2)))
    alone = role_of()
    assert alone is not None
    assert alone.settings.cluster is None


def test_the_section_wins_over_the_block() -> None:
    said = ClusterSettings(name="c1", listen=HERE, routes=(RouteUrl("b", 1),), user="u")
    section = replace(Settings().nats, cluster_name="c2", routes=("nats-route://z:9",))
    role = nats_role(replace(Settings(), nats=section), NatsServerSettings(cluster=said))
    assert role is not None
    assert role.settings.cluster == replace(said, name="c2", routes=(RouteUrl("z", 9),))
    role = nats_role(Settings(), NatsServerSettings(cluster=said))
    assert role is not None
    assert role.settings.cluster == said


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        (
            {"routes": ("nats-route://b:1",)},
            "nats.routes: nobody is dialled without nats.cluster: say where other servers dial this one, HOST:PORT",
        ),
        ({"cluster": HERE, "cluster_name": "a b"}, "nats.cluster_name: the name of a cluster has no blanks"),
        ({"cluster": HERE, "routes": ("b",)}, "nats.routes: expected nats-route://HOST:PORT, or nats-route://USER:PASSWORD@HOST:PORT"),
    ],
)
def test_what_the_section_may_not_say(section: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        role_of(**section)
    assert list(caught.value.problems) == [problem]
