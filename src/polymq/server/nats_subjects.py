"""Subjects as a configuration has them: which are valid, which cover which, and how one is made of another."""

from __future__ import annotations

import re
from typing import Final

from polymq.core.interest import names

__all__ = ["collide", "covers", "has_wildcards", "is_valid_subject", "mapping_problem"]

_BLANK: Final = re.compile(r"[\t\n\f\r ]")
_REFERENCE: Final = re.compile(r"\$([0-9]{1,3})")


def is_valid_subject(subject: str) -> bool:
    """Say whether one may subscribe to this: tokens between dots, `*` for any one of them, `>` for one or more at the end."""
    tokens = subject.split(".")
    return all(tokens) and ">" not in tokens[:-1] and not _BLANK.search(subject)


def has_wildcards(subject: str) -> bool:
    """Say whether a subject stands for several."""
    tokens = subject.split(".")
    return "*" in tokens or tokens[-1] == ">"


def covers(pattern: str, subject: str) -> bool:
    """Say whether everything that `subject` stands for is in `pattern` as well."""
    return names.covers(_encoded(pattern), _encoded(subject))


def collide(first: str, second: str) -> bool:
    """Say whether something is in both."""
    return names.collide(_encoded(first), _encoded(second))


def mapping_problem(source: str, target: str) -> str:
    """Say why `source` cannot be shown as `target`: their wildcards must be the same, by order or by number ($1, $2 …); "" if it can."""
    if not is_valid_subject(target):
        return "expected a subject: words with dots between them"
    if not has_wildcards(source):
        return f"{source!r} is one subject, so this must be one: no * and no >" if has_wildcards(target) else ""
    stars = source.split(".").count("*")
    tokens = target.split(".")
    numbers = [int(match[1]) for token in tokens if (match := _REFERENCE.fullmatch(token))]
    if (source.split(".")[-1] == ">") != (tokens[-1] == ">"):
        return f"this and {source!r} must both end with > or neither"
    if any("{{" in token for token in tokens):
        return "polymq maps by * and $1 only, not by functions"
    if numbers and tokens.count("*"):
        return "write either * or $1, $2 …"
    if (sorted(numbers) != list(range(1, stars + 1))) if numbers else tokens.count("*") != stars:
        return f"{source!r} has {stars} times *, and each must be here once, as * or as its number $1, $2 …"
    return ""


def _encoded(subject: str) -> bytes:
    return subject.encode(errors="surrogatepass")
