"""Users, permissions and accounts, each by itself; what must fit together is in test_nats_assembly.py."""

from __future__ import annotations

import pytest

from polymq.server.nats_accounts import is_user_nkey
from polymq.server.nats_settings import (
    ExportSettings,
    ImportSettings,
    PermissionSettings,
    ResponseRule,
    SubjectRule,
    SubjectRules,
    UserSettings,
)
from tests.unit.server.nats_world import NKEY, notes_of, problems_of, settings_of

SECOND = 10**9


def permissions_of(text: str) -> PermissionSettings:
    """Read the permissions of a user."""
    permissions = settings_of(f"authorization {{ users: [{{ user: u, password: p, permissions: {text} }}] }}").users[0].permissions
    assert permissions is not None
    return permissions


def problem_of(text: str) -> str:
    (problem,) = problems_of(text)
    return problem.partition(": ")[2]


def rules(*subjects: str) -> tuple[SubjectRule, ...]:
    return tuple(SubjectRule(*subject.split()) for subject in subjects)


def test_a_single_user_or_a_token() -> None:
    said = settings_of("authorization { user: u, password: $2a$11$abc, timeout: 0.5 }").authorization
    assert (said.user, said.password, said.token, said.timeout_ns) == ("u", "$2a$11$abc", "", SECOND // 2)
    said = settings_of("authorization { username: u, pass: p }").authorization
    assert (said.user, said.password, said.timeout_ns) == ("u", "p", 2 * SECOND)
    assert settings_of("authorization { token: t }").authorization.token == "t"


def test_users() -> None:
    text = f"""
    FEW = {{ publish: "few.>" }}
    authorization {{
      default_permissions: {{ subscribe: "public.>" }}
      users: [
        {{ user: a, password: b }}
        {{ username: c, pass: d, permissions: $FEW, allowed_connection_types: [standard, WEBSOCKET] }}
        {{ nkey: {NKEY} }}
      ]
    }}
    """
    public = PermissionSettings(subscribe=SubjectRules(rules("public.>")))
    assert settings_of(text).users == (
        UserSettings("a", "b", permissions=public),
        UserSettings("c", "d", permissions=PermissionSettings(SubjectRules(rules("few.>")))),
        UserSettings(nkey=NKEY, permissions=public),
    )


@pytest.mark.parametrize(
    ("text", "permissions"),
    [
        ("{}", PermissionSettings()),
        ('{ publish: ">" }', PermissionSettings(SubjectRules(rules(">")))),
        ("{ pub: [a, b.*], sub: c }", PermissionSettings(SubjectRules(rules("a", "b.*")), SubjectRules(rules("c")))),
        ("{ publish: { allow: a, deny: [b, c] } }", PermissionSettings(SubjectRules(rules("a"), rules("b", "c")))),
        ("{ publish: { deny: b } }", PermissionSettings(SubjectRules(None, rules("b")))),
        ("{ publish: {} }", PermissionSettings()),
        ('{ subscribe: ["a q", "b.> *.dev"] }', PermissionSettings(subscribe=SubjectRules(rules("a q", "b.> *.dev")))),
        ("{ allow_responses: true }", PermissionSettings(SubjectRules(()), responses=ResponseRule())),
        ("{ allow_responses: false }", PermissionSettings()),
        ("{ allow_responses: yes, publish: a }", PermissionSettings(SubjectRules(rules("a")), responses=ResponseRule())),
        ("{ publish: { deny: b }, allow_responses: on }", PermissionSettings(SubjectRules((), rules("b")), responses=ResponseRule())),
        ('{ allow_responses: { max: 5, expires: "10s" } }', PermissionSettings(SubjectRules(()), responses=ResponseRule(5, 10 * SECOND))),
        ("{ publish_allow_responses: { max_msgs: 0, ttl: 0s } }", PermissionSettings(SubjectRules(()), responses=ResponseRule())),
        ('{ allow_responses: { max: -1, expires: "-1s" } }', PermissionSettings(SubjectRules(()), responses=ResponseRule(None, None))),
    ],
)
def test_permissions(text: str, permissions: PermissionSettings) -> None:
    assert permissions_of(text) == permissions


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("yes", "expected a block, { … }"),
        ("{ publsh: a }", "nats-server has no such key; did you mean 'publish'?"),
        ("{ publish: [1] }", "expected text, not a number; put it in quotes"),
        ("{ publish: a..b }", "'a..b': expected a subject"),
        ('{ publish: "a q" }', "'a q': expected a subject"),
        ('{ subscribe: "a q r" }', "'a q r': expected a subject"),
        (
            '{ subscribe: "a q..r" }',
            "'a q..r': expected a subject: words with dots between them, * for any word, > at the end for any number",
        ),
        ("{ publish: { allow: 5 } }", "expected a list, [ … ], not a number"),
        ("{ publish: { alow: a } }", "nats-server has no such key; did you mean 'allow'?"),
        ("{ allow_responses: 5 }", "expected true, false or a block"),
        ("{ allow_responses: { max: many } }", "expected a whole number, not text"),
        ("{ allow_responses: { expires: soon } }", "expected a time with its unit"),
    ],
)
def test_what_is_no_permission(text: str, said: str) -> None:
    problem = problem_of(f"authorization {{ users: [{{ user: u, password: p, permissions: {text} }}] }}")
    assert problem.partition(": ")[0].startswith("authorization.users.permissions")
    assert problem.partition(": ")[2][: len(said)] == said


