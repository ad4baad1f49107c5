from __future__ import annotations

import gc
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.core.interest.interest import Interest
from polymq.core.interest.targets import Entry, Target
from polymq.errors import Refusal, RefusalCode
from polymq.limits import INTEREST_NAME_SIZE_BYTES_MAX
from polymq.wire.live import LiveBatch, LiveMessage
from tests.unit.core.interest.brute import batch_of, brute_match, drop, names, patterns, spread


def test_what_is_refused_leaves_nothing_behind() -> None:
    interest, target = Interest(entries_max=2), Target()
    for pattern, queue, code in (
        (b"a..b", b"", RefusalCode.TOPIC_NAME_INVALID),
        (b"a.>.b", b"q", RefusalCode.TOPIC_NAME_INVALID),
        (b"a" * (INTEREST_NAME_SIZE_BYTES_MAX + 1), b"", RefusalCode.LIMIT_REACHED),
        (b"a", b"q" * (INTEREST_NAME_SIZE_BYTES_MAX + 1), RefusalCode.GROUP_NAME_INVALID),
    ):
        with pytest.raises(Refusal) as refused:
            interest.insert(pattern, target, tag=1, queue=queue)
        assert refused.value.code is code
    assert interest.figures().nodes == 0
    assert target.entries == []
    entries = [interest.insert(b"a", target, tag=1), interest.insert(b"b", target, tag=1, queue=b"q" * INTEREST_NAME_SIZE_BYTES_MAX)]
    with pytest.raises(Refusal) as refused:
        interest.insert(b"c", target, tag=1)
    assert refused.value.code is RefusalCode.LIMIT_REACHED
    interest.remove(entries[0])
    interest.insert(b"c", target, tag=1)


def test_entries_are_removed_once() -> None:
    interest, target = Interest(), Target()
    one, two = interest.insert(b"a", target, tag=1), interest.insert(b"a", target, tag=1)
    interest.remove(one)
    interest.remove(one)
    assert interest.match(b"a").plain() == [two]
    figures = interest.figures()
    assert (figures.entries, figures.inserted, figures.removed) == (1, 2, 1)


def test_an_entry_of_another_namespace_is_a_bug() -> None:
    entry = Interest().insert(b"a", Target(), tag=1)
    with pytest.raises(AssertionError):
        Interest().remove(entry)
    with pytest.raises(AssertionError):
        Interest().change(entry, limit=1)


def test_what_would_make_no_sense_is_a_bug() -> None:
    interest, here, there, closed = Interest(), Target(), Target(remote=True), Target()
    closed.close()
    with pytest.raises(AssertionError):
        interest.insert(b"a", here, tag=1, weight=2)
    with pytest.raises(AssertionError):
        interest.insert(b"a", there, tag=1, limit=2)
    with pytest.raises(AssertionError):
        interest.insert(b"a", here, tag=1, limit=-1)
    with pytest.raises(AssertionError):
        interest.insert(b"a", closed, tag=1)
    with pytest.raises(AssertionError):
        interest.change(interest.insert(b"a", here, tag=1, queue=b"q"), weight=2)
    with pytest.raises(AssertionError):
        interest.insert(b"a", here, tag=1 << 31)
    assert interest.count == len(here.entries)


def test_a_limit_may_come_later_and_counts_from_the_beginning() -> None:
    interest, target = Interest(), Target()
    entry = interest.insert(b"a", target, tag=1)
    member = interest.insert(b"a", target, tag=2, queue=b"q")
    names = [b"a"] * 3
    assert give(interest, target, *names) == [1, 2] * 3
    for each in (entry, member):
        assert each.given == 3
        with pytest.raises(AssertionError):
            interest.change(each, limit=3)
        interest.change(each, limit=5)
    assert give(interest, target, *names) == [1, 2] * 2
    assert target.spent == [entry, member]
    assert not interest.has(b"a")
    assert give(interest, target, *names) == []
    for each in target.spent:
        interest.remove(each)
    assert interest.figures().nodes == 0


def test_a_limit_can_be_taken_back() -> None:
    interest, target = Interest(), Target()
    entry = interest.insert(b"a", target, tag=1, limit=2)
    assert give(interest, target, b"a") == [1]
    interest.change(entry, limit=0)
    assert give(interest, target, *[b"a"] * 5) == [1] * 5
    assert target.spent == []


def give(interest: Interest, target: Target, *names: bytes) -> list[int]:
    """Publish messages and list the tags that the target was given."""
    touched: list[Target] = []
    spread(batch_of(*names), interest, None, touched, random.Random(1))
    tags: list[int] = target.pairs.tolist()[1 : 2 * target.pair_count : 2]
    target.clear()
    return tags


def test_a_pattern_that_was_spent_can_be_wanted_again_before_it_is_removed() -> None:
    interest, target = Interest(), Target()
    for queue in (b"", b"q"):
        spent = interest.insert(b"a.b", target, tag=1, queue=queue, limit=1)
        assert give(interest, target, b"a.b", b"a.b") == [1]
        again = interest.insert(b"a.b", target, tag=2, queue=queue)
        assert give(interest, target, b"a.b") == [2]
        interest.remove(spent)
        assert give(interest, target, b"a.b") == [2]
        interest.remove(again)
        assert give(interest, target, b"a.b") == []
    assert interest.figures().nodes == 0


