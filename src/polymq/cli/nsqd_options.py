"""Every option of nsqd: how its value is written, and what it is here.

An option is a setting of polymq, or has no meaning for it (then it is taken, and the start says what is done instead),
or is refused, because who asks for it must not believe that he has it. The first two are said in the table; the third
follows: an option whose setting this version does not have is refused when its value would matter.

Read next: `nsqd.py`, which reads flags and files by this table. docs/FROM_NSQD.md shows it to people; a test
compares. Source: nsqd/options.go, apps/nsqd/options.go and go-options, NSQ 1.3.0; `nsqd -help`.
"""

from __future__ import annotations

import enum
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from polymq.config import all_settings
from polymq.config_values import parse_go_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["OPTIONS", "Kind", "Option", "from_file", "from_flag", "table", "to_setting"]

_BOOLS: Final = dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), "true") | dict.fromkeys(
    ("0", "f", "F", "FALSE", "false", "False"), "false"
)
_MILLISECOND_NS: Final = 10**6
_LEVELS: Final = {"debug": "debug", "info": "info", "warn": "warning", "error": "error", "fatal": "error"}


class Kind(enum.Enum):
    """How a value is written: the word that the help shows, and what was expected when it cannot be read."""

    BOOL = "true or false"
    INT = "a whole number"
    DURATION = 'a time with its unit, such as "250ms" or "1h30m"'
    TEXT = "text"
    TEXTS = "text; can be given several times"
    FLOATS = "numbers, separated by commas; can be given several times"
    LEVEL = "debug, info, warn, error or fatal"
    TLS_REQUIRED = "true, false or tcp-https"


@dataclass(frozen=True, slots=True)
class Option:
    """One option of nsqd.

    `setting` is polymq's; without one the option has no meaning here, and `here` says what is instead. `default` is
    nsqd's, as `from_flag` gives it. `alone`: without what it belongs to, it changes nothing.
    """

    flag: str
    kind: Kind
    default: str
    setting: str = ""
    here: str = ""
    key: str = ""
    alone: bool = False
    unreleased: bool = False

    @property
    def file_key(self) -> str:
        """The name in nsqd's file; "" if it has none there."""
        return "" if self.key == "-" else self.key or self.flag.replace("-", "_")


_EVERYTHING_ON_DISK: Final = "every message is in the log's files, and what is hot is read from the page cache"
_TIMERS: Final = "every timeout has its own timer: nothing is scanned"