def test_an_empty_list_is_told_about() -> None:
    notes = notes_of("authorization { users: [{ user: u, password: p, permissions: { publish: [], subscribe: { allow: [] } } }] }")
    said = 'an empty list allows everything, as with nats-server; deny: ">" allows nothing'
    assert notes == [f"1: authorization.users.permissions.publish: {said}", f"1: authorization.users.permissions.subscribe.allow: {said}"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("user: u, token: t", "authorization.token: a single user and a token exclude each other"),
        ("users: [{user: a, password: b}], token: t", "authorization.users: a list of users excludes a single user and a token"),
        ("users: [{user: a, password: b}], user: t", "authorization.users: a list of users excludes a single user and a token"),
        ("password: p", "authorization.password: whose password is this? user is missing"),
        ("password: 12345, user: u", "authorization.password: expected text, not a number; put it in quotes"),
        ("users: { user: a }", "authorization.users: expected a list, [ … ], not a block"),
        ("users: [a]", "authorization.users: expected a block for each user"),
        ("users: [{password: p}]", "authorization.users: somebody without a name"),
        (f"users: [{{nkey: {NKEY}, user: a}}]", "authorization.users: who has an nkey has neither name nor password"),
        (f"users: [{{nkey: {NKEY}, password: a}}]", "authorization.users: who has an nkey has neither name nor password"),
        (f"users: [{{nkey: {NKEY[:-1]}A}}]", "authorization.users: this nkey is not the public key of a user"),
        ("users: [{user: a, password: b, clients: [MQTT]}]", "authorization.users: polymq serves STANDARD connections only"),
        ("users: [{user: a, password: b, clients: [TELEX]}]", "authorization.users.clients: expected some of STANDARD, WEBSOCKET"),
        ("users: [{user: a, password: b, proxy_required: yes}]", "authorization.users.proxy_required: polymq does not serve this"),
        ("auth_callout { issuer: A }", "authorization.auth_callout: polymq does not serve this (it asks no other service who may log in)"),
        ("timeout: 1m", "authorization.timeout: 1m without quotes is the number 1000000"),
    ],
)
def test_what_is_no_authorization(text: str, said: str) -> None:
    assert problem_of(f"authorization {{ {text} }}")[: len(said)] == said


def test_a_password_may_be_a_variable() -> None:
    settings = settings_of("authorization { PASS: secret, users: [{ user: a, password: $PASS }] }")
    assert (settings.users[0].password, settings.authorization.user) == ("secret", "")


def test_every_user_is_looked_at() -> None:
    problems = problems_of("authorization { users: [\n{ user: 1 }\n{ passwrd: x, user: a }\n{ user: ok, password: p }\n5\n] }")
    assert [problem.partition(":")[0] for problem in problems] == ["2", "3", "5"]


