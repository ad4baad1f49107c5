"""Make settings of what a file and flags say: defaults, and what must fit together.

Contradictions are looked for where everything that they are about could be read; a gap is a problem already, and what
would follow from it helps nobody. Rules are nats-server's, unless the message says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from polymq.config_values import TcpAddress, format_address, format_duration
from polymq.errors import ConfigError
from polymq.gateways.nats.account_names import GLOBAL_ACCOUNT, SYSTEM_ACCOUNT
from polymq.server.nats_accounts import AuthorizationSaid
from polymq.server.nats_keys import NO_LIMIT, ClusterSaid, read_top
from polymq.server.nats_settings import (
    ANY_HOST,
    LIMIT_FIELDS,
    AccountSettings,
    AuthorizationSettings,
    ClusterSettings,
    ImportSettings,
    NatsServerSettings,
    TlsSettings,
    UserSettings,
)
from polymq.server.nats_subjects import collide, covers
from polymq.server.nats_values import Report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polymq.protocols.nats.conf_tree import Document, Place
    from polymq.server.nats_accounts import AccountSaid

__all__ = ["Draft", "assemble", "read_document"]

_SECOND_NS: Final = 1_000_000_000
_PORT: Final = 4222
_ANY_PORT: Final = -1
# Fields of a draft that are fields of the settings as they are.
_PLAIN: Final = (
    "server_name",
    "client_advertise",
    "no_auth_user",
    "system_account",
    "tls",
    "allow_non_tls",
    *LIMIT_FIELDS,
    "debug",
    "log_file",
    "pid_file",
)
_CLUSTER_PLAIN: Final = (
    "name",
    "advertise",
    "no_advertise",
    "routes",
    "connect_retries",
    "connect_backoff",
    "imports",
    "exports",
    "tls",
    "ping_interval_ns",
    "ping_max",
)


@dataclass(slots=True)
class Draft:
    """What was said so far, and where: of the server, and of its cluster. Addresses are host and port by themselves."""

    fields: dict[str, Any] = field(default_factory=dict)
    places: dict[str, Place | str] = field(default_factory=dict)
    cluster: dict[str, Any] | None = None
    cluster_places: dict[str, Place | str] = field(default_factory=dict)
    report: Report = field(default_factory=Report)
    whole: bool = True  # nothing is missing that the file should have had

    def fits(self, *keys: str) -> bool:
        """Say whether everything under these keys of the file could be read."""
        return self.whole and not self.report.broken.intersection(keys)


def read_document(document: Document) -> Draft:
    """Take what a file says."""
    draft = Draft(whole=not document.problems)
    draft.report.problems += document.problems
    draft.report.notes += document.notes
    fields, places = read_top(document.root, draft.report)
    draft.fields, draft.places = fields, dict(places)
    _part(fields, draft.places, "listen", "", draft.report)
    _part(fields, draft.places, "http", "http_", draft.report)
    cluster = fields.pop("cluster", None)
    if isinstance(cluster, ClusterSaid):
        draft.cluster, draft.cluster_places = cluster.fields, dict(cluster.places)
        _part(draft.cluster, draft.cluster_places, "listen", "", draft.report, "cluster.")
    return draft


def _part(fields: dict[str, Any], places: dict[str, Place | str], key: str, prefix: str, report: Report, name: str = "") -> None:
    """Take an address apart into host and port."""
    if key not in fields:
        return
    for other in (f"{prefix}host", f"{prefix}port"):
        if other in places:
            report.problem(places[other], f"{name}{other}", f"{key} says this as well; keep one of the two")
    host, fields[f"{prefix}port"] = fields.pop(key)
    places[f"{prefix}port"] = places[key]
    if host:
        fields[f"{prefix}host"] = host


def assemble(draft: Draft) -> NatsServerSettings:
    """Make the settings. Raises ConfigError with every problem."""
    fields, report = draft.fields, draft.report
    plain: dict[str, Any] = {key: None if fields[key] == NO_LIMIT else fields[key] for key in _PLAIN if key in fields}
    host = fields.get("host") or ANY_HOST
    http_port = fields.get("http_port", 0)
    users = _users(draft)
    accounts = _accounts(draft)
    settings = NatsServerSettings(
        listen=TcpAddress(host, _port(fields.get("port", 0) or _PORT)),
        http=TcpAddress(fields.get("http_host") or host, _port(http_port)) if http_port else None,
        authorization=_authorization(draft),
        users=tuple(user for _, user in users),
        accounts=tuple(accounts),
        cluster=_cluster(draft),
        **plain,
    )
    _check_users(draft, settings, users)
    _check_sizes_and_times(draft, settings)
    if draft.fits("accounts", "system_account", "system", "operator", "resolver"):
        _check_accounts(draft, settings)
    _check_addresses(draft, settings)
    if settings.allow_non_tls and settings.tls is None and draft.fits("tls"):
        report.note(draft.places["allow_non_tls"], "allow_non_tls", "there is no TLS here that could be left out")
    if report.problems:
        raise ConfigError(report.problems)
    return replace(settings, notes=tuple(report.notes))


def _port(port: int) -> int:
    """Give a port as the system takes it: 0 is any."""
    return 0 if port == _ANY_PORT else port


def _timeout_ns(said_ns: int | None, tls: TlsSettings | None) -> int:
    """Give a client as long as was said, or the default: with TLS the handshake is part of it."""
    if said_ns is not None:
        return said_ns
    return 2 * _SECOND_NS if tls is None else tls.timeout_ns + _SECOND_NS


def _authorization(draft: Draft) -> AuthorizationSettings:
    said = draft.fields.get("authorization")
    tls = draft.fields.get("tls")
    if not isinstance(said, AuthorizationSaid):
        return AuthorizationSettings(timeout_ns=_timeout_ns(None, tls))
    if said.permissions is not None and not said.users and (said.user or said.token):
        draft.report.note(said.place, "authorization", "permissions are for a list of users; a single user may do everything")
    if said.user and not said.password:
        draft.report.note(said.place, "authorization", f"{said.user!r} has no password: whoever gives that name and none is let in")
    return AuthorizationSettings(said.user, said.password, said.token, _timeout_ns(said.timeout_ns, tls))


def _users(draft: Draft) -> list[tuple[Place, UserSettings]]:
    said = draft.fields.get("authorization")
    found = list(said.users or ()) if isinstance(said, AuthorizationSaid) else []
    for account in draft.fields.get("accounts", ()):
        found += account.users
    return found


def _accounts(draft: Draft) -> list[AccountSettings]:
    said: Sequence[AccountSaid] = draft.fields.get("accounts", ())
    return [
        AccountSettings(each.name, tuple(export for _, export in each.exports), tuple(made for _, made in each.imports), each.jetstream)
        for each in said
    ]


def _cluster(draft: Draft) -> ClusterSettings | None:
    fields, report = draft.cluster, draft.report
    if fields is None:
        return None
    port = fields.get("port", 0)
    said = fields.get("authorization")
    user, password, timeout_ns = (said.user, said.password, said.timeout_ns) if isinstance(said, AuthorizationSaid) else ("", "", None)
    settings = ClusterSettings(
        listen=TcpAddress(fields.get("host") or ANY_HOST, _port(port)) if port else None,
        user=user,
        password=password,
        auth_timeout_ns=_timeout_ns(timeout_ns, fields.get("tls")),
        **{key: fields[key] for key in _CLUSTER_PLAIN if key in fields},
    )
    if settings.listen is None and settings.routes and draft.fits("cluster"):
        what = "nobody is dialled, as with nats-server, since this server does not listen for others: add listen or port"
        report.note(draft.cluster_places.get("routes", "cluster"), "cluster.routes", what)
    return settings


def _check_users(draft: Draft, settings: NatsServerSettings, users: Sequence[tuple[Place, UserSettings]]) -> None:
    """Names are given once, and do not stand beside a single user or a token."""
    report = draft.report
    seen: dict[str, Place] = {}
    for place, user in users:
        name = user.name or user.nkey
        if name in seen:
            report.problem(place, "users", f"{name!r} is there already ({seen[name]}); whoever logs in could be either")
        seen[name] = place
    only = "a single user" if settings.authorization.user else "a token" if settings.authorization.token else ""
    in_accounts = [place for place, user in users if user.account != GLOBAL_ACCOUNT]
    if only and in_accounts:
        report.problem(in_accounts[0], "accounts", f"users of accounts and {only} in authorization exclude each other; keep one of the two")
    if settings.no_auth_user and settings.no_auth_user not in seen and draft.fits("authorization", "accounts"):
        what = f"there is no user {settings.no_auth_user!r}: it must be in a list of users, of authorization or an account"
        report.problem(draft.places["no_auth_user"], "no_auth_user", what)


def _check_addresses(draft: Draft, settings: NatsServerSettings) -> None:
    """Nothing listens where something else does."""
    cluster = settings.cluster.listen if settings.cluster else None
    taken: dict[TcpAddress, str] = {}
    for name, listen in (("listen", settings.listen), ("http", settings.http), ("cluster.listen", cluster)):
        if listen is None or not listen.port:
            continue
        if listen in taken:
            place = draft.places.get("http_port", "http") if name == "http" else draft.cluster_places.get("port", "cluster")
            text = format_address(listen)
            draft.report.problem(place, name, f"{text} is taken already, by {taken[listen]}: give one of the two another port")
        taken[listen] = name


def _check_sizes_and_times(draft: Draft, settings: NatsServerSettings) -> None:
    places, report = draft.places, draft.report
    if settings.payload_size_bytes_max > settings.pending_size_bytes_max and draft.fits("max_payload", "max_pending"):
        place = places.get("payload_size_bytes_max", places.get("pending_size_bytes_max", ""))
        what = f"max_payload ({settings.payload_size_bytes_max}) is more than max_pending ({settings.pending_size_bytes_max})"
        report.problem(place, "max_payload", f"{what}: a message could never be sent to anybody")
    duration_ns, grace_ns = settings.lame_duck_duration_ns, settings.lame_duck_grace_period_ns
    if grace_ns >= duration_ns and draft.fits("lame_duck_duration", "lame_duck_grace_period"):
        place = places.get("lame_duck_grace_period_ns", places.get("lame_duck_duration_ns", ""))
        what = f"expected less than lame_duck_duration ({format_duration(duration_ns)}), not {format_duration(grace_ns)}"
        report.problem(place, "lame_duck_grace_period", what)


def _check_accounts(draft: Draft, settings: NatsServerSettings) -> None:
    """What is imported is exported, to whom imports it, and does not come back to where it is from."""
    report = draft.report
    said: Sequence[AccountSaid] = draft.fields.get("accounts", ())
    accounts = {each.name: each for each in settings.accounts}
    if settings.system_account not in (*accounts, SYSTEM_ACCOUNT):
        what = f"there is no account {settings.system_account!r} in accounts"
        report.problem(draft.places.get("system_account", ""), "system_account", what)
    for account in said:
        if account.jetstream and (settings.cluster is None or settings.cluster.listen is None):
            what = "it means JetStream of other servers, and there is no cluster here that could have some"
            report.note(account.place, f"accounts.{account.name}.jetstream", what)
        for place, export in account.exports:
            for missing in (name for name in export.accounts or () if name not in accounts):
                report.problem(place, f"accounts.{account.name}.exports", f"there is no account {missing!r}")
        seen: set[tuple[str, str, str]] = set()
        for place, made in account.imports:
            what = _import_problem(account.name, made, accounts)
            key = (made.kind, made.account, made.to if made.kind == "service" else made.subject)
            if not what and key in seen:
                what = f"{key[2]!r} of {made.account!r} is imported already"
            seen.add(key)
            if what:
                report.problem(place, f"accounts.{account.name}.imports", what)


def _import_problem(importer: str, made: ImportSettings, accounts: Mapping[str, AccountSettings]) -> str:
    origin = accounts.get(made.account)
    if origin is None:
        return f"there is no account {made.account!r}"
    exports = [export for export in origin.exports if export.kind == made.kind and covers(export.subject, made.subject)]
    if not exports:
        return f"the account {made.account!r} does not export the {made.kind} {made.subject!r}"
    if not any(export.accounts is None or importer in export.accounts for export in exports):
        return f"the account {made.account!r} exports the {made.kind} {made.subject!r}, but not to {importer!r}"
    if _comes_back(importer, made, accounts):
        return f"the {made.kind} {made.subject!r} would come back to {importer!r} by imports of {made.account!r}"
    return ""


def _comes_back(importer: str, made: ImportSettings, accounts: Mapping[str, AccountSettings]) -> bool:
    """Say whether what is imported comes, by what others import in turn, from where it goes to.

    Streams would not: they do not chain. They are refused all the same, as by nats-server.
    """
    waiting = [(made.account, made.subject)]
    met = set(waiting)
    while waiting:
        account, subject = waiting.pop()
        if account == importer:
            if collide(subject, made.to):
                return True
            continue
        for each in accounts[account].imports if account in accounts else ():
            origin = (each.account, each.subject)
            if each.kind == made.kind and origin not in met and collide(subject, each.to):
                met.add(origin)
                waiting.append(origin)
    return False
