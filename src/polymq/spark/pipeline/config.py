"""`polymq-pipeline.toml`: what a pipeline reads, where its tables are, how often it does what; every problem is told at once.

`TABLES` is the whole truth about which keys there are. The template of `polymq pipeline init` is checked against it by a test.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from polymq.config_values import parse_duration, parse_size
from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["DECODINGS", "FILE_NAME", "GOLD_TABLES", "TABLES", "PipelineConfig", "TopicRules", "load", "parse"]

FILE_NAME: Final = "polymq-pipeline.toml"
DECODINGS: Final = ("json", "text", "none")
# Those that every pipeline has; a table of the user's has another name.
GOLD_TABLES: Final = ("traffic", "failures", "groups")
GOLD_TABLES_MAX: Final = 100
TOPICS_MAX: Final = 1000
_SECONDS_MAX: Final = 100 * 365 * 86400
_NS: Final = 10**9
_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,63}")

# Table → key → kind, default, what it is for. The table "" is the file itself.
TABLES: Final[dict[str, dict[str, tuple[str, Any, str]]]] = {
    "": {
        "name": ("text", "pipeline", "what the pipeline is called"),
        "storage": ("text", "archive", "the folder of all tables, relative to this file"),
    },
    "source": {
        "format": ("text", "polymq", "polymq, nsq, nats, rocketmq or phpmq"),
        "options": ("options", {}, "the source's options, as Spark has them"),
    },
    "spark": {
        "master": ("text", "local[2]", "where Spark runs"),
        "memory": ("text", "1g", "memory of the driver"),
        "settings": ("options", {}, "any setting of Spark"),
    },
    "triggers": {
        "bronze": ("duration", 5.0, "how often messages are taken in"),
        "silver": ("duration", 5.0, "how often bodies are decoded"),
        "gold": ("duration", 60.0, "how often aggregates are made again"),
        "statistics": ("duration", 15.0, "how often the broker is asked for its statistics"),
        "compaction": ("duration", 3600.0, "how often small files are put together, and old ones removed"),
    },
    "silver": {
        "decode": ("decode", "json", "how bodies are decoded: json, text or none"),
        "repeat_window": ("duration", 3600.0, "a message with an id that was seen so recently is a repeat"),
    },
    "retention": {
        "bronze": ("duration", 0.0, "how long messages are kept; 0s: for ever"),
        "silver": ("duration", 0.0, "how long decoded messages are kept"),
        "quarantine": ("duration", 0.0, "how long what could not be decoded is kept"),
        "statistics": ("duration", 0.0, "how long samples of the broker's statistics are kept"),
        "gold": ("duration", 0.0, "how long traffic, failures and groups are kept"),
    },
    "compaction": {
        "files_min": ("count", 8, "so many small files of a topic and day are put together"),
        "file_size": ("size", 128 * 1024 * 1024, "a file from half of this size on is left alone"),
    },
    "statistics": {
        "server": ("text", "", "HOST:PORT of a polymq node's HTTP door; without it, that of the source"),
        "secret_file": ("text", "", "the file that has the node's secret"),
        "secret_env": ("text", "", "the environment variable that has it"),
    },
}
_TOPIC_KEYS: Final = {
    "decode": ("decode", "", "json, text or none"),
    "schema": ("text", "", "the body's fields as Spark writes them, instead of finding them out: id bigint, price double"),
}
_GOLD_KEYS: Final = {"sql": ("text", "", "a SELECT over bronze, silver_<topic>, quarantine, statistics, traffic, failures and groups")}


@dataclass(frozen=True, slots=True)
class TopicRules:
    """What is said of one topic."""

    decode: str = ""
    schema: str = ""


@dataclass(frozen=True, slots=True)
class PipelineConfig:
    """One pipeline, as its file says it. Times are in seconds, sizes in bytes; a retention of 0 is for ever."""

    name: str
    storage: Path
    source_format: str
    source_options: Mapping[str, str] = field(repr=False)
    master: str
    memory: str
    spark_settings: Mapping[str, str]
    every: Mapping[str, float]
    decode: str
    repeat_window_seconds: float
    retention: Mapping[str, float]
    files_min: int
    file_size_bytes: int
    statistics_server: str
    statistics_secret_file: str
    statistics_secret_env: str
    topics: Mapping[str, TopicRules]
    gold: Mapping[str, str]

    def decoding_of(self, topic: str) -> str:
        """Say how a topic's bodies are decoded."""
        return self.topics.get(topic, TopicRules()).decode or self.decode


