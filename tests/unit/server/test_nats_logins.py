"""From nats-server's settings to who may come in."""

from __future__ import annotations

from typing import Any

import pytest

from polymq.core.access import ANONYMOUS
from polymq.gateways.contract import Peer
from polymq.gateways.login import Denied
from polymq.gateways.nats.logins import OpenDoor
from polymq.protocols.nats.info import ClientConnect
from polymq.server.nats_logins import make_nats_logins
from polymq.server.nats_settings import AccountSettings, AuthorizationSettings, NatsServerSettings, UserSettings

NKEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"
SECOND_NS = 1_000_000_000
ONE = UserSettings("one", "1")
TWO = UserSettings("two", "2", account="B")


def begin(settings: NatsServerSettings, **said: Any) -> Any:
    return make_nats_logins(settings).begin(ClientConnect(**said), "", Peer("192.0.2.1", 1), None)


def test_without_anything_the_door_is_open() -> None:
    assert isinstance(make_nats_logins(NatsServerSettings(accounts=(AccountSettings("A"),))), OpenDoor)


def test_a_token_a_single_user_and_a_list() -> None:
    token = NatsServerSettings(authorization=AuthorizationSettings(token="t", timeout_ns=7 * SECOND_NS))
    assert begin(token, auth_token="t").name == "token"
    assert make_nats_logins(token).timeout_ns == 7 * SECOND_NS
    single = NatsServerSettings(authorization=AuthorizationSettings("me", "pass"))
    assert begin(single, user="me", password="pass").name == "me"
    users = NatsServerSettings(users=(ONE, TWO, UserSettings(nkey=NKEY)))
    assert begin(users, user="two", password="2").namespace == "B"
    assert make_nats_logins(users).signed
    for settings in (token, single, users):
        assert isinstance(begin(settings), Denied)
        assert (make_nats_logins(settings).told, make_nats_logins(settings).nobody) == (True, None)


@pytest.mark.parametrize("name", ["two", NKEY])
def test_who_says_nothing_is_the_user_that_is_named(name: str) -> None:
    logins = make_nats_logins(NatsServerSettings(users=(ONE, TWO, UserSettings(nkey=NKEY)), no_auth_user=name))
    assert logins.nobody is not None
    assert (logins.nobody.name, logins.told, logins.required) == (name, False, True)


def test_where_only_the_system_has_users_everybody_else_is_in_as_ever() -> None:
    admin = UserSettings("admin", "p", account="$SYS")
    logins = make_nats_logins(NatsServerSettings(users=(admin,), accounts=(AccountSettings("$SYS"),)))
    assert (logins.nobody, logins.told, logins.required) == (ANONYMOUS, True, True)
    others = NatsServerSettings(users=(admin,), accounts=(AccountSettings("$SYS"), AccountSettings("A")))
    assert make_nats_logins(others).nobody is None
    assert make_nats_logins(NatsServerSettings(users=(admin, ONE), accounts=(AccountSettings("$SYS"),))).nobody is None
