from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.core.patterns import EVERYTHING, PatternError, compile_pattern


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        ("", "anything", True),
        (".*", "", True),
        ("ok", "xxokxx", True),
        ("ok", "no", False),
        ("^ok", "okay", True),
        ("^ok", "not ok", False),
        ("ok$", "not-ok", True),
        ("ok$", "okay", False),
        ("^ok$", "ok", True),
        ("^ok$", "ok\n", False),
        ("^(a|b)_[0-9]+$", "b_17", True),
        ("^(a|b)_[0-9]+$", "c_17", False),
        ("a.c", "abc", True),
        ("(?i)OK", "ok", True),
        ("^.*$", "a#ephemeral", True),
        ("ä", "bär", True),
    ],
)
def test_a_pattern_is_searched_for(pattern: str, name: str, matches: bool) -> None:
    assert compile_pattern(pattern).matches(name) is matches


def test_everything_needs_no_machine() -> None:
    assert compile_pattern(".*") is EVERYTHING
    assert compile_pattern(".*x") is compile_pattern(".*x"), "compiled once"


@pytest.mark.parametrize("pattern", ["(", "[a", "a{2,1}", "(?=a)", "\\1", "a**"])
def test_what_go_does_not_take(pattern: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(pattern)


def test_patterns_have_limits() -> None:
    assert compile_pattern("." + "a" * (limits.PATTERN_SIZE_BYTES_MAX - 1))
    with pytest.raises(PatternError, match="longer than 1024 bytes"):
        compile_pattern("." + "a" * limits.PATTERN_SIZE_BYTES_MAX)
    with pytest.raises(PatternError, match="too large"):
        compile_pattern("\\pL{500}")


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a*)*b", "(?:(?:a?){30}){30}b", "(" * 300 + "a" + ")*" * 300 + "$"])
def test_no_pattern_takes_long(pattern: str) -> None:
    began = time.process_time()
    compile_pattern(pattern).matches("a" * 255 + "!")
    assert time.process_time() - began < 0.5, "a backtracking machine takes longer than the universe exists"


def test_no_more_are_kept_than_so_many() -> None:
    for index in range(limits.PATTERNS_KEPT_MAX + 10):
        compile_pattern(f"name{index}")
    assert compile_pattern.cache_info().currsize == limits.PATTERNS_KEPT_MAX


@given(pattern=st.text("ab.*^$-_#:[]()\\", max_size=8), name=st.text("ab-_#:", max_size=8))
def test_any_pattern_means_what_it_means_elsewhere_or_is_refused(pattern: str, name: str) -> None:
    try:
        matches = compile_pattern(pattern).matches(name)
    except PatternError:
        return
    # Where Python's syntax differs (\a, \b, "$" before a last newline, nested repeats) there is nothing to compare.
    if "\\" in pattern or re.search(r"\*\*|\[\[|\[\]|\[\^\]|&&|--|\[:", pattern):
        return
    try:
        expected = re.search(pattern, name) is not None
    except re.error:
        return
    assert matches is expected
