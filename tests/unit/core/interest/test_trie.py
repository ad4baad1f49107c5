from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polymq.core.interest.interest import Interest
from polymq.core.interest.targets import Target
from polymq.limits import INTEREST_TOKENS_MAX
from tests.unit.core.interest.brute import brute_match, names, node_count, patterns


@given(st.lists(patterns, max_size=30), st.lists(names, max_size=10), st.randoms(use_true_random=False))
def test_a_name_finds_the_patterns_that_match_it_and_removal_leaves_nothing(
    wanted: list[bytes], asked: list[bytes], chance: object
) -> None:
    assert hasattr(chance, "shuffle")
    interest, target = Interest(), Target()
    entries = [interest.insert(pattern, target, tag=tag) for tag, pattern in enumerate(wanted)]
    while True:
        live = [entry.pattern for entry in entries]
        assert interest.figures().nodes == node_count(live)
        for name in asked:
            expected = sorted(entry.tag for entry in entries if brute_match(entry.pattern, name))
            assert sorted(entry.tag for entry in interest.match(name).plain()) == expected
        if not entries:
            break
        chance.shuffle(entries)
        for entry in entries[: len(entries) // 2 + 1]:
            interest.remove(entry)
        del entries[: len(entries) // 2 + 1]
    assert target.entries == []


def test_names_with_empty_tokens_match_nothing() -> None:
    interest, target = Interest(), Target()
    for tag, pattern in enumerate((b">", b"*", b"a.>", b"a.*", b"a.*.b", b"*.a")):
        interest.insert(pattern, target, tag=tag)
    for name in (b"", b".", b"a.", b".a", b"a..b", b"..", b"a.b.", b".a.b"):
        assert interest.match(name).plain() == []
        assert not interest.has(name)


def test_names_may_contain_wildcards_and_are_taken_as_they_are() -> None:
    interest, target = Interest(), Target()
    for tag, pattern in enumerate((b"foo.*", b">", b"*.*", b"foo.x")):
        interest.insert(pattern, target, tag=tag)
    for name in (b"foo.*", b"foo.>"):
        assert sorted(entry.tag for entry in interest.match(name).plain()) == [0, 1, 2]


def test_the_deepest_pattern_and_deeper_names() -> None:
    interest, target = Interest(), Target()
    tokens = [b"t"] * INTEREST_TOKENS_MAX
    exact = interest.insert(b".".join(tokens), target, tag=1)
    rest = interest.insert(b".".join([*tokens[:-1], b">"]), target, tag=2)
    assert sorted(entry.tag for entry in interest.match(b".".join(tokens)).plain()) == [1, 2]
    assert [entry.tag for entry in interest.match(b".".join(tokens * 40)).plain()] == [2]
    assert not interest.has(b".".join(tokens[:-1]))
    interest.remove(rest)
    interest.remove(exact)
    assert interest.figures().nodes == 0


def test_many_children_of_one_node_come_and_go() -> None:
    interest, target = Interest(), Target()
    entries = {number: interest.insert(b"a.%d" % number, target, tag=number) for number in range(1000)}
    for number in range(0, 1000, 2):
        interest.remove(entries[number])
    for number in range(1000):
        assert [entry.tag for entry in interest.match(b"a.%d" % number).plain()] == ([number] if number % 2 else [])
    for number in range(1, 1000, 2):
        interest.remove(entries[number])
    assert interest.figures().nodes == 0
    interest.insert(b"a.5", target, tag=5)
    assert interest.has(b"a.5")
