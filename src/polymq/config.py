"""Read the configuration: defaults, then `polymq.toml`, then the environment, then flags; the later one wins.

Everything that is wrong is reported in one go (`ConfigError.problems`), each problem with the place it comes from and,
for a misspelt name, with what was probably meant. What settings there are is in `config_sections.py`.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from polymq.config_sections import PLANNED_SECTIONS, SECTIONS, Setting, Settings, settings_of
from polymq.config_values import AddressKind, TcpAddress, format_address, format_duration
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["DEFAULT_FILE", "all_settings", "example", "load", "notices"]

DEFAULT_FILE: Final = "polymq.toml"
PREFIX: Final = "POLYMQ_"


def all_settings() -> Mapping[str, Setting]:
    """Return every setting by its name, `section.key`."""
    return {each.name: each for section in SECTIONS for each in settings_of(section)}


def load(path: Path | None = None, *, environment: Mapping[str, str], flags: Mapping[str, str | list[str]]) -> Settings:
    """Put the configuration together.

    `path` None means `polymq.toml` in the working folder if it is there. `flags` are by setting name ("nsq.tcp").
    Raises ConfigError with every problem found.
    """
    problems: list[str] = []
    known = all_settings()
    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    for origin, given in (
        _read_file(path, problems),
        ("environment", _from_environment(environment, known, problems)),
        ("flag", dict(flags)),
    ):
        for name, raw in given.items():
            place = {"environment": known[name].variable, "flag": known[name].flag or name}.get(origin, f"{origin}: {name}")
            try:
                values[name] = known[name].kind.read(raw)
            except ValueError as error:
                problems.append(f"{place} = {raw!r}: {error}")
            else:
                origins[name] = origin
    settings = _build(values, origins, known)
    problems.extend(_contradictions(settings))
    if problems:
        raise ConfigError(problems)
    return settings


def _build(values: Mapping[str, Any], origins: Mapping[str, str], known: Mapping[str, Setting]) -> Settings:
    sections: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for name, value in values.items():
        sections[known[name].section][known[name].field] = value
    made = {section: SECTIONS[section](**fields) for section, fields in sections.items()}
    return Settings(**made, origins=MappingProxyType(dict(origins)))


def _read_file(path: Path | None, problems: list[str]) -> tuple[str, dict[str, Any]]:
    """Read the TOML file; returns the name of the file and its values by setting name."""
    given = path is not None
    path = path or Path(DEFAULT_FILE)
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if given:
            problems.append(f"{path}: there is no such file")
        return str(path), {}
    except (OSError, UnicodeDecodeError) as error:
        problems.append(f"{path}: cannot be read: {error}")
        return str(path), {}
    except tomllib.TOMLDecodeError as error:
        problems.append(f"{path}: not valid TOML: {error}")
        return str(path), {}
    values: dict[str, Any] = {}
    for section, content in document.items():
        if section not in SECTIONS:
            problems.append(f"{path}: there is no section [{section}]{_suggest(section, SECTIONS)}")
        elif not isinstance(content, dict):
            problems.append(f"{path}: {section} is a section: write [{section}] on a line of its own and its settings below")
        else:
            values.update(_read_section(path, section, content, problems))
    return str(path), values


def _read_section(path: Path, section: str, content: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    keys = {each.key: each.name for each in settings_of(section)}
    values: dict[str, Any] = {}
    for key, raw in content.items():
        # nsqd spells its options with hyphens on the command line and with underscores in its file.
        plain = key.replace("-", "_")
        if plain in keys:
            values[keys[plain]] = raw
        else:
            problems.append(f"{path}: [{section}] has no setting {key!r}{_suggest(plain, keys)}{_elsewhere(plain, section)}")
    return values


def _elsewhere(key: str, section: str) -> str:
    others = [name for name, each in all_settings().items() if each.key == key and each.section != section]
    return f" ({' and '.join(others)} exists)" if others else ""


def _from_environment(environment: Mapping[str, str], known: Mapping[str, Setting], problems: list[str]) -> dict[str, str]:
    """Pick the settings out of the environment.

    A variable whose second word is no section is not ours to judge (POLYMQ_PURE, POLYMQ_BUILD, or another program's).
    """
    variables = {each.variable: each.name for each in known.values()}
    values: dict[str, str] = {}
    for variable, raw in environment.items():
        if variable in variables:
            values[variables[variable]] = raw
        elif variable.startswith(PREFIX) and variable.removeprefix(PREFIX).partition("_")[0].lower() in SECTIONS:
            problems.append(f"environment: {variable} is not a setting{_suggest(variable, variables)}")
    return values


def _suggest(word: str, known: Iterable[str]) -> str:
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""


def _contradictions(settings: Settings) -> list[str]:
    """Check what no single setting can know."""
    nsq = settings.nsq
    problems = []
    # What a client gets that asks for nothing may be more than it could ask for, as with nsqd. Here nothing could be asked for.
    low_ns, high_ns = nsq.min_output_buffer_timeout_ns, nsq.max_output_buffer_timeout_ns
    if low_ns > high_ns:
        shown = f"nsq.min_output_buffer_timeout ({format_duration(low_ns)})"
        problems.append(f"{shown} is more than nsq.max_output_buffer_timeout ({format_duration(high_ns)})")
    if settings.server.data.exists() and not settings.server.data.is_dir():
        problems.append(f"server.data: {settings.server.data} is a file; a data folder is a folder of its own")
    taken: dict[str, str] = {}
    for name, each in all_settings().items():
        address = getattr(getattr(settings, each.section), each.field)
        if not isinstance(each.kind, AddressKind) or address is None or (isinstance(address, TcpAddress) and address.port == 0):
            continue
        text = format_address(address)
        if text in taken:
            problems.append(f"{name} and {taken[text]} both want {text}: give one of them another port, or off")
        taken[text] = name
    return problems


def notices(settings: Settings) -> list[str]:
    """Say what was asked for and does not exist yet: such a setting is accepted, so that scripts can carry it."""
    found = []
    for name, each in all_settings().items():
        asked = settings.origins.get(name)
        value = getattr(getattr(settings, each.section), each.field)
        if each.planned and asked and value:
            place = each.flag if asked == "flag" else name
            found.append(
                f"{place} {each.kind.write(value)}: polymq does not serve this yet; the setting is accepted and nothing listens there"
            )
    return found


def example() -> str:
    """Write a `polymq.toml` that shows every setting at its default: the generator of polymq.example.toml."""
    lines = [
        "# polymq.toml: every setting at its default. Made by `make example`; a test compares the two.",
        "# A setting can also be given as an environment variable, POLYMQ_<SECTION>_<KEY>, and some as a flag of",
        "# `polymq serve`; a flag wins over the environment, and that over this file.",
    ]
    for section, kind in SECTIONS.items():
        later = " Not served yet: accepted and ignored." if section in PLANNED_SECTIONS else ""
        lines += ["", f"# {kind.__doc__}{later}", f"[{section}]"]
        for each in settings_of(section):
            text = each.kind.write(each.default)
            bare = isinstance(each.default, bool) or (isinstance(each.default, int) and text.isdigit())
            shown = text if bare else f'"{text}"'
            later = " (not served yet)" if each.planned and section not in PLANNED_SECTIONS else ""
            lines.append(f"# {each.explanation}{later}")
            lines.append(f"{each.key} = {shown}")
    return "\n".join(lines) + "\n"
