from __future__ import annotations

import hashlib

from polymq.core.access import Principal
from polymq.gateways.login import Credentials, Denied, FirstKeys, Keys, Login

ADMIN = Login(Principal("admin"), 1)
OTHER = Login(Principal("other"), 1)


class Others:
    def begin(self, credentials: Credentials) -> Login:
        return OTHER


def test_a_secret_is_found_by_its_hash() -> None:
    keys = Keys({hashlib.sha256(b"planted").digest(): ADMIN})
    assert keys.begin(Credentials(b"planted")) is ADMIN
    assert keys.begin(Credentials(b"planted2")) == Denied("the secret is not known here")


def test_others_are_asked_for_the_rest() -> None:
    logins = FirstKeys(Keys({hashlib.sha256(b"planted").digest(): ADMIN}), Others())
    assert logins.begin(Credentials(b"planted")) is ADMIN
    assert logins.begin(Credentials(b"else")) is OTHER


def test_secrets_are_not_shown() -> None:
    assert "planted" not in repr(Credentials(b"planted", "10.0.0.1"))
