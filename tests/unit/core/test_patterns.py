from __future__ import annotations

import hashlib
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq import limits
from polymq.core import patterns
from polymq.core.patterns import EVERYTHING, PatternError, Patterns, compile_pattern


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
    with pytest.raises(PatternError, match="longer than 16384 bytes"):
        compile_pattern("." + "a" * limits.PATTERN_SIZE_BYTES_MAX)
    with pytest.raises(PatternError, match="too large"):
        compile_pattern("\\pL{500}")


def names(first: int, count: int) -> list[str]:
    return [hashlib.sha256(b"%d" % index).hexdigest()[:32] for index in range(first, first + count)]


def large(number: int) -> str:
    """A pattern that needs more than 64 KiB: 6,400 characters of names."""
    return f"^({'|'.join(names(200 * number, 200))})$"


def test_a_long_list_of_names_is_a_pattern() -> None:
    wanted = names(0, 450)
    text = f"^({'|'.join(wanted)})$"
    assert 14_000 < len(text) < limits.PATTERN_SIZE_BYTES_MAX
    began = time.process_time()
    pattern = compile_pattern(text)
    assert time.process_time() - began < 0.5
    assert all(pattern.matches(name) for name in wanted)
    assert not pattern.matches(wanted[7] + "x")
    assert compile_pattern(text) is pattern


@pytest.mark.parametrize("part", [r"\pL|", r"[a-z]|", "a{2}|", "ä|"])
def test_what_is_long_is_a_list_of_names(part: str) -> None:
    assert compile_pattern(part * (1023 // len(part)) + "x").matches("x")
    with pytest.raises(PatternError, match="more than a list of names"):
        compile_pattern(part * (1023 // len(part) + 2) + "x")


def test_what_was_refused_is_not_tried_again() -> None:
    text = r"\pL\pN" * 150
    for _ in range(2):
        with pytest.raises(PatternError, match="too large"):
            compile_pattern(text)
    assert patterns._try_large.cache_info().hits > 0


def test_a_login_has_few_large_patterns() -> None:
    login = Patterns()
    for number in range(limits.LOGIN_PATTERNS_LARGE_MAX):
        assert login.compile(large(number)).matches(names(200 * number, 1)[0])
        assert login.compile(large(0)), "the same one again is no other one"
    assert login.compile("^small$") is compile_pattern("^small$")
    with pytest.raises(PatternError, match="more than 16 are larger than 64 KiB"):
        login.compile(large(limits.LOGIN_PATTERNS_LARGE_MAX))
    with pytest.raises(PatternError, match="missing"):
        login.compile("(")
    assert Patterns().compile(large(limits.LOGIN_PATTERNS_LARGE_MAX))


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(a*)*b", "(?:(?:a?){30}){30}b", "(" * 300 + "a" + ")*" * 300 + "$"])
def test_no_pattern_takes_long(pattern: str) -> None:
    began = time.process_time()
    compile_pattern(pattern).matches("a" * 255 + "!")
    assert time.process_time() - began < 0.5, "a backtracking machine takes longer than the universe exists"


def test_no_more_are_kept_than_so_many() -> None:
    for index in range(limits.PATTERNS_KEPT_MAX + 10):
        compile_pattern(f"name{index}")
    assert patterns._compile_small.cache_info().currsize == limits.PATTERNS_KEPT_MAX
    for index in range(limits.PATTERNS_LARGE_KEPT_MAX + 2):
        compile_pattern(large(index))
    assert patterns._try_large.cache_info().currsize == limits.PATTERNS_LARGE_KEPT_MAX


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
