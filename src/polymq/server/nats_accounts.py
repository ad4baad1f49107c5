"""Read who may log in, and what for: the blocks `authorization`, `users`, `permissions` and `accounts` of a nats-server's file.

Each value is looked at by itself here; what must fit together (an import and its export, names that are given twice) is
`nats_assembly.py`'s. Default permissions are already with those who have none of their own.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from polymq.gateways.nats.account_names import GLOBAL_ACCOUNT
from polymq.protocols.nats.conf_tree import Block
from polymq.server.nats_settings import (
    ExportSettings,
    ImportSettings,
    PermissionSettings,
    ResponseRule,
    SubjectRule,
    SubjectRules,
    UserSettings,
)
from polymq.server.nats_subjects import has_wildcards, is_valid_subject, mapping_problem
from polymq.server.nats_values import (
    DEFAULT,
    Foreign,
    Key,
    Report,
    choice,
    count,
    duration,
    items,
    read_block,
    seconds,
    some_text,
    text,
    texts,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.protocols.nats.conf_tree import Place, Value

__all__ = ["ACCOUNT_BLOCKS", "AccountSaid", "AuthorizationSaid", "is_user_nkey", "read_accounts", "read_authorization", "read_permissions"]

_COUNT_MAX: Final = 1 << 31
_CONNECTION_TYPES: Final = ("standard", "websocket", "leafnode", "leafnode_ws", "mqtt", "mqtt_ws", "in_process")
_NKEY_SIZE: Final = 56
_NKEY_USER: Final = 20 << 3  # the first byte of a user's key, which makes its text begin with U
_SUBJECT_EXPECTED: Final = "expected a subject: words with dots between them, * for any word, > at the end for any number of them"
_NO_TRACE: Final = Foreign("messages are not traced", (False,))
_NO_PROXY: Final = Foreign("it knows no proxies", (False,))
_JETSTREAM_LIMIT: Final = Foreign("the servers that have JetStream set its limits", refused=False)
_JETSTREAM_LIMITS: Final = (
    *("max_memory", "max_mem", "mem", "memory", "max_store", "max_file", "max_disk", "store", "disk", "max_streams", "streams"),
    *("max_consumers", "consumers", "max_bytes_required", "max_stream_bytes", "max_bytes", "mem_max_stream_bytes"),
    *("memory_max_stream_bytes", "disk_max_stream_bytes", "store_max_stream_bytes", "max_ack_pending", "cluster_traffic"),
)


@dataclass(frozen=True, slots=True)
class AuthorizationSaid:
    """What a block `authorization` says, of the server or of its cluster."""

    place: Place | str
    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    timeout_ns: int | None = None
    users: tuple[tuple[Place, UserSettings], ...] | None = None
    permissions: PermissionSettings | None = None


@dataclass(frozen=True, slots=True)
class AccountSaid:
    """What is said of one account."""

    name: str
    place: Place
    users: tuple[tuple[Place, UserSettings], ...] = ()
    exports: tuple[tuple[Place, ExportSettings], ...] = ()
    imports: tuple[tuple[Place, ImportSettings], ...] = ()
    jetstream: bool = False


def is_user_nkey(text: str) -> bool:
    """Say whether this is the public key of a user: base32 of its kind, an Ed25519 key, and a CRC-16 of both."""
    try:
        data = base64.b32decode(text) if len(text) == _NKEY_SIZE else b""
    except (binascii.Error, ValueError):
        return False
    return data[:1] == bytes((_NKEY_USER,)) and binascii.crc_hqx(data[:-2], 0) == int.from_bytes(data[-2:], "little")


def _block(value: Value) -> Block:
    if not isinstance(value.data, Block):
        raise ValueError("expected a block, { … }")
    return value.data


def read_authorization(value: Value, name: str, report: Report) -> AuthorizationSaid:
    """Read a block `authorization`."""
    block = _block(value)
    found, places = read_block(block, _AUTHORIZATION, _AUTHORIZATION_FOREIGN, name, report)
    users = found.pop("users", None)
    said = AuthorizationSaid(value.place, users=_with_defaults(users, found.get("permissions")), **found)
    if said.user and said.token:
        report.problem(places["token"], f"{name}.token", "a single user and a token exclude each other; keep one of them")
    if said.users and (said.user or said.token):
        report.problem(places["users"], f"{name}.users", "a list of users excludes a single user and a token; put all users into the list")
    # PASS is a usual name for a variable, and one of this key's.
    if said.password and not said.user and not any(_AUTHORIZATION.get(each.lower()) is _PASSWORD for each in block.variables):
        report.problem(places["password"], f"{name}.password", "whose password is this? user is missing")
    return said


def _with_defaults(
    users: tuple[tuple[Place, UserSettings], ...] | None, permissions: PermissionSettings | None
) -> tuple[tuple[Place, UserSettings], ...] | None:
    if users is None or permissions is None:
        return users
    return tuple((place, user if user.permissions else replace(user, permissions=permissions)) for place, user in users)


def _read_users(value: Value, name: str, report: Report) -> tuple[tuple[Place, UserSettings], ...]:
    found = []
    for each in items(value):
        if isinstance(each.data, Block):
            user = _read_user(each.data, each.place, name, report)
            if user is not None:
                found.append((each.place, user))
        elif each.data is not None:
            report.problem(each.place, name, "expected a block for each user: { user: NAME, password: … } or { nkey: U… }")
    return tuple(found)


def _read_user(block: Block, place: Place, name: str, report: Report) -> UserSettings | None:
    before = len(report.problems)
    found, _ = read_block(block, _USER, _USER_FOREIGN, name, report)
    user, nkey = found.get("name", ""), found.get("nkey", "")
    if len(report.problems) > before:
        return None
    if not user and not nkey:
        report.problem(place, name, "somebody without a name; write user: NAME, or nkey: U…")
    elif nkey and (user or "password" in found):
        report.problem(place, name, "who has an nkey has neither name nor password; make two users of it")
    elif nkey and not is_user_nkey(nkey):
        report.problem(place, name, "this nkey is not the public key of a user; such a key begins with U and has 56 characters")
    else:
        if not nkey and not found.get("password"):
            report.note(place, name, f"{user!r} has no password: whoever gives that name and none is let in")
        types = found.pop("connection_types", ())
        if types and "standard" not in types:
            report.problem(place, name, "polymq serves STANDARD connections only: this user could never log in")
        return UserSettings(**found)
    return None


def _read_nkey(value: Value, name: str, report: Report) -> str:
    return some_text(value, name, report).strip()


def _read_connection_types(value: Value, name: str, report: Report) -> tuple[str, ...]:
    found = tuple(each.lower() for each in texts(value, name, report))
    if not set(found) <= set(_CONNECTION_TYPES):
        raise ValueError(f"expected some of {', '.join(_CONNECTION_TYPES).upper()}")
    return found


def read_permissions(value: Value, name: str, report: Report) -> PermissionSettings:
    """Read a block `permissions`, of a user or of a cluster (where import is publish, and export subscribe)."""
    found, _ = read_block(_block(value), _PERMISSIONS, {}, name, report)
    publish = found.get("publish", SubjectRules())
    if found.get("responses") is not None and publish.allow is None:
        # Who may answer may do nothing else, unless it is said.
        publish = replace(publish, allow=())
    return PermissionSettings(publish, found.get("subscribe", SubjectRules()), found.get("responses"))


def _read_publish(value: Value, name: str, report: Report) -> SubjectRules:
    return _read_rules(value, name, report, _PUBLISH)


def _read_subscribe(value: Value, name: str, report: Report) -> SubjectRules:
    return _read_rules(value, name, report, _SUBSCRIBE)


def _read_rules(value: Value, name: str, report: Report, keys: Mapping[str, Key]) -> SubjectRules:
    """Read what is allowed: subjects, or a block of those that are and those that are not."""
    if not isinstance(value.data, Block):
        return SubjectRules(_or_everything(keys["allow"].read(value, name, report), value.place, name, report))
    found, places = read_block(value.data, keys, {}, name, report)
    allow = _or_everything(found["allow"], places["allow"], f"{name}.allow", report) if "allow" in found else None
    return SubjectRules(allow, found.get("deny", ()))


def _read_names(value: Value, name: str, report: Report) -> tuple[SubjectRule, ...]:
    return tuple(_rule(each, queues=False) for each in texts(value, name, report))


def _read_names_and_queues(value: Value, name: str, report: Report) -> tuple[SubjectRule, ...]:
    return tuple(_rule(each, queues=True) for each in texts(value, name, report))


def _or_everything(rules: tuple[SubjectRule, ...], place: Place, name: str, report: Report) -> tuple[SubjectRule, ...] | None:
    if rules:
        return rules
    report.note(place, name, 'an empty list allows everything, as with nats-server; deny: ">" allows nothing')
    return None


def _rule(text: str, *, queues: bool) -> SubjectRule:
    if is_valid_subject(text):
        return SubjectRule(text)
    parts = text.split()
    if queues and len(parts) == 2 and all(map(is_valid_subject, parts)):  # a subject and a queue group
        return SubjectRule(parts[0], parts[1])
    raise ValueError(f"{text!r}: {_SUBJECT_EXPECTED}{'; a queue group may follow, after a blank' if queues else ''}")


def _read_responses(value: Value, name: str, report: Report) -> ResponseRule | None:
    if isinstance(value.data, bool):
        return ResponseRule() if value.data else None
    if not isinstance(value.data, Block):
        raise ValueError('expected true, false or a block: { max: 1, expires: "2m" }')
    found, _ = read_block(value.data, _RESPONSES, {}, name, report)
    return ResponseRule(**{key: None if each == _UNLIMITED else each for key, each in found.items()})


_UNLIMITED: Final = "unlimited"


def _read_expiry(value: Value, name: str, report: Report) -> object:
    if isinstance(value.data, str) and value.data.startswith("-"):
        return _UNLIMITED
    return duration(zero=DEFAULT)(value, name, report)


def read_accounts(value: Value, name: str, report: Report) -> tuple[AccountSaid, ...]:
    """Read `accounts`: a list of names, or a block with a block for each."""
    found: dict[str, AccountSaid] = {}
    if isinstance(value.data, tuple):
        for each in value.data:
            if each.data is None:
                continue
            account = text(each, name, report)
            if account in found:
                report.problem(each.place, name, f"the account {account!r} is there already")
            elif _is_account_name(account, each.place, name, report):
                found[account] = AccountSaid(account, each.place)
        return tuple(found.values())
    for account, each in _block(value):
        called = f"{name}.{account}"
        if account in _block(value).variables or each.data is None or not _is_account_name(account, each.place, called, report):
            continue
        if not isinstance(each.data, Block):
            report.problem(each.place, called, "expected a block, { … }, for each account")
            continue
        said, _ = read_block(each.data, _ACCOUNT, _ACCOUNT_FOREIGN, called, report)
        users = _with_defaults(said.pop("users", ()), said.pop("permissions", None)) or ()
        users = tuple((place, replace(user, account=account)) for place, user in users)
        found[account] = AccountSaid(account, each.place, users=users, **said)
    return tuple(found.values())


def _is_account_name(account: str, place: Place, name: str, report: Report) -> bool:
    if account == GLOBAL_ACCOUNT:
        report.problem(place, name, "$G is the account of those who have no other; users of it are in authorization")
    elif not account or any(character.isspace() for character in account):
        report.problem(place, name, "expected a name without blanks: servers could not tell each other of the account")
    else:
        return True
    return False


def _read_exports(value: Value, name: str, report: Report) -> tuple[tuple[Place, ExportSettings], ...]:
    found = []
    for each in items(value):
        if isinstance(each.data, Block):
            export = _read_export(each.data, each.place, name, report)
            if export is not None:
                found.append((each.place, export))
        elif each.data is not None:
            report.problem(each.place, name, "expected a block for each export: { stream: SUBJECT } or { service: SUBJECT }")
    return tuple(found)


def _read_export(block: Block, place: Place, name: str, report: Report) -> ExportSettings | None:
    before = len(report.problems)
    said, places = read_block(block, _EXPORT, _EXPORT_FOREIGN, name, report)
    if len(report.problems) > before:
        return None
    kind = _only_kind(said, place, name, report)
    if kind is None:
        return None
    subject = said.pop(kind)
    for each in ("response_type", "response_threshold_ns"):
        if kind == "stream" and each in said:
            report.problem(places[each], name, "only services are answered; take this out, or export a service")
            return None
    if "accounts" in said and not said["accounts"]:
        report.note(places["accounts"], f"{name}.accounts", "an empty list lets every account import this, as with nats-server")
        del said["accounts"]
    return ExportSettings(kind, subject, **said)


def _only_kind(said: Mapping[str, Any], place: Place, name: str, report: Report) -> str | None:
    kinds = [kind for kind in ("stream", "service") if kind in said]
    if len(kinds) == 1:
        return kinds[0]
    report.problem(place, name, "expected either stream or service, and one of them")
    return None


def _read_subject(value: Value, name: str, report: Report) -> str:
    subject = text(value, name, report)
    if not is_valid_subject(subject):
        raise ValueError(_SUBJECT_EXPECTED)
    return subject


def _read_imports(value: Value, name: str, report: Report) -> tuple[tuple[Place, ImportSettings], ...]:
    found = []
    for each in items(value):
        if isinstance(each.data, Block):
            made = _read_import(each.data, each.place, name, report)
            if made is not None:
                found.append((each.place, made))
        elif each.data is not None:
            report.problem(
                each.place, name, "expected a block for each import: { stream: { account: NAME, subject: SUBJECT } }, or a service"
            )
    return tuple(found)


def _read_import(block: Block, place: Place, name: str, report: Report) -> ImportSettings | None:
    before = len(report.problems)
    said, places = read_block(block, _IMPORT, _IMPORT_FOREIGN, name, report)
    if len(report.problems) > before:
        return None
    kind = _only_kind(said, place, name, report)
    if kind is None:
        return None
    account, subject = said[kind]
    prefix, to = said.get("prefix", ""), said.get("to", "")
    if prefix and (to or kind == "service"):
        hint = "a prefix and to exclude each other" if to else "a service has no prefix; write to"
        report.problem(places["prefix"], f"{name}.prefix", hint)
        return None
    if prefix and has_wildcards(prefix):
        report.problem(places["prefix"], f"{name}.prefix", "expected a subject without * and >")
        return None
    to = to or (f"{prefix.removesuffix('.')}.{subject}" if prefix else subject)
    wrong = mapping_problem(subject, to)
    if wrong:
        report.problem(places.get("prefix" if prefix else "to", place), f"{name}.{'prefix' if prefix else 'to'}", wrong)
        return None
    return ImportSettings(kind, account, subject, to)


def _read_origin(value: Value, name: str, report: Report) -> object:
    """Read whose what is imported."""
    before = len(report.problems)
    found, _ = read_block(_block(value), _ORIGIN, {}, name, report)
    if len(report.problems) > before:
        return DEFAULT
    if len(found) != len(_ORIGIN):
        raise ValueError("expected { account: NAME, subject: SUBJECT }")
    return found["account"], found["subject"]


def _read_response_type(value: Value, name: str, report: Report) -> str:
    word: str = choice("single", "singleton", "stream", "chunked", "chunk")(value, name, report)
    return {"singleton": "single", "chunk": "chunked"}.get(word, word)


def _read_jetstream(value: Value, name: str, report: Report) -> bool:
    """Read whether JetStream of other servers may be used: a word, or limits, which are those servers' to keep."""
    if isinstance(value.data, Block):
        read_block(value.data, {}, _JETSTREAM_FOREIGN, name, report)
        return True
    if isinstance(value.data, bool):
        return value.data
    word: str = choice("enabled", "enable", "disabled", "disable")(value, name, report)
    return word.startswith("enable")


