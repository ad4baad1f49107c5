"""Invariant: whatever a client shows to log in, it is let in, sent away or asked about, without an exception and without its secret in a reason."""

from __future__ import annotations

import json
import random

import pytest

from polymq.core.access import Principal
from polymq.gateways.contract import Peer
from polymq.gateways.login import Denied, PasswordCheck
from polymq.gateways.nats.logins import NatsUser, UserLogins
from polymq.protocols.nats.info import FIRST_CONNECT, parse_connect
from polymq.server.passwords import is_right
from tests.fuzz.test_nsq import SEEDS
from tests.unit.gateways.nats.test_logins import HASH, NKEY

LOGINS_PER_SEED = 100
KEYS = ("user", "pass", "auth_token", "nkey", "sig", "jwt")
PIECES = ("", "me", "you", "pass", HASH, NKEY, "=", "A" * 86, "A" * 88, "-_" * 43, "+/" * 43, "\ud800", "\0", "ä", "$2a$", "U" * 56)


def said(rng: random.Random) -> bytes:
    values = {key: "".join(rng.choices(PIECES, k=rng.randrange(1, 3))) for key in KEYS if rng.random() < 0.6}
    return json.dumps(values).encode()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_login_is_decided_whatever_is_shown(seed: int) -> None:
    rng = random.Random(seed)
    users = [NatsUser(Principal("me"), "me", HASH), NatsUser(Principal("you"), "you", "pass"), NatsUser(Principal(NKEY), nkey=NKEY)]
    doors = (
        UserLogins(users, digest_key=b"k"),
        UserLogins(users, digest_key=b"k", nobody=users[1].principal),
        UserLogins((), digest_key=b"k", single=NatsUser(Principal("token"), secret="pass")),
    )
    for _ in range(LOGINS_PER_SEED):
        connect = parse_connect(said(rng), FIRST_CONNECT)
        assert connect is not None
        for door in doors:
            found = door.begin(connect, "nonce", Peer("192.0.2.1", 1), None)
            if isinstance(found, Denied):
                assert not connect.password or len(connect.password) < 5 or connect.password not in found.reason
            elif not isinstance(found, Principal):
                question = found.question
                assert isinstance(question, PasswordCheck)
                assert is_right(question) in (True, False)
