"""Where a spool gets its messages from: the options that say so, the same for the command line and for Spark.

Nothing is opened here; `receiver` makes what will be.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from polymq.clients.nats import NatsOptions
from polymq.clients.nsq_opening import NsqOptions, NsqTls, check_address
from polymq.clients.phpmq_connection import PhpmqOptions
from polymq.errors import ConfigError, LocalProtocolError, PolyMQError
from polymq.spool.settings import ORIGINS, SpoolSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.spool.portion import Receiver
    from polymq.spool.window import IdWindow

__all__ = ["FEED_OPTIONS", "PROTOCOLS", "SPOOL_OPTIONS", "Feed", "Reader", "make_receiver", "read_feed", "read_settings"]

PROTOCOLS: Final = tuple(ORIGINS)
_MS_PER_SECOND: Final = 1000
_TLS: Final = {
    "tls": "true: within TLS",
    "tls.caFile": "PEM file of the authorities that vouch for the server (the system's)",
    "tls.certificateFile": "PEM file of the certificate that this client shows",
    "tls.keyFile": "PEM file of its key",
}
# By protocol: every option that says where messages come from, with what it means.
FEED_OPTIONS: Final[dict[str, dict[str, str]]] = {
    "nsq": {
        "subscribe": "topics, separated by commas",
        "channel": "the channel; one of its own for each spool",
        "servers": "host:port of nsqds, separated by commas; `server` is the same",
        "server": "see servers",
        "lookupd": "host:port of nsqlookupds' HTTP ports, separated by commas",
        "maxInFlight": "most messages that are received and not settled, of each topic and connection (2500)",
        "connections": "connections to each nsqd, for each topic (1)",
        "secret": "for servers with AUTH; better one of the next two",
        "secretFile": "the file that has the secret",
        "secretEnv": "the environment variable that has the secret",
        **_TLS,
        "tls.serverName": "the name in the server's certificate, if it is not its host",
        "nsq.clientId": "as what the client introduces itself",
        "nsq.msgTimeoutMs": "the message timeout to ask for (the server's)",
        "nsq.heartbeatMs": "the heartbeat to ask for (30000)",
        "nsq.snappy": "true: ask for compression by snappy",
        "nsq.deflate": "true: ask for compression by deflate",
    },
    "nats": {
        "subscribe": "subjects, separated by commas; with wildcards if you like, but no two that overlap",
        "queueGroup": "be one of this queue group",
        "server": "host:port",
        "user": "who logs in",
        "secret": "the user's password; better one of the next two",
        "secretFile": "the file that has the password",
        "secretEnv": "the environment variable that has the password",
        "token": "in place of user and password; better one of the next two",
        "tokenFile": "the file that has the token",
        "tokenEnv": "the environment variable that has the token",
        "maxInFlight": "messages of each subject that wait here for the disk; then no more is read (10000)",
        **_TLS,
    },
    "phpmq": {
        "subscribe": "queues, separated by commas",
        "server": "host:port",
        "maxInFlight": "most messages of each queue that are here and not settled (1000)",
        "phpmq.legacy": "true: the older dialect, as the reference server speaks it",
        **_TLS,
    },
}
# What the spool itself can be told.
SPOOL_OPTIONS: Final = {
    "spoolKeepMs": "how long what the query has committed is kept (86400000)",
    "spoolKeepBytes": "and how much of it (1073741824)",
    "spoolSegmentBytes": "size of a file of the spool, from 65536 (67108864)",
    "windowCount": "how many message ids are remembered, to drop redeliveries (1000000)",
    "windowMs": "and for how long at least, unless more have come (3600000)",
}
_IN_FLIGHT: Final = {"nsq": 2500, "nats": 10_000, "phpmq": 1000}
_CONNECTIONS_MAX: Final = 64
_IN_FLIGHT_MAX: Final = 1_000_000


class Reader(Protocol):
    """What reads options one by one: Spark's source has one, and the command line uses the same."""

    problems: list[str]

    def text(self, name: str) -> str | None: ...

    def secret(self, name: str) -> str: ...

    def listed(self, name: str) -> tuple[str, ...]: ...

    def topics(self, name: str) -> tuple[str, ...]: ...

    def whole(self, name: str, default: int | None, low: int, high: int) -> int | None: ...

    def truth(self, name: str, *, default: bool) -> bool: ...


