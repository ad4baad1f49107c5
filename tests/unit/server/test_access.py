from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from polymq.config_sections import AccessSettings, NsqSettings, Settings
from polymq.core.access import Action, ByPermissions
from polymq.errors import ConfigError
from polymq.gateways.login import Credentials, Denied, FirstKeys, Keys, Login
from polymq.gateways.nsq.auth import AuthServers
from polymq.server.access import make_logins, read_keys

if TYPE_CHECKING:
    from pathlib import Path

HASH = hashlib.sha256(b"planted").hexdigest()
OTHER_HASH = hashlib.sha256(b"other").hexdigest()
FILE = f"""
[keys.orders]
secret_hash = "{HASH}"
identity_url = "https://wiki.invalid/orders"
permissions = [
    {{ topic = "^orders$", groups = ["^archive$"], actions = ["subscribe", "read"] }},
    {{ topic = "^orders", actions = ["publish"] }},
]
[keys.ops]
secret_hash = "{OTHER_HASH}"
permissions = [{{ actions = ["publish", "subscribe", "read", "manage"] }}]
"""


def login(text: str, secret: bytes) -> Login:
    keys, problems = read_keys(text)
    assert problems == []
    found = Keys(keys).begin(Credentials(secret))
    assert isinstance(found, Login)
    return found


@pytest.mark.parametrize(
    ("action", "topic", "group", "allowed"),
    [
        (Action.SUBSCRIBE, "orders", "archive", True),
        (Action.SUBSCRIBE, "orders", "other", False),
        (Action.READ, "orders", "", True),
        (Action.PUBLISH, "orders-eu", "", True),
        (Action.PUBLISH, "old-orders", "", False),
        (Action.SUBSCRIBE, "orders-eu", "archive", False),
        (Action.MANAGE, "orders", "", False),
    ],
)
def test_a_file_says_what_a_secret_allows(action: Action, topic: str, group: str, allowed: bool) -> None:
    found = login(FILE, b"planted")
    assert (found.principal.name, found.identity_url, found.permission_count) == ("orders", "https://wiki.invalid/orders", 2)
    assert found.lifetime_ns is None
    assert ByPermissions().allows(found.principal, action, topic, group) is allowed
    assert not found.principal.may_everywhere(action)


def test_what_is_left_out_is_everything() -> None:
    principal = login(FILE, b"other").principal
    assert all(ByPermissions().allows(principal, action, "any", "any") for action in Action)
    assert all(principal.may_everywhere(action) for action in Action)


def entry(**fields: str) -> str:
    """One key, with some of its lines changed."""
    lines = {"secret_hash": f'"{HASH}"', "permissions": '[{ actions = ["read"] }]', **fields}
    return "[keys.k]\n" + "\n".join(f"{name} = {value}" for name, value in lines.items() if value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "there is no key: write [keys.NAME]"),
        ("keys = 7", "there is no key: write [keys.NAME]"),
        ("[", "not valid TOML"),
        ("[users.a]\n" + entry(), "there is no section [users]; keys are in [keys.NAME]"),
        ("keys.k = 7", "[keys.k]: 7 must be a table"),
        (entry(secret_hash=""), "[keys.k]: secret_hash must be 64 hexadecimal digits"),
        (entry(secret_hash='"planted"'), "[keys.k]: secret_hash must be 64 hexadecimal digits"),
        (entry(secret_hash='"00"'), "[keys.k]: secret_hash must be 64 hexadecimal digits"),
        (entry(permissions=""), "[keys.k]: permissions must be a list with at least one entry"),
        (entry(permissions="[]"), "[keys.k]: permissions must be a list with at least one entry"),
        (entry(permissions="[7]"), "[keys.k]: 7 must be a table"),
        (entry(permissions="[{}]"), "[keys.k]: actions must be a list of publish, subscribe, read, manage"),
        (entry(permissions='[{actions=["admin"]}]'), "[keys.k]: actions must be a list of publish, subscribe, read, manage"),
        (entry(permissions='[{actions=[7,"read"]}]'), "[keys.k]: actions must be a list of publish, subscribe, read, manage"),
        (entry(permissions='[{actions=["read"], topic="("}]'), "[keys.k]: '(' is not a pattern: missing ): ("),
        (entry(permissions='[{actions=["read"], topic=7}]'), "[keys.k]: 7 is not a pattern"),
        (entry(permissions='[{actions=["read"], groups="x"}]'), "[keys.k]: groups must be a list of patterns"),
        (entry(permissions='[{actions=["read"], channels=["x"]}]'), "[keys.k]: there is no channels; there are actions, groups, topic"),
        (entry(secret='"planted"'), "[keys.k]: there is no secret; there are identity_url, permissions, secret_hash"),
        (entry(identity_url="7"), "[keys.k]: identity_url must be a text"),
        (entry() + "\n" + entry().replace("keys.k", "keys.l"), "[keys.l] has the same secret as [keys.k]"),
    ],
)
def test_whatever_is_wrong_with_a_file_is_said(text: str, problem: str) -> None:
    _, problems = read_keys(text)
    assert any(found.startswith(problem) for found in problems), problems


