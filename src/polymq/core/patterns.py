"""Patterns that come from outside: regular expressions in RE2's syntax, searched for anywhere in a name.

Who writes a pattern may be somebody else than who runs the broker, so none may cost more than its length: RE2 has no
backtracking, and refuses what would become too large. Python's own `re` takes minutes for `(a+)+$`. Most patterns are
no more than a name or "everything"; those need no machine at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, Protocol

import re2

from polymq.limits import PATTERN_SIZE_BYTES_MAX, PATTERNS_KEPT_MAX

__all__ = ["EVERYTHING", "Pattern", "PatternError", "compile_pattern"]

# Both the program and the machine that runs it stay within this: the largest take about 1 ms to make.
_MEMORY_SIZE_BYTES_MAX: Final = 64 * 1024
_LITERAL: Final = re.compile(r"(\^?)([-_:#0-9A-Za-z]+)(\$?)")


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


@lru_cache(maxsize=PATTERNS_KEPT_MAX)
def compile_pattern(text: str) -> Pattern:
    """Make a pattern of its text; raises PatternError.

    Limits: `limits.PATTERN_SIZE_BYTES_MAX`.
    Cost:   about 60 µs the first time, 1 ms at most; nothing for what was compiled lately.
    Source: RE2's syntax is Go's: github.com/google/re2/wiki/Syntax.
    """
    if text in ("", ".*", "^.*", ".*$"):
        return EVERYTHING
    literal = _LITERAL.fullmatch(text)
    if literal:
        return _Literal(literal[2], bool(literal[1]), bool(literal[3]))
    if len(text.encode("utf-8", "replace")) > PATTERN_SIZE_BYTES_MAX:
        raise PatternError(f"longer than {PATTERN_SIZE_BYTES_MAX} bytes")
    options = re2.Options()
    options.max_mem = _MEMORY_SIZE_BYTES_MAX
    options.never_capture = True
    options.log_errors = False
    try:
        return _Expression(text, re2.compile(text, options))
    except (re2.error, UnicodeError) as error:
        reason = error.args[0] if error.args else ""
        raise PatternError(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(error)) from error
