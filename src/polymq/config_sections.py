"""Every setting of polymq: one typed section per part, with its default, its bounds and a line that explains it.

This file is the only place that knows a setting; the file format, the environment variables (POLYMQ_<SECTION>_<KEY>),
the flags of `polymq serve` and the example file are derived from it (`config.py`). A key is the field's name without
its unit: `msg_timeout_ns` is `msg_timeout = "60s"`. The [nsq] keys are nsqd's own option names.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from polymq import limits, phpmq_limits
from polymq.config_values import (
    Address,
    AddressKind,
    ChoiceKind,
    CountKind,
    DiskShare,
    DiskShareKind,
    DurationKind,
    Kind,
    PathKind,
    SharesKind,
    SizeKind,
    SwitchKind,
    TargetKind,
    TcpAddress,
    TextKind,
    TextsKind,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = [
    "PLANNED_SECTIONS",
    "SECTIONS",
    "AccessSettings",
    "NatsSettings",
    "NsqSettings",
    "PhpmqSettings",
    "RocketmqSettings",
    "ServerSettings",
    "Setting",
    "Settings",
    "StoreSettings",
    "settings_of",
]

MILLISECOND_NS: Final = 10**6
SECOND_NS: Final = 10**9
HOUR_NS: Final = 3600 * SECOND_NS
DAY_NS: Final = 24 * HOUR_NS
# No time setting makes sense beyond this, and i64 nanoseconds stay far from overflow when two are added to "now".
DURATION_MAX_NS: Final = 3650 * DAY_NS
LOOPBACK: Final = "127.0.0.1"
UNIT_SUFFIXES: Final = ("_ns", "_bytes")


def setting(default: Any, kind: Kind, explanation: str, *, flag: str = "", planned: bool = False) -> Any:
    """Declare one setting. `flag` is its flag of `polymq serve`; `planned` marks a listener that does not exist yet."""
    return field(default=default, metadata={"kind": kind, "explanation": explanation, "flag": flag, "planned": planned})


def listener(port: int | None, explanation: str, *, flag: str, planned: bool = False) -> Any:
    """Declare where a part listens; by default on its standard port of the loopback interface."""
    default = None if port is None else TcpAddress(LOOPBACK, port)
    return setting(default, AddressKind(), explanation, flag=flag, planned=planned)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The process as a whole."""

    data: Path = setting(Path("polymq-data"), PathKind(), "the data folder; made if it does not exist", flag="--data")
    http: Address | None = listener(4171, "polymq's own HTTP door: the log, metrics, health", flag="--http")
    advertise: str = setting("", TextKind(), "the host name that other machines are told; empty: this machine's name", flag="--advertise")
    log_level: str = setting(
        "info", ChoiceKind(("debug", "info", "warning", "error")), "how much is written to the log", flag="--log-level"
    )
    connections_max: int = setting(
        limits.CONNECTIONS_MAX,
        CountKind(1, 1_000_000),
        "connections of all listeners together; more wait until one ends, or are refused (NATS clients); health pages and NATS routes are let in",
    )
    spin_ns: int = setting(
        60_000,
        DurationKind(0, MILLISECOND_NS),
        "wait awake for the next request so long before going to sleep, as long as that pays; 0s: never, for the least CPU",
    )
    on_disconnect: str = setting(
        "wait",
        ChoiceKind(("wait", "requeue")),
        "messages that a consumer held when its connection ended: wait: come back at their timeout, as nsqd's do; requeue: at once",
    )


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """What is kept, for how long, and when a publish counts as safe."""

    durability: str = setting(
        "cache",
        ChoiceKind(("cache", "fsync")),
        "what an acknowledged message survives: cache: the broker's death (kill -9); fsync: the machine's as well",
    )
    partitions: int = setting(
        1,
        CountKind(1, limits.PARTITIONS_PER_TOPIC_MAX),
        "how many logs a new topic is spread over; more help Spark to read it side by side, and cost the order between them",
    )
    sync_interval_ns: int = setting(
        limits.SYNC_INTERVAL_NS,
        DurationKind(MILLISECOND_NS, HOUR_NS),
        "with durability cache, written data is synced to the disk at least this often",
    )
    retention_age_ns: int = setting(
        DAY_NS, DurationKind(0, DURATION_MAX_NS), "messages that every group has finished stay this long, for replay and Spark"
    )
    retention_size: DiskShare = setting(
        DiskShare(percent=10), DiskShareKind(), "… and no longer than until they fill this much of the disk"
    )
    free_space: DiskShare = setting(DiskShare(percent=5), DiskShareKind(), "publishes are refused when less than this is free on the disk")


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Who may do what. As soon as a key or an authentication server (nsq.auth_http_addresses) is given, NSQ's clients must AUTH."""

    file: str = setting("", TextKind(), "a TOML file of keys: whose secret allows what; read at start")
    secret_hash: str = setting("", TextKind(), "the SHA-256 of a secret that allows everything; `polymq secret` makes both")
    http: str = setting(
        "open",
        ChoiceKind(("open", "login")),
        "login: requests over HTTP need a secret as well (Authorization: Bearer), but for /ping, /healthz and looking up nodes (GET of 4161)",
    )


