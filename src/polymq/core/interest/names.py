"""Names and patterns as text: what is legal, and what matches what. The rules are here and nowhere else.

A name or pattern is a row of tokens with dots between them; an empty token makes it illegal. `*` and `>` mean
something only as a whole token of a pattern: `foo*` is a token like any other, and in a name so is `*`.
Hot module: see docs/adr/0001. Read next: `trie.py`, which finds all patterns of a name at once.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Final

import cython

from polymq.errors import Refusal, RefusalCode
from polymq.limits import INTEREST_NAME_SIZE_BYTES_MAX, INTEREST_TOKENS_MAX

__all__ = ["ONE", "REST", "collide", "covers", "has_wildcards", "matches", "tokens_of_name", "tokens_of_pattern"]

# The tokens of a pattern that stand for others.
ONE: Final = b"*"
REST: Final = b">"

_DOT = cython.declare(cython.int, 46)
_STAR = cython.declare(cython.int, 42)
_GREATER = cython.declare(cython.int, 62)


def tokens_of_pattern(pattern: bytes) -> list[bytes]:
    """Take a pattern from outside apart.

    Limits: INTEREST_NAME_SIZE_BYTES_MAX, INTEREST_TOKENS_MAX.
    Raises: Refusal(TOPIC_NAME_INVALID) for an empty token or a `>` that is not the last, LIMIT_REACHED beyond the limits.
    """
    if len(pattern) > INTEREST_NAME_SIZE_BYTES_MAX:
        raise Refusal(RefusalCode.LIMIT_REACHED, f"a pattern may have {INTEREST_NAME_SIZE_BYTES_MAX} bytes")
    tokens = pattern.split(b".")
    if len(tokens) > INTEREST_TOKENS_MAX:
        raise Refusal(RefusalCode.LIMIT_REACHED, f"a pattern may have {INTEREST_TOKENS_MAX} tokens")
    if b"" in tokens:
        raise Refusal(RefusalCode.TOPIC_NAME_INVALID, "a token is empty")
    if REST in tokens and tokens.index(REST) < len(tokens) - 1:
        raise Refusal(RefusalCode.TOPIC_NAME_INVALID, "what stands for the rest must be the last token")
    return tokens


def tokens_of_name(name: bytes) -> list[bytes]:
    """Take a name apart; empty if no pattern at all matches it, because a token of it is."""
    tokens = name.split(b".")
    return [] if b"" in tokens else tokens


def has_wildcards(tokens: list[bytes]) -> bool:
    """Say whether a pattern matches more than the one name that it looks like."""
    return tokens[len(tokens) - 1] == REST or ONE in tokens


def covers(wide: bytes, narrow: bytes) -> bool:
    """Say whether everything that one legal pattern matches is matched by another."""
    tokens = narrow.split(b".")
    pattern = wide.split(b".")
    for index, token in enumerate(pattern):
        if token == REST:
            return len(tokens) > index
        if index >= len(tokens) or tokens[index] == REST or token not in (ONE, tokens[index]):
            return False
    return len(pattern) == len(tokens)


def collide(one: bytes, other: bytes) -> bool:
    """Say whether some name is matched by both of two legal patterns."""
    for first, second in zip_longest(one.split(b"."), other.split(b".")):
        if first is None or second is None:
            return False
        if REST in (first, second):
            return True
        if first != second and ONE not in (first, second):
            return False
    return True


@cython.ccall
@cython.exceptval(check=False)
def matches(pattern: bytes, name: bytes) -> cython.bint:
    """Say whether a name without empty tokens matches a legal pattern. Cost: a few ns, less where the first bytes differ."""
    p: cython.Py_ssize_t = 0
    n: cython.Py_ssize_t = 0
    pattern_size: cython.Py_ssize_t = len(pattern)
    name_size: cython.Py_ssize_t = len(name)
    while True:
        # Both stand at the start of a token.
        if pattern[p] == _GREATER and p + 1 == pattern_size:
            return True
        if pattern[p] == _STAR and (p + 1 == pattern_size or pattern[p + 1] == _DOT):
            while n < name_size and name[n] != _DOT:
                n += 1
            p += 1
        else:
            while p < pattern_size and pattern[p] != _DOT:
                if n == name_size or name[n] != pattern[p]:
                    return False
                p += 1
                n += 1
            if n < name_size and name[n] != _DOT:
                return False
        # Both stand at the end of a token.
        if p == pattern_size or n == name_size:
            return p == pattern_size and n == name_size
        p += 1
        n += 1
