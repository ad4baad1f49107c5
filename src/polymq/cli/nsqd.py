"""`polymq nsqd`: the broker under nsqd's own flags and with nsqd's own file, in place of nsqd.

What wins is as with nsqd: flags, then the file, then nsqd's defaults. Between the last two come polymq's own settings
(POLYMQ_… variables, --polymq-config), for what nsqd has no option for. Everything that is wrong is said at once.
"""

from __future__ import annotations

import difflib
import os
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperCommand

from polymq import config
from polymq.cli.nsqd_options import BY_FLAG, BY_KEY, OPTIONS, Kind, Option, from_file, from_flag, to_setting
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from polymq.config_sections import Settings

__all__ = ["Plan", "app", "help_text", "nsqd", "plan", "read_arguments"]

# The nsqd whose options these are.
NSQD_VERSION: Final = "1.3.0"
# Ours, beside nsqd's.
OWN_FLAGS: Final = {
    "polymq-config": "polymq's own file, for what nsqd has no option for (polymq.toml is not read by itself)",
    "polymq-set": "SECTION.KEY=VALUE: any setting of polymq; can be given several times",
    "help": "this text",
}
# What nsqd does where nothing is said and polymq would do something else. nsqd opens no further ports.
NSQD_DEFAULTS: Final = {
    "nsq.tcp": "0.0.0.0:4150",
    "nsq.http": "0.0.0.0:4151",
    "nsq.lookup_tcp": "off",
    "nsq.lookup_http": "off",
    "server.http": "off",
}
# With nsqd, giving nothing for these is not giving them.
EMPTY_IS_DEFAULT: Final = frozenset({"data-path", "tls-min-version"})
METADATA_NAME: Final = "nsqd.dat"
HTTPS_DEFAULT: Final = "0.0.0.0:4152"
EXAMPLES: Final = """Examples

  polymq nsqd -data-path=/var/lib/polymq
      nsqd's ports on every address, as nsqd has them

  polymq nsqd -config=/etc/nsqd.cfg -data-path=/var/lib/polymq --http-address=127.0.0.1:4151
      nsqd's file, two of its settings changed

  polymq nsqd -data-path=/var/lib/polymq --polymq-set server.http=127.0.0.1:4171
      and polymq's own door, for Spark, polymq tail and metrics

  polymq import nsqd /var/lib/nsqd --data /var/lib/polymq
      first of all: take over the messages that nsqd has left
"""

app = typer.Typer(add_completion=False)


class RawCommand(TyperCommand):
    """A command that reads its arguments itself: nsqd's flags have long names behind one dash."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep typer from reading flags."""
        return super().parse_args(ctx, ["--", *args])


@dataclass(slots=True)
class Given:
    """What the command line says: values by flag as text, repeated ones together, and what is wrong with it."""

    values: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Plan:
    """What polymq will do about what was asked: its settings, and what to tell whoever asked."""

    settings: Settings
    notes: list[str]


def read_arguments(arguments: list[str]) -> Given:
    """Read flags as Go's flag package does: one dash or two, `-flag value` or `-flag=value`, switches without a value.

    nsqd overlooks everything from the first word that is no flag on; that is an error here.
    """
    given = Given()
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if not word.startswith("-") or word in ("-", "--") or not name:
            where = "" if word.startswith("-") else ": write -flag=value for switches as well" if word in ("true", "false") else ""
            given.problems.append(f"{word!r} is not a flag; nsqd overlooks it and all that follows{where}")
            return given
        name = "help" if name == "h" else name
        if name not in BY_FLAG and name not in OWN_FLAGS:
            given.problems.append(f"-{name}: there is no such flag{_suggest(name, [*BY_FLAG, *OWN_FLAGS])}")
            # Whether the next word is its value cannot be known: a flag it is not.
            if not equals and rest and not rest[0].startswith("-"):
                rest.pop(0)
            continue
        if not equals:
            if name == "help" or (name in BY_FLAG and BY_FLAG[name].kind in (Kind.BOOL, Kind.TLS_REQUIRED)):
                value = "true"
            elif rest:
                value = rest.pop(0)
            else:
                given.problems.append(f"-{name}: its value is missing")
                continue
        given.values.setdefault(name, []).append(value)
    return given