def load(path: Path) -> PipelineConfig:
    """Read the file; raises ConfigError with every problem."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = "`polymq pipeline init` writes one" if isinstance(error, FileNotFoundError) else str(error)
        raise ConfigError([f"{path} cannot be read: {hint}"]) from error
    # Whatever reads the files may have another working folder.
    return parse(text, path.parent.absolute())


def parse(text: str, folder: Path) -> PipelineConfig:
    """Read the text of a file in `folder`; raises ConfigError with every problem."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError([f"{FILE_NAME} is not TOML: {error}"]) from error
    problems: list[str] = []
    sections = {name: value for name, value in given.items() if isinstance(value, dict)}
    known = [*(name for name in TABLES if name), "topics", "gold"]
    problems += [f"unknown table [{name}]{_meant(name, known)} There are {', '.join(known)}" for name in sections if name not in known]
    top = {name: value for name, value in given.items() if name not in sections}
    values = {name: _section(name, sections.get(name, {}) if name else top, keys, problems) for name, keys in TABLES.items()}
    topics = _named("topics", sections.get("topics", {}), _TOPIC_KEYS, problems)
    gold = _named("gold", sections.get("gold", {}), _GOLD_KEYS, problems)
    _check(values, topics, gold, problems)
    if problems:
        raise ConfigError(problems)
    return PipelineConfig(
        name=values[""]["name"],
        storage=folder / values[""]["storage"],
        source_format=values["source"]["format"],
        source_options=values["source"]["options"],
        master=values["spark"]["master"],
        memory=values["spark"]["memory"],
        spark_settings=values["spark"]["settings"],
        every=values["triggers"],
        decode=values["silver"]["decode"],
        repeat_window_seconds=values["silver"]["repeat_window"],
        retention=values["retention"],
        files_min=values["compaction"]["files_min"],
        file_size_bytes=values["compaction"]["file_size"],
        statistics_server=values["statistics"]["server"] or _server_of(values["source"]),
        statistics_secret_file=values["statistics"]["secret_file"],
        statistics_secret_env=values["statistics"]["secret_env"],
        topics={name: TopicRules(rules["decode"], rules["schema"]) for name, rules in topics.items()},
        gold={name: rules["sql"] for name, rules in gold.items()},
    )


def _section(name: str, given: Mapping[str, Any], keys: Mapping[str, tuple[str, Any, str]], problems: list[str]) -> dict[str, Any]:
    """Read one table; a key of the wrong kind keeps its default and is a problem."""
    place = f"[{name}] " if name else ""
    for key in given:
        if key not in keys:
            listed = ", ".join(f"{known} ({words})" for known, (_, _, words) in keys.items())
            problems.append(f"{place}unknown key {key}{_meant(key, list(keys))} There are {listed}")
    found = {}
    for key, (kind, default, _) in keys.items():
        found[key] = default
        if key in given:
            try:
                found[key] = _value(kind, given[key])
            except ValueError as error:
                problems.append(f"{place}{key}: {error}")
    return found


def _named(name: str, given: Mapping[str, Any], keys: Mapping[str, tuple[str, Any, str]], problems: list[str]) -> dict[str, dict[str, Any]]:
    """Read tables of tables: [topics.<name>], [gold.<name>]."""
    found = {}
    for each, rules in given.items():
        if not isinstance(rules, dict):
            problems.append(f"[{name}] {each} must be a table: write [{name}.{each}]")
        else:
            found[each] = _section(f"{name}.{each}", rules, keys, problems)
    return found


def _value(kind: str, given: object) -> Any:
    """Read one value; raises ValueError with what was expected."""
    if kind == "options":
        if not isinstance(given, dict) or any(isinstance(value, dict | list) for value in given.values()):
            raise ValueError("must be a table of texts, numbers and truths")
        return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}
    if kind == "count":
        if not isinstance(given, int) or isinstance(given, bool) or not 2 <= given <= 1_000_000:
            raise ValueError(f"must be a whole number from 2 to 1000000, not {given!r}")
        return given
    if not isinstance(given, str):
        raise ValueError(f"must be a text, not {given!r}")  # noqa: TRY004 - a wrong value of a user's file
    if kind == "decode" and given not in DECODINGS:
        raise ValueError(f"must be one of {', '.join(DECODINGS)}, not {given!r}")
    if kind == "size":
        return max(parse_size(given), 1024 * 1024)
    if kind == "duration":
        seconds = parse_duration(given) / _NS
        if seconds > _SECONDS_MAX:
            raise ValueError(f"must be less than a century, not {given!r}")
        return seconds
    return given


def _check(values: Mapping[str, Any], topics: Mapping[str, Any], gold: Mapping[str, Any], problems: list[str]) -> None:
    """Note what no single value shows."""
    for name, seconds in values["triggers"].items():
        if seconds <= 0:
            problems.append(f"[triggers] {name} must be more than 0")
    if len(topics) > TOPICS_MAX or len(gold) > GOLD_TABLES_MAX:
        problems.append(f"there may be {TOPICS_MAX} [topics.<name>] and {GOLD_TABLES_MAX} [gold.<name>] at most")
    for name, rules in gold.items():
        if not _NAME.fullmatch(name) or name in GOLD_TABLES:
            problems.append(f"[gold.{name}]: the name must be of a-z, 0-9 and _, and none of {', '.join(GOLD_TABLES)}")
        if not rules["sql"].strip():
            problems.append(f"[gold.{name}] needs sql")
    for name, rules in topics.items():
        if rules["schema"] and rules["decode"] not in ("", "json"):
            problems.append(f'[topics.{name}] schema is for decode = "json"')
    if values["statistics"]["secret_file"] and values["statistics"]["secret_env"]:
        problems.append("[statistics] secret_file and secret_env exclude each other")


def _server_of(source: Mapping[str, Any]) -> str:
    """Give the node that the source reads, if it is polymq's: the first one."""
    if source["format"] != "polymq":
        return ""
    given = {name.lower(): value for name, value in cast("dict[str, str]", source["options"]).items()}
    return (given.get("server") or given.get("servers", "")).split(",")[0].strip()


def _meant(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else "."
