from __future__ import annotations

import random

from polymq.core.interest.interest import Interest
from polymq.core.interest.targets import Target
from polymq.limits import INTEREST_PAIRS_KEPT_MAX
from tests.unit.core.interest.brute import batch_of, pairs_of, spread


def spread_names(interest: Interest, *names: bytes) -> list[Target]:
    touched: list[Target] = []
    spread(batch_of(*names), interest, None, touched, random.Random(1))
    return touched


def test_pairs_are_int32_and_grow_with_the_batch() -> None:
    interest, target = Interest(), Target("me")
    interest.insert(b"a.*", target, tag=-7)
    names = [b"a.%d" % (number % 5) for number in range(3000)]
    assert spread_names(interest, *names) == [target]
    assert target.owner == "me"
    assert target.pairs.format == "i"
    assert pairs_of(target) == [(index, -7) for index in range(3000)]


def test_a_cleared_target_starts_again_and_keeps_little_room() -> None:
    interest, target = Interest(), Target()
    interest.insert(b"a", target, tag=1)
    spread_names(interest, *[b"a"] * INTEREST_PAIRS_KEPT_MAX)
    target.clear()
    assert target.pair_count == 0
    assert len(target.pairs) == 2 * INTEREST_PAIRS_KEPT_MAX
    spread_names(interest, *[b"a"] * (INTEREST_PAIRS_KEPT_MAX + 1))
    target.clear()
    assert len(target.pairs) == 0
    assert spread_names(interest, b"a") == [target]
    assert pairs_of(target) == [(0, 1)]


def test_a_closed_target_takes_nothing_at_once() -> None:
    interest, target, other = Interest(), Target(), Target()
    interest.insert(b"a", target, tag=1)
    interest.insert(b"a", target, tag=2, queue=b"q")
    assert interest.has(b"a")
    target.close()
    assert target.closed
    assert not interest.has(b"a")
    assert spread_names(interest, b"a") == []
    interest.insert(b"a", other, tag=3, queue=b"q")
    assert spread_names(interest, b"a", b"a") == [other]
    assert pairs_of(other) == [(0, 3), (1, 3)]


def test_a_target_knows_its_entries_in_all_namespaces() -> None:
    one, two, target = Interest(), Interest(), Target()
    entries = [one.insert(b"a", target, tag=1), two.insert(b"a", target, tag=2), one.insert(b"b.*", target, tag=3, queue=b"q")]
    assert set(target.entries) == set(entries)
    one.remove(entries[0])
    assert set(target.entries) == set(entries[1:])
    assert [(entry.pattern, entry.queue, entry.tag, entry.target) for entry in entries[1:]] == [
        (b"a", b"", 2, target),
        (b"b.*", b"q", 3, target),
    ]
    assert repr(entries[2]) == "Entry(pattern=b'b.*', queue=b'q', tag=3)"