def test_who_needs_no_password_is_told_about() -> None:
    assert notes_of("authorization { users: [{user: a}] }") == [
        "1: authorization.users: 'a' has no password: whoever gives that name and none is let in"
    ]


@pytest.mark.parametrize("wrong", ["", "U", NKEY.lower(), NKEY[:-1] + "A", "A" + NKEY[1:], NKEY + "A", "U" * 56, "=" * 56, "é" * 56])
def test_nkeys(wrong: str) -> None:
    assert is_user_nkey(NKEY)
    assert not is_user_nkey(wrong)


ACCOUNTS = """
accounts {
  SHARED = { publish: ">" }
  A {
    default_permissions: $SHARED
    users: [{ user: a, password: p }, { user: b, password: p, permissions: { publish: x } }]
    exports: [
      { stream: "s.>" }
      { service: "help.*", accounts: [B], response_type: Stream, threshold: "5s" }
      { service: free, accounts: [] }
    ]
  }
  B {
    imports: [
      { stream: { account: A, subject: "s.x" } }
      { stream: { account: A, subject: "s.*.y" }, prefix: from.a }
      { stream: { account: A, subject: "s.>" }, to: "all.>" }
      { service: { account: A, subject: "help.*" }, to: "h.$1" }
    ]
  }
  $SYS { users: [{ user: sys, password: p }] }
}
"""


def test_accounts() -> None:
    settings = settings_of(ACCOUNTS)
    assert [(user.name, user.account) for user in settings.users] == [("a", "A"), ("b", "A"), ("sys", "$SYS")]
    assert [user.permissions and user.permissions.publish.allow for user in settings.users] == [rules(">"), rules("x"), None]
    first, second, third = settings.accounts
    assert first.exports == (
        ExportSettings("stream", "s.>"),
        ExportSettings("service", "help.*", ("B",), "stream", 5 * SECOND),
        ExportSettings("service", "free"),
    )
    assert second.imports == (
        ImportSettings("stream", "A", "s.x", "s.x"),
        ImportSettings("stream", "A", "s.*.y", "from.a.s.*.y"),
        ImportSettings("stream", "A", "s.>", "all.>"),
        ImportSettings("service", "A", "help.*", "h.$1"),
    )
    assert (third.name, third.exports, third.imports) == ("$SYS", (), ())
    assert [note.partition(": ")[2] for note in settings.notes] == [
        "accounts.A.exports.accounts: an empty list lets every account import this, as with nats-server"
    ]


@pytest.mark.parametrize(
    ("said", "enabled"),
    [
        ("enabled", True),
        ("Enable", True),
        ("true", True),
        ("{}", True),
        ("disabled", False),
        ("disable", False),
        ("false", False),
    ],
)
def test_accounts_that_may_use_jetstream_of_other_servers(said: str, enabled: bool) -> None:
    settings = settings_of(f"accounts {{ A {{ jetstream: {said} }} }}\ncluster {{ port: 6222, pool_size: -1 }}")
    assert [account.jetstream for account in settings.accounts] == [enabled]
    assert settings.notes == ()


def test_limits_of_jetstream_are_not_set_here() -> None:
    settings = settings_of("accounts { A { jetstream { max_mem: 1G, max_file: 5G } } }\ncluster { port: 6222, pool_size: -1 }")
    assert settings.accounts[0].jetstream
    assert [note.partition(": ")[2] for note in settings.notes] == [
        f"accounts.A.jetstream.{key}: has no meaning here: the servers that have JetStream set its limits"
        for key in ("max_mem", "max_file")
    ]


def test_jetstream_of_other_servers_needs_a_cluster() -> None:
    (note,) = settings_of("accounts { A { jetstream: enabled } }").notes
    assert note.partition(": ")[2] == (
        "accounts.A.jetstream: it means JetStream of other servers, and there is no cluster here that could have some"
    )


