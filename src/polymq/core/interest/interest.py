"""Who wants what in one namespace: entries come and go, names are matched.

The tree says who matches, the cache remembers what it said, and this class changes both together. Entries have their
own places wherever they are listed, so that removing the last of half a million is no dearer than removing the first.
Hot module: see docs/adr/0001. Read next: `spread.py`, which does the same for batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import cython

from polymq.core.interest.names import has_wildcards, tokens_of_pattern
from polymq.errors import Refusal, RefusalCode
from polymq.limits import INTEREST_ENTRIES_MAX, INTEREST_NAME_SIZE_BYTES_MAX, INTEREST_WEIGHT_MAX

if not cython.compiled:
    from polymq.core.interest.cache import Match, MatchCache
    from polymq.core.interest.groups import Group
    from polymq.core.interest.targets import Entry, Target
    from polymq.core.interest.trie import Node, Trie
    from polymq.wire.inline import bytes_at

__all__ = ["Interest", "InterestFigures"]

# So many listeners of one pattern are looked through faster than a directory is made.
_LISTENERS_FEW = cython.declare(cython.Py_ssize_t, 32)
# What it takes to look a name up in the tree, beside the nodes: in steps, see `spread_some`.
_MISS = cython.declare(cython.longlong, 16)


@dataclass(frozen=True, slots=True)
class InterestFigures:
    """What there is, and what has been done; `hits` and `misses` are of the cache, which has `cached` names."""

    entries: int
    nodes: int
    inserted: int
    removed: int
    cached: int
    hits: int
    misses: int


@cython.cclass
class Interest:
    """The entries of one namespace; `count` says how many.

    Limits: `entries_max`. Cost: 300 to 600 bytes and about 1 µs per entry; a tenth of that for one more entry of a pattern that is there.
    """

    def __init__(self, *, entries_max: int = INTEREST_ENTRIES_MAX) -> None:
        self.entries_max = entries_max
        self.trie = Trie()
        self.cache = MatchCache()
        self.count = 0
        self.inserted = 0
        self.removed = 0
        self.misses = 0

    def insert(self, pattern: bytes, target: Target, *, tag: int, queue: bytes = b"", weight: int = 1, limit: int = 0) -> Entry:
        """Let a target have what matches a pattern, alone or as a member of a queue group.

        `tag` (an int32) comes back in the target's pairs. `weight` is for remote members of a group: below 1 it is never
        chosen. After `limit` messages (0: no limit) an entry gets no more, and is in `target.spent`.
        Raises: Refusal TOPIC_NAME_INVALID, GROUP_NAME_INVALID or LIMIT_REACHED; then nothing has changed.
        """
        assert not target.closed
        assert -(1 << 31) <= tag < 1 << 31
        assert limit >= 0
        assert target.remote or weight == 1
        assert not (target.remote and limit)
        assert not (target.keeps and (queue or limit))
        tokens: list[bytes] = tokens_of_pattern(pattern)
        if len(queue) > INTEREST_NAME_SIZE_BYTES_MAX:
            raise Refusal(RefusalCode.GROUP_NAME_INVALID, f"a group's name may have {INTEREST_NAME_SIZE_BYTES_MAX} bytes")
        if self.count >= self.entries_max:
            raise Refusal(RefusalCode.LIMIT_REACHED, f"there are {self.entries_max} entries")
        entry: Entry = Entry(self, target, pattern, tag, min(max(weight, 0), INTEREST_WEIGHT_MAX), limit)
        if self._link(self.trie.reach(tokens), entry, queue):
            self.cache.note_change(pattern, has_wildcards(tokens))
        target.enlist(entry)
        self.count += 1
        self.inserted += 1
        return entry

    def _link(self, node: Node, entry: Entry, queue: bytes) -> cython.bint:
        """Put an entry where it belongs; say whether matches have to know."""
        fresh: cython.bint = False
        group: Group | None
        if not queue:
            fresh = not node.has_entries()
            if node.first is not None:
                # The same text: one copy is enough.
                entry.pattern = node.first.pattern
            node.link(entry)
            return fresh
        group = node.find_group(queue)
        if group is None:
            group = Group(queue)
            node.add_group(group)
            fresh = True
        entry.queue = group.queue
        group.link(entry)
        return fresh

    def remove(self, entry: Entry) -> None:
        """Take an entry out; one that is out already stays out. Cost: O(tokens)."""
        if entry.interest is None:
            return
        assert entry.interest is self
        tokens: list[bytes] = entry.pattern.split(b".")
        nodes: list[Node] | None = self.trie.path(tokens)
        if nodes is None:
            # It was taken out when it was spent or closed, and its pattern went with the last such entry.
            assert entry.place < 0
        elif self._unlink(nodes[len(tokens)], entry):
            self.cache.note_change(entry.pattern, has_wildcards(tokens))
            self.trie.prune(tokens, nodes)
        entry.target.strike(entry)
        entry.interest = None
        self.count -= 1
        self.removed += 1
        self.cache.sweep()

    def _unlink(self, node: Node, entry: Entry) -> cython.bint:
        """Take an entry from where it is listed; say whether matches have to know."""
        group: Group | None
        if not entry.queue:
            if entry.place >= 0:
                node.unlink(entry)
            return not node.has_entries()
        group = node.find_group(entry.queue)
        if group is None:
            assert entry.place < 0
            return False
        if entry.place >= 0:
            group.unlink(entry)
        if group.has_members():
            return False
        node.drop_group(group)
        return True

    def change(self, entry: Entry, *, weight: int | None = None, limit: int | None = None) -> None:
        """Change a remote member's weight, or a limit, which must be 0 (none) or above what was given already."""
        assert entry.interest is self
        if weight is not None:
            assert entry.queue
            nodes: list[Node] | None = self.trie.path(entry.pattern.split(b"."))
            assert nodes is not None
            node: Node = nodes[len(nodes) - 1]
            group: Group | None = node.find_group(entry.queue)
            assert group is not None
            group.weigh(entry, min(max(weight, 0), INTEREST_WEIGHT_MAX))
        if limit is not None:
            assert entry.place >= 0
            assert not entry.target.remote
            assert limit == 0 or limit > entry.given
            entry.limit = limit

    def match(self, name: bytes) -> Match:
        """Find out who takes messages of this name. Cost: 0.1 µs when it was asked for lately, else 0.2 µs per token."""
        self.cache.view = name
        try:
            return self.look_up(0, len(name))
        finally:
            self.cache.view = None

    def has(self, name: bytes) -> bool:
        """Say whether anybody takes messages of this name; keepers are nobody."""
        return self.match(name).has_takers()

    def keeps(self, name: bytes) -> bool:
        """Say whether a keeper has messages of this name. Cost: as `match`, and O(entries)."""
        return self.match(name).is_kept()

    def entry_of(self, name: bytes, target: Target) -> Entry | None:
        """Find an entry of a target, of no queue group, that gets messages of this name.

        Cost: as `match`; where many listen to the same pattern, a directory of the target's entries, made the first time.
        """
        match: Match = self.match(name)
        node: Node
        entry: Entry
        for node in match.nodes:
            if node.first is None:
                continue
            if node.first.target is target:
                return node.first
            if node.others is None:
                continue
            if len(node.others) > _LISTENERS_FEW:
                for entry in target.entries_of(node.first.pattern):
                    if entry.place >= 0 and entry.interest is self:
                        return entry
                continue
            for entry in node.others:
                if entry.target is target:
                    return entry
        return None

    def look_up(self, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> Match:
        """Match the name that lies in the cache's view."""
        match: Match | None = self.cache.find(at, size)
        if match is None:
            self.misses += 1
            name: bytes = bytes_at(self.cache.view, at, size)
            self.trie.visited = 0
            match = Match(name, self.trie.matching(name))
            self.cache.effort += _MISS + self.trie.visited + match.part_count
            self.cache.keep(match)
        return match

    def local_count(self, pattern: bytes, queue: bytes = b"") -> int:
        """Count the entries of exactly this pattern and group that are counted: what other servers are told. Cost: O(tokens)."""
        nodes: list[Node] | None = self.trie.path(pattern.split(b"."))
        if nodes is None:
            return 0
        node: Node = nodes[len(nodes) - 1]
        if not queue:
            return node.local_count
        group: Group | None = node.find_group(queue)
        return 0 if group is None else len(group.members)

    def figures(self) -> InterestFigures:
        """Say what there is."""
        return InterestFigures(
            entries=self.count,
            nodes=self.trie.node_count,
            inserted=self.inserted,
            removed=self.removed,
            cached=self.cache.count,
            hits=self.cache.hits,
            misses=self.misses,
        )
