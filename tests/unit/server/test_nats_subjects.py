"""Subjects, compared with all the names of a small world."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.server.nats_subjects import collide, covers, has_wildcards, is_valid_subject, mapping_problem

TOKENS = st.sampled_from(["a", "b", "*"])
PATTERNS = st.builds(lambda tokens, tail: ".".join([*tokens, *tail]), st.lists(TOKENS, max_size=3), st.sampled_from([[], [">"]])).filter(
    bool
)
# c is in no pattern: it stands for all other words; a fifth word for all longer names.
NAMES = [".".join(name) for size in range(1, 6) for name in itertools.product("abc", repeat=size)]


def matching(pattern: str) -> set[str]:
    """Find the names that a pattern stands for, the slow way."""
    tokens = pattern.split(".")
    found = set()
    for name in NAMES:
        words = name.split(".")
        head = tokens[:-1] if tokens[-1] == ">" else tokens
        fits = len(words) > len(head) if tokens[-1] == ">" else len(words) == len(head)
        if fits and all(token in ("*", word) for token, word in zip(head, words, strict=False)):
            found.add(name)
    return found


@given(PATTERNS, PATTERNS)
def test_covering_and_colliding(one: str, other: str) -> None:
    assert covers(one, other) is (matching(one) >= matching(other))
    assert collide(one, other) is bool(matching(one) & matching(other))
    assert collide(other, one) is collide(one, other)
    assert has_wildcards(one) is (len(matching(one)) > 1)


@pytest.mark.parametrize(
    ("subject", "valid"),
    [
        ("foo", True),
        ("foo.bar", True),
        ("*", True),
        (">", True),
        ("foo.*.>", True),
        ("foo*", True),
        (">bar", True),
        ("$SYS.x", True),
        ("ü.€", True),
        ("", False),
        (".", False),
        ("foo.", False),
        (".foo", False),
        ("foo..bar", False),
        ("foo.>.bar", False),
        (">.>", False),
        ("foo bar", False),
        ("foo.\tbar", False),
        ("foo\n", False),
    ],
)
def test_valid_subjects(subject: str, valid: bool) -> None:
    assert is_valid_subject(subject) is valid


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("x", "y", ""),
        ("x.*", "y.*", ""),
        ("x.*.*", "y.$2.z.$1", ""),
        ("x.>", "y.z.>", ""),
        ("x.*.>", "y.$1.>", ""),
        ("x", "y.$1", ""),
        ("x", "y..z", "expected a subject"),
        ("x", "y.*", "'x' is one subject, so this must be one"),
        ("x.*", "y", "'x.*' has 1 times *"),
        ("x.*", "y.$2", "'x.*' has 1 times *"),
        ("x.*", "y.$1.$1", "'x.*' has 1 times *"),
        ("x.*", "y.*.*", "'x.*' has 1 times *"),
        ("x.*.*", "y.*.$1", "write either * or $1"),
        ("x.>", "y", "this and 'x.>' must both end with > or neither"),
        ("x.*", "y.>", "this and 'x.*' must both end with > or neither"),
        ("x.*", "y.{{wildcard(1)}}", "polymq maps by * and $1 only"),
    ],
)
def test_mappings(source: str, target: str, said: str) -> None:
    found = mapping_problem(source, target)
    assert found[: len(said)] == said
    assert bool(found) is bool(said)
