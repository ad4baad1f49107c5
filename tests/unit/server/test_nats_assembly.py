"""Defaults, addresses, and what must fit together."""

from __future__ import annotations

import pytest

from polymq.config_values import TcpAddress
from polymq.server.nats_settings import NatsServerSettings
from tests.unit.server.nats_world import NKEY, notes_of, problems_of, settings_of

SECOND = 10**9
ANY = "0.0.0.0"


def test_without_a_word_everything_is_as_with_nats_server() -> None:
    assert settings_of("") == NatsServerSettings()


@pytest.mark.parametrize(
    ("text", "listen", "http"),
    [
        ("listen: 4333", TcpAddress(ANY, 4333), None),
        ("listen: 127.0.0.1:4333", TcpAddress("127.0.0.1", 4333), None),
        ('listen: "[::1]:4333"', TcpAddress("::1", 4333), None),
        ("port: 0", TcpAddress(ANY, 4222), None),
        ("port: -1", TcpAddress(ANY, 0), None),
        ("net: localhost, port: 1", TcpAddress("localhost", 1), None),
        ("host: 127.0.0.1, http: 8222", TcpAddress("127.0.0.1", 4222), TcpAddress("127.0.0.1", 8222)),
        ("listen: 127.0.0.1:1, http: localhost:8222", TcpAddress("127.0.0.1", 1), TcpAddress("localhost", 8222)),
        ("monitor_port: -1", TcpAddress(ANY, 4222), TcpAddress(ANY, 0)),
        ("http_port: 0", TcpAddress(ANY, 4222), None),
    ],
)
def test_addresses(text: str, listen: TcpAddress, http: TcpAddress | None) -> None:
    settings = settings_of(text)
    assert (settings.listen, settings.http) == (listen, http)


@pytest.mark.parametrize(
    ("text", "listen"),
    [
        ("name: c", None),
        ("port: 0", None),
        ("port: 6222", TcpAddress(ANY, 6222)),
        ("listen: -1", TcpAddress(ANY, 0)),
        ("listen: h:6222", TcpAddress("h", 6222)),
        ("host: h, port: 6222", TcpAddress("h", 6222)),
    ],
)
def test_addresses_of_a_cluster(text: str, listen: TcpAddress | None) -> None:
    made = settings_of(f"host: elsewhere\ncluster {{ {text} }}").cluster
    assert made is not None
    assert made.listen == listen


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("listen: 1\nport: 2", "2: port: listen says this as well; keep one of the two"),
        ("host: h\nlisten: 1", "1: host: listen says this as well; keep one of the two"),
        ("http: 1\nhttp_port: 2", "2: http_port: http says this as well; keep one of the two"),
        (
            "max_payload: 2MB\nmax_pending: 1MB",
            "1: max_payload: max_payload (2097152) is more than max_pending (1048576): a message could never",
        ),
        ("max_pending: 1k", "1: max_payload: max_payload (1048576) is more than max_pending (1000)"),
        (
            'lame_duck_duration: "30s"\nlame_duck_grace_period: "30s"',
            "2: lame_duck_grace_period: expected less than lame_duck_duration (30s)",
        ),
        ('lame_duck_grace_period: "3m"', "1: lame_duck_grace_period: expected less than lame_duck_duration (2m), not 3m"),
        ("no_auth_user: a", "1: no_auth_user: there is no user 'a': it must be in a list of users"),
        ("no_auth_user: a\nauthorization { user: a, password: b }", "1: no_auth_user: there is no user 'a'"),
        ("system_account: SYS", "1: system_account: there is no account 'SYS' in accounts"),
        (
            "authorization { users: [\n{user: a, password: x}\n{user: a, password: y}] }",
            "3: users: 'a' is there already (test.conf:2); whoever logs in could be either",
        ),
        (
            "authorization { users: [{user: a, password: x}] }\naccounts { A { users: [{user: a, password: x}] } }",
            "2: users: 'a' is there already (test.conf:1)",
        ),
        (f"accounts {{ A {{ users: [{{nkey: {NKEY}}}, {{nkey: {NKEY}}}] }} }}", f"1: users: '{NKEY}' is there already"),
        (
            "authorization { user: a, password: b }\naccounts { A { users: [{user: c, password: x}] } }",
            "2: accounts: users of accounts and a single user in authorization exclude each other",
        ),
        (
            "authorization { token: a }\naccounts { A { users: [{user: c, password: x}] } }",
            "2: accounts: users of accounts and a token in authorization exclude each other",
        ),
    ],
)
def test_contradictions(text: str, said: str) -> None:
    (problem,) = problems_of(text)
    assert problem[: len(said)] == said


def test_who_need_not_log_in() -> None:
    assert settings_of("no_auth_user: a\naccounts { A { users: [{user: a, password: p}] } }").no_auth_user == "a"
    assert settings_of("accounts { SYS {} }\nsystem_account: SYS").system_account == "SYS"


def test_what_is_told() -> None:
    assert notes_of("authorization { user: u, password: p, permissions { publish: x } }") == [
        "1: authorization: permissions are for a list of users; a single user may do everything"
    ]
    assert notes_of("authorization { user: u }") == ["1: authorization: 'u' has no password: whoever gives that name and none is let in"]
    assert notes_of("allow_non_tls: true") == ["1: allow_non_tls: there is no TLS here that could be left out"]
    assert notes_of("port: 1\nport: 2") == ["2: 'port' is written again; what line 1 says no longer counts"]


