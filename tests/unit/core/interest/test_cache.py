from __future__ import annotations

from itertools import pairwise

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from polymq.core.interest.interest import Interest
from polymq.core.interest.targets import Entry, Target
from polymq.limits import INTEREST_CACHED_NAME_SIZE_BYTES_MAX, INTEREST_CACHED_NAMES_MAX, INTEREST_CACHED_PARTS_MAX
from tests.unit.core.interest.brute import brute_match, names, node_count, patterns

queues = st.sampled_from((b"", b"", b"q", b"r"))


class Churn(RuleBasedStateMachine):
    """Entries come and go while the same names are asked for again and again; everything is compared with a plain list."""

    def __init__(self) -> None:
        super().__init__()
        self.interest = Interest()
        self.targets = [Target("here"), Target("there", remote=True)]
        self.live: list[Entry] = []

    entries = Bundle("entries")
    asked = Bundle("asked")

    @rule(target=entries, pattern=patterns, queue=queues, remote=st.booleans(), weight=st.integers(-1, 3))
    def insert_any(self, pattern: bytes, queue: bytes, remote: bool, weight: int) -> Entry:
        return self.insert(pattern, queue, remote=remote, weight=weight)

    def insert(self, pattern: bytes, queue: bytes, *, remote: bool, weight: int) -> Entry:
        entry = self.interest.insert(pattern, self.targets[remote], tag=len(self.live), queue=queue, weight=weight if remote else 1)
        self.live.append(entry)
        return entry

    @rule(target=entries, name=asked, queue=queues)
    def insert_what_is_asked(self, name: bytes, queue: bytes) -> Entry:
        pattern = b".".join(b"b" if token == b">" else token for token in name.split(b"."))
        return self.insert(pattern, queue, remote=False, weight=1)

    @rule(entry=consumes(entries))
    def remove(self, entry: Entry) -> None:
        self.interest.remove(entry)
        self.live.remove(entry)

    @rule(entry=entries, weight=st.integers(-1, 3))
    def change(self, entry: Entry, weight: int) -> None:
        if entry.queue and entry.target.remote:
            self.interest.change(entry, weight=weight)

    @rule(target=asked, name=names)
    def ask(self, name: bytes) -> bytes:
        self.check(name)
        return name

    @rule(name=asked)
    def ask_again(self, name: bytes) -> None:
        self.check(name)

    @rule(count=st.integers(1, 130))
    def storm(self, count: int) -> None:
        """More patterns with wildcards than are remembered, none of which has anything to do with the names."""
        for entry in [self.interest.insert(b"storm.%d.*" % number, self.targets[0], tag=0) for number in range(count)]:
            self.interest.remove(entry)

    def check(self, name: bytes) -> None:
        found = self.interest.match(name)
        matching = [entry for entry in self.live if brute_match(entry.pattern, name)]
        assert set(found.plain()) == {entry for entry in matching if not entry.queue}
        groups: dict[bytes, set[Entry]] = {}
        for entry in matching:
            if entry.queue:
                groups.setdefault(entry.queue, set()).add(entry)
        assert {queue: set(members) for queue, members in found.queues().items()} == groups
        takers = [entry for entry in matching if not entry.queue or entry.weight > 0]
        assert self.interest.has(name) == bool(takers)

    @invariant()
    def nothing_is_left_over(self) -> None:
        figures = self.interest.figures()
        assert figures.entries == self.interest.count == len(self.live)
        assert figures.nodes == node_count(entry.pattern for entry in self.live)


TestChurn = Churn.TestCase
TestChurn.settings = settings(max_examples=150, stateful_step_count=40)


def misses_of(interest: Interest, *asked: bytes) -> int:
    before = interest.figures().misses
    for name in asked:
        interest.match(name)
    return interest.figures().misses - before


def test_a_name_is_looked_up_once() -> None:
    interest = Interest()
    assert misses_of(interest, b"a.b", b"a.b", b"a.c", b"a.b") == 2
    assert interest.figures().hits == 2


def test_what_comes_and_goes_elsewhere_throws_nothing_away() -> None:
    interest, target = Interest(), Target()
    asked = [b"a.%d" % number for number in range(100)]
    assert misses_of(interest, *asked) == 100
    for number in range(20):
        interest.remove(interest.insert(b"b.%d" % number, target, tag=1))
        interest.remove(interest.insert(b"b.*.%d" % number, target, tag=1))
    interest.insert(b"b.>", target, tag=1)
    assert misses_of(interest, *asked) == 0


