from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.core.interest.interest import Interest
from polymq.core.interest.targets import Entry, Target
from polymq.limits import INTEREST_WEIGHT_MAX
from tests.unit.core.interest.brute import batch_of, pairs_of, spread

MESSAGES = 20_000


def shares(interest: Interest, name: bytes = b"a", *, sender: Target | None = None, seed: int = 1, count: int = MESSAGES) -> Counter[int]:
    """Publish many messages and count what each tag got."""
    touched: list[Target] = []
    untaken = spread(batch_of(*[name] * count), interest, sender, touched, random.Random(seed))
    counts: Counter[int] = Counter()
    for target in touched:
        counts.update(tag for _index, tag in pairs_of(target))
        target.clear()
    assert counts.total() + untaken == count
    return counts


def assert_proportional(counts: Counter[int], weights: dict[int, int]) -> None:
    """Each share is within four and a half standard deviations: one right draw in 100,000 is not."""
    total, sum_of_weights = counts.total(), sum(weights.values())
    assert total == MESSAGES
    assert set(counts) == {tag for tag, weight in weights.items() if weight > 0}
    for tag, weight in weights.items():
        part = weight / sum_of_weights
        assert abs(counts[tag] - total * part) <= 4.5 * (total * part * (1 - part)) ** 0.5, (counts, weights)


def local_members(interest: Interest, count: int, pattern: bytes = b"a", first_tag: int = 0) -> list[Entry]:
    return [interest.insert(pattern, Target(), tag=first_tag + number, queue=b"q") for number in range(count)]


@pytest.mark.parametrize("seed", range(3))
def test_members_here_get_equal_shares(seed: int) -> None:
    interest = Interest()
    local_members(interest, 7)
    assert_proportional(shares(interest, seed=seed), dict.fromkeys(range(7), 1))


@pytest.mark.parametrize("seed", range(3))
def test_remote_members_get_shares_by_weight(seed: int) -> None:
    interest = Interest()
    local_members(interest, 2)
    for tag, weight in ((10, 8), (11, 10), (12, 0), (13, -1), (14, 1)):
        interest.insert(b"a", Target(remote=True), tag=tag, queue=b"q", weight=weight)
    assert_proportional(shares(interest, seed=seed), {0: 1, 1: 1, 10: 8, 11: 10, 12: 0, 13: 0, 14: 1})


def test_a_changed_weight_counts_from_then_on() -> None:
    interest = Interest()
    local_members(interest, 2)
    entry = interest.insert(b"a", Target(remote=True), tag=9, queue=b"q", weight=50)
    interest.change(entry, weight=2)
    assert entry.weight == 2
    assert_proportional(shares(interest), {0: 1, 1: 1, 9: 2})
    interest.change(entry, weight=0)
    assert_proportional(shares(interest), {0: 1, 1: 1, 9: 0})
    interest.change(entry, weight=6)
    assert_proportional(shares(interest), {0: 1, 1: 1, 9: 6})


def test_a_group_is_one_group_whatever_patterns_its_members_came_by() -> None:
    interest = Interest()
    local_members(interest, 3, b"a.b")
    local_members(interest, 2, b"a.*", first_tag=10)
    local_members(interest, 1, b">", first_tag=20)
    interest.insert(b"*.b", Target(remote=True), tag=30, queue=b"q", weight=4)
    assert_proportional(shares(interest, b"a.b"), {0: 1, 1: 1, 2: 1, 10: 1, 11: 1, 20: 1, 30: 4})


def test_the_sender_is_passed_over_without_harm_to_the_others() -> None:
    interest = Interest()
    entries = local_members(interest, 4)
    assert_proportional(shares(interest, sender=entries[1].target), {0: 1, 2: 1, 3: 1})


def test_most_members_cannot_take_and_the_rest_share_by_weight() -> None:
    interest, closing = Interest(), Target()
    for tag in range(300):
        interest.insert(b"a", closing, tag=1000 + tag, queue=b"q")
    local_members(interest, 2)
    interest.insert(b"a", Target(remote=True), tag=9, queue=b"q", weight=2)
    closing.close()
    assert_proportional(shares(interest), {0: 1, 1: 1, 9: 2})


def test_nobody_who_can_take_means_nobody_takes() -> None:
    interest = Interest()
    (entry,) = local_members(interest, 1)
    assert shares(interest, sender=entry.target, count=10) == {}
    interest.insert(b"a", Target(remote=True), tag=5, queue=b"q", weight=0)
    assert shares(interest, sender=entry.target, count=10) == {}
    assert interest.has(b"a")
    interest.remove(entry)
    assert not interest.has(b"a")


def test_the_largest_weights_do_not_overflow() -> None:
    interest = Interest()
    local_members(interest, 1)
    for tag in (1, 2):
        entry = interest.insert(b"a", Target(remote=True), tag=tag, queue=b"q", weight=(1 << 31) - 1)
        assert entry.weight == INTEREST_WEIGHT_MAX
    assert_proportional(shares(interest), {0: 0, 1: 1, 2: 1})


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), st.integers(0, 60), st.integers(0, 1000))
def test_members_with_limits_get_so_many_and_the_others_the_rest(limits: list[int], count: int, seed: int) -> None:
    interest = Interest()
    target = Target()
    entries = [
        interest.insert((b"a.b", b"a.*", b">")[tag % 3], target, tag=tag, queue=b"q", limit=limit) for tag, limit in enumerate(limits)
    ]
    counts: Counter[int] = Counter()
    for part in range(3):
        counts.update(shares(interest, b"a.b", seed=seed + part, count=count))
    assert counts.total() == min(3 * count, sum(limits))
    assert all(counts[tag] == entries[tag].given <= limit for tag, limit in enumerate(limits))
    assert {entry.tag for entry in target.spent} == {tag for tag, limit in enumerate(limits) if counts[tag] == limit}
    assert interest.has(b"a.b") == (counts.total() < sum(limits))
    for entry in target.spent:
        interest.remove(entry)
    assert interest.count == len(limits) - len(target.spent)
    assert shares(interest, b"a.b", count=1000).total() == sum(limits) - counts.total()


def test_large_groups_are_not_looked_through() -> None:
    interest = Interest()
    members = local_members(interest, 5000)
    counts = shares(interest)
    assert len(counts) > 4500
    for entry in members[:4999]:
        interest.remove(entry)
    assert set(shares(interest)) == {4999}
