from __future__ import annotations

import random
import weakref
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polymq.core.interest.interest import Interest
from polymq.core.interest.spread import count_untaken, end_of_namespace, next_unwanted, spread_some
from polymq.core.interest.targets import Entry, Target
from polymq.wire.live import IMPORTED, KEPT, SPARE, UNTAKEN, LiveBatch, LiveMessage
from tests.unit.core.interest.brute import batch_of, brute_match, drop, marked, names, pairs_of, patterns, spread

if TYPE_CHECKING:
    from collections.abc import Callable

queues = st.sampled_from((b"", b"", b"q", b"r"))


def hears_little(name: bytes, queue: bytes) -> bool:
    return len(name) % 2 == 0 and not (queue == b"q" and name.startswith(b"a"))


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Interest, list[Target], list[Entry]]:
    """Some targets, the last two of them remote, and entries of theirs with a tag each."""
    interest = Interest()
    targets = [Target(number, remote=number >= 3) for number in range(5)]
    for target in draw(st.sets(st.sampled_from((targets[2], targets[4])))):
        target.restrict(hears_little)
    entries = []
    for tag in range(draw(st.integers(0, 14))):
        target = draw(st.sampled_from(targets))
        entries.append(
            interest.insert(
                draw(patterns),
                target,
                tag=tag,
                queue=draw(queues),
                weight=draw(st.integers(0, 3)) if target.remote else 1,
                limit=0 if target.remote else draw(st.sampled_from((0, 0, 1, 3))),
            ),
        )
    return interest, targets, entries


def check_message(index: int, subject: bytes, left: Counter[int], entries: list[Entry], sender: Target | None, pairs: Counter[int]) -> bool:
    """Compare what one message of a client's gave with what it should have; returns whether anybody took it."""
    able = [
        entry
        for entry in entries
        if brute_match(entry.pattern, subject)
        and entry.target is not sender
        and (not entry.limit or left[entry.tag] > 0)
        and (entry.target.hears is None or hears_little(subject, entry.queue))
    ]
    taken = False
    reached = {entry.target for entry in able if entry.target.remote and not entry.queue}
    for entry in able:
        if not entry.queue and not entry.target.remote:
            assert pairs.pop(entry.tag) == 1
            left[entry.tag] -= 1
    for queue in (b"q", b"r"):
        members = {entry.tag: entry for entry in able if entry.queue == queue and entry.weight > 0}
        remotes = [target for target in {entry.target for entry in entries} if queue in target.queues.get(index, ())]
        chosen = [tag for tag in members if not members[tag].target.remote and tag in pairs]
        assert len(chosen) + len(remotes) == bool(members)
        for tag in chosen:
            assert pairs.pop(tag) == 1
            left[tag] -= 1
        for target in remotes:
            assert target in {entry.target for entry in members.values()}
            reached.add(target)
        taken = taken or bool(members)
    tags_of = {target: {entry.tag for entry in able if entry.target is target} for target in reached}
    assert all(len(tags & set(pairs)) == 1 for tags in tags_of.values())
    assert pairs.total() == len(reached)
    return taken or bool(able and [entry for entry in able if not entry.queue])


@given(worlds(), st.lists(names, max_size=12), st.integers(-1, 2), st.integers(0, 99))
def test_every_message_goes_to_whom_it_should(
    world: tuple[Interest, list[Target], list[Entry]], subjects: list[bytes], from_whom: int, seed: int
) -> None:
    interest, targets, entries = world
    sender = targets[from_whom] if from_whom >= 0 else None
    touched: list[Target] = []
    batch = batch_of(*subjects)
    untaken = spread(batch, interest, sender, touched, random.Random(seed))
    assert sorted(map(id, touched)) == sorted(id(target) for target in targets if target.pair_count)
    by_message: dict[int, Counter[int]] = {index: Counter() for index in range(len(subjects))}
    for target in touched:
        assert [index for index, _tag in pairs_of(target)] == sorted(index for index, _tag in pairs_of(target))
        assert target is not sender
        for index, tag in pairs_of(target):
            assert entries[tag].target is target
            by_message[index][tag] += 1
    left = Counter({entry.tag: entry.limit for entry in entries})
    not_taken = []
    for index, subject in enumerate(subjects):
        if not check_message(index, subject, left, entries, sender, by_message[index]):
            not_taken.append(index)
    assert marked(batch) == not_taken
    assert untaken == len(not_taken)
    for target in targets:
        assert {entry.tag for entry in target.spent} == {e.tag for e in entries if e.target is target and e.limit and left[e.tag] == 0}


