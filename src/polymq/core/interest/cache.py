"""What names matched lately: a table that is bounded, and that stays right when patterns come and go without being emptied.

A `Match` holds nodes of the tree, not entries, so somebody more who wants a pattern that others want already changes
nothing here. When a pattern comes or goes that has no wildcards, the one name that it is about is looked at anew the
next time. When one with wildcards does, nothing is done but to write it down: a match that is older compares its name
with the patterns written down since, when it is asked for again. Only what is older than all that is remembered, and
what one of them matches, is looked up in the tree again.

The table is our own so that nothing has to be made to ask it: the name's bytes lie where the decoder has them. It has
sets of eight places; of a full set one goes that was not asked for again. Who sends names that fall into one set finds
them looked up each time, and harms nobody else. Hot module: see docs/adr/0001.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, Final

import cython

from polymq.limits import INTEREST_CACHED_NAME_SIZE_BYTES_MAX, INTEREST_CACHED_NAMES_MAX, INTEREST_CACHED_PARTS_MAX

if not cython.compiled:
    from polymq.core.interest.names import matches
    from polymq.wire.inline import equal_bytes, hash_bytes

if TYPE_CHECKING:
    from polymq.core.interest.groups import Group
    from polymq.core.interest.targets import Entry, Target
    from polymq.core.interest.trie import Node

__all__ = ["Match", "MatchCache"]

_WAYS = cython.declare(cython.Py_ssize_t, 8)
_SETS_FIRST: Final = 8
# Patterns with wildcards that are remembered: comparing a name with all of them costs about as much as to look it up.
_RECENT = cython.declare(cython.longlong, 64)
# A step for each so many bytes (a power of two) of a name that is compared with one of them.
_COMPARING_SHIFT = cython.declare(cython.int, 6)

assert INTEREST_CACHED_NAMES_MAX & (INTEREST_CACHED_NAMES_MAX - 1) == 0
assert INTEREST_CACHED_NAMES_MAX % (_WAYS * _SETS_FIRST) == 0


@cython.cclass
class Match:
    """Who takes messages of one name: the nodes of its patterns, and their queue groups, those of one name side by side.

    Good until an entry is inserted or removed.
    """

    def __init__(self, name: bytes, nodes: list[Node]) -> None:
        node: Node
        self.name = name
        self.nodes = nodes
        self.groups: list[Group] = []
        for node in nodes:
            if node.group is not None or node.groups is not None:
                self.groups.extend(node.list_groups())
        if len(nodes) > 1 and len(self.groups) > 1:
            self.groups.sort(key=_queue_of)
        self.group_count = len(self.groups)
        self.part_count = len(nodes) + self.group_count
        self.closed_count = 0
        self.generation = 0
        self.used = False

    def plain(self) -> list[Entry]:
        """List the entries that take every message: for tests and tools."""
        entries: list[Entry] = []
        node: Node
        for node in self.nodes:
            if node.first is not None:
                entries.append(node.first)
            if node.others is not None:
                entries.extend(node.others)
        return entries

    def is_kept(self) -> bool:
        """Say whether a keeper has messages of this name. Cost: O(entries)."""
        node: Node
        entry: Entry
        for node in self.nodes:
            if node.first is not None and node.first.target.keeps and not node.first.target.closed:
                return True
            if node.others is not None:
                for entry in node.others:
                    if entry.target.keeps and not entry.target.closed:
                        return True
        return False

    def queues(self) -> dict[bytes, list[Entry]]:
        """List the members of each queue group, one of whom takes a message: for tests and tools."""
        found: dict[bytes, list[Entry]] = {}
        group: Group
        for group in self.groups:
            if group.has_members():
                found.setdefault(group.queue, []).extend(group.members + group.remotes)
        return found

    def has_takers(self) -> bool:
        """Say whether anybody takes a message of this name; keepers are nobody. `closed_count` says how many it has passed over."""
        return self.certainty() > 0

    def certainty(self) -> int:
        """Say how sure it is that a message of this name is taken: 0, nobody does; 1, only unsure targets may; 2, somebody does."""
        node: Node
        entry: Entry
        group: Group
        found: cython.int = 0
        self.closed_count = 0
        for group in self.groups:
            if group.has_takers():
                return 2
            self.closed_count += len(group.members) + len(group.remotes)
        for node in self.nodes:
            if node.first is not None:
                found = max(found, _certainty(node.first.target))
            if node.others is not None:
                for entry in node.others:
                    if found == 2:
                        return 2
                    found = max(found, _certainty(entry.target))
                    self.closed_count += 1
        return found

    def is_lasting(self) -> bool:
        """Say whether somebody takes messages of this name however many come: who has no limit. `closed_count` grows by who has been passed over."""
        node: Node
        entry: Entry
        group: Group
        for group in self.groups:
            for entry in group.remotes:
                if entry.weight > 0 and entry.limit == 0 and not entry.target.closed:
                    return True
            for entry in group.members:
                if entry.limit == 0 and not entry.target.closed:
                    return True
            self.closed_count += len(group.members) + len(group.remotes)
        for node in self.nodes:
            if node.first is not None and node.first.limit == 0 and _certainty(node.first.target) > 0:
                return True
            if node.others is not None:
                for entry in node.others:
                    if entry.limit == 0 and _certainty(entry.target) > 0:
                        return True
                    self.closed_count += 1
        return False

    def is_dead(self) -> bool:
        """Say whether it holds what is not in the tree any more, or is known to be wrong."""
        node: Node
        group: Group
        dead: cython.bint = self.generation < 0
        for node in self.nodes:
            if not node.has_entries():
                dead = True
        for group in self.groups:
            if not group.has_members():
                dead = True
        return dead


@cython.cfunc
@cython.exceptval(check=False)
def _certainty(target: Target) -> cython.int:
    if target.closed or target.keeps:
        return 0
    return 1 if target.unsure else 2


def _queue_of(group: Group) -> bytes:
    return group.queue


@cython.cclass
class MatchCache:
    """The table. `view` is what positions count from: set it before `find`, and to None afterwards.

    `effort` counts what was to be done for names that were not simply there, in steps (see `spread_some`), since it was set to 0.
    Limits: INTEREST_CACHED_NAMES_MAX names, each of INTEREST_CACHED_NAME_SIZE_BYTES_MAX bytes and with
    INTEREST_CACHED_PARTS_MAX patterns and groups; others are not kept.
    """

    def __init__(self) -> None:
        # Typed in the .pxd, as all that is a view.
        self.view: Any = None
        self.slots: list[Match | None] = [None] * (_WAYS * _SETS_FIRST)
        # The hashes of the names at the same places: most of what is not wanted is not even looked at.
        self.codes = array("I", bytes(4 * len(self.slots)))
        self.mask = _SETS_FIRST - 1
        self.count = 0
        self.hits = 0
        self.effort = 0
        # Where the next `sweep` looks.
        self.broom = 0
        self.generation = 0
        self.recent = [b""] * _RECENT

    def find(self, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> Match | None:
        """Find the match of the name that lies in the view, if it is known and still right."""
        code: cython.uint = hash_bytes(self.view, at, size)
        i: cython.Py_ssize_t = (code & self.mask) * _WAYS
        end: cython.Py_ssize_t = i + _WAYS
        match: Match | None
        while i < end:
            match = self.slots[i] if self.codes[i] == code else None
            if match is not None and equal_bytes(match.name, self.view, at, size):
                if match.generation != self.generation and not self._is_right(match):
                    self.slots[i] = None
                    self.count -= 1
                    return None
                match.used = True
                self.hits += 1
                return match
            i += 1
        return None

    def _is_right(self, match: Match) -> bool:
        """Say whether nothing that has changed since concerns a match; then it is as good as new."""
        generation: cython.longlong = match.generation
        if generation < 0 or self.generation - generation > _RECENT:
            return False
        pattern: bytes
        self.effort += (self.generation - generation) * (1 + (len(match.name) >> _COMPARING_SHIFT))
        while generation < self.generation:
            pattern = self.recent[generation & (_RECENT - 1)]
            if matches(pattern, match.name):
                return False
            generation += 1
        match.generation = generation
        return True

    def keep(self, match: Match) -> None:
        """Put a new match into the table, if it is not too large; it was looked for, and is not there."""
        name: cython.const[cython.uchar][::1] = match.name
        match.generation = self.generation
        if len(match.name) > INTEREST_CACHED_NAME_SIZE_BYTES_MAX or match.part_count > INTEREST_CACHED_PARTS_MAX:
            return
        code: cython.uint = hash_bytes(name, 0, len(match.name))
        i: cython.Py_ssize_t = self._place_for(code)
        if i < 0 and len(self.slots) < INTEREST_CACHED_NAMES_MAX:
            self._grow()
            i = self._place_for(code)
        if i < 0:
            i = self._victim(code)
            self.count -= 1
        self.slots[i] = match
        self.codes[i] = code
        self.count += 1

    def _place_for(self, code: cython.uint) -> cython.Py_ssize_t:
        """Find an empty place in a set; -1 if it is full."""
        i: cython.Py_ssize_t = (code & self.mask) * _WAYS
        end: cython.Py_ssize_t = i + _WAYS
        while i < end:
            if self.slots[i] is None:
                return i
            i += 1
        return -1

    def _victim(self, code: cython.uint) -> cython.Py_ssize_t:
        """Find a place in a full set whose match was not asked for again; if all were, any, and they have to prove themselves anew."""
        first: cython.Py_ssize_t = (code & self.mask) * _WAYS
        i: cython.Py_ssize_t
        old: Match | None
        for i in range(first, first + _WAYS):
            old = self.slots[i]
            if old is None or not old.used:
                return i
        for i in range(first, first + _WAYS):
            old = self.slots[i]
            if old is not None:
                old.used = False
        return first + (code >> 29)

    def _grow(self) -> None:
        """Double the table."""
        slots: list[Match | None] = self.slots
        codes: cython.uint[::1] = self.codes
        match: Match | None
        i: cython.Py_ssize_t
        place: cython.Py_ssize_t
        self.slots = [None] * (2 * len(slots))
        self.codes = array("I", bytes(8 * len(slots)))
        self.mask = 2 * self.mask + 1
        for i in range(len(slots)):
            match = slots[i]
            if match is not None:
                # A set's matches part into two sets, so there is room for each.
                place = self._place_for(codes[i])
                self.slots[place] = match
                self.codes[place] = codes[i]

    def sweep(self) -> None:
        """Look at one place, another each time, and let go of a match of what is gone: a few nodes would keep a lot of memory from being given back.

        Cost:  O(patterns and groups of the match), INTEREST_CACHED_PARTS_MAX at most: no name is compared with anything.
        """
        match: Match | None = self.slots[self.broom]
        if match is not None and match.is_dead():
            self.slots[self.broom] = None
            self.count -= 1
        self.broom = (self.broom + 1) & (len(self.slots) - 1)

    def note_change(self, pattern: bytes, wild: cython.bint) -> None:
        """Take in that a pattern, or a queue group of it, has come or gone. Cost: O(1)."""
        if wild:
            self.recent[self.generation & (_RECENT - 1)] = pattern
            self.generation += 1
            return
        name: cython.const[cython.uchar][::1] = pattern
        size: cython.Py_ssize_t = len(pattern)
        code: cython.uint = hash_bytes(name, 0, size)
        first: cython.Py_ssize_t = (code & self.mask) * _WAYS
        i: cython.Py_ssize_t
        match: Match | None
        for i in range(first, first + _WAYS):
            match = self.slots[i] if self.codes[i] == code else None
            if match is not None and match.name == pattern:
                match.generation = -1
