"""What a nats-server can be told and polymq does: typed, with nats-server's defaults.

Where the values come from is `nats_files.py`'s business (a configuration file) and `cli/nats_flags.py`'s (flags). Units are nanoseconds
and bytes. None is "no limit" where a limit may be left out, and "not there" where a part may be.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from polymq.config_values import TcpAddress
from polymq.gateways.nats.account_names import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT

__all__ = [
    "ANY_HOST",
    "LIMIT_FIELDS",
    "AccountSettings",
    "AuthorizationSettings",
    "ClusterSettings",
    "ExportSettings",
    "ImportSettings",
    "NatsServerSettings",
    "PermissionSettings",
    "ResponseRule",
    "RouteUrl",
    "SubjectRule",
    "SubjectRules",
    "TlsSettings",
    "UserSettings",
]

_SECOND_NS: Final = 1_000_000_000
# Where nats-server listens if nobody says where.
ANY_HOST: Final = "0.0.0.0"  # noqa: S104  # its default


# Fields of `NatsServerSettings` that are numbers and hold for all clients.
LIMIT_FIELDS: Final = (
    "connections_max",
    "subscriptions_max",
    "subscription_tokens_max",
    "control_line_size_bytes_max",
    "payload_size_bytes_max",
    "pending_size_bytes_max",
    "ping_interval_ns",
    "ping_max",
    "write_deadline_ns",
    "lame_duck_duration_ns",
    "lame_duck_grace_period_ns",
)


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """A block `tls`: certificates, and how strict to be."""

    cert_file: str
    key_file: str
    ca_file: str = ""  # empty: the system's
    verify: bool = False  # clients must show a certificate that ca_file vouches for; routes always must
    insecure: bool = False  # when dialling: do not look at the other's certificate
    timeout_ns: int = 2 * _SECOND_NS
    handshake_first: bool = False
    fallback_delay_ns: int = 0  # with handshake_first: INFO goes out in plain if no handshake begins within this; 0: never
    min_version: str = "1.2"
    # Where the names of the files are written, by field: for whom something is wrong with them.
    places: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SubjectRule:
    """A subject, maybe with wildcards, and for subscriptions maybe the queue groups that are meant (wildcards as well)."""

    subject: str
    queue: str = ""


@dataclass(frozen=True, slots=True)
class SubjectRules:
    """Which subjects are allowed: all that are in `allow` (None: all there are) and not in `deny`."""

    allow: tuple[SubjectRule, ...] | None = None
    deny: tuple[SubjectRule, ...] = ()


@dataclass(frozen=True, slots=True)
class ResponseRule:
    """Answering a message that was received is allowed: so many times, for so long."""

    messages_max: int | None = 1
    expires_ns: int | None = 120 * _SECOND_NS


@dataclass(frozen=True, slots=True)
class PermissionSettings:
    """What a user may do; what is not said is allowed."""

    publish: SubjectRules = field(default_factory=SubjectRules)
    subscribe: SubjectRules = field(default_factory=SubjectRules)
    responses: ResponseRule | None = None


@dataclass(frozen=True, slots=True)
class UserSettings:
    """Somebody who may log in: by name and password (plain or bcrypt), or by the key `nkey`."""

    name: str = ""
    password: str = field(default="", repr=False)
    nkey: str = ""
    account: str = GLOBAL_ACCOUNT
    permissions: PermissionSettings | None = None  # None: everything is allowed


@dataclass(frozen=True, slots=True)
class AuthorizationSettings:
    """How clients log in: one user, or one token, or `NatsServerSettings.users`; nothing of it: nobody has to."""

    user: str = ""
    password: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    timeout_ns: int = 2 * _SECOND_NS


@dataclass(frozen=True, slots=True)
class ExportSettings:
    """What an account lets others import: the messages of a subject (a stream), or requests to it (a service)."""

    kind: str  # "stream" or "service"
    subject: str
    accounts: tuple[str, ...] | None = None  # None: all
    response_type: str = "single"  # of a service: "single", "stream" or "chunked"
    response_threshold_ns: int = 120 * _SECOND_NS  # … and how long an answer may take


@dataclass(frozen=True, slots=True)
class ImportSettings:
    """What an account has of another's exports. `to` is the subject here; $1, $2 … in it are the wildcards of `subject`."""

    kind: str  # "stream" or "service"
    account: str
    subject: str
    to: str


@dataclass(frozen=True, slots=True)
class AccountSettings:
    """A namespace of subjects. Its users are in `NatsServerSettings.users`."""

    name: str
    exports: tuple[ExportSettings, ...] = ()
    imports: tuple[ImportSettings, ...] = ()
    jetstream: bool = False  # JetStream of the cluster's other servers may be used


@dataclass(frozen=True, slots=True)
class RouteUrl:
    """Another server of the cluster, that is dialled."""

    host: str
    port: int
    user: str = ""
    password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """The block `cluster`. Without `listen` there is no cluster: nobody is dialled either, as with nats-server."""

    name: str = ""  # empty: one is made up, and given up for another's
    listen: TcpAddress | None = None
    advertise: TcpAddress | None = None  # what others are told to dial; port 0: the port that is listened on
    no_advertise: bool = False  # clients are not told of the other servers
    routes: tuple[RouteUrl, ...] = ()
    connect_retries: int = 0  # to servers that were heard of; those in `routes` are dialled for ever
    connect_backoff: bool = False
    user: str = ""
    password: str = field(default="", repr=False)
    auth_timeout_ns: int = 2 * _SECOND_NS
    imports: SubjectRules = field(default_factory=SubjectRules)
    exports: SubjectRules = field(default_factory=SubjectRules)
    tls: TlsSettings | None = None
    ping_interval_ns: int | None = None  # None: as for clients, but at most 30 s
    ping_max: int | None = None  # None: as for clients


@dataclass(frozen=True, slots=True)
class NatsServerSettings:
    """Everything. Host names are as given; port 0 lets the system choose."""

    listen: TcpAddress = field(default_factory=lambda: TcpAddress(ANY_HOST, 4222))
    http: TcpAddress | None = None
    server_name: str = ""  # empty: the id
    client_advertise: TcpAddress | None = None  # what clients are told; port 0: the port that is listened on
    authorization: AuthorizationSettings = field(default_factory=AuthorizationSettings)
    users: tuple[UserSettings, ...] = ()
    no_auth_user: str = ""
    accounts: tuple[AccountSettings, ...] = ()
    system_account: str = SYSTEM_ACCOUNT
    cluster: ClusterSettings | None = None
    tls: TlsSettings | None = None
    allow_non_tls: bool = False
    connections_max: int | None = 64 << 10
    subscriptions_max: int | None = None
    subscription_tokens_max: int | None = None
    control_line_size_bytes_max: int = 4096
    payload_size_bytes_max: int = 1 << 20
    pending_size_bytes_max: int = 64 << 20
    ping_interval_ns: int = 120 * _SECOND_NS
    ping_max: int = 2
    write_deadline_ns: int = 10 * _SECOND_NS
    lame_duck_duration_ns: int = 120 * _SECOND_NS
    lame_duck_grace_period_ns: int = 10 * _SECOND_NS
    debug: bool = False
    log_file: str = ""
    pid_file: str = ""
    notes: tuple[str, ...] = ()  # what to tell whoever starts the server: what is accepted and means something else here, or nothing