@given(worlds(), st.lists(names, min_size=1, max_size=12), st.integers(1, 4))
def test_a_batch_in_pieces_is_the_batch(world: tuple[Interest, list[Target], list[Entry]], subjects: list[bytes], steps_max: int) -> None:
    interest, targets, entries = world
    plain = {entry.tag for entry in entries if not entry.queue and not entry.limit}
    found: dict[int, list[tuple[int, int]]] = {id(target): [] for target in targets}
    batch = batch_of(*subjects)
    first = untaken = 0
    while first < batch.count:
        touched: list[Target] = []
        end, more, _ = spread_some(batch, interest, None, touched, random.Random(1), first=first, steps_max=steps_max)
        assert first < end <= batch.count
        untaken += more
        before_the_last = 0
        for target in touched:
            assert all(first <= index < end for index, _tag in pairs_of(target))
            before_the_last += sum(index < end - 1 for index, _tag in pairs_of(target))
            found[id(target)] += [pair for pair in pairs_of(target) if pair[1] in plain]
            target.clear()
        assert before_the_last < steps_max
        first = end
    assert untaken == len(marked(batch))
    for target in targets:
        if not target.remote:
            expected = [
                (index, e.tag)
                for index, s in enumerate(subjects)
                for e in entries
                if e.target is target and brute_match(e.pattern, s) and (target.hears is None or hears_little(s, e.queue))
            ]
            assert sorted(found[id(target)]) == [pair for pair in expected if pair[1] in plain]


@given(worlds(), st.lists(names, max_size=12), st.sets(st.integers(0, 4)), st.integers(0, 99), st.integers(1, 9))
def test_whoever_closes_takes_nothing_and_leaves_nothing(
    world: tuple[Interest, list[Target], list[Entry]], subjects: list[bytes], closing: set[int], seed: int, count: int
) -> None:
    interest, targets, entries = world
    spread(batch_of(*subjects), interest, None, [], random.Random(seed))
    for target in targets:
        target.clear()
        if target.owner in closing:
            target.close()
    touched: list[Target] = []
    spread(batch_of(*subjects), interest, None, touched, random.Random(seed))
    assert not [target for target in touched if target.closed]
    for subject in subjects:
        takers = [
            entry
            for entry in entries
            if brute_match(entry.pattern, subject)
            and not entry.target.closed
            and (not entry.limit or entry.given < entry.limit)
            and (not entry.queue or entry.weight > 0)
        ]
        assert interest.has(subject) == bool(takers)
    for target in targets:
        target.close()
        while drop(target, count):
            assert target.entries
    assert (interest.count, interest.figures().nodes) == (0, 0)


def test_the_whole_and_the_end_of_a_batch() -> None:
    interest, target = Interest(), Target()
    interest.insert(b"a", target, tag=1)
    batch = batch_of(b"a", b"b", b"a")
    touched: list[Target] = []
    assert spread_some(batch, interest, None, touched, random.Random(1), first=1, steps_max=99)[:2] == (3, 1)
    assert pairs_of(target) == [(2, 1)]
    assert spread_some(batch, interest, None, touched, random.Random(1), first=3, steps_max=99) == (3, 0, 0)
    assert spread(batch_of(), interest, None, touched, random.Random(1)) == 0


def test_marks_of_an_earlier_spread_are_replaced() -> None:
    interest, target = Interest(), Target()
    batch = batch_of(b"a", b"b")
    assert spread(batch, interest, None, [], random.Random(1)) == 2
    assert marked(batch) == [0, 1]
    interest.insert(b"b", target, tag=1)
    assert spread(batch, interest, None, [], random.Random(1)) == 1
    assert marked(batch) == [0]


def test_two_entries_of_one_target_are_two_pairs() -> None:
    interest, target = Interest(), Target()
    interest.insert(b"a", target, tag=1)
    interest.insert(b"a", target, tag=2)
    interest.insert(b">", target, tag=3)
    touched: list[Target] = []
    spread(batch_of(b"a"), interest, None, touched, random.Random(1))
    assert touched == [target]
    assert sorted(pairs_of(target)) == [(0, 1), (0, 2), (0, 3)]


def test_entries_that_are_spent_at_the_same_message_all_get_it() -> None:
    interest, target = Interest(), Target()
    for tag, limit in enumerate((1, 1, 2, 1, 0, 1)):
        interest.insert(b"a", target, tag=tag, limit=limit)
    spread(batch_of(b"a", b"a", b"a"), interest, None, [], random.Random(1))
    assert sorted(pairs_of(target)) == [*((0, tag) for tag in range(6)), (1, 2), (1, 4), (2, 4)]
    assert sorted(entry.tag for entry in target.spent) == [0, 1, 2, 3, 5]


