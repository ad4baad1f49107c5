"""The keys at the top, in cluster and in tls: what each comes to, and what is said of those that polymq does not have."""

from __future__ import annotations

from typing import Any

import pytest

from polymq import limits
from polymq.config_values import TcpAddress
from polymq.server.nats_keys import BLOCKS, parse_route, table
from polymq.server.nats_settings import RouteUrl, SubjectRule, SubjectRules, TlsSettings
from tests.project.layout import ROOT
from tests.unit.server.nats_world import notes_of, problems_of, settings_of

SECOND = 10**9
FILES = "cert_file: c.pem, key_file: k.pem"


@pytest.mark.parametrize(
    ("text", "field", "value"),
    [
        ("server_name: n1", "server_name", "n1"),
        ("SERVER_NAME: n1", "server_name", "n1"),
        ("client_advertise: public:4222", "client_advertise", TcpAddress("public", 4222)),
        ("system_account: $SYS_", "system_account", "$SYS"),
        ('system: "$SYS"', "system_account", "$SYS"),
        ("allow_non_tls: true", "allow_non_tls", True),
        ("max_connections: 10", "connections_max", 10),
        ("max_conn: 0", "connections_max", None),
        ("max_connections: -1", "connections_max", None),
        ("max_subscriptions: 5", "subscriptions_max", 5),
        ("max_subs: 0", "subscriptions_max", None),
        ("max_subscription_tokens: 16", "subscription_tokens_max", 16),
        ("max_sub_tokens: 255", "subscription_tokens_max", 255),
        ("max_control_line: 8k", "control_line_size_bytes_max", 8000),
        ("max_control_line: 0", "control_line_size_bytes_max", 4096),
        ("max_payload: 8MB", "payload_size_bytes_max", limits.MESSAGE_SIZE_BYTES_MAX),
        ("max_payload: 0", "payload_size_bytes_max", 1 << 20),
        ("max_pending: 128MB", "pending_size_bytes_max", 128 << 20),
        ('ping_interval: "30s"', "ping_interval_ns", 30 * SECOND),
        ("ping_max: 5", "ping_max", 5),
        ('write_deadline: "2s"', "write_deadline_ns", 2 * SECOND),
        ('lame_duck_duration: "30s"', "lame_duck_duration_ns", 30 * SECOND),
        ('lame_duck_grace_period: "5s"', "lame_duck_grace_period_ns", 5 * SECOND),
        ("debug: true", "debug", True),
        ("log_file: /var/log/n.log", "log_file", "/var/log/n.log"),
        ("logfile: n.log", "log_file", "n.log"),
        ("pid_file: /run/n.pid", "pid_file", "/run/n.pid"),
        ("pidfile: n.pid", "pid_file", "n.pid"),
    ],
)
def test_keys_at_the_top(text: str, field: str, value: object) -> None:
    settings = settings_of(text, environment={"SYS_": '"$SYS"'})
    assert getattr(settings, field) == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('server_name: "a b"', "server_name: expected a name without blanks"),
        ("max_payload: 9MB", "max_payload: expected a number from 1 to 8388608"),
        ("max_payload: -1", "max_payload: expected a number from 1 to 8388608"),
        ("max_control_line: 5", "max_control_line: expected a number from 64 to 1048576"),
        ("max_subscription_tokens: 0", "max_subscription_tokens: expected a number from 1 to 255"),
        ("max_subscription_tokens: 256", "max_subscription_tokens: expected a number from 1 to 255"),
        ('lame_duck_duration: "29s"', "lame_duck_duration: expected a time from 30s to"),
        ("ping_interval: 2m", "ping_interval: 2m without quotes is the number 2000000"),
        ("port: 70000", "port: expected a number from -1 to 65535"),
        ("port: -2", "port: expected a number from -1 to 65535"),
        ("lissten: 4222", "lissten: nats-server has no such key; did you mean 'listen'?"),
        ("jetstream { store_dir: x }", "jetstream: polymq does not serve this (it has no JetStream of its own;"),
        ("jetstream: enabled", "jetstream: polymq does not serve this"),
        ("websocket { port: 80 }", "websocket: polymq does not serve this (it has no WebSocket)"),
        ("mqtt { port: 1883 }", "mqtt: polymq does not serve this (it has no MQTT)"),
        ("leafnodes { port: 7422 }", "leafnodes: polymq does not serve this (it has no leaf nodes)"),
        ("gateway { name: g }", "gateway: polymq does not serve this (it has no gateways between clusters)"),
        ("operator: op.jwt", "operator: polymq does not serve this (it knows users and accounts of its own file"),
        ("resolver: MEMORY", "resolver: polymq does not serve this"),
        ("trusted_keys: [O]", "trusted_keys: polymq does not serve this"),
        ("https: 8443", "https: polymq does not serve this (the monitoring pages are there over plain HTTP; see http)"),
        ("syslog: true", "syslog: polymq does not serve this"),
        ("log_size_limit: 1MB", "log_size_limit: polymq does not serve this"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    (problem,) = problems_of(text)
    assert problem.removeprefix("1: ")[: len(said)] == said


def test_what_asks_for_nothing_is_taken() -> None:
    lines = [
        "jetstream: disabled",
        "https_port: 0",
        "syslog: off",
        'remote_syslog: ""',
        "prof_port: 0",
        "no_header_support: false",
        "trace: no",
    ]
    assert notes_of("\n".join([*lines, "write_timeout: close", "logtime: true", 'http_base_path: "/"'])) == []


@pytest.mark.parametrize(
    "text",
    [
        "trace: true",
        "trace_verbose: yes",
        "logtime: false",
        "logtime_utc: on",
        "server_tags: [a]",
        "max_closed_clients: 5",
        "no_sys_acc: true",
    ],
)
def test_what_has_no_meaning_is_noted(text: str) -> None:
    (note,) = notes_of(text)
    assert note.startswith(f"1: {text.partition(':')[0]}: has no meaning here: ")


def test_an_account_may_have_a_key() -> None:
    assert notes_of("accounts { A { nkey: x } }") == ["1: accounts.A.nkey: has no meaning here: accounts are known by their names"]


def cluster(text: str) -> Any:
    """Read a cluster that must be right."""
    return settings_of(f"cluster {{ {text} }}").cluster


def test_a_cluster() -> None:
    text = """
      name: c1, listen: 0.0.0.0:6222
      routes: [nats-route://u:p%40w@a:6222, "nats://b:1"
               "tls://[::1]:2"]
      authorization { user: u, password: p@w, timeout: 1 }
      cluster_advertise: me:7222, no_advertise: true, connect_retries: 5, connect_backoff: true
      permissions { import: { deny: "secret.>" }, export: [a, b] }
      ping_interval: "15s", ping_max: 3, compression: off, pool_size: -1, accounts: []
    """
    made = cluster(text)
    assert (made.name, made.listen, made.advertise) == ("c1", TcpAddress("0.0.0.0", 6222), TcpAddress("me", 7222))
    assert made.routes == (RouteUrl("a", 6222, "u", "p@w"), RouteUrl("b", 1), RouteUrl("::1", 2))
    assert (made.user, made.password, made.auth_timeout_ns) == ("u", "p@w", SECOND)
    assert (made.no_advertise, made.connect_retries, made.connect_backoff) == (True, 5, True)
    assert made.imports == SubjectRules(None, (SubjectRule("secret.>"),))
    assert made.exports == SubjectRules((SubjectRule("a"), SubjectRule("b")))
    assert (made.ping_interval_ns, made.ping_max) == (15 * SECOND, 3)
    assert notes_of(f"cluster {{ {text} }}") == []


def test_what_is_said_of_a_cluster() -> None:
    connected = "1: cluster: servers are connected by one connection each, as those with pool_size: -1; the others do that for it"
    assert notes_of("cluster { port: 6222 }") == [connected]
    compression = "1: cluster.compression: polymq does not compress between servers; the others notice and do not either"
    for mode in ("s2_fast", "true", "s2_auto", '"on"'):
        assert notes_of(f"cluster {{ pool_size: -1, compression: {mode} }}") == [compression]
    assert notes_of("cluster { pool_size: -1, compression: { mode: s2_auto, rtt_thresholds: [10ms] } }") == [
        compression.replace("compression:", "compression.mode:")
    ]
    for mode in ("accept", "off", "disabled", "{ mode: off }"):
        assert notes_of(f"cluster {{ pool_size: -1, compression: {mode} }}") == []
    (note,) = notes_of("cluster { port: 1, pool_size: -1, routes: [nats://a:1, nats://a:1] }")
    assert note == "1: cluster.routes: a:1 is in the list already"
    (note,) = notes_of("cluster { pool_size: -1, routes: [nats://a:1] }")
    assert note.startswith("1: cluster.routes: nobody is dialled, as with nats-server")


def test_permissions_of_a_cluster_may_stand_in_its_authorization() -> None:
    text = "authorization { permissions { import: a } }, pool_size: -1"
    assert cluster(text).imports == SubjectRules((SubjectRule("a"),))
    assert notes_of(f"cluster {{ {text} }}")[0].startswith("1: cluster.authorization: permissions belong into the block cluster itself")
    assert cluster(f"{text}, permissions {{ import: b }}").imports == SubjectRules((SubjectRule("b"),))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("pool_size: 3", "cluster.pool_size: polymq connects to each server once; write -1, or take it out"),
        ("pool_size: 0", "cluster.pool_size: polymq connects to each server once; write -1, or take it out"),
        ("accounts: [A]", "cluster.accounts: polymq does not serve this (no account has a connection of its own)"),
        ("compression: zip", "cluster.compression: expected off, accept, s2_auto"),
        ("compression: { mode: zip }", "cluster.compression.mode: expected off, accept, s2_auto"),
        ('name: "a b"', "cluster.name: expected a name without blanks"),
        ("routes: nats://a:1", "cluster.routes: expected a list, [ … ], not text"),
        ("routes: [a:1]", "cluster.routes: expected nats-route://HOST:PORT, or nats-route://USER:PASSWORD@HOST:PORT"),
        ("routes: [5]", "cluster.routes: expected text, not a number"),
        ("authorization { users: [] }", "cluster.authorization: servers have one user and password for all of them"),
        ("authorization { token: t }", "cluster.authorization: servers have one user and password for all of them"),
        ("permissions { import: a, allow_responses: true }", "cluster.permissions: allow_responses is for users"),
        ('permissions { export: "a q" }', "cluster.permissions: expected subjects without queue groups"),
        ('write_deadline: "1s"', "cluster.write_deadline: polymq does not serve this (write_deadline at the top is for servers as well)"),
        ("connect_retries: -1", "cluster.connect_retries: expected a number from 0"),
        ("listen: 6222, port: 6222", "cluster.port: listen says this as well; keep one of the two"),
        ("jetstream: true", "cluster.jetstream: nats-server has no such key"),
        ("tls {}", "cluster.tls: cert_file and key_file are both needed"),
    ],
)
def test_what_is_no_cluster(text: str, said: str) -> None:
    (problem,) = problems_of(f"cluster {{ {text} }}")
    assert problem.removeprefix("1: ")[: len(said)] == said