def test_accounts_as_a_list() -> None:
    assert [account.name for account in settings_of("accounts: [A, B]").accounts] == ["A", "B"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5", "accounts: expected a block, { … }"),
        ("[A, A]", "accounts: the account 'A' is there already"),
        ("[5]", "accounts: expected text, not a number; put it in quotes"),
        ('["$G"]', "accounts: $G is the account of those who have no other"),
        ("{ $G {} }", "accounts.$G: $G is the account of those who have no other"),
        ('{ "a b" {} }', "accounts.a b: expected a name without blanks"),
        ("{ A: 5 }", "accounts.A: expected a block, { … }, for each account"),
        ("{ A { user: x } }", "accounts.A.user: nats-server has no such key; did you mean 'users'?"),
        ("{ A { jetstream: much } }", "accounts.A.jetstream: expected one of enabled,"),
        ("{ A { jetstream: 5 } }", "accounts.A.jetstream: expected text, not a number"),
        ("{ A { jetstream { max_storage: 5 } } }", "accounts.A.jetstream.max_storage: nats-server has no such key; did you mean"),
        ("{ A { mappings { a: b } } }", "accounts.A.mappings: polymq does not serve this"),
        ("{ A { limits { max_conn: 5 } } }", "accounts.A.limits: polymq does not serve this"),
        ("{ A { exports: { stream: x } } }", "accounts.A.exports: expected a list, [ … ], not a block"),
        ("{ A { exports: [x] } }", "accounts.A.exports: expected a block for each export"),
        ("{ A { exports: [{}] } }", "accounts.A.exports: expected either stream or service, and one of them"),
        ("{ A { exports: [{stream: x, service: y}] } }", "accounts.A.exports: expected either stream or service, and one of them"),
        ("{ A { exports: [{stream: x..y}] } }", "accounts.A.exports.stream: expected a subject"),
        ("{ A { exports: [{stream: x, response: stream}] } }", "accounts.A.exports: only services are answered"),
        ("{ A { exports: [{service: x, response: many}] } }", "accounts.A.exports.response: expected one of single,"),
        ("{ A { exports: [{service: x, latency: y}] } }", "accounts.A.exports.latency: polymq does not serve this"),
        ("{ A { imports: x } }", "accounts.A.imports: expected a list, [ … ], not text"),
        ("{ A { imports: [x] } }", "accounts.A.imports: expected a block for each import"),
        ("{ A { imports: [{ to: x }] } }", "accounts.A.imports: expected either stream or service, and one of them"),
        ("{ A { imports: [{ stream: x }] } }", "accounts.A.imports.stream: expected a block, { … }"),
        ("{ A { imports: [{ stream: {account: B} }] } }", "accounts.A.imports.stream: expected { account: NAME, subject: SUBJECT }"),
        ("{ A { imports: [{ stream: {account: B, subject: 5} }] } }", "accounts.A.imports.stream.subject: expected text"),
        (
            "{ A { imports: [{ stream: {account: B, subject: x}, prefix: p, to: t }] } }",
            "accounts.A.imports.prefix: a prefix and to exclude",
        ),
        ("{ A { imports: [{ service: {account: B, subject: x}, prefix: p }] } }", "accounts.A.imports.prefix: a service has no prefix"),
        ("{ A { imports: [{ stream: {account: B, subject: x}, prefix: p.* }] } }", "accounts.A.imports.prefix: expected a subject without"),
        ("{ A { imports: [{ stream: {account: B, subject: x}, prefix: p..q }] } }", "accounts.A.imports.prefix: expected a subject"),
        ('{ A { imports: [{ stream: {account: B, subject: "x.*"}, to: y }] } }', "accounts.A.imports.to: 'x.*' has 1 times *"),
        ("{ A { imports: [{ service: {account: B, subject: x}, share: yes }] } }", "accounts.A.imports.share: polymq does not serve this"),
    ],
)
def test_what_is_no_account(text: str, said: str) -> None:
    assert problem_of(f"accounts: {text}")[: len(said)] == said


def test_passwords_are_not_shown() -> None:
    settings = settings_of(
        "authorization { users: [{ user: u, password: planted }] }\ncluster { authorization { user: c, password: planted } }"
    )
    assert settings.users[0].password == "planted"
    assert "planted" not in repr(settings)
    assert "planted" not in repr(settings_of("authorization { token: planted }"))
    for text in ("user: u, password: planted, token: planted", "users: [{ password: planted }]", "password: [planted]", "pass: planted"):
        assert "planted" not in "".join(problems_of(f"authorization {{ {text} }}"))