def test_the_buffer_is_let_go() -> None:
    interest = Interest()
    batch = batch_of(b"a", b"b")
    view = weakref.ref(batch.view)
    spread(batch, interest, None, [], random.Random(1))
    del batch
    assert view() is None


def test_nothing_is_drawn_without_a_group() -> None:
    class NoChance:
        def randrange(self, stop: int, /) -> int:
            raise AssertionError(stop)

    interest, target = Interest(), Target()
    interest.insert(b"a", target, tag=1)
    assert spread(batch_of(b"a"), interest, None, [], NoChance()) == 0
    interest.insert(b"a", target, tag=1, queue=b"q")
    target.clear()
    with pytest.raises(AssertionError):
        spread(batch_of(b"a"), interest, None, [], NoChance())
    # What was at hand during the call is let go all the same.
    assert interest.has(b"a")


def test_the_same_seed_draws_the_same_members() -> None:
    def draw(seed: int) -> list[tuple[int, int]]:
        interest, target = Interest(), Target()
        for tag in range(10):
            interest.insert(b"a", target, tag=tag, queue=b"q")
        spread(batch_of(*[b"a"] * 50), interest, None, [], random.Random(seed))
        return pairs_of(target)

    assert draw(1) == draw(1) != draw(2)


def test_runs_of_one_namespace_end_where_the_next_begins() -> None:
    texts = [b"A", b"A", b"AB", b"AB", b"", b"A"]
    batch = LiveBatch.of([LiveMessage(b"s", b"", account=text) for text in texts])
    runs, first = [], 0
    while first < batch.count:
        end = end_of_namespace(batch, first)
        runs.append((batch.account(first), end - first))
        first = end
    assert runs == [(b"A", 2), (b"AB", 2), (b"", 1), (b"A", 1)]


def test_the_pairs_of_a_part_count_from_its_start() -> None:
    interest, target = Interest(), Target()
    interest.insert(b"a", target, tag=1)
    batch = batch_of(b"b", b"a", b"b", b"a")
    spread(batch.part(1, 2), interest, None, [], random.Random(1))
    assert pairs_of(target) == [(0, 1)]
    assert marked(batch) == [2]


# -- what is asked of a batch beforehand ----------------------------------------------------------------------------------


def has_lasting(interest: Interest, name: bytes) -> bool:
    """Whether somebody without a limit takes messages of a name."""
    match = interest.match(name)
    # Of another server's group without members there is an entry that weighs nothing.
    members = [entry for each in match.queues().values() for entry in each if entry.weight > 0 or not entry.target.remote]
    entries = [*match.plain(), *members]
    return any(entry.limit == 0 and not entry.target.closed and not entry.target.keeps for entry in entries)


@given(worlds(), st.lists(st.tuples(names, st.sampled_from((b"", b"in"))), min_size=1, max_size=12))
def test_questions_that_nobody_listens_to_are_found(
    world: tuple[Interest, list[Target], list[Entry]], asked: list[tuple[bytes, bytes]]
) -> None:
    interest = world[0]
    batch = LiveBatch.of([LiveMessage(name, b"", reply) for name, reply in asked])
    expected = [index for index, (name, reply) in enumerate(asked) if reply and not (interest.has(name) and has_lasting(interest, name))]
    assert unwanted(batch, interest) == expected


def unwanted(batch: LiveBatch, interest: Interest, is_wanted: Callable[[bytes], bool] = lambda _: False) -> list[int]:
    """All questions that nobody listens to."""
    found, index = [], next_unwanted(batch, interest, 0, is_wanted, steps_max=1 << 30)
    while index < batch.count:
        found.append(index)
        index = next_unwanted(batch, interest, index + 1, is_wanted, steps_max=1 << 30)
    return found


def test_what_only_unsure_targets_get_stays_untaken() -> None:
    interest, unsure, sure = Interest(), Target(remote=True, unsure=True), Target()
    interest.insert(b">", unsure, tag=0)
    interest.insert(b"both", sure, tag=0)
    batch = batch_of(b"one", b"both", b"one", b"two")
    touched: list[Target] = []
    assert spread(batch, interest, None, touched, random.Random(1)) == 3
    assert marked(batch) == [0, 2, 3]
    assert [index for index, _ in pairs_of(unsure)] == [0, 1, 2, 3]
    assert pairs_of(sure) == [(1, 0)]
    assert [count_untaken(batch, first, end) for first, end in ((0, 4), (0, 1), (1, 2), (1, 3), (4, 4))] == [3, 1, 0, 1, 0]
    batch.rows[SPARE] &= ~UNTAKEN
    assert count_untaken(batch, 0, 4) == 2