OPTIONS: Final = (
    Option("version", Kind.BOOL, "false", here="prints the version", key="-"),
    Option("config", Kind.TEXT, "", here="nsqd's file, read as nsqd reads it; names that it would overlook are errors", key="-"),
    Option("log-level", Kind.LEVEL, "info", "server.log_level", "fatal is error here"),
    Option("log-prefix", Kind.TEXT, "[nsqd] ", here="log lines name the part of polymq that writes them"),
    Option("verbose", Kind.BOOL, "false", here="has no effect in nsqd either; -log-level", key="-"),
    Option("node-id", Kind.INT, "", here="message ids are places in the log, unique in a data folder without a node id", key="id"),
    Option("worker-id", Kind.BOOL, "false", here="has no effect in nsqd either", key="-"),
    Option("tcp-address", Kind.TEXT, "0.0.0.0:4150", "nsq.tcp", "or the path of a Unix socket"),
    Option("http-address", Kind.TEXT, "0.0.0.0:4151", "nsq.http", "or the path of a Unix socket; empty: none"),
    Option("https-address", Kind.TEXT, "0.0.0.0:4152", "nsq.https", "only with -tls-cert and -tls-key; empty: none"),
    Option("auth-http-address", Kind.TEXTS, "", "nsq.auth_http_addresses", key="auth_http_addresses"),
    Option("auth-http-request-method", Kind.TEXT, "get", "nsq.auth_http_request_method", alone=True, unreleased=True),
    Option("broadcast-address", Kind.TEXT, "", "server.advertise"),
    Option("broadcast-tcp-port", Kind.INT, "0", "nsq.broadcast_tcp_port"),
    Option("broadcast-http-port", Kind.INT, "0", "nsq.broadcast_http_port"),
    Option("lookupd-tcp-address", Kind.TEXTS, "", "nsq.lookupd_tcp_addresses", key="nsqlookupd_tcp_addresses"),
    Option("http-client-connect-timeout", Kind.DURATION, "2s", "nsq.http_client_connect_timeout", alone=True),
    Option("http-client-request-timeout", Kind.DURATION, "5s", "nsq.http_client_request_timeout", alone=True),
    Option("topology-region", Kind.TEXT, "", here="consumers are not told apart by where they are", unreleased=True),
    Option("topology-zone", Kind.TEXT, "", here="consumers are not told apart by where they are", unreleased=True),
    Option("data-path", Kind.TEXT, "", "server.data", "a folder of polymq's own; ./polymq-data if none is given"),
    Option("mem-queue-size", Kind.INT, "10000", here=_EVERYTHING_ON_DISK),
    Option("max-bytes-per-file", Kind.INT, "104857600", here="segments of the log grow to 64 MiB by themselves"),
    Option("sync-every", Kind.INT, "2500", "store.durability", "1 is fsync; any other number means nothing: see -sync-timeout"),
    Option("sync-timeout", Kind.DURATION, "2s", "store.sync_interval"),
    Option("queue-scan-worker-pool-max", Kind.INT, "4", here=_TIMERS),
    Option("queue-scan-selection-count", Kind.INT, "20", here=_TIMERS),
    Option("msg-timeout", Kind.DURATION, "1m0s", "nsq.msg_timeout"),
    Option("max-msg-timeout", Kind.DURATION, "15m0s", "nsq.max_msg_timeout"),
    Option("max-msg-size", Kind.INT, "1048576", "nsq.max_msg_size"),
    Option("max-req-timeout", Kind.DURATION, "1h0m0s", "nsq.max_req_timeout"),
    Option("max-body-size", Kind.INT, "5242880", "nsq.max_body_size"),
    Option("max-heartbeat-interval", Kind.DURATION, "1m0s", "nsq.max_heartbeat_interval"),
    Option("max-rdy-count", Kind.INT, "2500", "nsq.max_rdy_count"),
    Option("max-output-buffer-size", Kind.INT, "65536", "nsq.max_output_buffer_size"),
    Option("max-output-buffer-timeout", Kind.DURATION, "30s", "nsq.max_output_buffer_timeout"),
    Option("min-output-buffer-timeout", Kind.DURATION, "25ms", "nsq.min_output_buffer_timeout"),
    Option("output-buffer-timeout", Kind.DURATION, "250ms", "nsq.output_buffer_timeout"),
    Option("max-channel-consumers", Kind.INT, "0", "nsq.max_channel_consumers"),
    Option("statsd-address", Kind.TEXT, "", "nsq.statsd_address"),
    Option("statsd-interval", Kind.DURATION, "1m0s", "nsq.statsd_interval", alone=True),
    Option("statsd-mem-stats", Kind.BOOL, "true", "nsq.statsd_mem_stats", alone=True),
    Option("statsd-prefix", Kind.TEXT, "nsq.%s", "nsq.statsd_prefix", alone=True),
    Option("statsd-udp-packet-size", Kind.INT, "508", "nsq.statsd_udp_packet_size", alone=True),
    Option("statsd-exclude-ephemeral", Kind.BOOL, "false", "nsq.statsd_exclude_ephemeral", alone=True),
    Option(
        "e2e-processing-latency-percentile",
        Kind.FLOATS,
        "",
        "nsq.e2e_processing_latency_percentiles",
        key="e2e_processing_latency_percentiles",
    ),
    Option("e2e-processing-latency-window-time", Kind.DURATION, "10m0s", "nsq.e2e_processing_latency_window_time", alone=True),
    Option("tls-cert", Kind.TEXT, "", "nsq.tls_cert"),
    Option("tls-key", Kind.TEXT, "", "nsq.tls_key"),
    Option("tls-client-auth-policy", Kind.TEXT, "", "nsq.tls_client_auth_policy"),
    Option("tls-root-ca-file", Kind.TEXT, "", "nsq.tls_root_ca_file"),
    Option("tls-required", Kind.TLS_REQUIRED, "false", "nsq.tls_required"),
    Option("tls-min-version", Kind.TEXT, "tls1.0", "nsq.tls_min_version", alone=True),
    Option("deflate", Kind.BOOL, "true", "nsq.deflate", alone=True),
    Option("max-deflate-level", Kind.INT, "6", "nsq.max_deflate_level", alone=True),
    Option("snappy", Kind.BOOL, "true", "nsq.snappy", alone=True),
    Option("enable-experiment", Kind.TEXTS, "", here="there are no experiments", unreleased=True),
)


