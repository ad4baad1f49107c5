"""INFO and CONNECT: what a server says of itself and what a client or another server asks for, as JSON in one line.

How the JSON is read is in `wire/go_json.py`: as Go does, so unknown keys are ignored and a wrong type spoils the whole.
Observed on nats-server 2.9.10.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from polymq.protocols.nats import problems
from polymq.protocols.nats.problems import CloseReason
from polymq.wire.go_json import INT32, INT64, decode_struct

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.wire.go_json import Shape

__all__ = [
    "COMPRESSIONS",
    "FIRST_CONNECT",
    "ClientConnect",
    "Permissions",
    "RouteConnect",
    "ServerInfo",
    "connect_problem",
    "parse_connect",
    "parse_info",
    "parse_route_connect",
    "route_connect_problem",
    "write_connect",
    "write_info",
]

# What a route's INFO may say of compression; to who does not offer it, none of it means anything.
COMPRESSIONS: Final = frozenset({"", "not supported", "off", "accept", "s2_auto", "s2_uncompressed", "s2_fast", "s2_better", "s2_best"})

_PERMISSIONS: Final[Shape] = {"allow": [str], "deny": [str]}
_CLIENT_PROTOCOLS: Final = (0, 1)  # 1: understands an INFO that comes later


@dataclass(frozen=True, slots=True)
class Permissions:
    """Which subjects may cross a route; empty `allow` is all. None in an INFO: it said nothing."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ClientConnect:
    """What a client asks for in CONNECT; the defaults are what holds before one. Secrets do not show."""

    verbose: bool = True
    pedantic: bool = True
    echo: bool = True
    headers: bool = False
    no_responders: bool = False
    tls_required: bool = False
    protocol: int = 0
    name: str = ""
    lang: str = ""
    version: str = ""
    user: str = ""
    password: str = field(default="", repr=False)  # pass
    auth_token: str = field(default="", repr=False)
    jwt: str = field(default="", repr=False)
    nkey: str = ""
    signature: str = field(default="", repr=False)  # sig
    account: str = ""  # a way to name accounts that is forbidden by now
    new_account: bool = False


@dataclass(frozen=True, slots=True)
class RouteConnect:
    """What another server says of itself in CONNECT. `name` is its id. Secrets do not show."""

    verbose: bool = False
    headers: bool = False
    name: str = ""
    cluster: str = ""
    cluster_dynamic: bool = False
    user: str = ""
    password: str = field(default="", repr=False)  # pass
    tls_required: bool = False
    lang: str = ""  # not empty: a client on the wrong port
    gateway: str = ""  # not empty: a gateway on the wrong port
    account: str = ""
    new_account: bool = False


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """What a server says of itself in INFO, to clients and on routes. What is empty or False is left out.

    `host` and `port` are those of the listener. On a route `ip` is the address of a third server, of which this INFO
    tells. `connect_urls` are "host:port" of clients' listeners. The key of each field is its name.
    """

    server_id: str = ""
    server_name: str = ""
    version: str = ""
    proto: int = 0
    git_commit: str = ""
    go: str = ""
    host: str = ""
    port: int = 0
    headers: bool = False
    auth_required: bool = False
    tls_required: bool = False
    tls_verify: bool = False
    tls_available: bool = False
    max_payload: int = 0
    jetstream: bool = False
    ip: str = ""
    client_id: int = 0
    client_ip: str = ""
    nonce: str = ""
    cluster: str = ""
    cluster_dynamic: bool = False
    domain: str = ""
    connect_urls: tuple[str, ...] = ()
    ws_connect_urls: tuple[str, ...] = ()
    ldm: bool = False
    # Clients only, 2.12 and later: right after the first PONG.
    connect_info: bool = False
    remote_account: str = ""
    acc_is_sys: bool = False
    # Routes only.
    permissions_import: Permissions | None = None  # import
    permissions_export: Permissions | None = None  # export
    lnoc: bool = False
    lnocu: bool = False
    gateway: str = ""
    gateway_url: str = ""
    leafnode_urls: tuple[str, ...] = ()
    route_pool_size: int = 0
    route_pool_idx: int = 0
    route_account: str = ""
    route_acc_add_reqid: str = ""
    gossip_mode: int = 0
    compression: str = ""
    # Not nats-server's, which passes over it: the other server is one of ours.
    polymq: bool = False


# Fields whose names are not the keys in the JSON.
_KEYS: Final = {
    "password": "pass",
    "signature": "sig",
    "permissions_import": "import",
    "permissions_export": "export",
}
_NAMES: Final = {key: name for name, key in _KEYS.items()}
_SHAPES: Final[Mapping[str, Shape]] = {"bool": bool, "int": INT64, "str": str, "tuple[str, ...]": [str], "Permissions | None": _PERMISSIONS}
_INTEGERS: Final = {"max_payload": INT32, "client_id": range(1 << 64), "gossip_mode": range(256)}
# Fields that are written whatever they hold.
_ALWAYS: Final = frozenset({"server_id", "server_name", "version", "proto", "go", "host", "port", "headers", "max_payload"})


