"""Who knows the secrets, made of the settings: a file of keys, one key for everything, authentication servers.

The file of keys is TOML; each key has a name, which is the identity that statistics show:

    [keys.orders]
    secret_hash = "9f86d081884c7d65…"     # `polymq secret` makes a secret and this
    permissions = [
        { topic = "^orders$", groups = ["^archive$"], actions = ["subscribe", "read"] },
        { topic = "^orders", actions = ["publish"] },
    ]

Patterns are those of `core/patterns.py`; one that is left out is everything.
"""

from __future__ import annotations

import random
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from polymq.core.access import Action, Permission, Principal
from polymq.core.patterns import EVERYTHING, PatternError, compile_pattern
from polymq.errors import ConfigError
from polymq.gateways.login import FirstKeys, Keys, Login
from polymq.protocols.http.client import where

if TYPE_CHECKING:
    from polymq.config_sections import NsqSettings, Settings
    from polymq.core.patterns import Pattern
    from polymq.gateways.login import Logins
    from polymq.gateways.nsq.auth import AuthServers

__all__ = ["asks_over_tls", "make_logins", "read_keys"]

_ACTIONS: Final = {action.value: action for action in Action}
_DIGEST_SIZE_BYTES: Final = 32
_KEY_FIELDS: Final = frozenset({"secret_hash", "permissions", "identity_url"})
_PERMISSION_FIELDS: Final = frozenset({"topic", "groups", "actions"})
_OWNER: Final = Login(Principal("owner", permissions=(Permission(frozenset(Action), EVERYTHING, (EVERYTHING,)),)), permission_count=1)


def make_logins(settings: Settings) -> Logins | None:
    """Make what the settings ask for; None if nobody has to log in. Raises ConfigError with every problem."""
    access = settings.access
    problems: list[str] = []
    keys = _file_keys(access.file, problems)
    if access.secret_hash:
        digest = _digest(access.secret_hash)
        if digest is None:
            problems.append("access.secret_hash: expected 64 hexadecimal digits")
        else:
            keys[digest] = _OWNER
    servers = _servers(settings.nsq, problems)
    if access.http == "login" and not keys and servers is None:
        problems.append("access.http: nobody could log in; set access.file, access.secret_hash or nsq.auth_http_addresses as well")
    if problems:
        raise ConfigError(problems)
    if not keys:
        return servers
    return Keys(keys) if servers is None else FirstKeys(Keys(keys), servers)


def _file_keys(name: str, problems: list[str]) -> dict[bytes, Login]:
    if not name:
        return {}
    try:
        keys, found = read_keys(Path(name).expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"access.file: {name} cannot be read: {error}")
        return {}
    problems += [f"access.file: {name}: {problem}" for problem in found]
    return keys


def _servers(section: NsqSettings, problems: list[str]) -> AuthServers | None:
    if not section.auth_http_addresses:
        return None
    # Imported here, for it brings NSQ, which may not be served at all.
    from polymq.gateways.nsq.auth import AuthServers
    from polymq.protocols.nsq.auth import server_url

    wrong = [address for address in section.auth_http_addresses if where(server_url(address)) is None]
    problems += [f"nsq.auth_http_addresses: {address!r} is neither HOST:PORT nor a URL of http or https" for address in wrong]
    if wrong:
        return None
    return AuthServers(
        section.auth_http_addresses,
        random.randrange,
        method=section.auth_http_request_method,
        connect_timeout_ns=section.http_client_connect_timeout_ns,
        request_timeout_ns=section.http_client_request_timeout_ns,
    )


def asks_over_tls(address: str) -> bool:
    """Say whether an authentication server is called by HTTPS from the beginning; others may point there later."""
    from polymq.protocols.nsq.auth import server_url

    place = where(server_url(address))
    return place is not None and place.secure


def read_keys(text: str) -> tuple[dict[bytes, Login], list[str]]:
    """Read a file of keys: logins by the hash of their secret, and everything that is wrong with it."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        return {}, [f"not valid TOML: {error}"]
    problems = [f"there is no section [{name}]; keys are in [keys.NAME]" for name in document if name != "keys"]
    entries = document.get("keys", {})
    if not isinstance(entries, dict) or not entries:
        return {}, [*problems, "there is no key: write [keys.NAME]"]
    keys: dict[bytes, Login] = {}
    for name, entry in entries.items():
        key = _key(name, entry, problems)
        if key is None:
            continue
        digest, login = key
        if digest in keys:
            problems.append(f"[keys.{name}] has the same secret as [keys.{keys[digest].principal.name}]")
        keys[digest] = login
    return keys, problems


def _key(name: str, entry: Any, problems: list[str]) -> tuple[bytes, Login] | None:
    found: list[str] = []
    fields = _fields(entry, _KEY_FIELDS, found)
    digest = _digest(fields.get("secret_hash"))
    if digest is None:
        found.append("secret_hash must be 64 hexadecimal digits")
    url = fields.get("identity_url", "")
    if not isinstance(url, str):
        found.append("identity_url must be a text")
    entries = fields.get("permissions")
    if not isinstance(entries, list) or not entries:
        found.append("permissions must be a list with at least one entry")
        entries = []
    permissions = [_permission(each, found) for each in entries]
    problems += [f"[keys.{name}]: {problem}" for problem in found]
    if found or digest is None:
        return None
    return digest, Login(Principal(name, permissions=tuple(permissions)), permission_count=len(permissions), identity_url=url)


def _permission(entry: Any, problems: list[str]) -> Permission:
    fields = _fields(entry, _PERMISSION_FIELDS, problems)
    actions, groups = fields.get("actions", []), fields.get("groups", [""])
    if not isinstance(actions, list) or not actions or not all(isinstance(action, str) and action in _ACTIONS for action in actions):
        problems.append(f"actions must be a list of {', '.join(_ACTIONS)}")
        actions = []
    if not isinstance(groups, list):
        problems.append("groups must be a list of patterns")
        groups = []
    return Permission(
        frozenset(_ACTIONS[action] for action in actions),
        _pattern(fields.get("topic", ""), problems),
        tuple(_pattern(group, problems) for group in groups),
    )


def _pattern(text: Any, problems: list[str]) -> Pattern:
    try:
        if isinstance(text, str):
            return compile_pattern(text)
        problems.append(f"{text!r} is not a pattern")
    except PatternError as error:
        problems.append(f"{text!r} is not a pattern: {error}")
    return EVERYTHING


def _fields(entry: Any, known: frozenset[str], problems: list[str]) -> dict[str, Any]:
    if not isinstance(entry, dict):
        problems.append(f"{entry!r} must be a table")
        return {}
    problems += [f"there is no {name}; there are {', '.join(sorted(known))}" for name in entry if name not in known]
    return entry


def _digest(text: object) -> bytes | None:
    try:
        digest = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        return None
    return digest if len(digest) == _DIGEST_SIZE_BYTES else None
