"""Patterns that come from outside: regular expressions in RE2's syntax, searched for anywhere in a name.

Who writes a pattern may be somebody else than who runs the broker, so none may cost more than its length: RE2 has no
backtracking, and refuses what would become too large. Python's own `re` takes minutes for `(a+)+$`. Most patterns are
no more than a name or "everything"; those need no machine at all. A few of a login may be large: lists of names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol

import re2

from polymq.limits import LOGIN_PATTERNS_LARGE_MAX, PATTERN_SIZE_BYTES_MAX, PATTERNS_KEPT_MAX, PATTERNS_LARGE_KEPT_MAX

__all__ = ["EVERYTHING", "Pattern", "PatternError", "Patterns", "compile_pattern"]

# Both the program and the machine that runs it stay within this: the largest take about 1 ms to make.
_MEMORY_SIZE_BYTES_MAX: Final = 64 * 1024
# The same for large ones, which take up to 20 ms. A character of a name needs 12 bytes: any list of names finds room.
_MEMORY_SIZE_BYTES_LARGE_MAX: Final = 1024 * 1024
_TOO_LARGE: Final = "pattern too large"
_LITERAL: Final = re.compile(r"(\^?)([-_:#0-9A-Za-z]+)(\$?)")
# A class of all letters takes a thousand times as long to compile as a letter: what is longer than this has to be a list of names.
_FREE_SIZE_MAX: Final = 1024
_NAMES: Final = re.compile(r"(?:[\^$()?:|.*+a-zA-Z0-9_#-]|\\[.-])*")


class Pattern(Protocol):
    """A set of names."""

    def matches(self, name: str) -> bool:
        """Say whether `name` is in it."""


class PatternError(ValueError):
    """The text is no pattern, or too large a one; says why."""


@dataclass(frozen=True, slots=True)
class _Everything:
    def matches(self, name: str) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class _Literal:
    text: str
    first: bool
    last: bool

    def matches(self, name: str) -> bool:
        if self.first:
            return name == self.text if self.last else name.startswith(self.text)
        return name.endswith(self.text) if self.last else self.text in name


@dataclass(frozen=True, slots=True)
class _Expression:
    text: str
    compiled: re2.Regexp = field(repr=False, compare=False)

    def matches(self, name: str) -> bool:
        return self.compiled.search(name) is not None


EVERYTHING: Final[Pattern] = _Everything()


class Patterns:
    """Makes the patterns of one login, of which `limits.LOGIN_PATTERNS_LARGE_MAX` may be large."""

    def __init__(self) -> None:
        self._large: set[str] = set()

    def compile(self, text: str) -> Pattern:
        """Make a pattern of its text, as `compile_pattern`; raises PatternError, also for one large pattern too many."""
        small = _compile_small(text)
        if small is not None:
            return small
        self._large.add(text)
        if len(self._large) > LOGIN_PATTERNS_LARGE_MAX:
            raise PatternError(f"more than {LOGIN_PATTERNS_LARGE_MAX} are larger than {_MEMORY_SIZE_BYTES_MAX // 1024} KiB")
        return _compile_large(text)


def compile_pattern(text: str) -> Pattern:
    """Make a pattern of its text; raises PatternError.

    Limits: `limits.PATTERN_SIZE_BYTES_MAX`.
    Cost:   about 60 µs the first time, 1 ms at most, 20 ms for a large one; nothing for what was compiled lately.
    Source: RE2's syntax is Go's: github.com/google/re2/wiki/Syntax.
    """
    small = _compile_small(text)
    return _compile_large(text) if small is None else small


@lru_cache(maxsize=PATTERNS_KEPT_MAX)
def _compile_small(text: str) -> Pattern | None:
    """Make a pattern; None if it is a large one."""
    if text in ("", ".*", "^.*", ".*$"):
        return EVERYTHING
    literal = _LITERAL.fullmatch(text)
    if literal:
        return _Literal(literal[2], bool(literal[1]), bool(literal[3]))
    if len(text.encode("utf-8", "replace")) > PATTERN_SIZE_BYTES_MAX:
        raise PatternError(f"longer than {PATTERN_SIZE_BYTES_MAX} bytes")
    if len(text) > _FREE_SIZE_MAX and not _NAMES.fullmatch(text):
        raise PatternError(f"longer than {_FREE_SIZE_MAX} characters, and more than a list of names")
    try:
        return _expression(text, _MEMORY_SIZE_BYTES_MAX)
    except PatternError as error:
        if str(error).startswith(_TOO_LARGE):
            return None
        raise


def _compile_large(text: str) -> Pattern:
    found = _try_large(text)
    if isinstance(found, str):
        raise PatternError(found)
    return found


@lru_cache(maxsize=PATTERNS_LARGE_KEPT_MAX)
def _try_large(text: str) -> Pattern | str:
    """Make a large pattern, or say why not: that, too, may have taken long and is remembered."""
    try:
        return _expression(text, _MEMORY_SIZE_BYTES_LARGE_MAX)
    except PatternError as error:
        return str(error)


def _expression(text: str, memory_size_bytes_max: int) -> Pattern:
    options = re2.Options()
    options.max_mem = memory_size_bytes_max
    options.never_capture = True
    options.log_errors = False
    try:
        return _Expression(text, re2.compile(text, options))
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else ""
        raise PatternError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(error)) from error
