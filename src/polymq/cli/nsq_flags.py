"""How NSQ's programs read their flags and files, and how polymq's settings come of that.

Flags as Go's flag package reads them, files as TOML by a table of options. What wins is as with NSQ: flags, then the
file, then the program's defaults. Between the last two come polymq's own settings (POLYMQ_… variables,
--polymq-config), for what NSQ has no option for. Everything that is wrong is gathered, not only the first.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from typer.core import TyperCommand

from polymq import config
from polymq.cli.nsqd_options import Kind, Option, from_file, from_flag, to_setting
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from polymq.config_sections import Settings

__all__ = [
    "OWN_FLAGS",
    "Given",
    "Plan",
    "Program",
    "RawCommand",
    "Request",
    "apply_option",
    "gather",
    "read_arguments",
    "usage",
    "version_text",
]

# The NSQ whose programs these are.
NSQ_VERSION: Final = "1.3.0"
# Ours, beside the program's.
OWN_FLAGS: Final = {
    "polymq-config": "polymq's own file, for what NSQ has no option for (polymq.toml is not read by itself)",
    "polymq-set": "SECTION.KEY=VALUE: any setting of polymq; can be given several times",
    "help": "this text",
}
# With NSQ, giving nothing for these is not giving them.
EMPTY_IS_DEFAULT: Final = frozenset({"data-path", "tls-min-version"})


class RawCommand(TyperCommand):
    """A command that reads its arguments itself: NSQ's flags have long names behind one dash."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep typer from reading flags."""
        return super().parse_args(ctx, ["--", *args])


@dataclass(frozen=True, slots=True)
class Program:
    """A program: its options, polymq's settings where it does other than polymq when nothing is said, and how it takes stray words."""

    name: str
    options: tuple[Option, ...]
    defaults: Mapping[str, str]
    stray: str = "overlooks it and all that follows"

    def by_flag(self) -> dict[str, Option]:
        """Give the options by their flags."""
        return {each.flag: each for each in self.options}

    def by_key(self) -> dict[str, Option]:
        """Give the options by their names in the file."""
        return {each.file_key: each for each in self.options if each.file_key}


