"""What nsqd and an authentication server say to each other: the question's arguments, and what the answer means.

    GET /auth?common_name=&remote_ip=127.0.0.1&secret=se+cret&tls=false

    {"ttl": 3600, "identity": "me", "identity_url": "https://…",
     "authorizations": [{"topic": "^a$", "channels": [".*"], "permissions": ["subscribe", "publish"]}]}

Without I/O, and without an opinion on what is allowed. Observed on nsqd 1.3.0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote_plus, urlsplit

from polymq.limits import LOGIN_PATTERNS_MAX
from polymq.protocols.nsq import go_json

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["PERMISSIONS", "AuthReply", "Authorization", "form", "https_url", "read_auth_reply", "server_url"]

PERMISSIONS: Final = frozenset({"subscribe", "publish"})
_REPLY_FIELDS: Final = {"ttl": int, "identity": str, "identity_url": str, "authorizations": list}
_AUTHORIZATION_FIELDS: Final = {"topic": str, "channels": list, "permissions": list}
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
    try:
        found = go_json.struct(go_json.parse(body), {"https_port": int})
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
    try:
        document = go_json.parse(body)
    except ValueError:
        return "the answer is not JSON"
    found = go_json.struct(document, _REPLY_FIELDS)
    if found is None:
        return "the answer is not an object of the right types"
    entries = [_authorization(each) for each in found.get("authorizations", ())]
    authorizations = tuple(each for each in entries if each is not None)
    if len(authorizations) < len(entries):
        return "an authorization is not an object of the right types"
    if sum(1 + len(each.channels) for each in authorizations) > LOGIN_PATTERNS_MAX:
        return f"more than {LOGIN_PATTERNS_MAX} patterns"
    for permission in (permission for each in authorizations for permission in each.permissions):
        if permission not in PERMISSIONS:
            return f"unknown permission {permission[:40]!r}"
    ttl_s = found.get("ttl", 0)
    if ttl_s <= 0:
        return f"invalid TTL {ttl_s} (must be >0)"
    identity, identity_url = (go_json.printable(found.get(name, "")) for name in ("identity", "identity_url"))
    return AuthReply(ttl_s, identity, identity_url, authorizations)


def _authorization(document: Any) -> Authorization | None:
    found = go_json.struct(document, _AUTHORIZATION_FIELDS)
    if found is None:
        return None
    channels, permissions = _strings(found.get("channels", [])), _strings(found.get("permissions", []))
    if channels is None or permissions is None:
        return None
    return Authorization(go_json.printable(found.get("topic", "")), channels, permissions)


def _strings(values: list[Any]) -> tuple[str, ...] | None:
    if not all(value is None or isinstance(value, str) for value in values):
        return None
    return tuple(go_json.printable(value or "") for value in values)