@dataclass(frozen=True, slots=True)
class Tls:
    """How to be sure of the server: files, since contexts can be neither pickled nor shown."""

    ca_file: str | None = None
    certificate_file: str | None = None
    key_file: str | None = None
    server_name: str = ""

    def context(self) -> ssl.SSLContext:
        """Make what a handshake needs; raises ConfigError."""
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.certificate_file is not None:
                context.load_cert_chain(self.certificate_file, self.key_file)
        except OSError as error:
            raise ConfigError([f"TLS: a file is not what it should be: {error.strerror or error}"]) from error
        return context


@dataclass(frozen=True, slots=True)
class Feed:
    """Where messages come from. `dialect` has what only one protocol knows."""

    protocol: str
    topics: tuple[str, ...]
    servers: tuple[str, ...]
    lookups: tuple[str, ...] = ()
    channel: str = ""
    queue_group: str = ""
    in_flight: int = 1000
    connections: int = 1
    tls: Tls | None = None
    user: str = ""
    secret: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    nsq: NsqOptions = field(default_factory=NsqOptions)
    legacy: bool = False

    def shown(self) -> str:
        """Say what this is, for people: without secrets."""
        where = ",".join(self.servers or self.lookups)
        channel = f", channel {self.channel}" if self.channel else ""
        return f"{self.protocol} {','.join(self.topics)} of {where}{channel}"


def read_feed(protocol: str, reader: Reader) -> Feed:
    """Read where messages come from; what is wrong goes into `reader.problems`."""
    topics = reader.topics("subscribe")
    servers = _addresses(reader, "servers") if protocol == "nsq" else ()
    one = _addresses(reader, "server")
    lookups = _addresses(reader, "lookupd") if protocol == "nsq" else ()
    servers = tuple(dict.fromkeys((*servers, *one)))
    if not servers and not lookups:
        reader.problems.append("servers or lookupd must say where NSQ is" if protocol == "nsq" else "server must be the broker's host:port")
    if protocol != "nsq" and len(servers) > 1:
        reader.problems.append("server must be one host:port")
    tls = _tls(reader)
    feed = Feed(
        protocol=protocol,
        topics=topics,
        servers=servers,
        lookups=lookups,
        channel=(reader.text("channel") or "").strip(),
        queue_group=(reader.text("queueGroup") or "").strip(),
        in_flight=reader.whole("maxInFlight", _IN_FLIGHT[protocol], 1, _IN_FLIGHT_MAX) or 1,
        connections=reader.whole("connections", 1, 1, _CONNECTIONS_MAX) or 1,
        tls=tls,
        user=(reader.text("user") or "").strip(),
        secret=reader.secret("secret"),
        token=reader.secret("token") if protocol == "nats" else "",
        nsq=_nsq_options(reader, tls) if protocol == "nsq" else NsqOptions(),
        legacy=reader.truth("phpmq.legacy", default=False),
    )
    if protocol == "nsq" and not feed.channel:
        reader.problems.append("channel must name the NSQ channel to consume")
    if not reader.problems:
        try:
            make_receiver(feed, None, lambda: 0)
        except PolyMQError as error:
            reader.problems.append(str(error))
    return feed