def test_another_taker_of_a_pattern_that_is_there_changes_no_match() -> None:
    interest, target = Interest(), Target()
    first = interest.insert(b"a.*", target, tag=1)
    member = interest.insert(b"a.*", target, tag=2, queue=b"q")
    assert misses_of(interest, b"a.b") == 1
    second = interest.insert(b"a.*", target, tag=3)
    other = interest.insert(b"a.*", target, tag=4, queue=b"q")
    interest.remove(first)
    interest.remove(member)
    assert misses_of(interest, b"a.b") == 0
    assert interest.match(b"a.b").plain() == [second]
    assert interest.match(b"a.b").queues() == {b"q": [other]}


def test_a_pattern_without_wildcards_concerns_its_own_name_alone() -> None:
    interest, target = Interest(), Target()
    assert misses_of(interest, b"a.b", b"a.c") == 2
    interest.insert(b"a.b", target, tag=1)
    assert misses_of(interest, b"a.b", b"a.c") == 1


def test_the_cache_is_bounded_and_what_is_asked_for_often_stays() -> None:
    interest = Interest()
    often = [b"often.%d" % number for number in range(50)]
    misses = 0
    for number in range(3 * INTEREST_CACHED_NAMES_MAX):
        interest.match(b"once.%d" % number)
        if number % 100 == 0:
            misses += misses_of(interest, *often)
    assert INTEREST_CACHED_NAMES_MAX // 2 < interest.figures().cached <= INTEREST_CACHED_NAMES_MAX
    assert misses < len(often) + 10


def test_what_is_gone_is_let_go_after_many_removals() -> None:
    interest, target = Interest(), Target()
    asked = [b"a.%d.b" % number for number in range(100)]
    entries = [interest.insert(name.replace(b".b", b".*") if number % 2 else name, target, tag=1) for number, name in enumerate(asked)]
    assert misses_of(interest, *asked, b"stays") == 101
    for entry in entries:
        interest.remove(entry)
    # Each removal has looked at one place.
    assert 1 < interest.figures().cached <= 101
    for _ in range(1 << 14):
        interest.remove(interest.insert(b"c", target, tag=1))
    assert interest.figures().cached == 1
    assert misses_of(interest, b"stays") == 0


def test_a_removal_lets_go_of_one_match_at_most() -> None:
    interest, target = Interest(), Target()
    asked = [b"a.%d.b" % number for number in range(500)]
    entries = [interest.insert(b"a.%d.*" % number, target, tag=1) for number in range(len(asked))]
    assert misses_of(interest, *asked) == len(asked)
    for entry in entries:
        interest.remove(entry)
    cached = [interest.figures().cached]
    for _ in range(1 << 14):
        interest.remove(interest.insert(b"c", target, tag=1))
        cached.append(interest.figures().cached)
    assert {before - after for before, after in pairwise(cached)} == {0, 1}
    assert cached[-1] == 0


def test_what_is_gone_in_part_is_let_go() -> None:
    interest, target = Interest(), Target()
    interest.insert(b"a.>", target, tag=1)
    entries = [interest.insert(b"a.*", target, tag=1, queue=b"q"), interest.insert(b"a.b", target, tag=1)]
    for entry in entries:
        assert misses_of(interest, b"a.b", b"a.c", b"other") >= 1
        interest.remove(entry)
        for _ in range(1 << 10):
            interest.remove(interest.insert(b"c", target, tag=1))
        assert misses_of(interest, b"other") == 0
    assert interest.figures().cached == 2
    assert misses_of(interest, b"a.b", b"a.c") == 1


def test_a_small_interest_has_a_small_cache() -> None:
    interest = Interest()
    assert misses_of(interest, *[b"a.%d" % number for number in range(200)] * 2) < 210


def test_long_names_are_not_kept() -> None:
    interest = Interest()
    longest = b"x" * INTEREST_CACHED_NAME_SIZE_BYTES_MAX
    assert misses_of(interest, longest, longest, longest + b"x", longest + b"x") == 3
    assert interest.figures().cached == 1


def test_matches_with_many_parts_are_not_kept() -> None:
    interest, target = Interest(), Target()
    for number in range(INTEREST_CACHED_PARTS_MAX - 1):
        interest.insert(b"a", target, tag=number, queue=b"q%d" % number)
    assert misses_of(interest, b"a", b"a") == 1
    interest.insert(b">", target, tag=0)
    assert misses_of(interest, b"a", b"a") == 2
    assert len(interest.match(b"a").queues()) == INTEREST_CACHED_PARTS_MAX - 1
