"""Reads the options of a source or a sink: one by one, with all that is wrong with them collected.

Which options there are belongs to each source; here is how a kind of value is read. Names are not case-sensitive, as
everywhere in Spark. A secret is never shown, whatever is wrong with it.
"""

from __future__ import annotations

import difflib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from polymq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["EARLIEST", "LATEST", "Bound", "OptionReader"]

# As Kafka's source has them in JSON; no real offset is negative.
LATEST: Final = -1
EARLIEST: Final = -2

# "earliest", "latest", or offsets by topic and partition.
Bound = str | dict[str, dict[int, int]]

_SECRET_SIZE_BYTES_MAX: Final = 64 * 1024


class OptionReader:
    """Takes options one by one and collects what is wrong with them. `known`: every option with what it means, in a few words."""

    def __init__(self, given: Mapping[str, str], known: Mapping[str, str]) -> None:
        self.given = {name.lower(): (name, value) for name, value in given.items()}
        self.known = known
        self.problems: list[str] = []

    def finish(self) -> None:
        """Raise ConfigError with every problem, if there is one."""
        if self.problems:
            raise ConfigError(self.problems)

    def refuse_unknown(self, misplaced: tuple[str, ...] = (), place: str = "") -> None:
        """Note every option that is not known, with the one that may be meant, and those that have no meaning in this place."""
        known = {name.lower(): name for name in self.known}
        for lower, (name, _) in self.given.items():
            if lower not in known:
                close = difflib.get_close_matches(lower, known, n=1)
                hint = f"; did you mean {known[close[0]]}?" if close else ""
                self.problems.append(
                    f"unknown option {name}{hint} Known options: {', '.join(f'{n} ({text})' for n, text in self.known.items())}"
                )
        self.problems += [f"{name} has no meaning for {place}" for name in misplaced if name.lower() in self.given]

    def text(self, name: str) -> str | None:
        """Give an option's text, None if it is absent."""
        found = self.given.get(name.lower())
        return None if found is None else found[1]

    def secret(self, name: str) -> str:
        """Read a secret from the option, or from the file that `<name>File` or the environment variable that `<name>Env` names.

        Spark shows options in plans and keeps them in event logs; the other two forms keep the secret out of both. A file and a
        variable are read where the options are: at the driver, from which the secret goes to executors inside of pickles.
        """
        forms = [form for form in (name, f"{name}File", f"{name}Env") if self.text(form) is not None]
        if len(forms) > 1:
            self.problems.append(f"{' and '.join(forms)} exclude each other")
            return ""
        if not forms:
            return ""
        given = (self.text(forms[0]) or "").strip()
        try:
            value = self._secret_behind(forms[0], name, given).strip()
        except (OSError, UnicodeDecodeError, KeyError) as error:
            self.problems.append(f"{forms[0]} {given!r} cannot be read: {getattr(error, 'strerror', None) or 'nothing there that is text'}")
            return ""
        if not (value.isascii() and value.isprintable()):
            self.problems.append(f"{forms[0]} must be printable ASCII")
        return value

    @staticmethod
    def _secret_behind(form: str, name: str, given: str) -> str:
        if form == f"{name}File":
            with Path(given).open("rb") as file:
                return file.read(_SECRET_SIZE_BYTES_MAX).decode()
        return os.environ[given] if form == f"{name}Env" else given

    def listed(self, name: str) -> tuple[str, ...]:
        """Read names that are separated by commas, without repeats; empty if there are none."""
        return tuple(dict.fromkeys(part.strip() for part in (self.text(name) or "").split(",") if part.strip()))

    def topics(self, name: str) -> tuple[str, ...]:
        """Read a list of topics, of which there must be one at least."""
        topics = self.listed(name)
        if not topics:
            self.problems.append(f"{name} must name at least one topic")
        return topics

    def whole(self, name: str, default: int | None, low: int, high: int) -> int | None:
        """Read a whole number within bounds."""
        text = self.text(name)
        if text is None:
            return default
        digits = text.strip()
        if not (digits.isascii() and digits.isdecimal()) or not low <= int(digits) <= high:
            self.problems.append(f"{name} must be a whole number from {low} to {high}, not {text!r}")
            return default
        return int(digits)

    def truth(self, name: str, *, default: bool) -> bool:
        """Read true or false."""
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in {"true", "false"}:
            self.problems.append(f"{name} must be true or false, not {text!r}")
        return text.strip().lower() == "true"

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        """Read one of several words."""
        text = (self.text(name) or default).strip().lower()
        if text not in choices:
            self.problems.append(f"{name} must be one of {', '.join(choices)}, not {text!r}")
            return default
        return text

    def bound(self, name: str, default: str, *, topics: tuple[str, ...] | None, is_end: bool = False) -> Bound:
        """Read where to start or to end: a word, or JSON by topic and partition; `topics` None: any may be named."""
        text = (self.text(name) or default).strip()
        if text.lower() in {"earliest", "latest"}:
            if is_end and text.lower() == "earliest":
                self.problems.append(f"{name} cannot be earliest")
            return text.lower()
        try:
            offsets = {
                str(topic): {int(partition): _offset(offset) for partition, offset in partitions.items()}
                for topic, partitions in json.loads(text).items()
            }
        except (ValueError, AttributeError, TypeError):
            self.problems.append(f"{name} must be {self.known[name]}, not {text!r}")
            return default
        strange = sorted(set(offsets) - set(topics)) if topics is not None else []
        if strange:
            self.problems.append(f"{name} speaks of {', '.join(strange)}, which subscribe does not name")
        if is_end and any(offset == EARLIEST for by_partition in offsets.values() for offset in by_partition.values()):
            self.problems.append(f"{name} cannot be earliest (-2)")
        return offsets


def _offset(value: object) -> int:
    """Take an offset of the JSON form; raises ValueError when it is none."""
    if not isinstance(value, int) or isinstance(value, bool) or value < EARLIEST:
        raise ValueError("not an offset")
    return value
