"""How nats-server's flags are read, and what they change in what its file says.

What wins is as with nats-server: flags, then the file (`-c`), then the defaults. A flag is a setting of polymq's, or has
no meaning here (then it is taken, and a note says what is instead), or is refused, because who asks for it must not
believe that he has it. Everything that is wrong is gathered, with what is wrong in the file; no message shows a secret.

Source: `nats-server --help` and ConfigureOptions of 2.9.10 and 2.15.2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from polymq.cli.nsq_flags import OWN_FLAGS, Given, Program
from polymq.cli.nsqd_options import Kind, Option, from_flag
from polymq.config_values import PORT_MAX
from polymq.server.nats_accounts import AuthorizationSaid
from polymq.server.nats_assembly import Draft, assemble
from polymq.server.nats_files import draft_of
from polymq.server.nats_keys import parse_route
from polymq.server.nats_settings import TlsSettings
from polymq.server.nats_values import parse_advertised, parse_host_port

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.server.nats_settings import NatsServerSettings, RouteUrl

__all__ = ["NATS_SERVER", "NatsPlan", "plan", "table", "usage"]

_CLUSTER_EXPECTED: Final = "expected nats://HOST:PORT, or nats://USER:PASSWORD@HOST:PORT"


@dataclass(frozen=True, slots=True)
class NatsPlan:
    """What polymq will do about what was asked. `check_only`: look at the file and stop (`-t`)."""

    settings: NatsServerSettings
    check_only: bool = False


@dataclass(frozen=True, slots=True)
class _Flag:
    """One flag, by all its names. `take` puts its value into the draft, and raises ValueError with what was expected.

    Without `take`, `here` says what is instead, and `refused` whether that is no answer to who gives more than `harmless`.
    """

    names: tuple[str, ...]
    kind: Kind
    take: Callable[[Draft, str, str], None] | None = None
    here: str = ""
    refused: bool = True
    harmless: tuple[str, ...] = ("", "0", "false")
    said: str = ""  # with `take`: what it is for

    @property
    def shown(self) -> str:
        """The name that messages have."""
        return _dashed(self.names[0])


def plan(given: Given, *, environment: Mapping[str, str]) -> NatsPlan:
    """Decide what to do about everything that was given. Raises ConfigError with all that is wrong."""
    values = _values(given)
    path = values.pop("config", "")
    draft = draft_of(path, environment=environment) if path else Draft()
    draft.report.problems[:0] = given.problems
    check_only = values.pop("t", "false") == "true"
    if check_only and not path:
        draft.report.problems.append("-t: there is no file to look at; name it by -c")
    for flag in _FLAGS:
        if flag.names[0] in values:
            _apply(flag, values[flag.names[0]], draft)
    _apply_tls({name: values[name] for name in _TLS_NAMES if name in values}, draft)
    if values.get("user") and values.get("auth"):
        draft.report.problems.append("--user, --auth: a single user and a token exclude each other; keep one of them")
    if values.get("routes") and not (draft.cluster or {}).get("port"):
        draft.report.problems.append("--routes: this server must listen for others as well; add --cluster nats://HOST:PORT")
    return NatsPlan(assemble(draft), check_only)


def table() -> str:
    """Write the flags as the table of docs/FROM_NATS_SERVER.md."""
    lines = ["| flag | |", "|---|---|"]
    lines.append(f"| {', '.join(f'`{_dashed(option.flag)}`' for option in _OTHERS)} | served |")
    for flag in _FLAGS:
        here = "served" if flag.take else f"{'refused' if flag.refused else 'no meaning'}: {flag.here}"
        lines.append(f"| {', '.join(f'`{_dashed(name)}`' for name in flag.names)} | {here} |")
    return "\n".join(lines) + "\n"


def usage(examples: str) -> str:
    """Say what every flag is here."""
    lines = [
        "polymq nats-server: polymq in place of nats-server, under its flags and with its file.",
        "",
        "Usage: polymq nats-server [-flag value | --flag=value]…",
        "",
        examples,
        "nats-server's flags",
    ]
    for names, meaning in _OTHERS_SAID:
        lines.append(f"  {', '.join(map(_dashed, names))}\n      {meaning}")
    for flag in _FLAGS:
        meaning = flag.said if flag.take else f"({'refused' if flag.refused else 'no meaning here'}: {flag.here})"
        lines.append(f"  {', '.join(map(_dashed, flag.names))}\n      {meaning}")
    lines += ["", "of polymq's own"]
    lines += [f"  --{flag}\n      {text}" for flag, text in OWN_FLAGS.items()]
    lines += ["", "docs/FROM_NATS_SERVER.md has the keys of the file."]
    return "\n".join(lines)


def _dashed(name: str) -> str:
    """Write a flag as nats-server's help does."""
    return f"{'-' if len(name) <= 2 or name.isupper() else '--'}{name}"


