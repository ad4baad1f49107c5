"""Who may come in: by token, password, hash and key, in nats-server's order."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from polymq.core.access import ANONYMOUS, Principal
from polymq.gateways.contract import Peer
from polymq.gateways.login import Denied, Login, PasswordCheck
from polymq.gateways.nats.logins import NatsUser, OpenDoor, UserLogins
from polymq.protocols.nats.info import ClientConnect
from tests.unit.gateways.nats.client_world import NatsWorld

PEER = Peer("192.0.2.1", 1)
NONCE = "bm9uY2Vub25jZW4"
HASH = "$2a$04$abcdefghijklmnopqrstuufznL8bkzdtHwLhca4To/v9Lo9bA7fR6"
KEY = Ed25519PrivateKey.from_private_bytes(b"a seed of a key, of thirty-two b")
# The sum at the end is the configuration's business.
NKEY = base64.b32encode(b"\xa0" + KEY.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw) + b"xx").decode().rstrip("=")
SECOND_NS = 1_000_000_000


def user(name: str, secret: str = "", namespace: str = "", nkey: str = "") -> NatsUser:
    return NatsUser(Principal(name or nkey, namespace), name, secret, nkey)


def logins(*users: NatsUser, **more: Any) -> UserLogins:
    return UserLogins(users, digest_key=b"k" * 32, **more)


def begin(door: UserLogins, **said: Any) -> Any:
    return door.begin(ClientConnect(**said), NONCE, PEER, None)


def signed(nonce: str = NONCE) -> bytes:
    return KEY.sign(nonce.encode())


def test_an_open_door_takes_everybody_and_asks_for_nothing() -> None:
    door = OpenDoor()
    assert door.begin(ClientConnect(user="x", password="y"), NONCE, PEER, None) is ANONYMOUS
    assert (door.required, door.told, door.signed, door.nobody) == (False, False, False, ANONYMOUS)


def test_a_token() -> None:
    door = logins(single=NatsUser(Principal("token"), secret="s3cret"))
    assert begin(door, auth_token="s3cret").name == "token"
    for said in ({"auth_token": "s3cre"}, {"auth_token": "s3cret "}, {"user": "s3cret"}, {"password": "s3cret"}, {}):
        assert isinstance(begin(door, **said), Denied)
    assert (door.required, door.told, door.signed, door.nobody) == (True, True, False, None)


def test_a_single_user() -> None:
    door = logins(single=user("me", "pass"))
    assert begin(door, user="me", password="pass").name == "me"
    for said in ({"user": "me"}, {"user": "me", "password": "word"}, {"user": "you", "password": "pass"}, {"auth_token": "pass"}, {}):
        assert isinstance(begin(door, **said), Denied)


def test_a_list_of_users_in_their_namespaces() -> None:
    door = logins(user("one", "1"), user("two", "2", namespace="B"), user("open"))
    assert begin(door, user="one", password="1").namespace == ""
    assert begin(door, user="two", password="2").namespace == "B"
    assert begin(door, user="open").name == "open"
    for said in ({"user": "one", "password": "2"}, {"user": "open", "password": "x"}, {"user": "three"}, {}):
        assert isinstance(begin(door, **said), Denied)


@pytest.mark.parametrize("text", ["\ud800", "pä\x00ss"])
def test_passwords_may_have_any_letters(text: str) -> None:
    assert begin(logins(user("me", text)), user="me", password=text).name == "me"
    assert isinstance(begin(logins(user("me", text)), user="me", password=text + "x"), Denied)


def test_a_hashed_password_is_asked_for_once() -> None:
    door = logins(user("me", HASH), user("you", HASH))
    attempt = begin(door, user="me", password="pass")
    assert attempt.question == PasswordCheck(b"pass", HASH.encode())
    assert "pass" not in repr(attempt.question)
    assert isinstance(attempt.take(False), Denied)
    assert isinstance(attempt.take(None), Denied)
    assert isinstance(begin(door, user="me", password="pass").take(True), Login)
    assert begin(door, user="me", password="pass").name == "me"
    for said in ({"user": "me", "password": "passe"}, {"user": "you", "password": "pass"}, {"user": "me", "password": HASH}):
        assert isinstance(begin(door, **said).question, PasswordCheck)


def test_a_token_may_be_hashed() -> None:
    door = logins(single=NatsUser(Principal("token"), secret=HASH))
    assert begin(door, auth_token="pass").question == PasswordCheck(b"pass", HASH.encode())


@pytest.mark.parametrize("encode", [lambda raw: base64.urlsafe_b64encode(raw).rstrip(b"="), base64.b64encode])
def test_a_key_signs_the_nonce(encode: Any) -> None:
    door = logins(user("", nkey=NKEY), user("me", "pass"))
    assert door.signed
    assert begin(door, nkey=NKEY, signature=encode(signed()).decode()).name == NKEY
    assert isinstance(begin(door, nkey=NKEY, signature=encode(signed("another nonce")).decode()), Denied)
    assert isinstance(begin(door, nkey="U" + NKEY[1:-1] + "A", signature=encode(signed()).decode()), Denied)
    assert begin(door, user="me", password="pass").name == "me"


@pytest.mark.parametrize("signature", ["", "=", "AAAA", "!" * 86, "ä" * 86, "A" * 85, base64.b64encode(bytes(63)).decode(), "\ud800"])
def test_what_is_no_signature_is_refused(signature: str) -> None:
    assert isinstance(begin(logins(user("", nkey=NKEY)), nkey=NKEY, signature=signature), Denied)


def test_without_keys_a_key_says_nothing() -> None:
    assert begin(logins(user("me", "pass")), user="me", password="pass", nkey=NKEY).name == "me"


def test_who_says_nothing_may_be_taken_for_somebody() -> None:
    me = user("me", HASH)
    door = logins(me, user("you", "pass"), nobody=me.principal, told=False)
    assert begin(door) is me.principal
    assert begin(door, nkey="x") is me.principal
    for said in ({"password": "x"}, {"auth_token": "x"}, {"user": "x"}, {"user": "you"}):
        assert isinstance(begin(door, **said), Denied)
    by_key = user("", nkey=NKEY)
    assert begin(logins(by_key, nobody=by_key.principal)) is by_key.principal
    assert begin(logins(by_key, nobody=by_key.principal), nkey=NKEY) is by_key.principal


def test_no_reason_and_no_repr_has_a_secret() -> None:
    secret = "hush" * 5
    door = logins(user("me", secret), single=NatsUser(Principal("token"), secret=secret))
    denied = begin(door, user="me", password=secret + "x")
    assert secret not in denied.reason
    assert secret not in repr(user("me", secret))


# -- on a connection ---------------------------------------------------------------------------------------------------


def connect(**said: Any) -> bytes:
    if "password" in said:
        said["pass"] = said.pop("password")
    return b"CONNECT " + json.dumps({"verbose": False, "pedantic": False, **said}).encode() + b"\r\n"


def test_a_client_that_logs_in_is_served() -> None:
    world = NatsWorld(logins(user("me", "pass", namespace="A")))
    guest = world.guest()
    info = json.loads(guest.heard().removeprefix(b"INFO "))
    assert info["auth_required"] is True
    assert "nonce" not in info
    assert guest.say(connect(user="me", password="pass") + b"PING\r\n") == b"PONG\r\n"
    assert guest.gateway.session.principal.namespace == "A"
    world.pass_time(3 * SECOND_NS)
    assert guest.closed is None


@pytest.mark.parametrize(
    "said", [connect(user="me", password="no"), connect(), b"PING\r\n", b"SUB a 1\r\n", connect(user="me", password="pass", account="A")]
)
def test_a_client_that_does_not_is_told_and_sent_away(said: bytes) -> None:
    guest = NatsWorld(logins(user("me", "pass"))).guest()
    guest.heard()
    assert guest.say(said) == b"-ERR 'Authorization Violation'\r\n"
    assert guest.closed == "Authentication Failure"


def test_a_client_that_says_nothing_is_given_up() -> None:
    world = NatsWorld(logins(user("me", "pass"), timeout_ns=SECOND_NS))
    guest = world.guest()
    guest.heard()
    world.pass_time(SECOND_NS - 1)
    assert guest.closed is None
    world.pass_time(1)
    assert (guest.heard(), guest.closed) == (b"-ERR 'Authentication Timeout'\r\n", "Authentication Timeout")


def test_the_nonce_is_in_info_where_there_are_keys() -> None:
    guest = NatsWorld(logins(user("", nkey=NKEY))).guest()
    nonce = json.loads(guest.heard().removeprefix(b"INFO "))["nonce"]
    signature = base64.urlsafe_b64encode(signed(nonce)).decode().rstrip("=")
    assert guest.say(connect(nkey=NKEY, sig=signature) + b"PING\r\n") == b"PONG\r\n"


def test_where_a_password_is_looked_at_nothing_goes_on_meanwhile() -> None:
    world = NatsWorld(logins(user("me", HASH)))
    guest = world.guest()
    guest.heard()
    assert guest.say(connect(user="me", password="pass") + b"PING\r\n") == b""
    assert guest.asked[0].request == PasswordCheck(b"pass", HASH.encode())
    assert guest.answer(True) == b"PONG\r\n"
    other = world.guest()
    other.heard()
    assert other.say(connect(user="me", password="pass") + b"PING\r\n") == b"PONG\r\n", "the password is known by now"
    third = world.guest()
    third.heard()
    third.say(connect(user="me", password="word") + b"PING\r\n")
    assert third.answer(False) == b"-ERR 'Authorization Violation'\r\n"
    assert third.closed == "Authentication Failure"


def test_who_has_said_a_password_is_not_given_up_while_others_are_looked_at() -> None:
    world = NatsWorld(logins(user("me", HASH)))
    guest = world.guest()
    guest.heard()
    guest.say(connect(user="me", password="pass") + b"PING\r\n")
    world.pass_time(60 * SECOND_NS)
    assert guest.heard() == b""
    assert guest.closed is None
    request = guest.asked[0].request
    assert isinstance(request, PasswordCheck)
    assert request.remote_host == guest.gateway.peer.remote_host
    assert guest.answer(True) == b"PONG\r\n"


def test_a_password_that_nobody_looks_at_lets_nobody_in() -> None:
    world = NatsWorld(logins(user("me", HASH)))
    guest = world.guest()
    guest.heard()
    guest.say(connect(user="me", password="pass"))
    assert guest.answer(None) == b"-ERR 'Authorization Violation'\r\n"


def test_who_may_be_silent_about_himself_may_begin_as_he_likes() -> None:
    me = user("me", "pass", namespace="A")
    world = NatsWorld(logins(me, nobody=me.principal, told=False))
    guest = world.guest()
    assert b"auth_required" not in guest.heard()
    assert guest.say(b"PING\r\n") == b"PONG\r\n"
    world.pass_time(3 * SECOND_NS)
    assert guest.closed is None, "it has said something"
    assert guest.gateway.session.principal is me.principal
    silent = world.guest()
    silent.heard()
    world.pass_time(2 * SECOND_NS)
    assert silent.heard() == b"-ERR 'Authentication Timeout'\r\n"


def test_who_logs_in_again_leaves_his_subscriptions() -> None:
    world = NatsWorld(logins(user("one", "1"), user("two", "2")))
    guest = world.guest(connect(user="one", password="1"))
    assert guest.say(b"SUB a 1\r\nPUB a 1\r\nx\r\n") == b"MSG a 1 1\r\nx\r\n"
    assert guest.say(connect(user="two", password="2") + b"PUB a 1\r\nz\r\nPING\r\n") == b"PONG\r\n"
    assert guest.gateway.subscriptions == {}


def test_accounts_do_not_hear_each_other() -> None:
    world = NatsWorld(logins(user("one", "1", namespace="A"), user("two", "2", namespace="B"), user("three", "3", namespace="A")))
    one, two, three = (
        world.guest(connect(user=name, password=secret), b"SUB > 1\r\n") for name, secret in (("one", "1"), ("two", "2"), ("three", "3"))
    )
    one.say(b"PUB here 1\r\nx\r\n")
    assert three.heard() == b"MSG here 1 1\r\nx\r\n"
    assert two.heard() == b""