def _shapes(kind: type[ClientConnect | RouteConnect | ServerInfo]) -> Mapping[str, Shape]:
    """Say what Go wants behind each key, after the annotations."""
    return {_KEYS.get(each.name, each.name): _INTEGERS.get(each.name, _SHAPES[str(each.type)]) for each in fields(kind)}


# `import` and `export` of a client's CONNECT mean nothing, but have to be well.
_CLIENT_FIELDS: Final = {**_shapes(ClientConnect), "import": _PERMISSIONS, "export": _PERMISSIONS}
_ROUTE_FIELDS: Final = {**_shapes(RouteConnect), "echo": bool, "pedantic": bool, "lnoc": bool, "lnocu": bool}
_INFO_FIELDS: Final = _shapes(ServerInfo)

FIRST_CONNECT: Final = ClientConnect()


def parse_connect(body: bytes, before: ClientConnect = FIRST_CONNECT) -> ClientConnect | None:
    """Read a client's CONNECT; None if Go would not. What it does not say stays as the CONNECT `before` had it."""
    found = decode_struct(body, _CLIENT_FIELDS)
    if found is None:
        return None
    values = {each.name: getattr(before, each.name) for each in fields(ClientConnect)}
    values.update((name, value) for key, value in found.items() if (name := _NAMES.get(key, key)) in values)
    return ClientConnect(**values)


def connect_problem(connect: ClientConnect) -> tuple[bytes, CloseReason] | None:
    """Say what is wrong with a client's CONNECT after its login has succeeded: the error, and why the connection is closed."""
    if connect.account or connect.new_account:
        return problems.AUTH_VIOLATION, CloseReason.AUTH_VIOLATION
    if connect.protocol not in _CLIENT_PROTOCOLS:
        return problems.BAD_CLIENT_PROTOCOL, CloseReason.BAD_CLIENT_PROTOCOL
    if connect.no_responders and not connect.headers:
        return problems.NO_RESPONDERS_WITHOUT_HEADERS, CloseReason.NO_RESPONDERS_WITHOUT_HEADERS
    return None


def parse_route_connect(body: bytes) -> RouteConnect | None:
    """Read another server's CONNECT; None if Go would not."""
    found = decode_struct(body, _ROUTE_FIELDS)
    if found is None:
        return None
    known = {each.name for each in fields(RouteConnect)}
    return RouteConnect(**{name: value for key, value in found.items() if (name := _NAMES.get(key, key)) in known})


def route_connect_problem(connect: RouteConnect) -> tuple[bytes, CloseReason] | None:
    """Say what is wrong with a CONNECT on the route port, after the login; whether the cluster's name fits is not looked at."""
    if connect.account or connect.new_account:
        return problems.AUTH_VIOLATION, CloseReason.AUTH_VIOLATION
    if connect.lang:
        return problems.CLIENT_ON_ROUTE_PORT, CloseReason.WRONG_PORT
    if connect.gateway:
        return problems.wrong_gateway(connect.gateway.encode()), CloseReason.WRONG_GATEWAY
    return None


def write_connect(connect: RouteConnect) -> bytes:
    """Write the line with which a server begins a route that it has dialled."""
    document: dict[str, Any] = {
        "echo": True,
        "verbose": connect.verbose,
        "pedantic": False,
        "user": connect.user,
        "pass": connect.password,
        "tls_required": connect.tls_required,
        "headers": connect.headers,
        "name": connect.name,
        "cluster": connect.cluster,
        "cluster_dynamic": connect.cluster_dynamic,
    }
    optional = ("user", "pass", "cluster_dynamic")
    return b"CONNECT %b\r\n" % _compact({key: value for key, value in document.items() if value or key not in optional})


def parse_info(body: bytes) -> ServerInfo | None:
    """Read an INFO; None if Go would not."""
    found = decode_struct(body, _INFO_FIELDS)
    if found is None:
        return None
    values: dict[str, Any] = {}
    for key, value in found.items():
        if isinstance(value, dict):
            values[_NAMES[key]] = Permissions(tuple(value.get("allow", ())), tuple(value.get("deny", ())))
        else:
            values[key] = tuple(value) if isinstance(value, list) else value
    return ServerInfo(**values)


def write_info(info: ServerInfo, *, gossip: bool = False) -> bytes:
    """Write an INFO line, to clients or on a route.

    A blank stands before the line's end but in gossip, the INFO of a third server that is passed on.
    """
    document: dict[str, Any] = {}
    for each in fields(ServerInfo):
        value = getattr(info, each.name)
        if isinstance(value, Permissions):
            document[_KEYS[each.name]] = {key: list(names) for key, names in (("allow", value.allow), ("deny", value.deny)) if names}
        elif value or each.name in _ALWAYS:
            document[each.name] = value
    return b"INFO %b%b\r\n" % (_compact(document), b"" if gossip else b" ")


def _compact(document: Mapping[str, Any]) -> bytes:
    # Only ASCII: half of a surrogate pair, which Python can hold and UTF-8 cannot, is written as an escape.
    return json.dumps(document, separators=(",", ":")).encode()