def _values(given: Given) -> dict[str, str]:
    """Give each flag's last value, whatever name was used, by its first name."""
    found: dict[str, str] = {}
    for name, values in given.values.items():
        option, flag = NATS_SERVER.by_flag().get(name), _BY_NAME.get(name)
        if option is None:
            continue
        try:
            found[flag.names[0] if flag else name] = from_flag(option, values[-1])
        except ValueError as error:
            given.problems.append(f"-{name}: {error}")
    return found


def _apply(flag: _Flag, value: str, draft: Draft) -> None:
    if flag.take is not None:
        try:
            flag.take(draft, value, flag.shown)
        except ValueError as error:
            draft.report.problems.append(f"{flag.shown}: {error}")
    elif value not in flag.harmless:
        if flag.refused:
            draft.report.problems.append(f"{flag.shown}: polymq does not serve this ({flag.here}); leave it out to do without")
        else:
            draft.report.notes.append(f"{flag.shown} has no meaning here: {flag.here}")


def _apply_tls(values: dict[str, str], draft: Draft) -> None:
    """Put TLS by flags in the place of the file's."""
    if values.get("tls") == "false":
        draft.fields.pop("tls", None)
    elif values:
        certificate, key = values.get("tlscert", ""), values.get("tlskey", "")
        if not certificate or not key:
            draft.report.problems.append("--tls: --tlscert and --tlskey are both needed: this server's certificate and its key")
        else:
            verify = values.get("tlsverify") == "true"
            places = (("cert_file", "--tlscert"), ("key_file", "--tlskey"), ("ca_file", "--tlscacert"))
            draft.fields["tls"] = TlsSettings(certificate, key, ca_file=values.get("tlscacert", ""), verify=verify, places=places)


def _field(name: str) -> Callable[[Draft, str, str], None]:
    def take(draft: Draft, value: str, place: str) -> None:
        draft.fields[name] = value
        draft.places[name] = place

    return take


def _switch(name: str) -> Callable[[Draft, str, str], None]:
    def take(draft: Draft, value: str, _place: str) -> None:
        draft.fields[name] = value == "true"

    return take


def _port(name: str) -> Callable[[Draft, str, str], None]:
    def take(draft: Draft, value: str, place: str) -> None:
        port = int(value)
        if not -1 <= port <= PORT_MAX:
            raise ValueError(f"expected a port from 0 to {PORT_MAX}, or -1 for any")
        draft.fields[name] = port
        draft.places[name] = place

    return take


def _take_server_name(draft: Draft, value: str, _place: str) -> None:
    draft.fields["server_name"] = _without_blanks(value)


def _without_blanks(value: str) -> str:
    if any(character.isspace() for character in value):
        raise ValueError("expected a name without blanks")
    return value


def _take_client_advertise(draft: Draft, value: str, _place: str) -> None:
    if value:
        draft.fields["client_advertise"] = parse_advertised(value)


def _authorization(draft: Draft, place: str) -> AuthorizationSaid:
    """Give what the file says, if it leaves room for a single user or a token."""
    said = draft.fields.get("authorization")
    if not isinstance(said, AuthorizationSaid):
        return AuthorizationSaid(place)
    if said.users:
        raise ValueError(f"the list of users in the file ({said.place}) excludes a single user and a token")
    return said