def test_passes_are_bounded_by_what_unsure_targets_get_as_well() -> None:
    interest = Interest()
    interest.insert(b">", Target(remote=True, unsure=True), tag=0)
    batch = batch_of(*[b"x"] * 100)
    end, untaken, _ = spread_some(batch, interest, None, [], random.Random(1), first=0, steps_max=50)
    assert 1 < end == untaken < batch.count


def test_of_names_that_only_unsure_targets_have_somebody_is_asked() -> None:
    interest = Interest()
    interest.insert(b"u.*", Target(remote=True, unsure=True), tag=0)
    interest.insert(b"u.sure", Target(), tag=0)
    asked: list[bytes] = []

    def is_wanted(name: bytes) -> bool:
        asked.append(name)
        assert interest.has(name), "the interest may be used meanwhile"
        return name == b"u.yes"

    names = (b"u.yes", b"u.no", b"u.sure", b"none", b"u.yes", b"u.yes")
    batch = LiveBatch.of([LiveMessage(name, b"", b"in") for name in names])
    assert unwanted(batch, interest, is_wanted) == [1, 3]
    assert asked == [b"u.yes", b"u.no", b"u.yes"]


def test_what_somebody_acts_on_comes_a_few_messages_at_a_time() -> None:
    interest, taker, other = Interest(), Target(paced=True), Target()
    interest.insert(b"a.>", taker, tag=0)
    interest.insert(b">", other, tag=0)
    batch = LiveBatch.of([LiveMessage(b"a.%d" % number if number else b"b", b"") for number in range(10)])
    ends, first = [], 0
    while first < batch.count:
        touched: list[Target] = []
        first, untaken, _ = spread_some(batch, interest, None, touched, random.Random(1), first=first, steps_max=1 << 20)
        assert not untaken
        ends.append((first, taker.pair_count, other.pair_count))
        for target in touched:
            target.clear()
    assert ends == [(5, 4, 5), (9, 4, 4), (10, 1, 1)]
    taker.restrict(lambda name, _: name != b"a.1")
    assert spread_some(batch, interest, None, [], random.Random(1), first=0, steps_max=1 << 20)[0] == 6
    taker.restrict(None)
    taker.clear()
    assert spread_some(batch, interest, None, [], random.Random(1), first=0, steps_max=1 << 20)[0] == 5


@pytest.mark.parametrize("known", [False, True])
def test_messages_for_which_a_keeper_makes_something_come_a_few_at_a_time(known: bool) -> None:
    made = {b"n.%d" % number for number in range(100)} if known else set()
    interest, keeper, other = Interest(), Target(keeps=1, makes=lambda name: name not in made), Target()
    interest.insert(b"n.*", keeper, tag=-1)
    interest.insert(b"n.>", other, tag=1)
    topic = interest.insert(b"n.7", keeper, tag=3)
    batch = LiveBatch.of([LiveMessage(b"n.%d" % number, b"") for number in range(20)] + [LiveMessage(b"m", b"")] * 3)
    ends, end = [], 0
    while end < batch.count:
        end, *_ = spread_some(batch, interest, None, [], random.Random(1), first=end, steps_max=1 << 16)
        ends.append(end)
        keeper.clear()
        other.clear()
    # What has a tag of its own makes nothing, nor does what is there.
    assert ends == ([23] if known else [4, 9, 13, 17, 23])
    interest.remove(topic)
    batch = LiveBatch.of(batch.messages())
    spread(batch, interest, None, [], random.Random(1))
    assert keeper.pair_count == 20


def test_what_is_imported_goes_to_those_who_are_here_and_to_the_groups_that_it_names() -> None:
    interest = Interest()
    here, away, sender = Target(), Target(remote=True), Target()
    for target in (here, away, sender):
        for tag, queue in enumerate((b"", b"q", b"r")):
            interest.insert(b"a", target, tag=tag, queue=queue)
    batch = LiveBatch.of([LiveMessage(b"a", b"1"), LiveMessage(b"a", b"2", queues=b"q"), LiveMessage(b"b", b"3")], marks=IMPORTED | KEPT)
    for _ in range(20):
        touched: list[Target] = []
        assert spread(batch, interest, sender, touched, random.Random(1)) == 1
        assert touched == [here]
        assert pairs_of(here) == [(0, 0), (1, 0), (1, 1)]
        here.clear()
    assert [row & IMPORTED for row in batch.rows[11::12].tolist()] == [IMPORTED] * 3, "who takes it sees where it is from"