def test_a_cluster_is_a_block() -> None:
    assert problems_of("cluster: c1") == ["1: cluster: expected a block, { … }"]


def test_too_many_routes() -> None:
    def text(count: int) -> str:
        return f"cluster {{ port: 1, routes: [{','.join(f'nats://a:{port}' for port in range(1, count + 1))}] }}"

    made = settings_of(text(1000)).cluster
    assert made is not None
    assert len(made.routes) == 1000
    assert problems_of(text(1001))[0].startswith("1: cluster.routes: expected at most 1000 servers")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "a:1",
        "nats://",
        "nats://a",
        "nats://a:0",
        "nats://a:x",
        "nats://a:70000",
        "http://a:1",
        "nats://a:1/x",
        "nats://a:1?x=y",
        "nats://[a:1",
    ],
)
def test_what_is_no_route(text: str) -> None:
    with pytest.raises(ValueError, match=r"^expected nats-route://HOST:PORT"):
        parse_route(text)


def test_a_wrong_route_shows_no_password() -> None:
    (problem,) = problems_of("cluster { routes: ['nats://u:planted@a:x'] }")
    assert "planted" not in problem
    assert "planted" not in repr(parse_route("nats://u:planted@a:1"))


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("", {}),
        ("ca_file: ca.pem, verify: true", {"ca_file": "ca.pem", "verify": True}),
        ("timeout: 5", {"timeout_ns": 5 * SECOND}),
        ('timeout: "500ms"', {"timeout_ns": SECOND // 2}),
        ("handshake_first: true", {"handshake_first": True}),
        ("first: on", {"handshake_first": True}),
        ("immediate: no", {}),
        ('handshake_first: "off"', {}),
        ("handshake_first: auto", {"handshake_first": True, "fallback_delay_ns": 50 * 10**6}),
        ('handshake_first: "300ms"', {"handshake_first": True, "fallback_delay_ns": 300 * 10**6}),
        ('min_version: "1.3"', {"min_version": "1.3"}),
        ("min_version: 1.2", {}),
        ("verify_and_map: false, pinned_certs: [], connection_rate_limit: 0", {}),
    ],
)
def test_tls(text: str, changed: dict[str, Any]) -> None:
    assert settings_of(f"tls {{ {FILES}, {text} }}".replace(",  }", "}")).tls == TlsSettings("c.pem", "k.pem", **changed)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cert_file: c.pem", "tls: cert_file and key_file are both needed"),
        ('cert_file: "", key_file: k', "tls.cert_file: expected text, not nothing"),
        (f'{FILES}, min_version: "1.1"', 'tls.min_version: expected "1.2" or "1.3"'),
        (f"{FILES}, handshake_first: sometimes", "tls.handshake_first: expected a time with its unit"),
        (f"{FILES}, handshake_first: 5", "tls.handshake_first: expected true, false, auto, or a time to wait for the handshake"),
        (f"{FILES}, handshake_first: -5s", "tls.handshake_first: expected true, false, auto, or a time to wait for the handshake"),
        (f"{FILES}, verify_and_map: true", "tls.verify_and_map: polymq does not serve this"),
        (f"{FILES}, cipher_suites: [X]", "tls.cipher_suites: polymq does not serve this (OpenSSL chooses; min_version can be 1.3)"),
        (f"{FILES}, pinned_certs: [X]", "tls.pinned_certs: polymq does not serve this"),
        (f"{FILES}, certfile: x", "tls.certfile: nats-server has no such key; did you mean 'cert_file'?"),
    ],
)
def test_what_is_no_tls(text: str, said: str) -> None:
    (problem,) = problems_of(f"tls {{ {text} }}")
    assert problem.removeprefix("1: ")[: len(said)] == said


def test_tls_is_a_block() -> None:
    assert problems_of("tls: true") == ["1: tls: expected a block, { cert_file: …, key_file: … }"]


def test_insecure_is_for_dialling() -> None:
    assert notes_of(f"tls {{ {FILES}, insecure: true }}") == [
        "1: tls.insecure: is for servers that this one dials; for clients there is verify"
    ]
    made = cluster(f"port: 1, pool_size: -1, tls {{ {FILES}, insecure: true }}")
    assert made.tls == TlsSettings("c.pem", "k.pem", insecure=True)
    assert made.auth_timeout_ns == 3 * SECOND, "with TLS the handshake is part of it"


def test_no_key_is_both_here_and_not_here() -> None:
    assert [name for keys, foreign in BLOCKS.values() for name in keys if name in foreign] == []


def test_the_tables_of_the_documents_are_those_that_are_followed() -> None:
    assert table() in ROOT.joinpath("docs", "FROM_NATS_SERVER.md").read_text(encoding="utf-8"), (
        "python -c 'from polymq.server.nats_keys import table; print(table())' writes it again"
    )