def _take_user(draft: Draft, value: str, place: str) -> None:
    draft.fields["authorization"] = replace(_authorization(draft, place), user=value, token="")


def _take_password(draft: Draft, value: str, place: str) -> None:
    said = replace(_authorization(draft, place), password=value)
    if value and not said.user:
        raise ValueError("whose password is this? --user is missing")
    draft.fields["authorization"] = said


def _take_token(draft: Draft, value: str, place: str) -> None:
    draft.fields["authorization"] = replace(_authorization(draft, place), user="", password="", token=value)


def _cluster(draft: Draft) -> dict[str, object]:
    if draft.cluster is None:
        draft.cluster = {}
    return draft.cluster


def _take_cluster(draft: Draft, value: str, place: str) -> None:
    """Take where to listen for other servers, and what they must say; nothing: there is no cluster."""
    fields = _cluster(draft)
    if not value:
        fields.pop("port", None)
        return
    try:
        parts = urlsplit(value)
        login, at, where = parts.netloc.rpartition("@")
        host, port = parse_host_port(where)
    except ValueError:
        # What is wrong may be a password: it is not repeated.
        raise ValueError(_CLUSTER_EXPECTED) from None
    user, colon, password = login.partition(":")
    if not parts.scheme or parts.path not in ("", "/") or (at and not colon):
        raise ValueError(_CLUSTER_EXPECTED)
    fields["port"] = port
    fields["host"] = host
    said = fields.get("authorization")
    before = said if isinstance(said, AuthorizationSaid) else AuthorizationSaid(place)
    fields["authorization"] = replace(before, user=unquote(user), password=unquote(password))


def _take_cluster_name(draft: Draft, value: str, _place: str) -> None:
    _cluster(draft)["name"] = _without_blanks(value)


def _take_cluster_advertise(draft: Draft, value: str, _place: str) -> None:
    if value:
        _cluster(draft)["advertise"] = parse_advertised(value)


def _take_no_advertise(draft: Draft, value: str, _place: str) -> None:
    _cluster(draft)["no_advertise"] = value == "true"


def _take_connect_retries(draft: Draft, value: str, _place: str) -> None:
    if int(value) < 0:
        raise ValueError("expected a number from 0 on")
    _cluster(draft)["connect_retries"] = int(value)


def _take_routes(draft: Draft, value: str, place: str) -> None:
    routes: dict[RouteUrl, None] = {}
    for part in value.split(",") if value else ():
        routes[parse_route(part)] = None
    _cluster(draft)["routes"] = tuple(routes)
    draft.cluster_places["routes"] = place


def _take_nothing(_draft: Draft, _value: str, _place: str) -> None:
    """Leave it to who has looked for it before all else."""