@dataclass(slots=True)
class Given:
    """What the command line says: values by flag as text, repeated ones together, and what is wrong with it."""

    values: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Request:
    """What is asked of polymq: settings by name, what to tell whoever asked, and what is wrong."""

    settings: dict[str, str | list[str]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def load(self, given: Given, program: Program, environment: Mapping[str, str]) -> Settings | None:
        """Have polymq's configuration put together; None if that cannot be done, and then the problems say why."""
        known = config.all_settings()
        for pair in given.values.get("polymq-set", []):
            name, equals, value = pair.partition("=")
            if not equals or name not in known:
                self.problems.append(f"--polymq-set {pair}: SECTION.KEY=VALUE is expected{suggest(name, known)}")
            else:
                self.settings[name] = value
        files = given.values.get("polymq-config", [])
        # An empty file: what lies in the working folder is not meant for a broker that stands in for NSQ's programs.
        path = Path(files[-1] if files else os.devnull)
        try:
            said = config.load(path, environment=environment, flags=self.settings).origins
            defaults = {name: value for name, value in program.defaults.items() if name in known and name not in said}
            return config.load(path, environment=environment, flags=defaults | self.settings)
        except ConfigError as error:
            self.problems.extend(error.problems)
            return None


@dataclass(slots=True)
class Plan:
    """What polymq will do about what was asked."""

    settings: Settings
    notes: list[str]


def read_arguments(arguments: list[str], program: Program) -> Given:
    """Read flags as Go's flag package does: one dash or two, `-flag value` or `-flag=value`, switches without a value.

    NSQ's programs overlook everything from the first word that is no flag on; that is an error here.
    """
    by_flag = program.by_flag()
    given = Given()
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("-").removeprefix("-").partition("=")
        if not word.startswith("-") or word in ("-", "--") or not name:
            hint = ": write -flag=value for switches as well" if word in ("true", "false") else ""
            given.problems.append(f"{word!r} is not a flag; {program.name} {program.stray}{hint}")
            return given
        name = "help" if name == "h" else name
        if name not in by_flag and name not in OWN_FLAGS:
            given.problems.append(f"-{name}: there is no such flag{suggest(name, [*by_flag, *OWN_FLAGS])}")
            # Whether the next word is its value cannot be known: a flag it is not.
            if not equals and rest and not rest[0].startswith("-"):
                rest.pop(0)
            continue
        if not equals:
            if name == "help" or (name in by_flag and by_flag[name].kind in (Kind.BOOL, Kind.TLS_REQUIRED)):
                value = "true"
            elif rest:
                value = rest.pop(0)
            else:
                given.problems.append(f"-{name}: its value is missing")
                continue
        given.values.setdefault(name, []).append(value)
    return given


def suggest(name: str, known: Iterable[str]) -> str:
    """Name what was probably meant."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def read_file(path: Path, program: Program, problems: list[str]) -> dict[str, tuple[str | list[str], str]]:
    """Read the program's TOML file: for each option its value and how it is called there."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        problems.append(f"{path}: cannot be read: {error}")
        return {}
    by_key = program.by_key()
    found: dict[str, tuple[str | list[str], str]] = {}
    for key, value in document.items():
        option = by_key.get(key.replace("-", "_"))
        if option is None:
            problems.append(f"{path}: {program.name} has no setting {key!r}{suggest(key.replace('-', '_'), by_key)}")
            continue
        try:
            found[option.flag] = from_file(option, value), f"{path}: {key} = {value!r}"
        except ValueError as error:
            problems.append(f"{path}: {key} = {value!r}: {error}")
    return found


def gather(given: Given, program: Program) -> dict[str, tuple[str | list[str], str]]:
    """Put flags and file together: for each option its value, and the place to name when it is wrong.

    A flag that is given several times for several texts makes a list: a text may have commas in it.
    """
    found: dict[str, tuple[str | list[str], str]] = {}
    paths = given.values.get("config", [])
    if paths and paths[-1]:
        found = read_file(Path(paths[-1]), program, given.problems)
    by_flag = program.by_flag()
    for name, values in given.values.items():
        option = by_flag.get(name)
        if option is None:
            continue
        kept: list[str] = []
        for value in values:
            try:
                kept.append(from_flag(option, value))
            except ValueError as error:
                given.problems.append(f"-{name}={value}: {error}")
        if kept and option.kind is Kind.TEXTS:
            found[name] = kept, " ".join(f"-{name}={value}" for value in values)
        elif kept:
            several = option.kind is Kind.FLOATS
            found[name] = ",".join(kept) if several else kept[-1], f"-{name}={','.join(values) if several else values[-1]}"
    for name in ("config", "version"):
        found.pop(name, None)
    return found


def apply_option(option: Option, given: str | list[str], place: str, request: Request) -> None:
    """Turn one option into a setting, a note or a problem."""
    default: str | list[str] = option.default
    if option.kind is Kind.DURATION:
        default = from_flag(option, option.default)
    elif option.kind is Kind.TEXTS:
        default = []
    setting = config.all_settings().get(option.setting)
    if setting is None and option.setting:
        if given != default and not option.alone:
            request.problems.append(f"{place}: this version of polymq does not serve this, so it is refused; leave it out to do without")
        return
    value = to_setting(option, given) if isinstance(given, str) else given
    if setting is None or (not value and option.flag == "sync-every"):
        if given != default:
            request.notes.append(f"{place} has no meaning here: {option.here}")
        return
    if not value and option.flag in EMPTY_IS_DEFAULT:
        return
    try:
        setting.kind.read(value)
    except ValueError as error:
        request.problems.append(f"{place}: {error}")
    else:
        request.settings[option.setting] = value


def usage(program: Program, examples: str) -> str:
    """Say what every flag of a program is here."""
    lines = [
        f"polymq {program.name}: polymq in place of {program.name} {NSQ_VERSION}, under its flags.",
        "",
        f"Usage: polymq {program.name} [-flag=value | -flag value | --flag …]…",
        "",
        examples,
        f"{program.name}'s flags, and the setting of polymq that each is",
    ]
    known = config.all_settings()
    for option in program.options:
        meaning = "; ".join(filter(None, (option.setting, option.here)))
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


def version_text(program: Program) -> str:
    """Say what runs, and as what."""
    from polymq import __version__, _build

    return f"polymq v{__version__} in place of {program.name} v{NSQ_VERSION}, {_build.report()}"