def from_flag(option: Option, text: str) -> str:
    """Read a flag's value as Go's flag package and nsqd do; gives it in one spelling. Raises ValueError."""
    if option.kind is Kind.BOOL:
        return _choose(_BOOLS, text, option)
    if option.kind is Kind.TLS_REQUIRED:
        return "tcp-https" if text.lower() == "tcp-https" else _choose(_BOOLS, text.lower(), option)
    if option.kind is Kind.LEVEL:
        return _choose({level: level for level in _LEVELS}, text.lower(), option)
    if option.kind is Kind.DURATION:
        return f"{_duration_ns(text)}ns"
    if option.kind is Kind.INT:
        return _whole_number(text)
    if option.kind is Kind.FLOATS:
        for part in text.split(","):
            float(part.strip() or "none")
    return text


def from_file(option: Option, value: object) -> str | list[str]:
    """Read a value of nsqd's TOML file; gives what `from_flag` does, and of several texts a list. Raises ValueError.

    One text may be several with commas between them, in the file only.
    """
    if isinstance(value, str) and option.kind is Kind.TEXTS:
        return [text for part in value.split(",") if (text := part.strip())]
    if isinstance(value, list) and option.kind in (Kind.TEXTS, Kind.FLOATS):
        wanted = str if option.kind is Kind.TEXTS else (int, float)
        if not all(isinstance(each, wanted) and not isinstance(each, bool) for each in value):
            raise ValueError(f"expected {option.kind.value}")
        return list(value) if option.kind is Kind.TEXTS else ",".join(map(str, value))
    if isinstance(value, bool):
        if option.kind in (Kind.BOOL, Kind.TLS_REQUIRED):
            return "true" if value else "false"
    elif isinstance(value, str):
        return from_flag(option, value)
    elif isinstance(value, int):
        if option.kind is Kind.INT:
            return str(value)
        if option.kind is Kind.DURATION:
            return f"{value * _MILLISECOND_NS}ns"  # a bare number is milliseconds, in the file only
        if option.kind is Kind.BOOL:
            raise ValueError("expected true or false (nsqd takes 0 for true)")
    raise ValueError(f"expected {option.kind.value}")


def _choose(words: Mapping[str, str], text: str, option: Option) -> str:
    if text not in words:
        raise ValueError(f"expected {option.kind.value}")
    return words[text]


def _duration_ns(text: str) -> int:
    time_ns = parse_go_duration(text)
    if time_ns < 0:
        raise ValueError("a time cannot be negative")
    return time_ns


def _whole_number(text: str) -> str:
    """Read a number as Go's strconv.ParseInt(…, 0, 64) does: 0x, 0o and 0b are understood, and so is a leading 0."""
    plain = text.lower().lstrip("+-")
    octal = plain[:1] == "0" and plain[1:2].isdigit()
    try:
        value = int(plain, 8 if octal else 0) if text == text.strip() else None
    except ValueError:
        value = None
    if value is None or len(text) - len(plain) > 1:
        raise ValueError(f"expected {Kind.INT.value}")
    return str(-value if text.startswith("-") else value)


def _address(text: str) -> str:
    """Turn an address of nsqd's into one of polymq's: what has no port is the path of a Unix socket, no host is every address."""
    host, colon, port = text.rpartition(":")
    if not text:
        return "off"
    if not colon or ("/" in port and "[" not in text):
        return f"unix:{text}"
    if not host:
        return f"[::]:{port}" if socket.has_dualstack_ipv6() else f"0.0.0.0:{port}"
    return text


_TO_SETTING: Final[Mapping[str, Callable[[str], str]]] = {
    "log-level": _LEVELS.__getitem__,
    "tcp-address": _address,
    "http-address": _address,
    "https-address": _address,
    "sync-every": lambda text: "fsync" if text == "1" else "",
    "tls-client-auth-policy": lambda text: text or "none",
}


def to_setting(option: Option, text: str) -> str:
    """Write a value, as `from_flag` gives it, the way polymq's setting wants it; "" if it says nothing there."""
    convert = _TO_SETTING.get(option.flag)
    return convert(text) if convert is not None else text


def table() -> str:
    """Write the options as the table of docs/FROM_NSQD.md."""
    lines = ["| nsqd | in its file | here |", "|---|---|---|"]
    for each in OPTIONS:
        mark = " (not in 1.3.0)" if each.unreleased else ""
        key = f"`{each.file_key}`" if each.file_key else ""
        setting = all_settings().get(each.setting)
        bounds = getattr(setting.kind, "bounds", "") if setting is not None else ""
        named = f"`{each.setting}`" + (f", {bounds}" if bounds else "") if each.setting else ""
        here = "; ".join(filter(None, (named, each.here)))
        lines.append(f"| `-{each.flag}`{mark} | {key} | {here} |")
    return "\n".join(lines) + "\n"