def _suggest(name: str, known: Iterable[str]) -> str:
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def read_file(path: Path, problems: list[str]) -> dict[str, tuple[str, str]]:
    """Read nsqd's TOML file: for each option its value and how it is called there."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problems.append(f"{path}: cannot be read: {error}")
        return {}
    found: dict[str, tuple[str, str]] = {}
    for key, value in document.items():
        option = BY_KEY.get(key.replace("-", "_"))
        if option is None:
            problems.append(f"{path}: nsqd has no setting {key!r}{_suggest(key.replace('-', '_'), BY_KEY)}")
            continue
        try:
            found[option.flag] = from_file(option, value), f"{path}: {key} = {value!r}"
        except ValueError as error:
            problems.append(f"{path}: {key} = {value!r}: {error}")
    return found


def gather(given: Given) -> dict[str, tuple[str, str]]:
    """Put flags and file together: for each option its value, and the place to name when it is wrong."""
    found: dict[str, tuple[str, str]] = {}
    paths = given.values.get("config", [])
    if paths and paths[-1]:
        found = read_file(Path(paths[-1]), given.problems)
    for name, values in given.values.items():
        option = BY_FLAG.get(name)
        if option is None:
            continue
        kept: list[str] = []
        for value in values:
            try:
                kept.append(from_flag(option, value))
            except ValueError as error:
                given.problems.append(f"-{name}={value}: {error}")
        if kept:
            text = ",".join(kept) if option.kind in (Kind.TEXTS, Kind.FLOATS) else kept[-1]
            found[name] = text, f"-{name}={','.join(values) if option.kind in (Kind.TEXTS, Kind.FLOATS) else values[-1]}"
    for name in ("config", "version"):
        found.pop(name, None)
    return found


def plan(given: Given, *, environment: Mapping[str, str]) -> Plan:
    """Decide what to do about everything that was given. Raises ConfigError with all that is wrong."""
    problems = given.problems
    found = gather(given)
    known = config.all_settings()
    flags: dict[str, str] = {}
    notes: list[str] = []
    for port, address in (("broadcast-tcp-port", "tcp-address"), ("broadcast-http-port", "http-address")):
        listening = found.get(address, (BY_FLAG[address].default, ""))[0]
        if port in found and found[port][0] == listening.rpartition(":")[2]:
            del found[port]
    for option in OPTIONS:
        if option.flag in found:
            text, place = found[option.flag]
            _apply(option, text, place, flags, notes, problems)
    if found.get("tls-cert", ("", ""))[0] and "nsq.tls_cert" in known:
        flags.setdefault("nsq.https", HTTPS_DEFAULT)
    elif flags.pop("nsq.https", "off") != "off":
        notes.append("-https-address: nothing listens there without -tls-cert and -tls-key, as with nsqd")
    for pair in given.values.get("polymq-set", []):
        name, equals, value = pair.partition("=")
        if not equals or name not in known:
            problems.append(f"--polymq-set {pair}: SECTION.KEY=VALUE is expected{_suggest(name, known)}")
        else:
            flags[name] = value
    settings = _load(given, flags, environment, problems)
    problems.extend(_left_by_nsqd(settings))
    if problems:
        raise ConfigError(problems)
    assert settings is not None
    if "server.data" not in settings.origins:
        notes.append(f"no -data-path is given: the data is in {settings.server.data}")
    if settings.server.http is None:
        notes.append("polymq's own door (Spark, polymq tail, metrics) is closed; --polymq-set server.http=127.0.0.1:4171 opens it")
    return Plan(settings, notes)


def _apply(option: Option, text: str, place: str, flags: dict[str, str], notes: list[str], problems: list[str]) -> None:
    """Turn one option into a setting, a note or a problem."""
    if not option.setting:
        if text != option.default:
            notes.append(f"{place} has no meaning here: {option.here}")
        return
    setting = config.all_settings().get(option.setting)
    default = option.default if option.kind is not Kind.DURATION else from_flag(option, option.default)
    if setting is None:
        if text != default and not option.alone:
            problems.append(f"{place}: this version of polymq does not serve this, so it is refused; leave it out to do without")
        return
    value = to_setting(option, text)
    if not value and option.flag == "sync-every":
        if text != default:
            notes.append(f"{place} has no meaning here: {option.here}")
        return
    if not value and option.flag in EMPTY_IS_DEFAULT:
        return
    try:
        setting.kind.read(value)
    except ValueError as error:
        problems.append(f"{place}: {error}")
    else:
        flags[option.setting] = value


def _load(given: Given, flags: dict[str, str], environment: Mapping[str, str], problems: list[str]) -> Settings | None:
    """Have polymq's configuration put together; nsqd's defaults hold where neither nsqd's options nor polymq's own say anything."""
    files = given.values.get("polymq-config", [])
    # An empty file: what lies in the working folder is not meant for a broker that stands in for nsqd.
    path = Path(files[-1] if files else os.devnull)
    try:
        said = config.load(path, environment=environment, flags=flags).origins
        known = config.all_settings()
        defaults = {name: value for name, value in NSQD_DEFAULTS.items() if name in known and name not in said}
        settings = config.load(path, environment=environment, flags=defaults | flags)
    except ConfigError as error:
        problems.extend(error.problems)
        return None
    return settings


def _left_by_nsqd(settings: Settings | None) -> list[str]:
    """Refuse a folder with nsqd's own files: its messages would not be served, and nobody would say so.

    Without -data-path nsqd's folder is the working folder.
    """
    if settings is None:
        return []
    folders = [settings.server.data] if "server.data" in settings.origins else [settings.server.data, Path()]
    return [
        f"{folder} has the data of an nsqd. Take it over first: polymq import nsqd {folder} --data NEW, then -data-path=NEW"
        for folder in folders
        if not (folder / "FORMAT").exists() and ((folder / METADATA_NAME).exists() or any(folder.glob("*.diskqueue.*.dat")))
    ]


def help_text() -> str:
    """Say what every flag is here."""
    lines = [
        f"polymq nsqd: polymq in place of nsqd {NSQD_VERSION}, under nsqd's flags.",
        "",
        "Usage: polymq nsqd [-flag=value | -flag value | --flag …]…",
        "",
        EXAMPLES,
        "nsqd's flags, and the setting of polymq that each is",
    ]
    known = config.all_settings()
    for option in OPTIONS:
        meaning = "; ".join(filter(None, (option.setting, option.here))) or "-"
        if option.setting and option.setting not in known:
            meaning = "not served by this version" + ("; means nothing by itself" if option.alone else "; refused when it is set")
        elif not option.setting:
            meaning = f"({option.here})"
        default = f" [{option.default}]" if option.default and option.setting else ""
        lines.append(f"  -{option.flag}{default}\n      {meaning}")
    lines += ["", "of polymq's own"]
    lines += [f"  -{flag}\n      {text}" for flag, text in OWN_FLAGS.items()]
    lines += ["", "What is in brackets has no meaning here: it is accepted, and the start says so. docs/FROM_NSQD.md has the rest."]
    return "\n".join(lines)


def version_text() -> str:
    """Say what runs, and as what."""
    from polymq import __version__, _build

    return f"polymq v{__version__} in place of nsqd v{NSQD_VERSION}, {_build.report()}"


@app.command(cls=RawCommand, add_help_option=False, help="Serve under nsqd's flags and with nsqd's file, in place of nsqd.")
def nsqd(arguments: Annotated[list[str] | None, typer.Argument(metavar="[-flag=value]...")] = None) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    given = read_arguments(arguments or [])
    if "help" in given.values:
        print(help_text())
        return
    if given.values.get("version", ["false"])[-1] == "true":
        print(version_text())
        return
    made = plan(given, environment=os.environ)
    for notice in [*made.notes, *config.notices(made.settings)]:
        print(f"polymq: {notice}", file=sys.stderr)
    from polymq.server import serve as server

    raise typer.Exit(server.run(made.settings))
