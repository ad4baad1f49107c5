"""The keys of a nats-server's file: what each is for polymq, at the top, in `cluster` and in `tls`.

A key is a field of the settings, or is foreign: refused, because whoever writes it asks for something that polymq does not
serve, or noted, because it means nothing here. Values are looked at one by one; `nats_assembly.py` makes the settings of them.

Source: server/opts.go of nats-server 2.9.10 and 2.15.2; `nats-server -t`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from polymq import limits
from polymq.config_values import PORT_MAX, parse_go_duration
from polymq.protocols.nats.conf_tree import Block
from polymq.server.nats_accounts import ACCOUNT_BLOCKS, AuthorizationSaid, read_accounts, read_authorization, read_permissions
from polymq.server.nats_settings import PermissionSettings, RouteUrl, TlsSettings
from polymq.server.nats_values import (
    DEFAULT,
    Foreign,
    Key,
    Report,
    address,
    advertised,
    count,
    duration,
    items,
    name_without_spaces,
    read_block,
    seconds,
    some_text,
    switch,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from polymq.protocols.nats.conf_tree import Place, Value

__all__ = ["BLOCKS", "NO_LIMIT", "ClusterSaid", "parse_route", "read_cluster", "read_tls", "read_top", "table"]

_SECOND_NS: Final = 1_000_000_000
_COUNT_MAX: Final = 1 << 31
_CONTROL_LINE_SIZE_BYTES_MAX: Final = 1 << 20
_SUBSCRIPTION_TOKENS_MAX: Final = 255
_LAME_DUCK_NS_MIN: Final = 30 * _SECOND_NS
_FALLBACK_DELAY_NS: Final = 50_000_000
_ROUTES_MAX: Final = 1000
_COMPRESSIONS: Final = ("s2_uncompressed", "s2_fast", "s2_better", "s2_best", "s2_auto", "auto", "fast", "better", "best", "uncompressed")
_NO_COMPRESSIONS: Final = ("off", "disabled", "false", "accept", "not supported", "not_supported")
NO_LIMIT: Final = "no limit"
"""What a number that stands for "as many as there are" is read as."""


@dataclass(frozen=True, slots=True)
class ClusterSaid:
    """What the block `cluster` says, by field, and where."""

    place: Place
    fields: dict[str, Any]
    places: dict[str, Place]


def parse_route(text: str) -> RouteUrl:
    """Read the URL of another server: `nats-route://USER:PASSWORD@HOST:PORT`. Raises ValueError."""
    expected = "expected nats-route://HOST:PORT, or nats-route://USER:PASSWORD@HOST:PORT"
    try:
        parts = urlsplit(text.strip())
        host, port = parts.hostname, parts.port
    except ValueError:
        # What is wrong may be a password: it is not repeated.
        raise ValueError(expected) from None
    if parts.scheme not in ("nats-route", "nats", "tls") or not host or not port or parts.path not in ("", "/") or parts.query:
        raise ValueError(expected)
    return RouteUrl(host, port, unquote(parts.username or ""), unquote(parts.password or ""))


def read_tls(value: Value, name: str, report: Report) -> object:
    """Read a block `tls`."""
    if not isinstance(value.data, Block):
        raise ValueError("expected a block, { cert_file: …, key_file: … }")
    before = len(report.problems)
    found, places = read_block(value.data, _TLS, _TLS_FOREIGN, name, report)
    if "handshake_first" in found:
        found["handshake_first"], found["fallback_delay_ns"] = found["handshake_first"]
    settings = TlsSettings(
        **{"cert_file": "", "key_file": "", **found},
        places=tuple((key, str(places[key])) for key in ("cert_file", "key_file", "ca_file") if key in places),
    )
    if not (settings.cert_file and settings.key_file) and len(report.problems) == before:
        report.problem(value.place, name, "cert_file and key_file are both needed: this server's certificate and its key")
    if settings.insecure and name == "tls":
        report.note(places["insecure"], f"{name}.insecure", "is for servers that this one dials; for clients there is verify")
    return settings if len(report.problems) == before else DEFAULT


def _read_handshake_first(value: Value, _name: str, _report: Report) -> tuple[bool, int]:
    word = value.data
    if isinstance(word, bool):
        return word, 0
    if isinstance(word, str):
        known = {"true": (True, 0), "on": (True, 0), "false": (False, 0), "off": (False, 0)}
        known |= dict.fromkeys(("auto", "auto_fallback"), (True, _FALLBACK_DELAY_NS))
        if word.lower() in known:
            return known[word.lower()]
        delay_ns = parse_go_duration(word)
        if 0 < delay_ns <= _LAME_DUCK_NS_MIN:
            return True, delay_ns
    raise ValueError('expected true, false, auto, or a time to wait for the handshake, such as "300ms"')


def _read_version(value: Value, _name: str, _report: Report) -> str:
    # 1.2 without quotes is a number, and cannot mean anything else.
    version = value.data if isinstance(value.data, str) else value.spelling
    if version not in ("1.2", "1.3"):
        raise ValueError('expected "1.2" or "1.3"')
    return version


def read_cluster(value: Value, name: str, report: Report) -> ClusterSaid:
    """Read the block `cluster`."""
    if not isinstance(value.data, Block):
        raise ValueError("expected a block, { … }")
    found, places = read_block(value.data, _CLUSTER, _CLUSTER_FOREIGN, name, report)
    permissions = found.pop("permissions", None)
    said = found.get("authorization")
    if isinstance(said, AuthorizationSaid):
        if said.users is not None or said.token:
            report.problem(said.place, f"{name}.authorization", "servers have one user and password for all of them, no list and no token")
        if permissions is None and said.permissions is not None:
            report.note(said.place, f"{name}.authorization", "permissions belong into the block cluster itself; they count here as well")
            permissions = said.permissions
    if permissions is not None:
        where = places.get("permissions", value.place)
        _check_permissions(permissions, where, f"{name}.permissions", report)
        found["imports"], found["exports"] = permissions.publish, permissions.subscribe
    if "pool_size" not in places:
        report.note(
            value.place, name, "servers are connected by one connection each, as those with pool_size: -1; the others do that for it"
        )
    return ClusterSaid(value.place, found, places)


def _check_permissions(permissions: PermissionSettings, place: Place, name: str, report: Report) -> None:
    if permissions.responses is not None:
        report.problem(place, name, "allow_responses is for users; take it out")
    rules = (permissions.subscribe.allow or ()) + permissions.subscribe.deny
    if any(rule.queue for rule in rules):
        report.problem(place, name, "expected subjects without queue groups")


def _read_routes(value: Value, name: str, report: Report) -> tuple[RouteUrl, ...]:
    found: dict[RouteUrl, None] = {}
    for each in items(value):
        if each.data is None:
            continue
        try:
            route = parse_route(text(each, name, report))
        except ValueError as error:
            report.problem(each.place, name, str(error))
            continue
        if route in found:
            report.note(each.place, name, f"{route.host}:{route.port} is in the list already")
        found[route] = None
    if len(found) > _ROUTES_MAX:
        raise ValueError(f"expected at most {_ROUTES_MAX} servers; those that they know are found by themselves")
    return tuple(found)


def _read_pool_size(value: Value, name: str, report: Report) -> object:
    size: int = count(-_COUNT_MAX, _COUNT_MAX)(value, name, report)
    if size >= 0:
        raise ValueError("polymq connects to each server once; write -1, or take it out: other servers may keep theirs")
    return DEFAULT


def _read_compression(value: Value, name: str, report: Report) -> object:
    mode = value.data
    if isinstance(mode, Block):
        inner = {
            "mode": Key("mode", _read_compression),
            **dict.fromkeys(("rtt_thresholds", "thresholds", "rtts", "rtt"), Key("rtt", _read_any)),
        }
        read_block(mode, inner, {}, name, report)
    elif (mode is True) or (isinstance(mode, str) and mode.lower() in (*_COMPRESSIONS, "on", "enabled", "true")):
        report.note(value.place, name, "polymq does not compress between servers; the others notice and do not either")
    elif mode is not False and not (isinstance(mode, str) and mode.lower() in _NO_COMPRESSIONS):
        raise ValueError("expected off, accept, s2_auto, s2_fast, s2_better or s2_best")
    return DEFAULT


def _read_any(_value: Value, _name: str, _report: Report) -> object:
    return DEFAULT


def table() -> str:
    """Write all keys as the tables of docs/FROM_NATS_SERVER.md."""
    lines = []
    for block, (keys, foreign) in BLOCKS.items():
        names: dict[str, list[str]] = {}
        for name, key in keys.items():
            names.setdefault(key.field, []).append(f"`{name}`")
        served = [each[0] + (f" ({', '.join(each[1:])})" if each[1:] else "") for each in names.values()]
        lines += [f"### {f'In `{block}`' if block else 'At the top'}", ""]
        lines += [f"Served: {', '.join(served)}.", ""] if served else []
        reasons: dict[Foreign, list[str]] = {}
        for name, each in foreign.items():
            reasons.setdefault(each, []).append(f"`{name}`")
        if reasons:
            lines += ["| key | |", "|---|---|"]
            lines += [f"| {', '.join(each)} | {'refused' if why.refused else 'no meaning'}: {why.why} |" for why, each in reasons.items()]
            lines.append("")
    return "\n".join(lines)


def read_top(block: Block, report: Report) -> tuple[dict[str, Any], dict[str, Place]]:
    """Read a whole file."""
    return read_block(block, _TOP, _TOP_FOREIGN, "", report)


def _keys(*keys: tuple[str, Any, tuple[str, ...]]) -> dict[str, Key]:
    """Make a table: a field, how it is read, and its names beside that of the field."""
    return {name: Key(field, read) for field, read, names in keys for name in names}


def _foreign(*groups: tuple[tuple[str, ...], Foreign]) -> dict[str, Foreign]:
    return {name: foreign for names, foreign in groups for name in names}


_PORT: Final = count(-1, PORT_MAX)
_TLS: Final = _keys(
    ("cert_file", some_text, ("cert_file",)),
    ("key_file", some_text, ("key_file",)),
    ("ca_file", some_text, ("ca_file",)),
    ("verify", switch, ("verify",)),
    ("insecure", switch, ("insecure",)),
    ("timeout_ns", seconds, ("timeout",)),
    ("handshake_first", _read_handshake_first, ("handshake_first", "first", "immediate")),
    ("min_version", _read_version, ("min_version",)),
)
_TLS_FOREIGN: Final = _foreign(
    (("verify_and_map",), Foreign("who somebody is does not follow from a certificate", (False,))),
    (("verify_cert_and_check_known_urls",), Foreign("names in certificates are compared when dialling only", (False,))),
    (("pinned_certs",), Foreign("certificates are trusted by ca_file only", ((),))),
    (("cipher_suites", "curve_preferences"), Foreign("OpenSSL chooses; min_version can be 1.3")),
    (("allow_insecure_cipher_suites",), Foreign("OpenSSL chooses", (False,))),
    (("connection_rate_limit",), Foreign("handshakes are not counted", (0,))),
    (("certs", "certificates"), Foreign("there is one certificate; write cert_file and key_file")),
    (
        ("cert_store", "cert_match", "cert_match_by", "ca_certs_match", "cert_match_skip_invalid"),
        Foreign("certificates are files; write cert_file and key_file"),
    ),
    (("ocsp_peer",), Foreign("certificates are not asked about", (False,))),
)
_CLUSTER: Final = _keys(
    ("name", name_without_spaces, ("name",)),
    ("listen", address, ("listen",)),
    ("host", text, ("host", "net")),
    ("port", _PORT, ("port",)),
    ("authorization", read_authorization, ("authorization",)),
    ("permissions", read_permissions, ("permissions",)),
    ("routes", _read_routes, ("routes",)),
    ("tls", read_tls, ("tls",)),
    ("advertise", advertised, ("cluster_advertise", "advertise")),
    ("no_advertise", switch, ("no_advertise",)),
    ("connect_retries", count(0, _COUNT_MAX), ("connect_retries",)),
    ("connect_backoff", switch, ("connect_backoff",)),
    ("ping_interval_ns", duration(1, zero=DEFAULT), ("ping_interval",)),
    ("ping_max", count(1, _COUNT_MAX, zero=DEFAULT), ("ping_max",)),
    ("pool_size", _read_pool_size, ("pool_size",)),
    ("compression", _read_compression, ("compression",)),
)
_CLUSTER_FOREIGN: Final = _foreign(
    (("accounts",), Foreign("no account has a connection of its own", ((),))),
    (("write_deadline",), Foreign("write_deadline at the top is for servers as well")),
    (("write_timeout",), Foreign("a server that takes nothing for so long is given up", ("default", "close"))),
)
_TOP: Final = _keys(
    ("listen", address, ("listen",)),
    ("host", text, ("host", "net")),
    ("port", _PORT, ("port",)),
    ("http", address, ("http",)),
    ("http_port", _PORT, ("http_port", "monitor_port")),
    ("server_name", name_without_spaces, ("server_name",)),
    ("client_advertise", advertised, ("client_advertise",)),
    ("cluster", read_cluster, ("cluster",)),
    ("authorization", read_authorization, ("authorization",)),
    ("accounts", read_accounts, ("accounts",)),
    ("no_auth_user", text, ("no_auth_user",)),
    ("system_account", some_text, ("system_account", "system")),
    ("tls", read_tls, ("tls",)),
    ("allow_non_tls", switch, ("allow_non_tls",)),
    ("connections_max", count(1, _COUNT_MAX, zero=NO_LIMIT, negative=NO_LIMIT), ("max_connections", "max_conn")),
    ("subscriptions_max", count(1, _COUNT_MAX, zero=NO_LIMIT, negative=NO_LIMIT), ("max_subscriptions", "max_subs")),
    ("subscription_tokens_max", count(1, _SUBSCRIPTION_TOKENS_MAX), ("max_subscription_tokens", "max_sub_tokens")),
    ("control_line_size_bytes_max", count(64, _CONTROL_LINE_SIZE_BYTES_MAX, zero=DEFAULT), ("max_control_line",)),
    ("payload_size_bytes_max", count(1, limits.MESSAGE_SIZE_BYTES_MAX, zero=DEFAULT), ("max_payload",)),
    ("pending_size_bytes_max", count(1, 1 << 40, zero=DEFAULT), ("max_pending",)),
    ("ping_interval_ns", duration(1, zero=DEFAULT), ("ping_interval",)),
    ("ping_max", count(1, _COUNT_MAX, zero=DEFAULT), ("ping_max",)),
    ("write_deadline_ns", duration(1, zero=DEFAULT), ("write_deadline",)),
    ("lame_duck_duration_ns", duration(_LAME_DUCK_NS_MIN), ("lame_duck_duration",)),
    ("lame_duck_grace_period_ns", duration(zero=DEFAULT), ("lame_duck_grace_period",)),
    ("debug", switch, ("debug",)),
    ("log_file", text, ("log_file", "logfile")),
    ("pid_file", text, ("pid_file", "pidfile")),
)
_TRACE: Final = Foreign("what passes is not written to the log", (False,), refused=False)
_OPERATORS: Final = Foreign("it knows users and accounts of its own file, not those of operators (JWT)")
_ROTATION: Final = Foreign("whoever keeps log files does that, such as logrotate or journald", (0,))
_TOP_FOREIGN: Final = _foreign(
    (
        ("jetstream",),
        Foreign(
            "it has no JetStream of its own; clients use that of the cluster's other servers, and its log keeps what a topic or a capture names",
            (False, "disabled", "disable"),
        ),
    ),
    (("store_dir", "storedir", "default_js_domain"), Foreign("it has no JetStream of its own")),
    (("websocket", "ws"), Foreign("it has no WebSocket")),
    (("mqtt",), Foreign("it has no MQTT")),
    (("leaf", "leafnodes"), Foreign("it has no leaf nodes")),
    (("gateway",), Foreign("it has no gateways between clusters")),
    (("operator", "operators", "root", "roots", "root_operator", "root_operators", "trusted", "trusted_keys"), _OPERATORS),
    (("resolver", "account_resolver", "accounts_resolver", "resolver_tls", "resolver_preload", "resolver_pinned_accounts"), _OPERATORS),
    (("default_sentinel",), _OPERATORS),
    (("mappings", "maps"), Foreign("subjects are mapped by imports of accounts only")),
    (("https", "https_port"), Foreign("the monitoring pages are there over plain HTTP; see http", (0,))),
    (("http_base_path",), Foreign("the monitoring pages are at /", ("", "/"))),
    (("ocsp", "ocsp_cache"), Foreign("certificates are not asked about", (False,))),
    (("syslog",), Foreign("it writes its log to a file, or to standard error", (False,))),
    (("remote_syslog",), Foreign("it writes its log to a file, or to standard error", ("",))),
    (("logfile_size_limit", "log_size_limit", "logfile_max_num", "log_max_num"), _ROTATION),
    (("ports_file_dir",), Foreign("it writes no file with its ports", ("",))),
    (("prof_port", "prof_block_rate"), Foreign("it has no profiler of Go's", (0,))),
    (("proxies", "proxy_protocol"), Foreign("it knows no proxies", (False,))),
    (("no_header_support",), Foreign("headers are always there", (False,))),
    (("no_system_account", "no_system", "no_sys_acc"), Foreign("servers say nothing about themselves there", (False,), refused=False)),
    (("write_timeout",), Foreign("a client that takes nothing for so long is closed", ("default", "close"))),
    (("feature_flags",), Foreign("they turn parts of nats-server on and off")),
    (("trace", "trace_verbose", "trace_headers"), _TRACE),
    (("max_traced_msg_len",), Foreign("what passes is not written to the log", (0,), refused=False)),
    (("logtime",), Foreign("every line of the log has its time", (True,), refused=False)),
    (("logtime_utc",), Foreign("every line of the log has its time", (False,), refused=False)),
    (
        ("connect_error_reports", "reconnect_error_reports"),
        Foreign("which failures the log names is not set by their number", refused=False),
    ),
    (("disable_sublist_cache", "no_sublist_cache"), Foreign("what a subject matches is always kept", (False,), refused=False)),
    (("no_fast_producer_stall",), Foreign("publishers are held up by rules of polymq's own", (False,), refused=False)),
    (("max_closed_clients",), Foreign("how many closed connections are remembered is fixed", refused=False)),
    (("server_tags", "server_metadata"), Foreign("JetStream places streams by them", refused=False)),
)
BLOCKS: Final[Mapping[str, tuple[Mapping[str, Key], Mapping[str, Foreign]]]] = {
    "": (_TOP, _TOP_FOREIGN),
    "cluster": (_CLUSTER, _CLUSTER_FOREIGN),
    "tls": (_TLS, _TLS_FOREIGN),
    **ACCOUNT_BLOCKS,
}
"""The keys of each kind of block, and those of nats-server that polymq does not have."""