_TLS_NAMES: Final = ("tls", "tlscert", "tlskey", "tlscacert", "tlsverify")
_JETSTREAM: Final = "it has no JetStream of its own"
_LOGS: Final = "it writes its log to a file, or to standard error"
_TRACE: Final = "what passes is not written to the log"
# Those that change the same fields stand in the order in which they are applied.
_FLAGS: Final = (
    _Flag(("a", "addr", "net"), Kind.TEXT, _field("host"), said="the address for clients [0.0.0.0]"),
    _Flag(("p", "port"), Kind.INT, _port("port"), said="the port for clients; -1: any [4222]"),
    _Flag(("n", "name", "server_name"), Kind.TEXT, _take_server_name, said="this server's name [its id]"),
    _Flag(("m", "http_port"), Kind.INT, _port("http_port"), said="the port of the monitoring pages [none]"),
    _Flag(("ms", "https_port"), Kind.INT, here="the monitoring pages are there over plain HTTP; see -m"),
    _Flag(("client_advertise",), Kind.TEXT, _take_client_advertise, said="HOST:PORT that clients are told"),
    _Flag(("P", "pid"), Kind.TEXT, _field("pid_file"), said="a file for the process id"),
    _Flag(("l", "log"), Kind.TEXT, _field("log_file"), said="a file for the log [standard error]"),
    _Flag(("D", "debug"), Kind.BOOL, _switch("debug"), said="write more to the log"),
    _Flag(("DV",), Kind.BOOL, _switch("debug"), said="the same"),
    _Flag(("DVV",), Kind.BOOL, _switch("debug"), said="the same"),
    _Flag(("V", "trace"), Kind.BOOL, here=_TRACE, refused=False),
    _Flag(("VV",), Kind.BOOL, here=_TRACE, refused=False),
    _Flag(("T", "logtime"), Kind.BOOL, here="every line of the log has its time", refused=False, harmless=("true",)),
    _Flag(("logtime_utc",), Kind.BOOL, here="every line of the log has its time", refused=False),
    _Flag(("max_traced_msg_len",), Kind.INT, here=_TRACE, refused=False),
    _Flag(("s", "syslog"), Kind.BOOL, here=_LOGS),
    _Flag(("r", "remote_syslog"), Kind.TEXT, here=_LOGS),
    _Flag(("log_size_limit",), Kind.INT, here="whoever keeps log files does that, such as logrotate or journald"),
    _Flag(("ports_file_dir",), Kind.TEXT, here="it writes no file with its ports"),
    _Flag(("profile",), Kind.INT, here="it has no profiler of Go's"),
    _Flag(
        ("sl", "signal"),
        Kind.TEXT,
        _take_nothing,
        said="reload, reopen (the log), ldm (lame duck mode), quit or stop, maybe with =PID or =FILE: have a running server do that",
    ),
    _Flag(("js", "jetstream"), Kind.BOOL, here=_JETSTREAM),
    _Flag(("sd", "store_dir"), Kind.TEXT, here=_JETSTREAM),
    _Flag(("user",), Kind.TEXT, _take_user, said="the name that clients must give"),
    _Flag(("pass",), Kind.TEXT, _take_password, said="… and the password"),
    _Flag(("auth",), Kind.TEXT, _take_token, said="the token that clients must give"),
    _Flag(
        ("cluster", "cluster_listen"), Kind.TEXT, _take_cluster, said="nats://HOST:PORT or nats://USER:PASSWORD@HOST:PORT for other servers"
    ),
    _Flag(("cluster_name",), Kind.TEXT, _take_cluster_name, said="the cluster's name [made up]"),
    _Flag(("cluster_advertise",), Kind.TEXT, _take_cluster_advertise, said="HOST:PORT that other servers are told"),
    _Flag(("no_advertise",), Kind.BOOL, _take_no_advertise, said="do not tell clients of the other servers"),
    _Flag(("connect_retries",), Kind.INT, _take_connect_retries, said="how often to try again a server that was heard of [0]"),
    _Flag(("routes",), Kind.TEXT, _take_routes, said="other servers to connect to, with commas between them"),
)
_BY_NAME: Final = {name: flag for flag in _FLAGS for name in flag.names} | {"c": _Flag(("config",), Kind.TEXT)}
_OTHERS: Final = (
    *(Option(name, Kind.BOOL, "") for name in ("t", "v", "version", "help_tls", "tls", "tlsverify")),
    *(Option(name, Kind.TEXT, "") for name in ("c", "config", "tlscert", "tlskey", "tlscacert")),
)
_OTHERS_SAID: Final = (
    (("c", "config"), "the configuration file; flags win over it"),
    (("t",), "look at the file, say whether it can be read, and stop"),
    (("v", "version"), "say which version this is"),
    (("tls",), "encrypt; needs the next two"),
    (("tlscert",), "a file with this server's certificate (PEM)"),
    (("tlskey",), "… and with its key"),
    (("tlscacert",), "the certificates that vouch for clients' (PEM) [the system's]"),
    (("tlsverify",), "ask clients for a certificate"),
    (("help_tls",), "the flags about TLS: the five above"),
)
# It opens no ports but NATS's.
_DEFAULTS: Final = {"nsq.tcp": "off", "nsq.http": "off", "nsq.lookup_tcp": "off", "nsq.lookup_http": "off", "server.http": "off"}
NATS_SERVER: Final = Program(
    "nats-server",
    (*(Option(name, flag.kind, "") for flag in _FLAGS for name in flag.names), *_OTHERS),
    _DEFAULTS,
    stray="knows no such command",
)