def read_settings(reader: Reader) -> SpoolSettings:
    """Read what the spool is told; what is wrong goes into `reader.problems`."""
    defaults = SpoolSettings()
    keep_ms = reader.whole("spoolKeepMs", int(defaults.keep_seconds * _MS_PER_SECOND), 0, 1 << 50) or 0
    keep_size = reader.whole("spoolKeepBytes", defaults.keep_size_bytes, 0, 1 << 60) or 0
    segment = reader.whole("spoolSegmentBytes", defaults.segment_size_bytes_max, 1 << 16, 1 << 30) or defaults.segment_size_bytes_max
    count = reader.whole("windowCount", defaults.window_count, 1, 1 << 27) or 1
    window_ms = reader.whole("windowMs", int(defaults.window_seconds * _MS_PER_SECOND), 1000, 1 << 40) or 1000
    return SpoolSettings(
        keep_seconds=keep_ms / _MS_PER_SECOND,
        keep_size_bytes=keep_size,
        segment_size_bytes_first=min(segment, defaults.segment_size_bytes_first),
        segment_size_bytes_max=segment,
        window_count=count,
        window_seconds=window_ms / _MS_PER_SECOND,
    )


def make_receiver(feed: Feed, window: IdWindow | None, wall_ns: Callable[[], int]) -> Receiver:
    """Make what receives; nothing is opened yet. Without a window only to see whether it can be made.

    Raises:  LocalProtocolError for a name or a number that the protocol does not have.
    """
    from polymq.spool.receivers.nats import NatsReceiver
    from polymq.spool.receivers.nsq import NsqReceiver
    from polymq.spool.receivers.phpmq import PhpmqReceiver
    from polymq.spool.window import IdWindow

    window = window if window is not None else IdWindow(1)
    match feed.protocol:
        case "nsq":
            return NsqReceiver(feed, window, wall_ns)
        case "nats":
            return NatsReceiver(feed, wall_ns)
        case _:
            return PhpmqReceiver(feed, window, wall_ns)


def nats_options(feed: Feed) -> NatsOptions:
    """Make what the NATS client is told."""
    return NatsOptions(user=feed.user, secret=feed.secret, token=feed.token, tls=feed.tls.context() if feed.tls else None)


def phpmq_options(feed: Feed) -> PhpmqOptions:
    """Make what the PHPMQ client is told."""
    return PhpmqOptions(legacy=feed.legacy, tls=feed.tls.context() if feed.tls else None)


def _nsq_options(reader: Reader, tls: Tls | None) -> NsqOptions:
    wanted = None
    if tls is not None:
        wanted = NsqTls(tls.ca_file, tls.certificate_file, tls.key_file, tls.server_name)
    try:
        return NsqOptions(
            client_id=(reader.text("nsq.clientId") or "").strip(),
            heartbeat_interval_ms=reader.whole("nsq.heartbeatMs", 30_000, 1000, 3_600_000) or 30_000,
            message_timeout_ms=reader.whole("nsq.msgTimeoutMs", 0, 0, 86_400_000) or 0,
            tls=wanted,
            snappy=reader.truth("nsq.snappy", default=False),
            deflate=reader.truth("nsq.deflate", default=False),
            auth_secret=reader.secret("secret"),
        )
    except LocalProtocolError as error:
        reader.problems.append(str(error))
        return NsqOptions()


def _tls(reader: Reader) -> Tls | None:
    files = {name: (reader.text(f"tls.{name}") or "").strip() or None for name in ("caFile", "certificateFile", "keyFile")}
    server_name = (reader.text("tls.serverName") or "").strip()
    if not reader.truth("tls", default=False):
        if any(files.values()) or server_name:
            reader.problems.append("tls.… is given without tls=true")
        return None
    return Tls(files["caFile"], files["certificateFile"], files["keyFile"], server_name)


def _addresses(reader: Reader, name: str) -> tuple[str, ...]:
    found = reader.listed(name)
    for address in found:
        if "@" in address and not address.startswith("unix:"):
            # It may be a password, which is not repeated.
            reader.problems.append(f"{name} must be host:port and nothing else: who logs in, and with what, is said by other options")
            continue
        try:
            check_address(address)
        except LocalProtocolError as error:
            reader.problems.append(f"{name}: {error}")
    return found