def test_a_login_has_the_time_of_the_handshake_as_well() -> None:
    assert settings_of("tls { cert_file: c, key_file: k }").authorization.timeout_ns == 3 * SECOND
    assert settings_of("tls { cert_file: c, key_file: k, timeout: 4 }").authorization.timeout_ns == 5 * SECOND
    assert settings_of("tls { cert_file: c, key_file: k }\nauthorization { timeout: 1 }").authorization.timeout_ns == SECOND


# What nats-server 2.9.10 takes and refuses (-t), but for an import of one's own under the same name, which it takes.
STREAMS = (
    "A {{ exports: [{{ stream: {0} }}], imports: [{{ stream: {{ account: B, subject: {1} }} {2} }}] }}, B {{ exports: [{{ stream: {3} }}], "
)
STREAMS += "imports: [{{ stream: {{ account: A, subject: {4} }} {5} }}] }}"


@pytest.mark.parametrize(
    "text",
    [
        STREAMS.format("a", "b", "", "b", "a", ""),
        STREAMS.format("x", "x", ", prefix: p", "x", "x", ", prefix: q"),
        STREAMS.format("x", "x", ", prefix: p", "x", "x", ""),
        STREAMS.format("x", "x", ", to: y", "x", "x", ", to: z").replace("stream", "service"),
        "A { exports: [{ stream: x }], imports: [{ stream: { account: A, subject: x }, to: y }] }",
        'A { exports: [{ stream: "x.>" }] }, B { imports: [{ stream: { account: A, subject: "x.*.y" } }] }',
        "A { exports: [{ stream: x, accounts: [B] }] }, B { imports: [{ stream: { account: A, subject: x } }] }",
        "A { exports: [{service: x}] }, B { imports: [{service: {account: A, subject: x}, to: y}, {service: {account: A, subject: x}, to: z}] }",
    ],
)
def test_imports(text: str) -> None:
    assert settings_of(f"accounts {{ {text} }}").accounts


TWICE = 'A { exports: [{service: "x.>"}] }, '
TWICE += "B { imports: [{service: {account: A, subject: x.y}, to: z}, {service: {account: A, subject: x.z}, to: z}] }"
THREE = "A { exports: [{stream: x}], imports: [{stream: {account: B, subject: x}}] }, "
THREE += "B { exports: [{stream: x}], imports: [{stream: {account: C, subject: x}}] }, "
THREE += "C { exports: [{stream: x}], imports: [{stream: {account: A, subject: x}}] }"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("A { exports: [{ stream: x, accounts: [D] }] }", "accounts.A.exports: there is no account 'D'"),
        ("B { imports: [{ stream: { account: A, subject: x } }] }", "accounts.B.imports: there is no account 'A'"),
        (
            "A {}, B { imports: [{ stream: { account: A, subject: x } }] }",
            "accounts.B.imports: the account 'A' does not export the stream 'x'",
        ),
        (
            "A { exports: [{ service: x }] }, B { imports: [{ stream: { account: A, subject: x } }] }",
            "accounts.B.imports: the account 'A' does not export the stream 'x'",
        ),
        (
            'A { exports: [{ stream: "x.*" }] }, B { imports: [{ stream: { account: A, subject: "x.>" } }] }',
            "accounts.B.imports: the account 'A' does not export the stream 'x.>'",
        ),
        (
            "A { exports: [{ stream: x, accounts: [A] }] }, B { imports: [{ stream: { account: A, subject: x } }] }",
            "accounts.B.imports: the account 'A' exports the stream 'x', but not to 'B'",
        ),
        (
            "A { exports: [{stream: x}] }, B { imports: [{stream: {account: A, subject: x}}, {stream: {account: A, subject: x}, prefix: z}] }",
            "accounts.B.imports: 'x' of 'A' is imported already",
        ),
        (
            TWICE,
            "accounts.B.imports: 'z' of 'A' is imported already",
        ),
        (STREAMS.format("x", "x", "", "x", "x", ""), "accounts.A.imports: the stream 'x' would come back to 'A' by imports of 'B'"),
        (
            STREAMS.format("x", "x", "", "x", "x", "").replace("stream", "service"),
            "accounts.A.imports: the service 'x' would come back to 'A' by imports of 'B'",
        ),
        (STREAMS.format('"x.>"', "x.y", "", '"x.*"', '"x.>"', ""), "accounts.A.imports: the stream 'x.y' would come back to 'A'"),
        (THREE, "accounts.A.imports: the stream 'x' would come back to 'A' by imports of 'B'"),
        (
            "A { exports: [{ stream: x }], imports: [{ stream: { account: A, subject: x } }] }",
            "accounts.A.imports: the stream 'x' would come back to 'A' by imports of 'A'",
        ),
    ],
)
def test_imports_that_cannot_be(text: str, said: str) -> None:
    assert problems_of(f"accounts {{ {text} }}")[0].removeprefix("1: ")[: len(said)] == said


def test_all_problems_at_once() -> None:
    text = "prt: 1\nmax_payload: big\ncluster {\n  nme: c\n}\naccounts { A { imports: [{ stream: { account: B, subject: x } }] } }\nx: $y\n"
    assert [problem.partition(": ")[0] for problem in problems_of(text)] == ["7", "1", "2", "4", "7"]
    text = text.replace("x: $y\n", "")
    assert [problem.partition(": ")[0] for problem in problems_of(text)] == ["1", "2", "4", "6"]


def test_what_follows_from_a_problem_is_not_one() -> None:
    (problem,) = problems_of("no_auth_user: a\nauthorization { users: [{ user: a, password: 5 }] }")
    assert problem.startswith("2: authorization.users.password")
    (problem,) = problems_of("include no.conf\nno_auth_user: a")
    assert problem.startswith("1: include")
    (problem,) = problems_of("max_pending: 1x\nmax_payload: 1k")
    assert problem.startswith("1: max_pending")
