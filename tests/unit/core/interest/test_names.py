from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.core.interest.names import collide, covers, has_wildcards, matches, tokens_of_name, tokens_of_pattern
from polymq.errors import Refusal, RefusalCode
from polymq.limits import INTEREST_NAME_SIZE_BYTES_MAX, INTEREST_TOKENS_MAX
from tests.unit.core.interest.brute import brute_match, names, patterns


@given(patterns, names)
def test_patterns_match_as_token_by_token(pattern: bytes, name: bytes) -> None:
    assert matches(pattern, name) == brute_match(pattern, name)


texts = st.text("ab.*>", min_size=1, max_size=9).map(str.encode)


@given(texts, texts, st.integers(0, 8), st.sampled_from((b"a", b".", b"*", b">")))
def test_any_legal_pattern_matches_any_legal_name_as_token_by_token(pattern: bytes, name: bytes, at: int, changed: bytes) -> None:
    try:
        tokens_of_pattern(pattern)
    except Refusal:
        return
    for one in (name, pattern, pattern[:at] + changed + pattern[at + 1 :]):
        if tokens_of_name(one):
            assert matches(pattern, one) == brute_match(pattern, one)


def test_a_token_is_not_the_beginning_of_another() -> None:
    assert not matches(b"a.b", b"axb")
    assert not matches(b"a.b", b"ax.b")
    assert not matches(b"ax.b", b"a.b")
    assert not matches(b"a.*.c", b"a.bxc")


@pytest.mark.parametrize("pattern", [b"", b".", b".a", b"a.", b"a..b", b">.a", b"a.>.b", b">.>", b"a.>."])
def test_a_pattern_with_an_empty_token_or_a_rest_in_the_middle_is_refused(pattern: bytes) -> None:
    with pytest.raises(Refusal) as refused:
        tokens_of_pattern(pattern)
    assert refused.value.code is RefusalCode.TOPIC_NAME_INVALID


def test_a_pattern_is_as_long_and_as_deep_as_the_limits_say_and_no_more() -> None:
    assert tokens_of_pattern(b"x" * INTEREST_NAME_SIZE_BYTES_MAX) == [b"x" * INTEREST_NAME_SIZE_BYTES_MAX]
    assert len(tokens_of_pattern(b".".join([b"x"] * INTEREST_TOKENS_MAX))) == INTEREST_TOKENS_MAX
    for pattern in (b"x" * (INTEREST_NAME_SIZE_BYTES_MAX + 1), b".".join([b"x"] * (INTEREST_TOKENS_MAX + 1))):
        with pytest.raises(Refusal) as refused:
            tokens_of_pattern(pattern)
        assert refused.value.code is RefusalCode.LIMIT_REACHED


@pytest.mark.parametrize("name", [b"", b".", b".a", b"a.", b"a..b"])
def test_a_name_with_an_empty_token_has_none(name: bytes) -> None:
    assert tokens_of_name(name) == []


def test_only_whole_tokens_are_wildcards() -> None:
    for pattern in (b"*", b">", b"a.*", b"*.a", b"a.>"):
        assert has_wildcards(tokens_of_pattern(pattern))
    for pattern in (b"a", b"foo*", b"*foo", b">a", b"a.b>", b"a.**", b">>"):
        assert not has_wildcards(tokens_of_pattern(pattern))
        assert matches(pattern, pattern)
        assert not matches(pattern, pattern.replace(b"*", b"x").replace(b">", b"x") + b"y")


@given(patterns, patterns, st.lists(names, max_size=20))
def test_one_pattern_covers_another_or_has_something_in_common_with_it(one: bytes, other: bytes, known: list[bytes]) -> None:
    for name in known:
        if b"" in name.split(b".") or not brute_match(other, name):
            continue
        assert brute_match(one, name) or not covers(one, other)
        assert not brute_match(one, name) or collide(one, other)
    assert covers(one, one)
    assert collide(one, other) is collide(other, one)


@pytest.mark.parametrize(
    ("wide", "narrow", "covered", "common"),
    [
        (b"a.*", b"a.b", True, True),
        (b"a.*", b"a.>", False, True),
        (b"a.>", b"a.*", True, True),
        (b"a.>", b"a", False, False),
        (b"*.b", b"a.*", False, True),
        (b"a.b", b"a.*", False, True),
        (b"*", b">", False, True),
        (b"a.b", b"a.c", False, False),
        (b"a.*", b"a.b.c", False, False),
    ],
)
def test_covering_and_colliding(wide: bytes, narrow: bytes, covered: bool, common: bool) -> None:
    assert (covers(wide, narrow), collide(wide, narrow)) == (covered, common)
