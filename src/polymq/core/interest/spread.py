"""What a batch of messages means to everybody who wants some of them: the hot path of live messages.

For each message and each entry that gets it, a pair of integers goes to the entry's target; nothing else is made. Names
are compared where they lie, with the last one first: a run of one name is matched once. What a call takes is counted in
steps, whether anybody gets something or not, and bounded by them. Hot module: see docs/adr/0001.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cython

from polymq.core.interest.targets import KEEPS_LOCAL, KEEPS_ROUTED
from polymq.limits import LIVE_NEW_TOPICS_PER_PASS_MAX
from polymq.wire.live import (
    ACCOUNT_AT,
    ACCOUNT_SIZE,
    COLUMNS,
    DIRECTED,
    IMPORTED,
    KEPT,
    PAYLOAD_SIZE,
    QUEUES_AT,
    QUEUES_SIZE,
    REPLY_SIZE,
    SPARE,
    SUBJECT_AT,
    SUBJECT_SIZE,
    UNTAKEN,
)

if not cython.compiled:
    from polymq.core.interest.groups import Chooser
    from polymq.wire.inline import bytes_at, equal_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from polymq.core.interest.cache import Match, MatchCache
    from polymq.core.interest.groups import Group
    from polymq.core.interest.interest import Interest
    from polymq.core.interest.targets import Entry, Target
    from polymq.core.interest.trie import Node
    from polymq.core.ports import Random
    from polymq.wire.live import LiveBatch

__all__ = ["count_untaken", "end_of_namespace", "next_unwanted", "spread_some"]

_COLUMNS = cython.declare(cython.Py_ssize_t, 12)
_NAME_AT = cython.declare(cython.Py_ssize_t, 0)
_NAME_SIZE = cython.declare(cython.Py_ssize_t, 1)
_REPLY_SIZE = cython.declare(cython.Py_ssize_t, 3)
_PAYLOAD_SIZE = cython.declare(cython.Py_ssize_t, 6)
_NAMESPACE_AT = cython.declare(cython.Py_ssize_t, 7)
_NAMESPACE_SIZE = cython.declare(cython.Py_ssize_t, 8)
_QUEUES_AT = cython.declare(cython.Py_ssize_t, 9)
_QUEUES_SIZE = cython.declare(cython.Py_ssize_t, 10)
_SPARE = cython.declare(cython.Py_ssize_t, 11)
_UNTAKEN = cython.declare(cython.int, 1)
_KEPT = cython.declare(cython.int, 2)
_DIRECTED = cython.declare(cython.int, 4)
_IMPORTED = cython.declare(cython.int, 8)
_LOCAL = cython.declare(cython.int, 1)
_ROUTED = cython.declare(cython.int, 2)
# A step is an entry that is looked at, or a pair of a small message: 10 to 50 ns until it is encoded. A pair of a larger one is a
# step more for each so many bytes.
_PAYLOAD_SMALL = cython.declare(cython.int, 256)
# To ask what a target may hear: 0.1 µs if the name was asked for lately, up to 4 otherwise.
_ASKING = cython.declare(cython.longlong, 16)
# A question that nobody hears is answered, for which the name of its answer is looked up: usually 1 µs, but as much as it takes.
_ANSWERING = cython.declare(cython.longlong, 512)
assert (COLUMNS, SUBJECT_AT, SUBJECT_SIZE) == (_COLUMNS, _NAME_AT, _NAME_SIZE)
assert (REPLY_SIZE, PAYLOAD_SIZE) == (_REPLY_SIZE, _PAYLOAD_SIZE)
assert (ACCOUNT_AT, ACCOUNT_SIZE) == (_NAMESPACE_AT, _NAMESPACE_SIZE)
assert (QUEUES_AT, QUEUES_SIZE, SPARE) == (_QUEUES_AT, _QUEUES_SIZE, _SPARE)
assert (UNTAKEN, KEPT, DIRECTED, IMPORTED, KEEPS_LOCAL, KEEPS_ROUTED) == (_UNTAKEN, _KEPT, _DIRECTED, _IMPORTED, _LOCAL, _ROUTED)


def spread_some(
    batch: LiveBatch, interest: Interest, sender: Target | None, touched: list[Target], random: Random, *, first: int, steps_max: int
) -> tuple[int, int, int]:
    """Give every target its pairs of a batch, from message `first` on, until that has taken `steps_max`.

    Each target that has some is listed in `touched`. Returns the message to go on with, how many of those before nobody took, and how many
    steps it was. What nobody took is marked: its SPARE has UNTAKEN, that of all others has not; those that only an unsure target gets stay marked.
    `sender` gets nothing. Plain entries all get a message, of every queue group one member does. A
    remote target has one pair at most per message. A message that a keeper gets is marked KEPT; one that was marked before
    goes to none.

    A message that another server sent on (`sender` is remote, or the message names groups, or is IMPORTED) goes no further than one step: to
    plain entries here, and to the groups that it names; a named group that nobody here can take for goes to one remote member.
    That is at a server without plain entries for it if possible, as they would get it once more; and the sender's only if there is
    no other: its own member may still be there when ours has left. One that is DIRECTED goes to no plain entries.

    Limits: `steps_max`. A step is an entry that is looked at, whether it gets the message or not, a member of a group that is passed over,
            a node of the tree where a name is not known, or 256 bytes of payload for one who gets them: so neither is there more than can be
            encoded in a few ms (a batch of 10,000 messages for 10,000 targets would be 800 MB of pairs), nor does it take longer where
            nobody gets anything. At least one message is spread, wholly. It stops as well behind a few messages for which a keeper is to make
            something, or that somebody within the broker acts on, which takes time (`Target.makes`, `Target.paced`,
            LIVE_NEW_TOPICS_PER_PASS_MAX). `touched` targets must have been cleared
            since the last call.
    Cost:   0.6 µs, and per message 10 ns, 20 more if its name is not the last one's, 10 per pair, 30 per group; 0.2 µs per
            token of a name that was not seen lately.
    """
    assert 0 <= first <= batch.count
    walk: _Pass = _Pass(batch, interest, sender, touched, random)
    end: cython.Py_ssize_t = walk.run(first, batch.count, steps_max)
    return end, walk.untaken, walk.steps


def end_of_namespace(batch: LiveBatch, first: cython.Py_ssize_t) -> int:
    """Find the first message behind `first` that names another namespace: each run is to be spread in its own.

    See `LiveBatch.part`.
    """
    assert 0 <= first < batch.count
    assert len(batch.rows) >= batch.count * _COLUMNS
    view: cython.const[cython.uchar][::1] = batch.view
    rows: cython.int[::1] = batch.rows
    count: cython.Py_ssize_t = batch.count
    row: cython.Py_ssize_t = first * _COLUMNS
    text: bytes = bytes_at(view, rows[row + _NAMESPACE_AT], rows[row + _NAMESPACE_SIZE])
    index: cython.Py_ssize_t = first + 1
    while index < count:
        row = index * _COLUMNS
        if not equal_bytes(text, view, rows[row + _NAMESPACE_AT], rows[row + _NAMESPACE_SIZE]):
            break
        index += 1
    return index


def next_unwanted(
    batch: LiveBatch, interest: Interest, first: cython.Py_ssize_t, is_wanted: Callable[[bytes], bool], *, steps_max: cython.longlong
) -> int:
    """Find the first message from `first` on that asks for an answer and that nobody listens to; the batch's count if there is none.

    Who has a limit that messages before it may use up is nobody, too. Of names that none but unsure targets have, `is_wanted` is asked.

    Limits:  after `steps_max` (see `spread_some`) it is the question that it has come to, whoever listens.
    Cost:    0.1 µs for each message that asks.
    """
    steps: cython.longlong = 0
    rows: cython.int[::1] = batch.rows
    count: cython.Py_ssize_t = batch.count
    row: cython.Py_ssize_t
    certainty: cython.int
    match: Match
    wanted: Match | None = None
    cache: MatchCache = interest.cache
    assert 0 <= first <= count <= len(batch.rows) // _COLUMNS
    cache.view = batch.view
    cache.effort = 0
    try:
        while first < count:
            row = first * _COLUMNS
            if rows[row + _REPLY_SIZE] > 0:
                match = interest.look_up(rows[row + _NAME_AT], rows[row + _NAME_SIZE])
                if match is not wanted:
                    certainty = match.certainty()
                    if certainty == 1:
                        # Who is asked may look something up here.
                        cache.view = None
                        certainty = 2 if is_wanted(match.name) else 0
                        cache.view = batch.view
                    if certainty == 0 or not match.is_lasting():
                        break
                    wanted = match
                    steps += match.closed_count
                steps += _ANSWERING + cache.effort
                cache.effort = 0
                if steps >= steps_max:
                    break
            first += 1
    finally:
        cache.view = None
    return first


def count_untaken(batch: LiveBatch, first: cython.Py_ssize_t, end: cython.Py_ssize_t) -> int:
    """Count the messages from `first` to `end` that are marked as taken by nobody."""
    rows: cython.int[::1] = batch.rows
    count: cython.Py_ssize_t = 0
    assert 0 <= first <= end <= len(batch.rows) // _COLUMNS
    while first < end:
        count += rows[first * _COLUMNS + _SPARE] & _UNTAKEN
        first += 1
    return count


@cython.final
@cython.cclass
class _Pass:
    """One call of `spread_some`: what the loops need at hand."""

    view: memoryview
    rows: cython.int[::1]
    interest: Interest
    cache: MatchCache
    sender: Target | None
    touched: list[Target]
    chooser: Chooser
    routed: cython.bint
    pair_count: cython.longlong
    # Of those, the ones for unsure targets.
    unsure_count: cython.longlong
    steps: cython.longlong
    untaken: cython.Py_ssize_t
    # The names of queue groups in the last message that had some.
    named_text: bytes
    named: frozenset[bytes]
    # The name of the last message that was for somebody who may not hear everything.
    named_index: cython.Py_ssize_t
    name: bytes
    # What was asked last of what a target may hear, and the answer: many are bound by the same rules.
    asked: object
    asked_index: cython.Py_ssize_t
    asked_queue: bytes
    audible: cython.bint
    # For a message that goes beyond those here: who has had it as a plain listener.
    hearing_index: cython.Py_ssize_t
    hearing: set[Target] | None
    # The keeper of the message that is being given, if only a pattern has matched; how many messages may still take their time.
    unnamed: Target | None
    news_left: cython.longlong

    def __init__(self, batch: LiveBatch, interest: Interest, sender: Target | None, touched: list[Target], random: Random) -> None:
        assert len(batch.rows) >= batch.count * _COLUMNS
        self.view = batch.view
        self.rows = batch.rows
        self.interest = interest
        self.cache = interest.cache
        self.sender = sender
        self.touched = touched
        self.chooser = Chooser(random)
        self.routed = sender is not None and sender.remote
        self.pair_count = self.unsure_count = 0
        self.steps = 0
        self.untaken = 0
        self.named_text = b""
        self.named = frozenset()
        self.named_index = -1
        self.name = b""
        self.asked = None
        self.asked_index = -1
        self.asked_queue = b""
        self.audible = False
        self.hearing_index = -1
        self.hearing = None
        self.unnamed = None
        self.news_left = LIVE_NEW_TOPICS_PER_PASS_MAX

    @cython.cfunc
    def run(self, first: cython.Py_ssize_t, end: cython.Py_ssize_t, steps_max: cython.longlong) -> cython.Py_ssize_t:
        """Go over the messages; returns where it stopped. Only the cache takes hold of the view, which costs 0.1 µs."""
        self.cache.view = self.view
        self.cache.effort = 0
        try:
            return self._walk(first, end, steps_max)
        finally:
            self.cache.view = None

    @cython.cfunc
    def _walk(self, first: cython.Py_ssize_t, end: cython.Py_ssize_t, steps_max: cython.longlong) -> cython.Py_ssize_t:
        """Give each message to whom it should go."""
        match: Match | None = None
        routed: cython.bint = self.routed
        index: cython.Py_ssize_t = first
        row: cython.Py_ssize_t
        at: cython.Py_ssize_t
        size: cython.Py_ssize_t
        given: cython.longlong
        before: cython.longlong
        # Those beside `self.steps`: of what every message takes, and of names that were looked up.
        steps: cython.longlong = 0
        effort: cython.longlong = 0
        while index < end:
            row = index * _COLUMNS
            at = self.rows[row + _NAME_AT]
            size = self.rows[row + _NAME_SIZE]
            if match is None or not equal_bytes(match.name, self.cache.view, at, size):
                match = self.interest.look_up(at, size)
                effort = self.cache.effort
            given = self.pair_count
            before = given - self.unsure_count
            self.routed = routed or self.rows[row + _QUEUES_SIZE] > 0 or (self.rows[row + _SPARE] & _IMPORTED) != 0
            if not self.rows[row + _SPARE] & _DIRECTED:
                self._give_plain(match, index)
            steps += match.part_count
            if match.group_count > 0:
                if not self.routed:
                    self._give_groups(match, index)
                elif self.rows[row + _QUEUES_SIZE] > 0:
                    self._give_named(match, index, self.rows[row + _QUEUES_AT], self.rows[row + _QUEUES_SIZE])
            if self.pair_count - self.unsure_count == before:
                self.rows[row + _SPARE] |= _UNTAKEN
                self.untaken += 1
            else:
                self.rows[row + _SPARE] &= _KEPT | _IMPORTED
            if self.rows[row + _PAYLOAD_SIZE] >= _PAYLOAD_SMALL:
                steps += (self.pair_count - given) * (self.rows[row + _PAYLOAD_SIZE] // _PAYLOAD_SMALL)
            if self.unnamed is not None:
                self._note_news(index)
            index += 1
            if steps + effort + self.steps >= steps_max or self.news_left <= 0:
                break
        self.steps += steps + effort
        return index

    @cython.cfunc
    @cython.exceptval(-1)
    def _give_plain(self, match: Match, index: cython.Py_ssize_t) -> cython.int:
        """Give a message to all plain entries. When one is taken out, the last one has its place."""
        node: Node
        entry: Entry
        others: list[Entry] | None
        i: cython.Py_ssize_t
        for node in match.nodes:
            while node.first is not None:
                entry = node.first
                if not self._give(entry, index):
                    break
                node.unlink(entry)
            others = node.others
            if others is None:
                continue
            self.steps += len(others)
            i = 0
            while i < len(others):
                entry = others[i]
                if self._give(entry, index):
                    node.unlink(entry)
                else:
                    i += 1
        # A C function that returns nothing would have to look for an exception after every call.
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _give(self, entry: Entry, index: cython.Py_ssize_t) -> cython.bint:
        """Give a message to an entry, unless it must not have it; says whether the entry is to be taken out: spent, or closed."""
        target: Target = entry.target
        if target is self.sender:
            return False
        if target.special:
            if target.closed:
                return True
            if target.keeps:
                self._give_keeper(entry, index)
                return False
            if target.hears is not None and not self._may_have(entry, index):
                return False
            if target.remote:
                if not self.routed:
                    self._give_remote(entry, index)
                return False
            if target.paced:
                self.news_left -= 1
        count: cython.Py_ssize_t = target.pair_count
        if count == target.capacity:
            target.grow()
        if count == 0:
            self.touched.append(target)
        target.numbers[2 * count] = index
        target.numbers[2 * count + 1] = entry.tag
        target.pair_count = count + 1
        self.pair_count += 1
        entry.given += 1
        if entry.given == entry.limit:
            target.spent.append(entry)
            return True
        return False

    @cython.cfunc
    @cython.exceptval(-1)
    def _may_have(self, entry: Entry, index: cython.Py_ssize_t) -> cython.bint:
        """Say whether a target that may not hear everything may hear this by an entry."""
        hears: object = entry.target.hears
        if index != self.asked_index or entry.queue != self.asked_queue or (hears is not self.asked and hears != self.asked):
            self._read_name(index)
            self.steps += _ASKING
            self.audible = bool(entry.target.hears(self.name, entry.queue))
            self.asked, self.asked_index, self.asked_queue = hears, index, entry.queue
        return self.audible

    @cython.cfunc
    @cython.exceptval(-1)
    def _read_name(self, index: cython.Py_ssize_t) -> cython.int:
        """Put a message's name into `name`, if it is not there."""
        row: cython.Py_ssize_t = index * _COLUMNS
        if index != self.named_index:
            self.named_index = index
            self.name = bytes_at(self.cache.view, self.rows[row + _NAME_AT], self.rows[row + _NAME_SIZE])
        return 0

    @cython.cfunc
    @cython.exceptval(-1)
    def _note_news(self, index: cython.Py_ssize_t) -> cython.int:
        """Count a message for which its keeper is to make something."""
        keeper: Target | None = self.unnamed
        self.unnamed = None
        if keeper is not None and keeper.makes is not None:
            self._read_name(index)
            if keeper.makes(self.name):
                self.news_left -= 1
        return 0

    @cython.cfunc
    def _choose(
        self,
        match: Match,
        first: cython.Py_ssize_t,
        end: cython.Py_ssize_t,
        local: cython.bint,
        remote: cython.bint,
        avoided: Target | None,
        index: cython.Py_ssize_t,
    ) -> Entry | None:
        """Draw a member of a group that may have the message."""
        entry: Entry | None = self.chooser.choose(match.groups, first, end, local, remote, avoided)
        self.steps += self.chooser.steps
        self.chooser.steps = 0
        if entry is None or entry.target.hears is None or self._may_have(entry, index):
            return entry
        i: cython.Py_ssize_t
        group: Group
        able: list[Entry] = []
        for i in range(first, end):
            group = match.groups[i]
            self.steps += len(group.members) + len(group.remotes)
            for entry in group.members + group.remotes:
                if entry.target is avoided or entry.target.closed or not (remote if entry.target.remote else local):
                    continue
                if entry.target.hears is None or self._may_have(entry, index):
                    able.append(entry)
        return self.chooser.choose_of(able)

    @cython.cfunc
    def _give_remote(self, entry: Entry, index: cython.Py_ssize_t) -> cython.void:
        """Give a message to another server, once."""
        target: Target = entry.target
        count: cython.Py_ssize_t = target.pair_count
        if count > 0 and target.numbers[2 * count - 2] == index:
            return
        if count == 0:
            self.touched.append(target)
        target.add_pair(index, entry.tag)
        self.pair_count += 1
        self.unsure_count += target.unsure
        entry.given += 1

    @cython.cfunc
    def _give_keeper(self, entry: Entry, index: cython.Py_ssize_t) -> cython.void:
        """Give a message to a keeper, once, and not as to a taker; an entry's own name is better to know than a pattern's."""
        target: Target = entry.target
        count: cython.Py_ssize_t = target.pair_count
        spare: cython.Py_ssize_t = index * _COLUMNS + _SPARE
        if count > 0 and target.numbers[2 * count - 2] == index:
            if target.numbers[2 * count - 1] < 0:
                target.numbers[2 * count - 1] = entry.tag
                if entry.tag >= 0:
                    self.unnamed = None
            return
        if self.rows[spare] & _KEPT or not target.keeps & (_ROUTED if self.routed else _LOCAL):
            return
        if count == 0:
            self.touched.append(target)
        self.rows[spare] |= _KEPT
        if entry.tag < 0:
            self.unnamed = target
        target.add_pair(index, entry.tag)
        entry.given += 1

    @cython.cfunc
    def _give_groups(self, match: Match, index: cython.Py_ssize_t) -> cython.void:
        """Give a message to one member of every group."""
        first: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t
        while first < match.group_count:
            end = _end_of_group(match, first)
            self._give_member(match, first, end, self._choose(match, first, end, True, True, self.sender, index), index)
            first = end

    @cython.cfunc
    def _give_named(self, match: Match, index: cython.Py_ssize_t, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.void:
        """Give a message to one member of every group that it names: one here if possible."""
        first: cython.Py_ssize_t = 0
        end: cython.Py_ssize_t
        group: Group
        entry: Entry | None
        if not equal_bytes(self.named_text, self.cache.view, at, size):
            self.named_text = bytes_at(self.cache.view, at, size)
            self.named = frozenset(self.named_text.replace(b"\t", b" ").split(b" "))
            self.steps += size >> 3
        while first < match.group_count:
            group = match.groups[first]
            end = _end_of_group(match, first)
            if group.queue in self.named:
                entry = self._choose(match, first, end, True, False, self.sender, index)
                if entry is None:
                    entry = self._choose_beyond(match, first, end, index)
                self._give_member(match, first, end, entry, index)
            first = end

    @cython.cfunc
    def _choose_beyond(self, match: Match, first: cython.Py_ssize_t, end: cython.Py_ssize_t, index: cython.Py_ssize_t) -> Entry | None:
        """Draw a member of a group at another server, for a message that came from one; see `spread` for whose. Seldom needed."""
        group: Group
        entry: Entry
        i: cython.Py_ssize_t
        hearing: set[Target] | None = self.hearing
        if hearing is None or index != self.hearing_index:
            self.hearing_index = index
            self.hearing = hearing = self._hearing(match)
        only: list[Entry] = []
        also: list[Entry] = []
        back: list[Entry] = []
        for i in range(first, end):
            group = match.groups[i]
            self.steps += len(group.remotes)
            for entry in group.remotes:
                if entry.target.closed or entry.weight <= 0:
                    continue
                if entry.target is self.sender:
                    back.append(entry)
                elif entry.target in hearing:
                    also.append(entry)
                else:
                    only.append(entry)
        return self.chooser.choose_of(only) or self.chooser.choose_of(also) or self.chooser.choose_of(back)

    @cython.cfunc
    def _hearing(self, match: Match) -> set[Target]:
        """Find the servers that have plain listeners: once for each message, however many groups it names."""
        node: Node
        entry: Entry
        hearing: set[Target] = set()
        for node in match.nodes:
            if node.first is not None and node.first.target.remote:
                hearing.add(node.first.target)
            if node.others is not None:
                self.steps += len(node.others)
                for entry in node.others:
                    if entry.target.remote:
                        hearing.add(entry.target)
        return hearing

    @cython.cfunc
    def _give_member(
        self, match: Match, first: cython.Py_ssize_t, end: cython.Py_ssize_t, entry: Entry | None, index: cython.Py_ssize_t
    ) -> cython.void:
        """Give a message to the chosen member of a group, if there is one."""
        if entry is None:
            return
        target: Target = entry.target
        if target.remote:
            self._give_remote(entry, index)
            target.queues.setdefault(index, []).append(entry.queue)
        elif self._give(entry, index):
            self.chooser.take_out(match.groups, first, end, entry)


@cython.cfunc
def _end_of_group(match: Match, first: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Find the end of the groups that have the same name as the first: they came by different patterns."""
    group: Group = match.groups[first]
    other: Group
    end: cython.Py_ssize_t = first + 1
    while end < match.group_count:
        other = match.groups[end]
        if other.queue != group.queue:
            break
        end += 1
    return end
