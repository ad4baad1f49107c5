"""Remote targets, and messages that another server sent on: one copy per server, one step, groups as named."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from polymq.core.interest.interest import Interest
from polymq.core.interest.targets import KEEPS_LOCAL, KEEPS_ROUTED, Target
from polymq.wire.live import COLUMNS, DIRECTED, KEPT, SPARE, UNTAKEN
from tests.unit.core.interest.brute import batch_of, marked, pairs_of, spread


def give(
    interest: Interest, *names: bytes, sender: Target | None = None, queues: tuple[bytes, ...] = (), seed: int = 1
) -> tuple[list[Target], list[int]]:
    """Publish; returns who was given something, and which messages nobody took."""
    touched: list[Target] = []
    batch = batch_of(*names, queues=queues)
    assert spread(batch, interest, sender, touched, random.Random(seed)) == len(marked(batch))
    return touched, marked(batch)


def test_a_server_gets_one_copy_with_the_groups_it_was_chosen_for() -> None:
    interest, there, here = Interest(), Target(remote=True), Target()
    for tag, pattern in enumerate((b"a.b", b"a.*", b">")):
        interest.insert(pattern, there, tag=tag)
    interest.insert(b"a.b", there, tag=3, queue=b"q", weight=1)
    interest.insert(b"a.>", there, tag=4, queue=b"r", weight=1)
    interest.insert(b"a.b", here, tag=5, queue=b"s")
    touched, _ = give(interest, b"a.b", b"a.x", b"b", b"a.b")
    assert set(touched) == {there, here}
    assert [index for index, _tag in pairs_of(there)] == [0, 1, 2, 3]
    assert {index: sorted(found) for index, found in there.queues.items()} == {0: [b"q", b"r"], 1: [b"r"], 3: [b"q", b"r"]}
    assert pairs_of(here) == [(0, 5), (3, 5)]
    there.clear()
    assert there.queues == {}


def test_a_server_that_is_chosen_for_groups_alone_gets_one_copy() -> None:
    interest, there = Interest(), Target(remote=True)
    for tag, queue in enumerate((b"q", b"r", b"s")):
        interest.insert(b"a", there, tag=tag, queue=queue, weight=2)
    give(interest, b"a")
    assert [index for index, _tag in pairs_of(there)] == [0]
    assert sorted(there.queues[0]) == [b"q", b"r", b"s"]


def test_a_message_that_was_sent_on_goes_one_step_and_to_no_group_that_it_does_not_name() -> None:
    interest, origin, other, here = Interest(), Target(remote=True), Target(remote=True), Target()
    for tag, target in enumerate((origin, other, here)):
        interest.insert(b"a", target, tag=tag)
        interest.insert(b"a", target, tag=10 + tag, queue=b"q")
    touched, untaken = give(interest, b"a", b"a", sender=origin)
    assert (touched, untaken) == ([here], [])
    assert pairs_of(here) == [(0, 2), (1, 2)]


def test_a_remote_target_may_want_only_some_names() -> None:
    interest, origin, other = Interest(), Target(remote=True), Target(remote=True)
    other.restrict(lambda name, _queue: name != b"a.no")
    for tag, pattern in enumerate((b"a.*", b"a.>")):
        interest.insert(pattern, other, tag=tag)
    assert give(interest, b"a.no", b"a.yes", b"a.no") == ([other], [0, 2])
    assert [index for index, _tag in pairs_of(other)] == [1]
    other.clear()
    assert give(interest, b"a.yes", sender=origin) == ([], [0])
    other.restrict(None)
    assert give(interest, b"a.no") == ([other], [])
    other.close()
    other.restrict(None)
    assert give(interest, b"a.yes") == ([], [0])


def test_plain_takers_elsewhere_are_no_takers_of_what_was_sent_on() -> None:
    interest, origin, other = Interest(), Target(remote=True), Target(remote=True)
    interest.insert(b"a", other, tag=1)
    assert give(interest, b"a", sender=origin) == ([], [0])


def test_named_groups_are_taken_for_here_whatever_the_others_weigh() -> None:
    interest, other = Interest(), Target(remote=True)
    here = [Target(tag) for tag in range(2)]
    for tag, target in enumerate(here):
        for number, queue in enumerate((b"q", b"r", b"s")):
            interest.insert(b"a", target, tag=10 * number + tag, queue=queue)
    for queue in (b"q", b"r", b"s"):
        interest.insert(b"a", other, tag=99, queue=queue, weight=1000)
    text = b"s  q\tx s"
    touched, _ = give(interest, *[b"a"] * 400, queues=(text,) * 400)
    assert set(touched) == set(here)
    counts = Counter(tag // 10 for target in here for _index, tag in pairs_of(target))
    assert counts == {0: 400, 2: 400}
    members = Counter(tag for target in here for _index, tag in pairs_of(target))
    assert all(140 < members[tag] < 260 for tag in (0, 1, 20, 21))


def test_messages_with_and_without_named_groups_in_one_batch() -> None:
    interest, here = Interest(), Target()
    interest.insert(b"a", here, tag=1, queue=b"q")
    interest.insert(b"a", here, tag=2, queue=b"r")
    origin = Target(remote=True)
    _, untaken = give(interest, *[b"a"] * 5, sender=origin, queues=(b"q", b"", b"r", b"q r", b"qr"))
    assert pairs_of(here) == [(0, 1), (2, 2), (3, 1), (3, 2)]
    assert untaken == [1, 4]


def test_a_message_that_names_groups_was_sent_on_whoever_sends_it() -> None:
    interest, other, here = Interest(), Target(remote=True), Target()
    interest.insert(b"a", other, tag=1)
    interest.insert(b"a", here, tag=2)
    touched, _ = give(interest, b"a", queues=(b"q",))
    assert touched == [here]


def test_a_named_group_without_a_member_here_goes_to_one_server_that_has_it() -> None:
    interest, origin, here = Interest(), Target("origin", remote=True), Target()
    others = [Target(number, remote=True) for number in range(2)]
    for tag, target in enumerate((*others, origin)):
        interest.insert(b"a", target, tag=tag, queue=b"q", weight=(3, 1, 9)[tag])
        interest.insert(b"a", target, tag=10 + tag)
    interest.insert(b"a", here, tag=7, queue=b"r")
    touched, untaken = give(interest, *[b"a"] * 400, sender=origin, queues=(b"q r",) * 400)
    assert set(touched) == {*others, here}
    assert untaken == []
    assert origin.pair_count == 0
    assert others[0].pair_count + others[1].pair_count == 400
    assert 240 < others[0].pair_count < 360
    assert all(names == [b"q"] for target in others for names in target.queues.values())
    assert here.pair_count == 400


def test_it_goes_to_a_server_without_plain_takers_if_there_is_one() -> None:
    """Those have had it from where it came from, and would have it once more."""
    interest, origin = Interest(), Target(remote=True)
    hearing = [Target(remote=True) for _ in range(2)]
    for tag, target in enumerate(hearing):
        interest.insert(b"a", target, tag=tag, queue=b"q", weight=50)
        interest.insert(b"*", target, tag=10 + tag)
    interest.insert(b"a", origin, tag=3, queue=b"q", weight=50)
    touched, _ = give(interest, *[b"a"] * 50, sender=origin, queues=(b"q",) * 50)
    assert set(touched) == set(hearing)
    for target in touched:
        target.clear()
    only = Target(remote=True)
    interest.insert(b"*", only, tag=4, queue=b"q", weight=1)
    interest.insert(b"b", only, tag=5)
    touched, _ = give(interest, *[b"a"] * 50, sender=origin, queues=(b"q",) * 50)
    assert touched == [only]
    only.close()
    touched, _ = give(interest, *[b"a"] * 50, sender=origin, queues=(b"q",) * 50)
    assert set(touched) == set(hearing)


def test_what_is_directed_is_for_groups_alone() -> None:
    interest, plain, member = Interest(), Target(), Target()
    keeper = Target(keeps=KEEPS_LOCAL | KEEPS_ROUTED)
    interest.insert(b"a", plain, tag=1)
    interest.insert(b"a", keeper, tag=2)
    interest.insert(b"a", member, tag=3, queue=b"q")
    batch = batch_of(b"a", b"a", queues=(b"q", b"q"))
    batch.rows[SPARE] |= DIRECTED
    touched: list[Target] = []
    assert spread(batch, interest, Target(remote=True), touched, random.Random(1)) == 0
    assert (pairs_of(member), pairs_of(plain), pairs_of(keeper)) == ([(0, 3), (1, 3)], [(1, 1)], [(1, 2)])


def test_it_goes_back_only_where_there_is_no_other() -> None:
    interest, origin = Interest(), Target(remote=True)
    interest.insert(b"a", origin, tag=1, queue=b"q")
    touched, untaken = give(interest, b"a", sender=origin, queues=(b"q",))
    assert (touched, untaken) == ([origin], [])
    assert origin.queues == {0: [b"q"]}


def test_a_spent_member_here_leaves_the_group_to_others() -> None:
    interest, here, other = Interest(), Target(), Target(remote=True)
    interest.insert(b"a", here, tag=1, queue=b"q", limit=2)
    interest.insert(b"a", other, tag=2, queue=b"q", weight=5)
    give(interest, *[b"a"] * 5, queues=(b"q",) * 5)
    assert pairs_of(here) == [(0, 1), (1, 1)]
    assert pairs_of(other) == [(2, 2), (3, 2), (4, 2)]


def test_a_closed_server_is_not_chosen() -> None:
    interest, other, here = Interest(), Target(remote=True), Target()
    interest.insert(b"a", other, tag=1)
    interest.insert(b"a", other, tag=2, queue=b"q", weight=1000)
    interest.insert(b"a", here, tag=3, queue=b"q")
    other.close()
    touched, _ = give(interest, *[b"a"] * 50)
    assert touched == [here]
    assert here.pair_count == 50


def test_a_hundred_groups_in_one_message() -> None:
    interest, here = Interest(), Target()
    for number in range(100):
        interest.insert(b"a", here, tag=number, queue=b"group%d" % number)
    text = b" ".join(b"group%d" % number for number in range(0, 200, 2))
    give(interest, b"a", queues=(text,))
    assert sorted(tag for _index, tag in pairs_of(here)) == list(range(0, 100, 2))


@pytest.mark.parametrize("keeps", [KEEPS_LOCAL, KEEPS_ROUTED, KEEPS_LOCAL | KEEPS_ROUTED])
@pytest.mark.parametrize("routed", [False, True], ids=["published here", "sent on"])
def test_keepers_get_one_pair_per_message_and_count_for_nobody(keeps: int, routed: bool) -> None:
    interest = Interest()
    keeper, listener = Target("keeper", keeps=keeps), Target("listener")
    for pattern, tag in ((b"a.*", -1), (b"a.b", 4), (b"a.>", -1), (b"c", 5)):
        interest.insert(pattern, keeper, tag=tag)
    interest.insert(b"c", listener, tag=9)
    batch = batch_of(b"a.b", b"a.x", b"c", b"d", b"c")
    batch.rows[COLUMNS * 4 + SPARE] = KEPT
    touched: list[Target] = []
    sender = Target(remote=True) if routed else None
    assert spread(batch, interest, sender, touched, random.Random(1)) == 3
    kept = keeps & (KEEPS_ROUTED if routed else KEEPS_LOCAL) != 0
    assert pairs_of(keeper) == ([(0, 4), (1, -1), (2, 5)] if kept else [])
    assert pairs_of(listener) == [(2, 9), (4, 9)]
    mark = KEPT if kept else 0
    marks = [batch.rows[COLUMNS * index + SPARE] for index in range(5)]
    assert marks == [UNTAKEN | mark, UNTAKEN | mark, mark, UNTAKEN, KEPT]
    assert touched == ([keeper, listener] if kept else [listener])
    assert interest.local_count(b"c") == (2 if keeps & KEEPS_ROUTED else 1)
    assert [interest.has(name) for name in (b"a.b", b"c")] == [False, True]
    assert [interest.keeps(name) for name in (b"a.b", b"c", b"d")] == [True, True, False]
    # What was marked before and is taken now is marked so.
    interest.insert(b"d", listener, tag=8)
    for target in touched:
        target.clear()
    touched.clear()
    spread(batch, interest, sender, touched, random.Random(1))
    assert batch.rows[COLUMNS * 3 + SPARE] == 0
    assert keeper.pair_count == 0
    keeper.close()
    assert not interest.keeps(b"c")