# -- what a pass may take -------------------------------------------------------------------------------------------------


def of_the_sender(interest: Interest, queue: bytes) -> Target:
    sender = Target()
    for tag in range(100):
        interest.insert(b"a", sender, tag=tag, queue=queue)
    return sender


def restricted(interest: Interest, queue: bytes) -> Target:
    """Members that may not hear it, each by rules of its own."""
    for tag in range(30):
        target = Target()
        target.restrict(lambda _name, _queue: False)
        interest.insert(b"a", target, tag=tag, queue=queue)
    return Target()


def elsewhere(interest: Interest, queue: bytes) -> Target:
    """Servers that get nothing of what a server has sent on."""
    for tag in range(100):
        interest.insert(b"a", Target(remote=True), tag=tag, queue=queue)
    return Target(remote=True)


def patterns_in_vain(interest: Interest, queue: bytes) -> Target:
    for tag in range(1 << 6):
        tokens = (b"*" if tag >> bit & 1 else b"a" for bit in range(6))
        interest.insert(b".".join(tokens) + b".b", Target(), tag=tag, queue=queue)
    return Target()


@pytest.mark.parametrize("queue", [b"", b"q"])
@pytest.mark.parametrize("fill", [of_the_sender, restricted, elsewhere, patterns_in_vain])
def test_a_pass_in_which_nobody_gets_anything_ends_as_well(fill: Callable[[Interest, bytes], Target], queue: bytes) -> None:
    interest = Interest()
    sender = fill(interest, queue)
    if fill is patterns_in_vain:
        batch = batch_of(*(b"a.a.a.a.a.a.%d" % number for number in range(1000)))
    elif sender.remote and queue:
        batch = batch_of(*[b"a"] * 1000, queues=[queue] * 1000)
        for entry in interest.match(b"a").queues()[queue]:
            entry.target.close()
    else:
        batch = batch_of(*[b"a"] * 1000)
    end = passes = 0
    while end < batch.count:
        before = end
        end, untaken, steps = spread_some(batch, interest, sender, [], random.Random(1), first=end, steps_max=1000)
        assert untaken == end - before <= 50
        assert steps >= 1000 or end == batch.count
        passes += 1
    assert passes >= 20


def test_a_pass_is_bounded_by_what_is_to_be_encoded() -> None:
    interest, targets = Interest(), [Target() for _ in range(4)]
    for target in targets:
        interest.insert(b"a", target, tag=1)
    batch = LiveBatch.of([LiveMessage(b"a", bytes(1 << 14))] * 100)
    end, _, steps = spread_some(batch, interest, None, [], random.Random(1), first=0, steps_max=1 << 12)
    # 16 KiB are 64 steps for each of them.
    assert end == (1 << 12) // (4 * 64)
    assert 1 << 12 <= steps < (1 << 12) + 4 * 64
    assert targets[0].pair_count == end


def test_who_is_bound_by_the_same_rules_is_asked_about_once() -> None:
    class Rules:
        def __init__(self) -> None:
            self.asked: list[tuple[bytes, bytes]] = []

        def may_hear(self, name: bytes, queue: bytes) -> bool:
            self.asked.append((name, queue))
            return name != b"a.secret"

    interest, rules, others = Interest(), Rules(), Rules()
    targets = [Target() for _ in range(10)]
    for tag, target in enumerate(targets):
        target.restrict((others if tag == 9 else rules).may_hear)
        interest.insert(b"a.*", target, tag=tag)
    assert spread(batch_of(b"a.secret", b"a.b"), interest, None, [], random.Random(1)) == 1
    assert rules.asked == others.asked == [(b"a.secret", b""), (b"a.b", b"")]
    assert [pairs_of(target) for target in targets] == [[(1, tag)] for tag in range(10)]


def test_a_search_for_unheard_questions_is_bounded() -> None:
    interest, here, gone = Interest(), Target(), Target()
    for tag in range(1000):
        interest.insert(b"a", gone, tag=tag)
    interest.insert(b"a", here, tag=1)
    gone.close()
    batch = LiveBatch.of([LiveMessage(b"a", b"", b"in")] * 1000)
    found, index = [], next_unwanted(batch, interest, 0, lambda _: False, steps_max=1 << 14)
    while index < batch.count:
        found.append(index)
        index = next_unwanted(batch, interest, index + 1, lambda _: False, steps_max=1 << 14)
    assert 16 < len(found) < 200
