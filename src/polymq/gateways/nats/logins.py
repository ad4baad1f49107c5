"""Who may come in, and as whom: the configuration's users, tokens and keys.

The order is nats-server's: a key, then the list of users, then a token, then a single user. What is compared is compared in constant
time. A password that is hashed by bcrypt takes a tenth of a second to look at, so that is asked for (`PasswordCheck`); one that was
right is known again afterwards, by a keyed digest, so that a thousand clients that come back at once need not wait for each other.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from polymq.core.access import ANONYMOUS
from polymq.gateways.login import Denied, Login, PasswordCheck

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    from polymq.core.access import Principal
    from polymq.gateways.contract import Peer
    from polymq.protocols.nats.info import ClientConnect
    from polymq.wire.tls import TlsLayer

__all__ = ["UNKNOWN", "NatsUser", "OpenDoor", "UserLogins"]

_DEFAULT_TIMEOUT_NS: Final = 2_000_000_000
_BCRYPT: Final = re.compile(r"\$2[abxy]\$")
_KEY_SIZE_BYTES: Final = 32
_SIGNATURE_SIZE_BYTES: Final = 64

UNKNOWN: Final = Denied("nobody of that name may come in")
_WRONG: Final = Denied("the password or the token is wrong")
_NO_SECRET: Final = Denied("neither a name nor a token was given")
_NO_SIGNATURE: Final = Denied("the key's signature of the nonce is missing or wrong")
_NO_ANSWER: Final = Denied("the password could not be looked at in time")


class OpenDoor:
    """Everybody may come in, and says nothing of himself."""

    required = False
    told = False
    signed = False
    timeout_ns = _DEFAULT_TIMEOUT_NS
    nobody: Principal | None = ANONYMOUS

    def begin(self, connect: ClientConnect, nonce: str, peer: Peer, tls: TlsLayer | None) -> Principal:
        """Let him in."""
        return ANONYMOUS


@dataclass(frozen=True, slots=True)
class NatsUser:
    """Somebody: by `name` and `secret`, by the public key `nkey`, or by a token alone (`secret` without a name)."""

    principal: Principal
    name: str = ""
    secret: str = field(default="", repr=False)
    nkey: str = ""

    @property
    def is_hashed(self) -> bool:
        """Whether the secret itself is not known, but its hash by bcrypt."""
        return bool(_BCRYPT.match(self.secret))


class _Check:
    """The `Attempt` of somebody whose password is being looked at."""

    def __init__(self, logins: UserLogins, user: NatsUser, said: bytes, remote_host: str) -> None:
        self._logins = logins
        self._user = user
        self._said = said
        self._remote_host = remote_host

    @property
    def question(self) -> PasswordCheck:
        """Whether it is the one."""
        return PasswordCheck(self._said, self._user.secret.encode(), self._remote_host)

    def take(self, answer: object) -> Login | Denied:
        """Take the answer."""
        if answer is True:
            self._logins.remember(self._user, self._said)
            return Login(self._user.principal, permission_count=0)
        return _NO_ANSWER if answer is None else _WRONG


class UserLogins:
    """The users of a configuration: a list of them, or else a single one or a token (`single`)."""

    required = True

    def __init__(
        self,
        users: Sequence[NatsUser],
        *,
        digest_key: bytes,
        single: NatsUser | None = None,
        nobody: Principal | None = None,
        told: bool = True,
        timeout_ns: int = _DEFAULT_TIMEOUT_NS,
    ) -> None:
        self.told = told
        self.timeout_ns = timeout_ns
        self.nobody = nobody
        self._users = {user.name: user for user in users if user.name}
        self._keys = {user.nkey: (user, _public_key(user.nkey)) for user in users if user.nkey}
        self._single = single
        self._digest_key = digest_key
        self._right: dict[str, bytes] = {}  # by name, of those whose password is hashed: the digest of the one that was right
        self.signed = bool(self._keys)

    def inherit(self, before: UserLogins) -> None:
        """Know again the passwords that `before` knows, of users whose hash is the same."""
        self._digest_key = before._digest_key
        users = {**self._users, **({} if self._single is None else {self._single.name: self._single})}
        for name, right in before._right.items():
            user, known = users.get(name), before._users.get(name) or before._single
            if user is not None and known is not None and user.secret == known.secret:
                self._right[name] = right

    def principals(self) -> dict[str, Principal]:
        """List who may come in, by name or key."""
        return {user.name or user.nkey: user.principal for user in (*self._users.values(), *(user for user, _ in self._keys.values()))}

    def begin(self, connect: ClientConnect, nonce: str, peer: Peer, tls: TlsLayer | None) -> Principal | Denied | _Check:
        """Find out who that is; see `NatsLogins`."""
        if connect.nkey and self._keys:
            return self._by_key(connect, nonce)
        if self.nobody is not None and not (connect.user or connect.password or connect.auth_token):
            return self.nobody
        if connect.user and self._users:
            user = self._users.get(connect.user)
            return UNKNOWN if user is None else self._compare(user, connect.password, peer)
        single = self._single
        if single is None:
            return _NO_SECRET
        if not single.name:
            return self._compare(single, connect.auth_token, peer)
        return self._compare(single, connect.password, peer) if _is_same(single.name, connect.user) else UNKNOWN

    def _by_key(self, connect: ClientConnect, nonce: str) -> Principal | Denied:
        found = self._keys.get(connect.nkey)
        if found is None:
            return UNKNOWN
        user, key = found
        # Who comes in without saying anything may as well give the key of whoever he is taken for.
        signed = user.principal is self.nobody or _is_signed(key, connect.signature, nonce)
        return user.principal if signed else _NO_SIGNATURE

    def _compare(self, user: NatsUser, said: str, peer: Peer) -> Principal | Denied | _Check:
        if not user.is_hashed:
            return user.principal if _is_same(user.secret, said) else _WRONG
        text = _encode(said)
        right = self._right.get(user.name)
        if right is not None and hmac.compare_digest(right, self._digest(text)):
            return user.principal
        return _Check(self, user, text, peer.remote_host)

    def remember(self, user: NatsUser, said: bytes) -> None:
        """Know a password again that was right: there is one for each user."""
        self._right[user.name] = self._digest(said)

    def _digest(self, said: bytes) -> bytes:
        return hmac.digest(self._digest_key, said, hashlib.sha256)


def _is_same(one: str, other: str) -> bool:
    return hmac.compare_digest(_encode(one), _encode(other))


def _encode(text: str) -> bytes:
    """Give the bytes of a text; half of a surrogate pair, which JSON can hold and UTF-8 cannot, is one of its own."""
    return text.encode("utf-8", "surrogatepass")


def _public_key(nkey: str) -> Ed25519PublicKey:
    """Take the key out of its text, which the configuration has looked at: a byte of its kind, the key, two of a sum."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey  # few need it, and it takes time

    return Ed25519PublicKey.from_public_bytes(base64.b32decode(nkey)[1 : 1 + _KEY_SIZE_BYTES])


def _is_signed(key: Ed25519PublicKey, text: str, nonce: str) -> bool:
    """Say whether the signature is the key's, of the nonce that INFO had."""
    from cryptography.exceptions import InvalidSignature

    signature = _decode_signature(text)
    if signature is None:
        return False
    try:
        key.verify(signature, nonce.encode())
    except InvalidSignature:
        return False
    return True


def _decode_signature(text: str) -> bytes | None:
    """Read a signature: base64 for URLs without padding, or else the usual one with it; None if it is neither."""
    for candidate, letters in ((text + "=" * (-len(text) % 4) if "=" not in text else "", b"-_"), (text, b"+/")):
        try:
            signature = base64.b64decode(candidate, altchars=letters, validate=True)
        except (binascii.Error, ValueError):
            continue
        if len(signature) == _SIGNATURE_SIZE_BYTES:
            return signature
    return None
