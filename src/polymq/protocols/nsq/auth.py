"""What nsqd and an authentication server say to each other: the question's arguments, and what the answer means.

    GET /auth?common_name=&remote_ip=127.0.0.1&secret=se+cret&tls=false

    {"ttl": 3600, "identity": "me", "identity_url": "https://…",
     "authorizations": [{"topic": "^a$", "channels": [".*"], "permissions": ["subscribe", "publish"]}]}

Without I/O, and without an opinion on what is allowed. Observed on nsqd 1.3.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote_plus, urlsplit

from polymq.limits import LOGIN_PATTERNS_MAX
from polymq.wire.go_json import INT64, Shape, decode_struct

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PERMISSIONS", "AuthReply", "Authorization", "form", "https_url", "read_auth_reply", "server_url"]

PERMISSIONS: Final = frozenset({"subscribe", "publish"})
_AUTHORIZATION_FIELDS: Final[dict[str, Shape]] = {"topic": str, "channels": [str], "permissions": [str]}
_REPLY_FIELDS: Final[dict[str, Shape]] = {"ttl": INT64, "identity": str, "identity_url": str, "authorizations": [_AUTHORIZATION_FIELDS]}
_REFUSAL_FIELDS: Final[dict[str, Shape]] = {"https_port": INT64}
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class Authorization:
    """One entry: the patterns are regular expressions that are searched for."""

    topic: str
    channels: tuple[str, ...]
    permissions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AuthReply:
    """What an authentication server knows of a secret."""

    ttl_s: int
    identity: str
    identity_url: str
    authorizations: tuple[Authorization, ...]


def server_url(address: str) -> str:
    """Give the URL of a server that is configured as HOST:PORT, or as a URL."""
    return address if "://" in address else f"http://{address}/auth"


def form(arguments: Mapping[str, bytes]) -> str:
    """Write arguments as Go's url.Values.Encode does: sorted by name."""
    return "&".join(f"{name}={quote_plus(arguments[name])}" for name in sorted(arguments))


def https_url(url: str, body: bytes) -> str | None:
    """Give the URL that a refusal over plain HTTP points to; None if it does not.

    Source: internal/http_api/api_request.go, httpsEndpoint, NSQ 1.3.0: a 403 with {"https_port": n}.
    """
    found = decode_struct(body, _REFUSAL_FIELDS)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme != "http" or not host or port is None or not found or not 0 < found.get("https_port", 0) <= _PORT_MAX:
        return None
    named = f"[{host}]" if ":" in host else host
    return parts._replace(scheme="https", netloc=f"{named}:{found['https_port']}").geturl()


def read_auth_reply(body: bytes) -> AuthReply | str:
    """Read an answer; what is wrong with it, for the log, if it cannot be used.

    Limits: `limits.LOGIN_PATTERNS_MAX` patterns.
    Source: internal/auth/authorizations.go, QueryAuthd, NSQ 1.3.0.
    """
    found = decode_struct(body, _REPLY_FIELDS)
    if found is None:
        return "the answer is not JSON of the right types"
    authorizations = tuple(
        Authorization(each.get("topic", ""), tuple(each.get("channels", ())), tuple(each.get("permissions", ())))
        for each in found.get("authorizations", ())
    )
    if sum(1 + len(each.channels) for each in authorizations) > LOGIN_PATTERNS_MAX:
        return f"more than {LOGIN_PATTERNS_MAX} patterns"
    for permission in (permission for each in authorizations for permission in each.permissions):
        if permission not in PERMISSIONS:
            return f"unknown permission {permission[:40]!r}"
    ttl_s = found.get("ttl", 0)
    if ttl_s <= 0:
        return f"invalid TTL {ttl_s} (must be >0)"
    return AuthReply(ttl_s, found.get("identity", ""), found.get("identity_url", ""), authorizations)
