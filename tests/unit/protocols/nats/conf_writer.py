"""The tests' own writer of nats-server's configuration language: the same data in every style that the language has."""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING

from polymq.protocols.nats.conf import parse
from polymq.protocols.nats.conf_tree import Block, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from polymq.protocols.nats.conf_tree import Document

Data = str | bool | int | float | datetime | list["Data"] | dict[str, "Data"]
BARE_KEY = re.compile(r"(?!#|//)[A-Za-z0-9_.$*>/-]+")
BARE_TEXT = re.compile(r"(?!//)[A-Za-z_/*>.][A-Za-z0-9_.:/*>#=\"{(\[-]*")
BOOLEANS = ("true", "yes", "on", "false", "no", "off")
SUFFIXES = {"k": 10**3, "kb": 1 << 10, "Ki": 1 << 10, "M": 10**6, "MiB": 1 << 20, "gb": 1 << 30, "T": 10**12, "pib": 1 << 50, "e": 10**18}
ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def read(text: str, *, environment: Mapping[str, str] | None = None, files: Mapping[str, str] | None = None) -> Document:
    """Parse a text as the file `test.conf`; `files` are others that it may include."""
    known = {"test.conf": text, **(files or {})}

    def give(path: str) -> bytes:
        if path not in known:
            raise FileNotFoundError(path)
        return known[path].encode()

    return parse("test.conf", read=give, environment=environment or {})


def plain(value: Value | Block) -> object:
    """Take the places off a tree."""
    data = value.data if isinstance(value, Value) else value
    if isinstance(data, Block):
        return {key: plain(each) for key, each in data}
    if isinstance(data, tuple):
        return [plain(each) for each in data]
    return data


def write(data: Mapping[str, Data], choose: Callable[[tuple[str, ...]], str]) -> str:
    """Write a whole file."""
    if choose(("bare", "braces")) == "braces":
        return choose(("", "\n", "# all of it\n")) + _block(data, choose) + choose(("", "\n", " // the end"))
    ends = ("\n", ",\n", ";\n", " # said\n", " , // said\n")
    return _joined([_entry(key, value, choose) for key, value in data.items()], ends, choose)


def _block(data: Mapping[str, Data], choose: Callable[[tuple[str, ...]], str]) -> str:
    entries = [_entry(key, value, choose) for key, value in data.items()]
    return "{" + choose(("", " ", "\n", " # a block\n")) + _joined(entries, (",", ";", "\n", " , ", "\r\n", " // more\n"), choose) + "}"


def _joined(entries: list[str], separators: tuple[str, ...], choose: Callable[[tuple[str, ...]], str]) -> str:
    # The ) of a text of several lines is alone on its line.
    return "".join(f"{entry}{chr(10) if entry.endswith(')') else choose(separators)}" for entry in entries)


def _entry(key: str, value: Data, choose: Callable[[tuple[str, ...]], str]) -> str:
    written = _value(value, choose)
    quoted = [f"{quote}{key}{quote}" for quote in "\"'" if quote not in key]
    styles = tuple(quoted + ([key] if BARE_KEY.fullmatch(key) and key.lower() != "include" else []))
    return choose(styles) + choose((":", " : ", "= ", " =", " ", "\t")) + written


def _value(value: Data, choose: Callable[[tuple[str, ...]], str]) -> str:
    if isinstance(value, dict):
        return _block(value, choose)
    if isinstance(value, list):
        return "[" + _joined([_value(each, choose) for each in value], (",", "\n", " , ", " # and\n"), choose) + "]"
    if isinstance(value, bool):
        word = choose(BOOLEANS[:3] if value else BOOLEANS[3:])
        return choose((word, word.upper(), word.title()))
    if isinstance(value, int):
        return choose((str(value), *(f"{value // unit}{suffix}" for suffix, unit in SUFFIXES.items() if value % unit == 0)))
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0")
    if isinstance(value, float):
        return f"{value:.6f}"
    return _text(value, choose)


def _text(text: str, choose: Callable[[tuple[str, ...]], str]) -> str:
    styles = [
        '"' + "".join(ESCAPES.get(each, each) for each in text) + '"',
        '"' + "".join(f"\\x{byte:02x}" for byte in text.encode()) + '"',
    ]
    if "'" not in text:
        styles.append(f"'{text}'")
    if BARE_TEXT.fullmatch(text) and text.lower() not in BOOLEANS:
        styles.append(text)
    if text.endswith("\n") and not re.search(r"\n\)(\r?\n|\Z)", text):
        styles.append(f"({text})")
    return choose(tuple(styles))
