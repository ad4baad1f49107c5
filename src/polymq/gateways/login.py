"""Logging in, for every gateway: from a secret to a principal, by a file or by asking somebody outside.

A gateway calls `Logins.begin` and gets a result at once, or an `Attempt`: a question for `Ask`, whose answer it hands
to `Attempt.take`, until that gives a result. Who is asked, and how, is the part of whoever made the `Logins`. Nothing
here is ever logged or shown but reasons, which never contain a secret.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.core.access import Principal
    from polymq.protocols.http.client import Question

__all__ = ["Attempt", "Credentials", "Denied", "FirstKeys", "Keys", "Login", "Logins", "PasswordCheck"]


@dataclass(frozen=True, slots=True)
class Credentials:
    """What somebody shows: a secret, and what is known of the connection. `remote_host` is "" on a unix socket."""

    secret: bytes = field(repr=False)
    remote_host: str = ""
    tls: bool = False
    common_name: str = ""  # of the client's certificate


@dataclass(frozen=True, slots=True)
class Login:
    """Who that is. `lifetime_ns` None is for ever; `permission_count` is how many entries whoever knows has for it."""

    principal: Principal
    permission_count: int
    lifetime_ns: int | None = None
    identity_url: str = ""


@dataclass(frozen=True, slots=True)
class Denied:
    """Nobody, as far as we can find out; `reason` is for the log, not for the client."""

    reason: str


@dataclass(frozen=True, slots=True)
class PasswordCheck:
    """A question for `Ask`: is this the password that a slow hash (bcrypt) was made of? The answer is True, or it is not.

    Who asks is `remote_host`: addresses take turns. It is no part of the question.
    """

    password: bytes = field(repr=False)
    password_hash: bytes = field(repr=False)
    remote_host: str = field(default="", compare=False)


class Attempt(Protocol):
    """A login that has to be asked for outside."""

    @property
    def question(self) -> Question:
        """What is to be asked now."""

    def take(self, answer: object) -> Login | Denied | None:
        """Take the answer to the question (None: there was none). None: `question` is another one now, ask that."""


class Logins(Protocol):
    """Who knows the secrets."""

    def begin(self, credentials: Credentials) -> Login | Denied | Attempt:
        """Find out who shows these."""


class Keys:
    """Secrets that are known here, by their SHA-256: long and random ones, so that a fast hash is enough.

    Looking up a hash tells nothing about how much of a secret was right.
    """

    def __init__(self, logins: Mapping[bytes, Login]) -> None:
        self._logins = dict(logins)

    def begin(self, credentials: Credentials) -> Login | Denied:
        """Look the secret up."""
        return self._logins.get(hashlib.sha256(credentials.secret).digest()) or Denied("the secret is not known here")


class FirstKeys:
    """Keys, and somebody else for the secrets that are none of them."""

    def __init__(self, keys: Keys, others: Logins) -> None:
        self._keys = keys
        self._others = others

    def begin(self, credentials: Credentials) -> Login | Denied | Attempt:
        """Look the secret up, else ask the others."""
        found = self._keys.begin(credentials)
        return found if isinstance(found, Login) else self._others.begin(credentials)