def settings(*, nsq: dict[str, Any] | None = None, **access: Any) -> Settings:
    return Settings(access=AccessSettings(**access), nsq=NsqSettings(**(nsq or {})))


def test_nobody_has_to_log_in_by_default() -> None:
    assert make_logins(Settings()) is None


def test_a_file_and_servers_go_together(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(FILE)
    servers = {"auth_http_addresses": ("127.0.0.1:5000", "https://auth.invalid/x")}
    assert isinstance(make_logins(settings(file=str(path))), Keys)
    assert isinstance(make_logins(settings(nsq=servers)), AuthServers)
    assert isinstance(make_logins(settings(file=str(path), nsq=servers)), FirstKeys)


def test_one_secret_for_everything() -> None:
    logins = make_logins(settings(secret_hash=HASH, http="login"))
    assert logins is not None
    found = logins.begin(Credentials(b"planted"))
    assert isinstance(found, Login)
    assert found.principal.may_everywhere(Action.MANAGE)
    assert isinstance(logins.begin(Credentials(b"wrong")), Denied)


def test_settings_of_servers_reach_their_questions() -> None:
    logins = make_logins(
        settings(
            nsq={
                "auth_http_addresses": ("127.0.0.1:5000",),
                "auth_http_request_method": "post",
                "http_client_connect_timeout_ns": 7,
                "http_client_request_timeout_ns": 9,
            }
        )
    )
    assert isinstance(logins, AuthServers)
    attempt = logins.begin(Credentials(b"planted"))
    assert not isinstance(attempt, Denied)
    question = attempt.question
    assert (question.method, question.connect_timeout_ns, question.timeout_ns) == ("POST", 7, 9)


@pytest.mark.parametrize(
    ("chosen", "problem"),
    [
        (settings(http="login"), "access.http: nobody could log in"),
        (settings(secret_hash="planted"), "access.secret_hash: expected 64 hexadecimal digits"),
        (settings(file="/nowhere/keys.toml"), "access.file: /nowhere/keys.toml cannot be read"),
        (settings(nsq={"auth_http_addresses": ("ftp://x/",)}), "nsq.auth_http_addresses: 'ftp://x/' is neither HOST:PORT nor a URL"),
        (settings(nsq={"auth_http_addresses": ("127.0.0.1:x",)}), "nsq.auth_http_addresses: '127.0.0.1:x' is neither"),
    ],
)
def test_wrong_settings_are_said(chosen: Settings, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem.replace("(", r"\(")):
        make_logins(chosen)


def test_a_file_with_mistakes_is_said_by_its_name(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text(entry(permissions=""))
    with pytest.raises(ConfigError, match=r"keys.toml: \[keys.k\]: permissions must be"):
        make_logins(settings(file=str(path)))