@dataclass(frozen=True, slots=True)
class NsqSettings:
    """The NSQ protocol, with nsqd's option names and defaults."""

    tcp: Address | None = listener(4150, "the TCP protocol (nsqd's port)", flag="--nsq")
    http: Address | None = listener(4151, "nsqd's HTTP interface", flag="--nsq-http")
    https: Address | None = listener(None, "nsqd's HTTPS interface; needs tls_cert and tls_key", flag="--nsq-https")
    lookup_tcp: Address | None = listener(
        4160,
        "nsqlookupd's TCP interface, for nodes; if nobody asked for it and the port is taken, there is no lookup role",
        flag="--nsq-lookup",
    )
    lookup_http: Address | None = listener(4161, "nsqlookupd's HTTP interface, for consumers; likewise", flag="--nsq-lookup-http")
    lookup_inactive_producer_timeout_ns: int = setting(
        300 * SECOND_NS,
        DurationKind(MILLISECOND_NS, DURATION_MAX_NS),
        "the lookup role no longer shows a node that has been silent for so long",
    )
    lookup_tombstone_lifetime_ns: int = setting(
        45 * SECOND_NS, DurationKind(0, DURATION_MAX_NS), "the lookup role hides a node for so long from a topic that it was tombstoned for"
    )
    broadcast_tcp_port: int = setting(0, CountKind(0, 65535), "the TCP port that nsqlookupd is told; 0: the one that is listened on")
    broadcast_http_port: int = setting(0, CountKind(0, 65535), "… and the HTTP port")
    lookupd_tcp_addresses: tuple[str, ...] = setting(
        (), TextsKind(), "the nsqlookupds that are told what this node has, HOST:PORT each (their TCP ports)"
    )
    auth_http_addresses: tuple[str, ...] = setting(
        (),
        TextsKind(),
        "authentication servers, HOST:PORT or a URL each; clients must AUTH then, and one of these says what a secret allows",
    )
    auth_http_request_method: str = setting("get", ChoiceKind(("get", "post")), "how they are asked: by a query, or by JSON")
    http_client_connect_timeout_ns: int = setting(
        2 * SECOND_NS, DurationKind(MILLISECOND_NS, 3600 * SECOND_NS), "how long a connection to a server that is asked over HTTP may take"
    )
    http_client_request_timeout_ns: int = setting(
        5 * SECOND_NS, DurationKind(MILLISECOND_NS, 3600 * SECOND_NS), "… and the whole question, with its answer"
    )
    max_msg_size_bytes: int = setting(1 << 20, SizeKind(1, limits.MESSAGE_SIZE_BYTES_MAX), "the largest message")
    max_body_size_bytes: int = setting(
        5 << 20, SizeKind(1, limits.PENDING_INPUT_SIZE_BYTES_MAX // 2), "the largest body of one command (MPUB, IDENTIFY)"
    )
    msg_timeout_ns: int = setting(
        60 * SECOND_NS, DurationKind(MILLISECOND_NS, DURATION_MAX_NS), "a message not finished after this long is delivered again"
    )
    max_msg_timeout_ns: int = setting(
        900 * SECOND_NS, DurationKind(MILLISECOND_NS, DURATION_MAX_NS), "the longest timeout that a client may ask for or TOUCH up to"
    )
    max_req_timeout_ns: int = setting(HOUR_NS, DurationKind(0, DURATION_MAX_NS), "the longest delay of REQ and DPUB")
    max_http_defer_ns: int = setting(
        0, DurationKind(0, DURATION_MAX_NS), "the longest delay of /pub?defer= and /req; 0s: that of REQ and DPUB, as in nsqd"
    )
    max_rdy_count: int = setting(2500, CountKind(1, 1_000_000), "the most messages that a client may have in flight")
    max_channel_consumers: int = setting(0, CountKind(0, 1_000_000), "consumers of one channel; 0: no limit")
    max_heartbeat_interval_ns: int = setting(
        60 * SECOND_NS, DurationKind(MILLISECOND_NS, DURATION_MAX_NS), "the longest heartbeat interval that a client may ask for"
    )
    max_output_buffer_size_bytes: int = setting(64 << 10, SizeKind(64, 16 << 20), "the largest output buffer that a client may ask for")
    min_output_buffer_timeout_ns: int = setting(
        25 * MILLISECOND_NS, DurationKind(0, DURATION_MAX_NS), "the shortest output buffer timeout that a client may ask for"
    )
    max_output_buffer_timeout_ns: int = setting(30 * SECOND_NS, DurationKind(0, DURATION_MAX_NS), "… and the longest")
    output_buffer_timeout_ns: int = setting(
        250 * MILLISECOND_NS, DurationKind(0, DURATION_MAX_NS), "the timeout of a client that asks for none; 0s: nothing waits in a buffer"
    )
    snappy: bool = setting(default=True, kind=SwitchKind(), explanation="whether clients may have their connection compressed by snappy")
    deflate: bool = setting(default=True, kind=SwitchKind(), explanation="… or by deflate")
    max_deflate_level: int = setting(6, CountKind(1, 9), "the highest level of deflate that a client may ask for; more takes more time")
    tls_cert: str = setting("", TextKind(), "a file with this server's certificate (PEM); clients may have TLS then")
    tls_key: str = setting("", TextKind(), "… and with its key")
    tls_root_ca_file: str = setting("", TextKind(), "the certificates that vouch for clients' (PEM); empty: those of the system")
    tls_client_auth_policy: str = setting(
        "none",
        ChoiceKind(("none", "require", "require-verify")),
        "whether clients must show a certificate: any, or one that is vouched for; TLS is required then",
    )
    tls_required: str = setting(
        "false", ChoiceKind(("false", "tcp-https", "true")), "whether clients must use TLS; tcp-https: but may use plain HTTP"
    )
    tls_min_version: str = setting(
        "tls1.0",
        ChoiceKind(("ssl3.0", "tls1.0", "tls1.1", "tls1.2", "tls1.3")),
        "the lowest version of TLS to be spoken; nothing below 1.2 is in any case",
    )
    e2e_processing_latency_percentiles: tuple[float, ...] = setting(
        (),
        SharesKind(limits.LATENCY_QUANTILES_MAX),
        "quantiles of the time from publish to FIN that /stats shows; none: it is not measured",
    )
    e2e_processing_latency_window_time_ns: int = setting(
        600 * SECOND_NS, DurationKind(MILLISECOND_NS, DURATION_MAX_NS), "… over so much of the past"
    )
    statsd_address: TcpAddress | None = setting(None, TargetKind(), "where statsd takes statistics by UDP")
    statsd_prefix: str = setting("nsq.%s", TextKind(), "what their names begin with; %s is this node's address")
    statsd_interval_ns: int = setting(60 * SECOND_NS, DurationKind(100 * MILLISECOND_NS, DURATION_MAX_NS), "how often they are sent")
    statsd_mem_stats: bool = setting(default=True, kind=SwitchKind(), explanation="whether figures about memory are among them")
    statsd_udp_packet_size_bytes: int = setting(508, SizeKind(64, 65507), "how large a packet of them may be")
    statsd_exclude_ephemeral: bool = setting(
        default=False, kind=SwitchKind(), explanation="whether ephemeral topics and channels are left out"
    )


@dataclass(frozen=True, slots=True)
class NatsSettings:
    """The NATS protocol."""

    config: str = setting(
        "", TextKind(), "a configuration file in nats-server's language; what is said here wins over it", flag="--nats-config"
    )
    client: Address | None = listener(None, "clients (standard port 4222)", flag="--nats")
    http: Address | None = listener(None, "the monitoring pages (8222)", flag="--nats-http")
    cluster: Address | None = listener(None, "other servers of the cluster (6222)", flag="--nats-cluster")
    cluster_name: str = setting(
        "",
        TextKind(),
        "the cluster's name, the same on all its servers; empty: one is made up, and given up for another's",
        flag="--nats-cluster-name",
    )
    routes: tuple[str, ...] = setting(
        (), TextsKind(), "other servers of the cluster, nats-route://HOST:PORT each; they tell of the rest", flag="--nats-routes"
    )
    capture: tuple[str, ...] = setting(
        (),
        TextsKind(),
        'subjects that are stored although no topic has their name, such as "orders.>"; each becomes a topic',
        flag="--nats-capture",
    )
    capture_never: tuple[str, ...] = setting(
        (),
        TextsKind(),
        'subjects that capture never means, such as "_MY_INBOX.>" where clients have an inbox prefix of their own',
    )
    capture_from: str = setting(
        "clients",
        ChoiceKind(("clients", "routes", "both")),
        "whose messages are stored: clients' of this server, those that other servers send on, or both (an archive beside other servers)",
    )
    capture_topics_max: int = setting(
        limits.CAPTURED_TOPICS_MAX,
        CountKind(0, 1_000_000),
        "no topic is made for a captured subject when its account has so many of them; its messages are not stored, and their publisher is told",
    )
    capture_age_ns: int = setting(
        0,
        DurationKind(0, DURATION_MAX_NS),
        "messages of captured subjects stay this long where no channel consumes the topic; 0: as long as the disk has room, then no more are stored",
    )
    work_groups: tuple[str, ...] = setting(
        (),
        TextsKind(),
        "queue groups that are work groups of the topic that their subject names: members share its work with an NSQ channel and a PHPMQ queue of the same name",
    )
    log_requests: str = setting(
        "clients",
        ChoiceKind(("off", "clients", "both")),
        "who may read topics by requests to $POLYMQ.LOG.>: nobody, clients of this server, or those of other servers as well",
    )
    log_requests_routed: tuple[str, ...] = setting(
        (),
        TextsKind(),
        'with log_requests = "both": the topics that clients of other servers may read, such as "orders.>", whatever their permissions',
    )


@dataclass(frozen=True, slots=True)
class RocketmqSettings:
    """The RocketMQ remoting protocol. Every port answers in both roles, as name server and as broker."""

    namesrv: Address | None = listener(None, "where clients ask for routes (standard port 9876)", flag="--rocketmq-namesrv")
    broker: Address | None = listener(None, "where they send and pull (10911)", flag="--rocketmq")
    vip: Address | None = listener(
        None, "the same once more, for clients up to 4.4 that send to the broker's port - 2 (10909)", flag="--rocketmq-vip"
    )
    advertised_host: str = setting(
        "", TextKind(), "the host that routes give to clients; empty: the address by which each of them has come", flag="--rocketmq-host"
    )
    advertised_port: int = setting(0, CountKind(0, 65535), "… and the port; 0: the broker's one that was opened")
    broker_name: str = setting("", TextKind(), "this node's name in routes and queues, which clients keep; empty: this machine's name")
    cluster_name: str = setting("DefaultCluster", TextKind(), "the cluster that this node says it belongs to")
    name_servers: tuple[str, ...] = setting(
        (),
        TextsKind(),
        "other name servers (RocketMQ's or polymq's) that are told of this node and its topics, HOST:PORT each",
        flag="--rocketmq-register",
    )
    register_interval_ns: int = setting(
        30 * SECOND_NS, DurationKind(SECOND_NS, 3600 * SECOND_NS), "how often they are told again; they forget who is silent for 120 s"
    )
    auto_create_topics: bool = setting(default=True, kind=SwitchKind(), explanation="whether a topic comes into being when it is sent to")
    auto_create_on_route: bool = setting(
        default=True,
        kind=SwitchKind(),
        explanation="… and when a client asks for its route, so that consumers need not wait for the first message",
    )
    default_queues: int = setting(
        4, CountKind(1, limits.PARTITIONS_PER_TOPIC_MAX), "how many queues such a topic has (queues are the partitions of its log)"
    )
    delay_levels: str = setting(
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h", TextKind(), "the delays that levels 1, 2, … stand for"
    )
    timer_max_delay_ns: int = setting(
        3 * DAY_NS, DurationKind(SECOND_NS, DURATION_MAX_NS), "the longest delay of messages with a time of their own (5.x timers)"
    )
    max_message_size_bytes: int = setting(4 << 20, SizeKind(1, 4 << 20), "the largest body of a message")
    channel_idle_ns: int = setting(
        120 * SECOND_NS, DurationKind(SECOND_NS, 3600 * SECOND_NS), "a connection that says nothing for so long is closed"
    )
    acl_file: str = setting(
        "", TextKind(), "who may do what: a file in the form of RocketMQ's plain_acl.yml; requests must be signed then; read at start"
    )
    tls_cert: str = setting("", TextKind(), "a file with this server's certificate (PEM); clients may come by TLS then, on the same ports")
    tls_key: str = setting("", TextKind(), "… and with its key")
    tls_required: bool = setting(default=False, kind=SwitchKind(), explanation="whether they must")


@dataclass(frozen=True, slots=True)
class PhpmqSettings:
    """The PHPMQ protocol."""

    tcp: Address | None = listener(None, "clients (standard port 9100)", flag="--phpmq")
    tls: Address | None = listener(None, "clients within TLS; needs tls_cert and tls_key", flag="--phpmq-tls")
    unix: Address | None = listener(None, "clients of this machine, unix:PATH", flag="--phpmq-unix")
    maintenance: Address | None = listener(None, "the maintenance console (9101)", flag="--phpmq-maintenance")
    tls_cert: str = setting("", TextKind(), "a file with this server's certificate (PEM)")
    tls_key: str = setting("", TextKind(), "… and with its key")
    dialect: str = setting(
        "current",
        ChoiceKind(("current", "legacy")),
        "how messages are sent to clients that have not published: with their TTL, or without as the reference client wants them",
    )
    group: str = setting("phpmq", TextKind(), "the group (NSQ's channel) of each topic that is its queue")
    max_message_size_bytes: int = setting(
        phpmq_limits.CONTENT_SIZE_BYTES_MAX, SizeKind(1, phpmq_limits.CONTENT_SIZE_BYTES_MAX), "the largest message"
    )
    max_window: int = setting(100_000, CountKind(1, phpmq_limits.WINDOW_MAX), "the most messages that a client may have unacknowledged")
    max_ttl_ns: int = setting(
        phpmq_limits.TTL_S_MAX * SECOND_NS, DurationKind(0, phpmq_limits.TTL_S_MAX * SECOND_NS), "the longest TTL that a client may give"
    )
    lease_ns: int = setting(
        0,
        DurationKind(0, DURATION_MAX_NS),
        "a message not acknowledged after this long is sent again; 0s: not as long as its client is there",
    )
    message_timeout_ns: int = setting(
        60 * SECOND_NS, DurationKind(100 * MILLISECOND_NS, HOUR_NS), "a message must have come whole so long after it began"
    )
    dead_letter: str = setting(
        "remove",
        ChoiceKind(("remove", "copy")),
        "what becomes of a dead letter (006): removed, or copied to the queue's dead-letter topic first",
    )
    access: str = setting(
        "closed",
        ChoiceKind(("closed", "open")),
        "where keys are asked for, which this protocol cannot show: closed: its clients may do nothing; open: everything",
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """The whole configuration. `origins` says where each setting that is not a default came from."""

    server: ServerSettings = field(default_factory=ServerSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    nsq: NsqSettings = field(default_factory=NsqSettings)
    nats: NatsSettings = field(default_factory=NatsSettings)
    rocketmq: RocketmqSettings = field(default_factory=RocketmqSettings)
    phpmq: PhpmqSettings = field(default_factory=PhpmqSettings)
    origins: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


SECTIONS: Final[Mapping[str, type[Any]]] = MappingProxyType(
    {
        "server": ServerSettings,
        "store": StoreSettings,
        "access": AccessSettings,
        "nsq": NsqSettings,
        "nats": NatsSettings,
        "rocketmq": RocketmqSettings,
        "phpmq": PhpmqSettings,
    }
)
PLANNED_SECTIONS: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known about one setting: its names in the three places, its kind and its default."""

    section: str
    field: str
    kind: Kind
    default: Any
    explanation: str
    flag: str
    planned: bool

    @property
    def key(self) -> str:
        """The name in the file: the field's name without its unit."""
        for suffix in UNIT_SUFFIXES:
            if self.field.endswith(suffix):
                return self.field.removesuffix(suffix)
        return self.field

    @property
    def name(self) -> str:
        """The name in messages: `section.key`."""
        return f"{self.section}.{self.key}"

    @property
    def variable(self) -> str:
        """The name in the environment."""
        return f"POLYMQ_{self.section}_{self.key}".upper()


def settings_of(section: str) -> Iterator[Setting]:
    """List the settings of one section, in the order in which they are declared."""
    for each in dataclasses.fields(SECTIONS[section]):
        yield Setting(
            section=section,
            field=each.name,
            kind=each.metadata["kind"],
            default=each.default,
            explanation=each.metadata["explanation"],
            flag=each.metadata["flag"],
            planned=each.metadata["planned"],
        )