def test_the_entries_here_are_counted_by_pattern_and_group() -> None:
    interest, here, there = Interest(), Target(), Target(remote=True)
    for target in (here, here, there):
        for queue in (b"", b"q", b"r"):
            interest.insert(b"a.*", target, tag=1, queue=queue)
    interest.insert(b"a.b", here, tag=1)
    interest.insert(b"b.>", there, tag=1)
    assert [interest.local_count(b"a.*", queue) for queue in (b"", b"q", b"r", b"s")] == [2, 2, 2, 0]
    assert interest.local_count(b"a.b") == 1
    assert [interest.local_count(pattern) for pattern in (b"a", b"b.>", b"c", b"a.b.c", b"*")] == [0, 0, 0, 0, 0]
    interest.remove(here.entries[0])
    assert interest.local_count(b"a.*") == 1


def test_entries_that_are_spent_count_no_more_before_they_are_removed() -> None:
    interest, target = Interest(), Target()
    for queue in (b"", b"q"):
        interest.insert(b"a", target, tag=1, queue=queue, limit=1)
        assert interest.local_count(b"a", queue) == 1
    give(interest, target, b"a")
    assert [interest.local_count(b"a", queue) for queue in (b"", b"q")] == [0, 0]
    assert interest.count == 2
    with pytest.raises(AssertionError):
        interest.change(target.spent[0], limit=5)


def test_the_weight_of_an_entry_that_was_taken_out_counts_for_nobody() -> None:
    interest, other = Interest(), Target(remote=True)
    entry = interest.insert(b"a", other, tag=1, queue=b"q", weight=5)
    interest.insert(b"a", Target(remote=True), tag=2, queue=b"q", weight=0)
    other.close()
    assert give(interest, other, b"a") == []
    interest.change(entry, weight=7)
    assert give(interest, other, b"a") == []
    assert not interest.has(b"a")
    interest.remove(entry)
    assert give(interest, other, b"a") == []


def test_a_huge_interest_of_one_target_goes_in_pieces() -> None:
    one, two, target, other = Interest(), Interest(), Target(), Target()
    stays = one.insert(b"same.pattern", other, tag=9)
    for number in range(1000):
        one.insert(b"same.pattern", target, tag=number, queue=(b"", b"q")[number % 2])
        two.insert(b"other.%d.*" % number, target, tag=number)
    with pytest.raises(AssertionError):
        drop(target, 1)
    target.close()
    assert one.match(b"same.pattern").has_takers()
    assert not two.has(b"other.7.x")
    pieces = 1
    while drop(target, 300):
        pieces += 1
        assert len(target.entries) == 2000 - 300 * (pieces - 1)
    assert pieces == 7
    assert not drop(target, 300)
    assert (one.count, two.count) == (1, 0)
    assert one.match(b"same.pattern").plain() == [stays]
    assert (one.figures().nodes, two.figures().nodes) == (2, 0)


def test_what_is_removed_is_in_no_cycle() -> None:
    """The collector does not see entries and nodes, so they must not need it."""
    gc.collect()
    interest, target = Interest(), Target()
    for tag in range(10):
        interest.insert(b"a.%d.*" % tag, target, tag=tag, queue=(b"", b"q")[tag % 2])
        interest.match(b"a.%d.x" % tag)
    target.close()
    drop(target, 100)
    del target, interest
    assert gc.collect() == 0


# -- an entry of one's own ------------------------------------------------------------------------------------------------


def test_among_many_listeners_ones_own_entry_is_found_in_a_directory() -> None:
    interest, crowd, few, mine = Interest(), Target(), Target(), Target()
    own = interest.insert(b"b", few, tag=0)
    interest.insert(b"b", mine, tag=0)
    assert interest.entry_of(b"b", few) is own
    assert few.named is None
    for _ in range(100):
        interest.insert(b"a.*", crowd, tag=0)
    assert interest.entry_of(b"a.b", mine) is None
    assert mine.named is not None
    entry, in_group = interest.insert(b"a.*", mine, tag=1), interest.insert(b"a.*", mine, tag=2, queue=b"q")
    assert interest.entry_of(b"a.b", mine) is entry
    assert [list(entries) for entries in mine.named.values()] == [[mine.entries[0]], [entry]]
    interest.remove(in_group)
    interest.remove(entry)
    assert interest.entry_of(b"a.b", mine) is None
    # One that has had all that it wanted is not meant either.
    spent, other = interest.insert(b"a.*", mine, tag=1, limit=1), interest.insert(b"a.*", mine, tag=1)
    spread(LiveBatch.of([LiveMessage(b"a.b", b"")]), interest, None, [], random.Random(1))
    mine.clear()
    assert mine.spent == [spent]
    assert interest.entry_of(b"a.b", mine) is other
    interest.remove(spent)
    interest.remove(other)
    another = Interest()
    elsewhere = another.insert(b"a.*", mine, tag=1)
    assert interest.entry_of(b"a.b", mine) is None
    another.remove(elsewhere)
    assert list(mine.named) == [b"b"]


@given(st.lists(st.tuples(patterns, st.booleans(), st.booleans()), max_size=30), names, st.sampled_from((0, 40)))
def test_an_entry_of_ones_own_is_found_if_there_is_one(steps: list[tuple[bytes, bool, bool]], name: bytes, crowd_size: int) -> None:
    interest, crowd, mine = Interest(), Target(), Target()
    entries: list[Entry] = []
    for pattern, in_group, goes in steps:
        for _ in range(crowd_size):
            interest.insert(pattern, crowd, tag=0)
        entries.append(interest.insert(pattern, mine, tag=0, queue=b"q" if in_group else b""))
        if goes:
            interest.remove(entries.pop(len(entries) // 2))
        found = interest.entry_of(name, mine)
        able = [entry for entry in entries if not entry.queue and brute_match(entry.pattern, name)]
        assert found in able if able else found is None
