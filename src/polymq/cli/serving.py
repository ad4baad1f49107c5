"""`polymq serve`, whoever has read its command line: the broker itself, in this process, until SIGTERM or Ctrl-C.

A command line that names settings and nothing else is read here, for loading what reads and explains all others takes
a fifth of a start. Both readings are the same: a test compares them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from polymq import config
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from polymq.config_sections import Setting, Settings

    # The file, the pairs of --set, and flags by the names of their settings.
    Line = tuple[Path | None, list[str], dict[str, str]]

__all__ = ["parse_pairs", "read_line", "read_settings", "run_broker"]


def read_line(arguments: Sequence[str]) -> Line | None:
    """Read the arguments of `polymq serve`; None: something else than settings is among them, or something is wrong."""
    flags = {each.flag: each.name for each in config.all_settings().values() if each.flag}
    file: Path | None = None
    pairs: list[str] = []
    values: dict[str, str] = {}
    rest = iter(arguments)
    for argument in rest:
        flag, equals, value = argument.partition("=")
        if not equals:
            value = next(rest, "")
        if not value or value.startswith("-"):
            return None
        if flag == "--set":
            pairs.append(value)
        elif flag == "--config":
            file = Path(value)
        elif flag in flags:
            values[flags[flag]] = value
        else:
            return None
    return file, pairs, values


def parse_pairs(pairs: list[str], known: Mapping[str, Setting]) -> tuple[dict[str, str], list[str]]:
    """Read `section.key=value` pairs; returns the values by name, and what is wrong."""
    import difflib

    values: dict[str, str] = {}
    problems = []
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            problems.append(f"--set {pair}: write --set SECTION.KEY=VALUE, for example --set store.durability=fsync")
        elif name not in known:
            matches = difflib.get_close_matches(name, known, n=1)
            problems.append(f"--set {pair}: there is no setting {name!r}" + (f"; did you mean {matches[0]!r}?" if matches else ""))
        else:
            values[name] = value
    return values, problems


def read_settings(path: Path | None, pairs: list[str], flags: Mapping[str, str | None]) -> Settings:
    """Merge file, environment, --set and flags; `flags` are by setting name, None was not given.

    Raises ConfigError with everything that is wrong in any of them.
    """
    given, problems = parse_pairs(pairs, config.all_settings())
    given.update({name: value for name, value in flags.items() if value is not None})
    try:
        settings = config.load(path, environment=os.environ, flags=given)
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems]) from error
    if problems:
        raise ConfigError(problems)
    return settings


def run_broker(path: Path | None, pairs: list[str], flags: Mapping[str, str | None]) -> int:
    """Serve with what was given, until asked to end; returns the exit code. Raises ConfigError, StoreError."""
    settings = read_settings(path, pairs, flags)
    for notice in config.notices(settings):
        print(f"polymq: {notice}", file=sys.stderr)
    from polymq.server import serve as server

    return server.run(settings)