def _keys(*keys: tuple[Key, tuple[str, ...]]) -> dict[str, Key]:
    return {name: key for key, names in keys for name in names}


_RESPONSES: Final = _keys(
    (Key("messages_max", count(1, _COUNT_MAX, zero=DEFAULT, negative=_UNLIMITED)), ("max", "max_msgs", "max_messages", "max_responses")),
    (Key("expires_ns", _read_expiry), ("expires", "expiration", "ttl")),
)
_PUBLISH: Final = {"allow": Key("allow", _read_names), "deny": Key("deny", _read_names)}
_SUBSCRIBE: Final = {"allow": Key("allow", _read_names_and_queues), "deny": Key("deny", _read_names_and_queues)}
_PERMISSIONS: Final = _keys(
    (Key("publish", _read_publish), ("publish", "pub", "import")),
    (Key("subscribe", _read_subscribe), ("subscribe", "sub", "export")),
    (Key("responses", _read_responses), ("allow_responses", "publish_allow_responses")),
)
_USER: Final = _keys(
    (Key("name", some_text), ("user", "username")),
    (Key("password", text), ("password", "pass")),
    (Key("nkey", _read_nkey), ("nkey",)),
    (Key("permissions", read_permissions), ("permissions", "permission", "authorization")),
    (Key("connection_types", _read_connection_types), ("allowed_connection_types", "connection_types", "clients")),
)
_USER_FOREIGN: Final = {"proxy_required": _NO_PROXY}
_PASSWORD: Final = Key("password", text)
_AUTHORIZATION: Final = _keys(
    (Key("user", text), ("user", "username")),
    (_PASSWORD, ("password", "pass")),
    (Key("token", text), ("token",)),
    (Key("timeout_ns", seconds), ("timeout",)),
    (Key("users", _read_users), ("users",)),
    (Key("permissions", read_permissions), ("default_permissions", "default_permission", "permissions")),
)
_AUTHORIZATION_FOREIGN: Final = {
    **dict.fromkeys(("auth_callout", "auth_hook"), Foreign("it asks no other service who may log in")),
    "proxy_required": _NO_PROXY,
}
_EXPORT: Final = _keys(
    (Key("stream", _read_subject), ("stream",)),
    (Key("service", _read_subject), ("service",)),
    (Key("accounts", texts), ("accounts",)),
    (Key("response_type", _read_response_type), ("response_type", "response")),
    (Key("response_threshold_ns", duration(zero=DEFAULT)), ("response_threshold", "threshold", "response_max_time", "response_time")),
)
_EXPORT_FOREIGN: Final = {
    "latency": Foreign("the time that services take is not measured"),
    "account_token_position": Foreign("name the accounts in accounts instead", (0,)),
    "allow_trace": _NO_TRACE,
}
_ORIGIN: Final = {"account": Key("account", some_text), "subject": Key("subject", _read_subject)}
_IMPORT: Final = _keys(
    (Key("stream", _read_origin), ("stream",)),
    (Key("service", _read_origin), ("service",)),
    (Key("prefix", text), ("prefix",)),
    (Key("to", text), ("to",)),
)
_IMPORT_FOREIGN: Final = {"share": Foreign("it tells services nothing about who asks", (False,)), "allow_trace": _NO_TRACE}
_ACCOUNT: Final = _keys(
    (Key("users", _read_users), ("users",)),
    (Key("permissions", read_permissions), ("default_permissions",)),
    (Key("exports", _read_exports), ("exports",)),
    (Key("imports", _read_imports), ("imports",)),
    (Key("jetstream", _read_jetstream), ("jetstream",)),
)
_JETSTREAM_FOREIGN: Final = dict.fromkeys(_JETSTREAM_LIMITS, _JETSTREAM_LIMIT)
_ACCOUNT_FOREIGN: Final = {
    "nkey": Foreign("accounts are known by their names", refused=False),
    **dict.fromkeys(("mappings", "maps"), Foreign("subjects are mapped by imports only")),
    "limits": Foreign("limits are the server's, not an account's"),
    **dict.fromkeys(("msg_trace", "trace_dest"), Foreign("messages are not traced")),
}
ACCOUNT_BLOCKS: Final[Mapping[str, tuple[Mapping[str, Key], Mapping[str, Foreign]]]] = {
    "authorization": (_AUTHORIZATION, _AUTHORIZATION_FOREIGN),
    "users": (_USER, _USER_FOREIGN),
    "permissions": (_PERMISSIONS, {}),
    "publish, subscribe": (_PUBLISH, {}),
    "allow_responses": (_RESPONSES, {}),
    "accounts": (_ACCOUNT, _ACCOUNT_FOREIGN),
    "jetstream of an account": ({}, _JETSTREAM_FOREIGN),
    "exports": (_EXPORT, _EXPORT_FOREIGN),
    "imports": (_IMPORT, _IMPORT_FOREIGN),
    "stream, service of an import": (_ORIGIN, {}),
}
"""The keys of each kind of block, and those of nats-server that polymq does not have."""
